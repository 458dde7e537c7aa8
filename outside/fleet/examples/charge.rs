//! The cost of a charge with a fleet and without: pairs of charge and return in turns, medians.
//!
//! `cargo run --release --manifest-path outside/fleet/Cargo.toml --example charge`

use std::error::Error;

use outside_fleet::charge::{Charges, Figure};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let charges = Charges::behind(0).await?;
    for figure in [charges.guards(2001), charges.owned(2001), charges.locked(2001)] {
        let Figure { name, without, with, ratio } = figure;
        println!(
            "{name:12} {without:6.2} ns without a fleet {with:6.2} ns with one, {ratio:.3} times as long"
        );
    }
    Ok(())
}
