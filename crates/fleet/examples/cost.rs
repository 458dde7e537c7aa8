//! What a charge costs with a fleet and without: pairs of charge and drop, in turns, and the middle of the ratios.
//!
//! `cargo run --release -p ledgerline-fleet --example cost`

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use ledgerline::{Group, Ledger, Limit};
use ledgerline_fleet::book::Change;
use ledgerline_fleet::fleet::Fleet;
use ledgerline_fleet::store::{Memory, Store};

const PAIRS: u32 = 1_000_000;
const ROUNDS: usize = 31;

/// Nanoseconds a pair.
fn pair(group: Group<'_>) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        drop(black_box(group.try_charge(black_box(64))));
    }
    start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ledger = Arc::new(Ledger::new()?);
    let alone = ledger.root().create("alone")?.create("batch")?;
    alone.set_max(Limit::units(1 << 30))?;

    let start = Instant::now();
    let store = Arc::new(Memory::new(move || start.elapsed().as_millis() as u64));
    for path in ["/acme", "/acme/batch"] {
        let change = Change::Set { path: path.to_owned(), limit: Some(1 << 40), minimum: None };
        store.administer("acme", &change).await?;
    }
    let fleet = Fleet::join(store, "node").reserve(1 << 30).ledger(&ledger).start()?;
    let batch = fleet.budget("/acme/batch").await?;

    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (a, b) = (pair(alone), pair(batch.group()));
        without.push(a);
        with.push(b);
        ratios.push(b / a);
    }
    let [without, with, ratio] = [without, with, ratios].map(middle);
    println!(
        "a pair takes {without:.2} ns without a fleet, {with:.2} ns with one: {ratio:.3} times as long"
    );
    Ok(())
}
