//! Measures the cost of a refresh of `ledgerline serve` with many groups, as a line of JSON: medians and the 90th
//! percentile over the rounds, in milliseconds, for each part; and the CPU time of a round, which competing processes
//! do not lengthen. A tenth of the groups is charged between two rounds.
//!
//! `cargo run --release -p ledgerline-view --example refresh_cost -- [GROUPS [ROUNDS]]`

use ledgerline::{Charge, Group, Ledger};
use ledgerline_view::serve::cost::{Refresh, refreshes};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise: usize| {
        arguments.next().map_or(Ok(otherwise), |argument| argument.parse::<usize>())
    };
    let (groups, rounds) = (number(10_000)?.max(1), number(21)?.max(1));
    let file = tempfile::NamedTempFile::new()?;
    let ledger =
        Ledger::builder().capacity(u32::try_from(groups + 200)?).create_in(file.as_file())?;
    let mut all: Vec<Group<'_>> = Vec::new();
    let mut tenant = ledger.root();
    for at in 0..groups {
        if at % 100 == 0 {
            tenant = ledger.root().create(&format!("tenant-{}", at / 100))?;
        }
        all.push(tenant.create(&format!("query-{at}"))?);
    }
    let mut held: Vec<Charge> = Vec::new();
    for (at, group) in all.iter().enumerate() {
        held.push(group.try_charge(4096 + at as u64)?);
    }
    let (mut turn, mut started, mut spent) = (0, None, Duration::ZERO);
    let seen = refreshes(file.path(), rounds, || {
        if let Some(started) = started {
            spent += on_cpu() - started;
        }
        turn += 1;
        for group in all.iter().skip(turn % 10).step_by(10) {
            held.extend(group.try_charge(64));
        }
        started = Some(on_cpu());
    })?;
    spent += started.map_or(Duration::ZERO, |started| on_cpu() - started);
    let of = |part: fn(&Refresh) -> Duration| {
        let mut times: Vec<f64> =
            seen.iter().map(|refresh| part(refresh).as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| {
            (times[((times.len() - 1) as f64 * share) as usize] * 100.0).round() / 100.0
        };
        serde_json::json!({ "median_ms": at(0.5), "p90_ms": at(0.9) })
    };
    let last = seen.last().expect("one round at least");
    println!(
        "{}",
        serde_json::json!({
            "groups": all.len(),
            "rounds": seen.len(),
            "look": of(|refresh| refresh.look),
            "event": of(|refresh| refresh.event),
            "json": of(|refresh| refresh.json),
            "metrics": of(|refresh| refresh.metrics),
            "page_refresh": of(|refresh| refresh.look + refresh.event),
            "mean_cpu_ms_of_all_four": (spent.as_secs_f64() * 1e5 / seen.len() as f64).round() / 100.0,
            "event_bytes": last.bytes[0],
            "json_bytes": last.bytes[1],
            "metrics_bytes": last.bytes[2],
        })
    );
    Ok(())
}

/// Returns the CPU time of this thread.
fn on_cpu() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = told.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}
