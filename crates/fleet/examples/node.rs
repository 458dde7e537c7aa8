//! Nodes under load, and an observer: started by `ci/fleet`. STORE is a store's address (`redis://host:port`,
//! `redis-sentinel://host:port/primary`, `etcd://host:port,host:port`).
//!
//! ```text
//! node set-up STORE TTL GRACE LIMIT ORGANISATIONS TENANTS   prepares the store, makes the budgets /o0/t0 to /oN/tM
//! node run STORE NAME FILE SEED ORGANISATIONS TENANTS SHARE  charges some of the budgets in a ledger in FILE, at random, until
//!                                                           its standard input ends; then it leaves
//! node held FILE...                                         what the ledgers hold of each budget, as JSON
//! node view STORE ORGANISATIONS                             the books, as JSON
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ledgerline::{Ledger, View};
use ledgerline_fleet::book::{Change, Terms};
use ledgerline_fleet::fleet::{Budget, Fleet};
use ledgerline_fleet::store::{self, Access, Store};
use tokio::time::sleep;

/// Number of tasks of a node that charge one budget.
const LOADS: u64 = 8;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A generator of random numbers (SplitMix64), so that a seed reproduces a load.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }
}

fn open(store: &str) -> Outcome<Arc<dyn Store>> {
    let access = Access { prefix: Some("ci".to_owned()), ..Access::default() };
    Ok(store::open(store, &access)?)
}

async fn set_up(words: &[String]) -> Outcome<()> {
    let [store, ttl, grace, limit, organisations, tenants] = words else {
        return Err("six words".into());
    };
    let store = open(store)?;
    store.prepare().await?;
    let terms = Terms { ttl: ttl.parse()?, grace: grace.parse()? };
    let (limit, tenants): (u64, u64) = (limit.parse()?, tenants.parse()?);
    for organisation in (0..organisations.parse::<u64>()?).map(|number| format!("o{number}")) {
        store.administer(&organisation, &Change::from(terms)).await?;
        // An organisation's limit is below the sum of its tenants' limits, so both levels refuse.
        let mut all = vec![(format!("/{organisation}"), limit * tenants / 2)];
        all.extend((0..tenants).map(|tenant| (format!("/{organisation}/t{tenant}"), limit)));
        for (path, limit) in all {
            let change = Change::Set { path, limit: Some(limit), minimum: None };
            store.administer(&organisation, &change).await?;
        }
    }
    Ok(())
}

/// Charges a budget with up to a quarter of its limit, holds that for a moment, and repeats.
async fn load(
    budget: Budget,
    mut random: Random,
    stop: Arc<AtomicBool>,
    counts: Arc<[AtomicU64; 2]>,
) {
    while !stop.load(Ordering::Relaxed) {
        let units = 1 + random.below(250);
        let patience = Duration::from_millis(random.below(300));
        let charge = budget.charge_within(units, patience).await;
        counts[usize::from(charge.is_err())].fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(20 + random.below(400))).await;
        drop(charge);
        sleep(Duration::from_millis(random.below(200))).await;
    }
}

async fn run(words: &[String]) -> Outcome<()> {
    let [store, name, file, seed, organisations, tenants, share] = words else {
        return Err("seven words".into());
    };
    let file = File::options().read(true).write(true).create_new(true).open(file)?;
    let ledger = Arc::new(Ledger::builder().batch(1).create_in(&file)?);
    let fleet = Fleet::join(open(store)?, name).ledger(&ledger).reserve(4).start()?;
    let mut random = Random(seed.parse()?);
    let (stop, counts) =
        (Arc::new(AtomicBool::new(false)), Arc::new([const { AtomicU64::new(0) }; 2]));
    let share: u64 = share.parse()?;
    let mut loads = Vec::new();
    for organisation in 0..organisations.parse::<u64>()? {
        for tenant in 0..tenants.parse::<u64>()? {
            if random.below(100) >= share {
                continue;
            }
            for _ in 0..LOADS {
                let path = format!("/o{organisation}/t{tenant}");
                let (fleet, stop, counts) = (fleet.clone(), stop.clone(), counts.clone());
                let random = Random(random.next());
                loads.push(tokio::spawn(async move {
                    // The store may be away for a while.
                    while !stop.load(Ordering::Relaxed) {
                        match fleet.budget(&path).await {
                            Ok(budget) => return load(budget, random, stop, counts).await,
                            Err(_) => sleep(Duration::from_millis(200)).await,
                        }
                    }
                }));
            }
        }
    }
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    stop.store(true, Ordering::Relaxed);
    for load in loads {
        load.await?;
    }
    // If the store does not answer, the leases end by themselves.
    if let Err(error) = fleet.leave(Duration::from_secs(20)).await {
        eprintln!("{name} did not leave: {error}");
    }
    let [granted, refused] = [&counts[0], &counts[1]].map(|count| count.load(Ordering::Relaxed));
    println!("{}", serde_json::json!({ "granted": granted, "refused": refused }));
    Ok(())
}

/// Prints the usage of the ledgers. It includes the idle stock, which is within the lease too.
fn held(files: &[String]) -> Outcome<()> {
    let mut held: BTreeMap<String, u64> = BTreeMap::new();
    for file in files {
        for group in View::open(File::open(file)?)?.snapshot()?.groups {
            if group.path != "/" {
                *held.entry(group.path).or_default() += group.current;
            }
        }
    }
    println!("{}", serde_json::to_string(&held)?);
    Ok(())
}

async fn view(words: &[String]) -> Outcome<()> {
    let [store, organisations] = words else { return Err("two words".into()) };
    let store = open(store)?;
    let mut views = Vec::new();
    for organisation in 0..organisations.parse::<u64>()? {
        views.push(store.view(&format!("o{organisation}")).await?);
    }
    println!("{}", serde_json::to_string(&views)?);
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((word, rest)) if word == "set-up" => set_up(rest).await,
        Some((word, rest)) if word == "run" => run(rest).await,
        Some((word, rest)) if word == "held" => held(rest),
        Some((word, rest)) if word == "view" => view(rest).await,
        _ => Err("set-up, run, held or view".into()),
    }
}
