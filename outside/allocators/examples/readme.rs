use ledgerline::{Alloc, Ledger, Limit, alloc};

#[global_allocator]
static ALLOC: Alloc = Alloc::system(); // or Alloc::new(mimalloc::MiMalloc)

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ledger = Ledger::new()?.into_static();
    let query = ledger.root().create("q42")?;
    query.set_max(Limit::units(1 << 20))?;

    let rows = query.scope(|| vec![0u8; 500_000]);
    println!("{} holds {} bytes", query.path(), query.precise());

    let refused = query.catch(|| {
        let mut rows = Vec::new();
        loop {
            alloc::checkpoint(); // here a query that is over its limit ends
            rows.push(vec![0u8; 4096]);
        }
    });
    let refused: ledgerline::Refused = refused.map(|()| ()).unwrap_err();
    println!("{refused}"); // the query failed, not the process
    drop(rows);
    assert_eq!(query.precise(), 0);
    Ok(())
}
