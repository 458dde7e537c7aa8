//! A query server with fifty tenants on one memory budget.
//!
//! Each tenant has a max, a high and a low, a cache that gives way, and queries that are throttled above
//! its high, wait for room at its max, and, when that does not help, cancel the largest query of the
//! tenant. One tenant runs a query that never stops growing.
//!
//! ```console
//! $ cargo run --release --example query_server
//! ```
//!
//! At the end it prints what each tenant got, and fails if anything but the runaway was hurt.

use ledgerline::{CancelToken, Charge, Group, Ledger, Reclaimer, Refused};
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TENANTS: usize = 50;
const QUERIES: usize = 40;
const WORKERS: usize = 8;
/// The tenant with the query that never stops growing, and where among its queries that is.
const CARELESS: usize = 7;
const RUNAWAY: usize = 3;
/// The size of one charge of a query, and how many it makes.
const PIECE: u64 = 128 << 10;
const PIECES: usize = 24;
const MIB: f64 = (1u64 << 20) as f64;

/// A tenant: its group, and what became of its queries.
struct Tenant {
    group: Group<'static>,
    cache: Arc<Mutex<Vec<Charge<'static>>>>,
    reclaimer: Reclaimer<'static>,
    done: AtomicU64,
    cancelled: AtomicU64,
    refused: AtomicU64,
}

impl Tenant {
    fn new(ledger: &'static Ledger, number: usize) -> Result<Tenant, Box<dyn Error>> {
        let group = ledger.root().create(&format!("tenant{number:02}"))?;
        group.set_max("16M".parse()?)?;
        group.set_high("12M".parse()?);
        group.set_low("1M".parse()?);
        let holder = group.create("cache")?;
        holder.set_low("1M".parse()?);
        let mut pages = Vec::new();
        // It takes what it gets: others' caches give way, down to what is protected.
        for _ in 0..64 {
            pages.extend(holder.try_charge(64 << 10));
        }
        let cache = Arc::new(Mutex::new(pages));
        let pages = cache.clone();
        // Whatever the cache gives back is uncharged as it drops.
        let reclaimer = holder.add_reclaimer(0, move |need| {
            let mut freed = 0;
            while freed < need {
                let Some(page) = pages.lock().expect("no panic inside").pop() else { break };
                freed += page.units();
            }
            freed
        });
        let count = AtomicU64::default;
        Ok(Tenant { group, cache, reclaimer, done: count(), cancelled: count(), refused: count() })
    }

    /// Runs a query to its end: done, cancelled or refused.
    fn run(&self, number: usize, runaway: bool) -> Result<(), Box<dyn Error>> {
        let group = self.group.create(&format!("query{number}"))?;
        let token = CancelToken::new();
        let victim = group.add_victim(&token);
        let pieces = if runaway { usize::MAX } else { PIECES };
        let end = match grow(group, &token, pieces) {
            Ok(()) => &self.done,
            Err(_) if token.is_cancelled() => &self.cancelled,
            Err(stopped) => {
                eprintln!("{}: {stopped:?}", group.path());
                &self.refused
            }
        };
        drop(victim);
        end.fetch_add(1, Relaxed);
        // Nothing is left: all charges were returned when `grow` did.
        let settled = group.destroy()?;
        assert_eq!(settled.leftover, 0, "a leak");
        Ok(())
    }
}

/// Why a query did not get to its end.
#[derive(Debug)]
enum Stopped {
    Cancelled,
    Refused(#[allow(dead_code, reason = "printed")] Refused),
}

/// Charges piece after piece and works on each; stops when it is cancelled.
fn grow(group: Group<'static>, token: &CancelToken, pieces: usize) -> Result<(), Stopped> {
    let mut memory: Vec<(Charge<'_>, Vec<u8>)> = Vec::new();
    for _ in 0..pieces {
        let request = group.request(PIECE).wait(Duration::from_secs(20)).oom().throttled();
        let charge = request.charge().map_err(Stopped::Refused)?;
        if token.is_cancelled() {
            // The guards return their units as they drop.
            return Err(Stopped::Cancelled);
        }
        memory.push((charge, vec![1; PIECE as usize]));
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn serve() -> Result<bool, Box<dyn Error>> {
    let builder = Ledger::builder().capacity(4096).throttle_time(Duration::from_millis(5));
    let ledger: &'static Ledger = Box::leak(Box::new(builder.anonymous()?));
    // Less than the caches could fill, and far less than the tenants' limits come to (50 * 16 MiB).
    ledger.root().set_max("160M".parse()?)?;
    let tenants: Vec<Tenant> =
        (0..TENANTS).map(|number| Tenant::new(ledger, number)).collect::<Result<_, _>>()?;

    let start = Instant::now();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Relaxed);
                    if job >= TENANTS * QUERIES {
                        return;
                    }
                    // Four of one tenant at a time, so that they meet its limits now and then.
                    let tenant = job / 4 % TENANTS;
                    let query = job / 4 / TENANTS * 4 + job % 4;
                    let runaway = tenant == CARELESS && query == RUNAWAY;
                    if let Err(error) = tenants[tenant].run(query, runaway) {
                        eprintln!("tenant {tenant}, query {query}: {error}");
                    }
                }
            });
        }
    });

    print(&tenants);
    let root = ledger.root();
    println!(
        "\n{} queries in {:.1} s; all together held {:.1} MiB at most, of {}; {} MiB of caches gave way",
        TENANTS * QUERIES,
        start.elapsed().as_secs_f64(),
        root.peak().value as f64 / MIB,
        root.max(),
        root.stat().get("reclaimed").map_or(0, |line| line.subtree) >> 20,
    );
    let cancelled = |number: usize| u64::from(number == CARELESS);
    let as_meant = tenants.iter().enumerate().all(|(number, tenant)| {
        tenant.cancelled.load(Relaxed) == cancelled(number)
            && tenant.done.load(Relaxed) == QUERIES as u64 - cancelled(number)
    });
    // Only the caches hold something now.
    let kept: u64 = tenants.iter().map(cached).sum();
    Ok(as_meant && root.precise() == kept && ledger.mistakes() == Default::default())
}

fn cached(tenant: &Tenant) -> u64 {
    tenant.cache.lock().expect("no panic inside").iter().map(Charge::units).sum()
}

fn print(tenants: &[Tenant]) {
    println!(
        "{:<10} {:>5} {:>9} {:>7} {:>9} {:>10} {:>10} {:>12} {:>6} {:>6} {:>8}",
        "tenant",
        "done",
        "cancelled",
        "refused",
        "peak MiB",
        "cache MiB",
        "gave MiB",
        "throttled ms",
        "high",
        "max",
        "oom_kill"
    );
    for tenant in tenants {
        let (events, stat) = (tenant.group.events(), tenant.group.stat());
        let throttled = stat.get("throttled_usec").map_or(0, |line| line.subtree);
        println!(
            "{:<10} {:>5} {:>9} {:>7} {:>9.1} {:>10.1} {:>10.1} {:>12.1} {:>6} {:>6} {:>8}",
            tenant.group.name(),
            tenant.done.load(Relaxed),
            tenant.cancelled.load(Relaxed),
            tenant.refused.load(Relaxed),
            tenant.group.peak().value as f64 / MIB,
            cached(tenant) as f64 / MIB,
            tenant.reclaimer.report().freed as f64 / MIB,
            throttled as f64 / 1000.0,
            events.high,
            events.max,
            events.oom_kill,
        );
    }
}

fn main() -> ExitCode {
    match serve() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("somebody else than the runaway query was hurt");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
