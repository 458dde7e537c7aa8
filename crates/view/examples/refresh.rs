//! Measures how long `ledgerline top` takes for a refresh, and its share of a CPU with one look per second: `cargo run
//! --release -p ledgerline-view --example refresh -- [GROUPS] [REFRESHES]` prints JSON.
//!
//! There is a tenant for each hundred queries, of which each hundredth changes between two looks.

use ledgerline::Ledger;
use ledgerline_view::top::measure::{Refresh, refreshes};
use ledgerline_view::top::{Choice, Options};
use ledgerline_view::watch::Source;
use serde_json::{Value, json};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let groups = arguments.next().transpose()?.unwrap_or(10_000);
    let count = arguments.next().transpose()?.unwrap_or(101).max(2);
    println!("{:#}", measured(groups, count)?);
    Ok(())
}

/// Returns the figures of a ledger with this many groups.
fn measured(groups: usize, count: usize) -> Result<Value, Box<dyn std::error::Error>> {
    let file = tempfile::NamedTempFile::new()?;
    let ledger = Ledger::builder().capacity(groups as u32 + 16).create_in(file.as_file())?;
    let mut made = 1;
    let mut queries = Vec::new();
    for tenant in 0.. {
        if made >= groups {
            break;
        }
        let group = ledger.root().create(&format!("tenant{tenant}"))?;
        made += 1;
        for query in 0..99.min(groups - made) {
            let query = group.create(&format!("query{query}"))?;
            query.try_charge_units(4096 * (made as u64 % 1000 + 1))?;
            queries.push(query);
            made += 1;
        }
    }
    let source = Source::open(file.path())?;
    let options =
        Options { choice: Choice::default(), interval: Duration::from_secs(1), rows: None };
    let mut all = Vec::new();
    // Between refreshes the program charges: in rounds, since it is this one.
    let before = cpu_time();
    let mut charging = Duration::ZERO;
    for round in 0..10.min(count) {
        let start = cpu_time();
        for query in queries.iter().skip(round).step_by(100) {
            query.try_charge_units(64 << 10)?;
        }
        charging += cpu_time() - start;
        all.extend(refreshes(&source, &options, count.div_ceil(10))?.split_off(1));
    }
    // The first refresh of each round draws the whole screen. Its cost counts here, but not in the medians.
    let total = cpu_time() - before - charging;
    let taken = 10.min(count) * (count.div_ceil(10) + 1);
    Ok(json!({
        "groups": made,
        "refreshes": all.len(),
        "milliseconds": {
            "look": spread(&all, |refresh| refresh.look),
            "order": spread(&all, |refresh| refresh.order),
            "draw": spread(&all, |refresh| refresh.draw),
            "refresh": spread(&all, |refresh| refresh.look + refresh.order + refresh.draw),
        },
        "bytes_drawn": all.iter().map(|refresh| refresh.bytes).max(),
        // A refresh a second.
        "percent_of_a_cpu": total.as_secs_f64() / taken as f64 * 100.0,
    }))
}

/// Returns the CPU time of this thread, which does everything.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Returns the median, the tenth smallest of a hundred, the tenth largest, and the largest.
fn spread(all: &[Refresh], part: impl Fn(&Refresh) -> Duration) -> Value {
    let mut times: Vec<f64> = all.iter().map(|it| part(it).as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times.get(((times.len() - 1) as f64 * part) as usize).copied();
    json!({ "median": at(0.5), "p10": at(0.1), "p90": at(0.9), "largest": at(1.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_measures_refreshes_of_the_ledger_that_it_makes() {
        let figures = measured(250, 20).unwrap();
        assert_eq!((&figures["groups"], &figures["refreshes"]), (&json!(250), &json!(10)));
        for part in ["look", "order", "draw", "refresh"] {
            assert!(figures["milliseconds"][part]["median"].as_f64().unwrap() > 0.0, "{figures}");
        }
        assert!(figures["bytes_drawn"].as_u64().is_some(), "{figures}");
    }
}
