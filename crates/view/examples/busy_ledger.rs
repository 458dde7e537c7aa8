//! A server with many tenants, as a ledger in a file, for trying observers: groups come, grow, shrink and go, a cache
//! gives back units, and a limit refuses. It runs until its standard input ends.
//!
//! `cargo run --release -p ledgerline-view --example busy_ledger -- FILE [GROUPS]`

use ledgerline::{Charge, Group, Ledger, Limit};
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TENANTS: [&str; 12] = [
    "acme",
    "globex",
    "initech",
    "umbrella",
    "hooli",
    "stark",
    "wayne",
    "wonka",
    "tyrell",
    "cyberdyne",
    "größe & <b>co",
    "say \"hi\" \\ δ",
];
const MIB: u64 = 1 << 20;

/// A query, with its holding.
struct Query<'l> {
    group: Group<'l>,
    held: Vec<Charge<'l>>,
    most: u64,
}

/// Pseudo-random numbers, the same each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most.max(1)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("give the file to make")?;
    let groups: usize = arguments.next().map_or(Ok(200), |groups| groups.parse())?;
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    let capacity = u32::try_from(groups * 2 + 64)?;
    let ledger =
        Ledger::builder().capacity(capacity).items(&["rows_read", "spills"]).create_in(&file)?;
    ledger.root().set_max(Limit::units(16 << 30))?;
    let over: &'static AtomicBool = Box::leak(Box::default());
    std::thread::spawn(move || {
        // It ends with the process that started this one.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::Relaxed);
    });
    serve(&ledger, groups, over)
}

fn serve(
    ledger: &Ledger,
    groups: usize,
    over: &AtomicBool,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = Numbers(7);
    let (rows_read, spills) = (ledger.item("rows_read"), ledger.item("spills"));
    let mut tenants = Vec::new();
    for (at, name) in TENANTS.iter().enumerate() {
        let tenant = ledger.root().create(name)?;
        tenant.set_max(Limit::units((2 << 30) / (1 + at as u64 / 3)))?;
        tenant.set_low(Limit::units(64 * MIB));
        let cache = tenant.create("cache")?;
        tenants.push((tenant, cache, Vec::<Charge>::new()));
    }
    // One that is always short of memory.
    tenants[4].0.set_max(Limit::units(96 * MIB))?;
    let mut queries: Vec<Query> = Vec::new();
    let mut next = 0_u64;
    println!("ready");
    while !over.load(Ordering::Relaxed) {
        let wanted = groups.saturating_sub(1 + 2 * TENANTS.len()).max(10);
        while queries.len() < wanted {
            // The first tenants have more of everything.
            let at = numbers.below(TENANTS.len() as u64).min(numbers.below(TENANTS.len() as u64));
            let group = tenants[at as usize].0.create(&format!("q{next}"))?;
            next += 1;
            // All queries together ask for about three quarters of the tenants' limits.
            let most =
                (numbers.below(100) * numbers.below(100) * 5 + 1) * MIB / wanted.max(1) as u64;
            queries.push(Query { group, held: Vec::new(), most });
        }
        // A tenth of the queries acts in each turn of a tenth of a second.
        for _ in 0..queries.len() / 10 + 1 {
            let at = numbers.below(queries.len() as u64) as usize;
            let query = &mut queries[at];
            let held: u64 = query.held.iter().map(Charge::units).sum();
            if held < query.most {
                match query.group.try_charge(query.most / 6 + 1) {
                    Ok(charge) => query.held.push(charge),
                    Err(_) => {
                        spills.into_iter().for_each(|spills| query.group.add_stat(spills, 1));
                        query.held.pop();
                    }
                }
                rows_read.into_iter().for_each(|rows| query.group.add_stat(rows, 1000));
            } else if numbers.below(4) == 0 {
                let query = queries.swap_remove(at);
                drop(query.held);
                query.group.destroy()?;
            } else {
                query.held.truncate(query.held.len() / 2);
            }
        }
        for (_, cache, pages) in &mut tenants {
            if pages.len() < 24 {
                pages.extend(cache.try_charge(4 * MIB));
            } else if numbers.below(40) == 0 {
                let given: u64 = pages.drain(12..).map(|page| page.units()).sum();
                cache.add_reclaimed(given);
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
