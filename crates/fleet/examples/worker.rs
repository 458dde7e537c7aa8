//! A node that shares a budget with others: `worker STORE NAME BUDGET`. It takes 64 MiB at a time until there is no more, and
//! leaves when its standard input ends.

use std::error::Error;
use std::time::Duration;

use ledgerline_fleet::fleet::Fleet;
use ledgerline_fleet::store::{Access, open};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [store, name, path] = &words[..] else { return Err("worker STORE NAME BUDGET".into()) };

    let store = open(store, &Access::from_environment()?)?;
    let fleet = Fleet::join(store, name).start()?;
    let budget = fleet.budget(path).await?; // a group, whose max is this node's lease

    let mut held = Vec::new();
    loop {
        // Within the lease this asks no other process; beyond it, the store, and for a second the other nodes.
        match budget.charge_within(64 << 20, Duration::from_secs(1)).await {
            Ok(charge) => held.push(charge),
            Err(refused) => break println!("{name} has {} MiB: {refused}", held.len() * 64),
        }
    }

    let input = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin()));
    input.await??;
    drop((held, budget));
    fleet.leave(Duration::from_secs(5)).await?; // its leases are free at once
    Ok(())
}
