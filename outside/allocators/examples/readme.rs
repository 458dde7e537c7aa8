use ledgerline::{Alloc, Ledger, Limit, alloc};

#[global_allocator]
static ALLOC: Alloc = Alloc::system(); // or Alloc::new(mimalloc::MiMalloc)

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ledger = Ledger::new()?.into_static();
    let query = ledger.root().create("q42")?;
    query.set_max(Limit::units(1 << 20))?;

    let rows = query.scope(|| vec![0u8; 500_000]);
    println!("{} holds {} bytes", query.path(), query.precise());

    let result = query.catch(|| {
        let mut rows = Vec::new();
        for row in 0..1_000_000u32 {
            alloc::checkpoint(); // here a query that is over its limit ends
            rows.push(row.to_string());
        }
        rows.len()
    });
    println!("{}", result.unwrap_err()); // the query failed, not the process
    drop(rows);
    assert_eq!(query.precise(), 0);
    Ok(())
}
