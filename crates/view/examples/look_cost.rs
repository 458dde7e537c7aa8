//! Prints the CPU time of a look: `cargo run --release -p ledgerline-view --example look_cost -- [GROUPS]`.

use ledgerline::Ledger;
use ledgerline_view::watch::{Source, Tempo};
use std::fs::File;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let groups: usize = std::env::args().nth(1).map_or(Ok(10_000), |groups| groups.parse())?;
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let path = folder.path().join("ledger");
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    let items = ["rows_read", "rows_written", "spills", "sorts", "hash_joins"];
    let ledger = Ledger::builder().items(&items).create_in(&file)?;
    let tenants: Vec<_> =
        (0..100).map(|n| ledger.root().create(&format!("tenant{n}"))).collect::<Result<_, _>>()?;
    for n in 0..groups {
        let query = tenants[n % 100].create(&format!("query{n}"))?;
        query.charge_units(1000 + n as u64)?;
        for item in ledger.items() {
            query.add_stat(item, 1);
        }
    }
    let source = Source::open(&path)?;
    let mut tempo = Tempo::new();
    let mut times: Vec<[f64; 3]> = (0..21)
        .map(|_| {
            let begun = cpu_time();
            let _ = source.view().read();
            let read = cpu_time() - begun;
            let look = source.look();
            let looked = (cpu_time() - begun) - read;
            tempo.rates(&look);
            let rated = (cpu_time() - begun) - read - looked;
            [read, looked, rated].map(|time| time.as_secs_f64() * 1e3)
        })
        .collect();
    for (column, what) in ["a reading", "a look", "rates"].into_iter().enumerate() {
        times.sort_by(|a, b| a[column].total_cmp(&b[column]));
        let [least, median, most] = [0, 10, 20].map(|at| times[at][column]);
        println!("{what} of {groups} groups: {median:.2} ms ({least:.2} to {most:.2})");
    }
    Ok(())
}

/// Returns the CPU time of this process, since other processes may compete for the CPUs.
fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a local timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
