//! A program whose allocations are charged to a group; see `body.rs`.

mod body;

use ledgerline::{Alloc, Ledger, Limit};

#[global_allocator]
static ALLOC: Alloc = Alloc::system();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ledger = Ledger::new()?.into_static();
    let tenant = ledger.root().create("tenant")?;
    let query = tenant.create("query")?;
    for group in [ledger.root(), tenant, query] {
        group.set_max(Limit::units(1 << 40))?;
    }
    body::run(|| query.enter());
    assert!(query.precise() < 1 << 20, "what the threads allocated is freed");
    Ok(())
}
