use std::sync::Arc;
use std::time::Duration;

use ledgerline_fleet::fleet::{Fleet, FleetError};
use ledgerline_fleet::store::Store;

async fn serve(store: Arc<dyn Store>) -> Result<(), Box<dyn std::error::Error>> {
    let fleet = Fleet::join(store, "node-a").start()?;
    let batch = fleet.budget("/acme/batch").await?;     // a group, whose max is this node's lease

    let buffer = batch.try_charge(64 << 10)?;           // as in any group; does not ask the store
    let rows = batch.charge(1 << 30).await?;            // beyond the lease: one round trip, then once more
    let sorted = batch.charge_within(1 << 30, Duration::from_secs(5)).await; // others give back what lies idle
    if let Err(FleetError::Refused(refused)) = &sorted {
        println!("{refused}");                          // what is leased, and why not more
    }
    let query = batch.owned().create("q42")?;           // groups of this node's own below it
    drop((buffer, rows, sorted, query));
    fleet.leave(Duration::from_secs(5)).await?;         // its leases are free at once
    Ok(())
}
