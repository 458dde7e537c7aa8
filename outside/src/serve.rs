use ledgerline::current::{self, future::ChargeTo};
use ledgerline::{Ledger, Refused};
use std::sync::LazyLock;

static LEDGER: LazyLock<Ledger> = LazyLock::new(|| Ledger::new().unwrap());

fn sort(rows: u64) -> Result<(), Refused> {
    let _buffer = current::try_charge(64 * rows)?; // of the task's query, whichever thread polls it
    Ok(())
}

pub async fn serve(name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let query = LEDGER.root().create(name)?.destroy_on_drop();
    query.set_max("1M".parse()?)?;
    async { sort(1000) }.charged_to(*query).await?; // switches at each poll, flushes nothing
    query.scope(|| current::spawn(|| sort(1000))).join().unwrap()?; // a thread that inherits
    Ok(())
}
