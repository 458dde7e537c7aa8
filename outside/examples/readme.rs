use ledgerline::Ledger;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ledger = Ledger::new()?; // one mapping, no threads, nothing to start
    let tenant = ledger.root().create("acme")?;
    tenant.set_max("512M".parse()?)?;

    let query = tenant.create("q42")?;
    let buffer = query.try_charge(300 << 20)?; // returned when it drops, from any thread
    println!("{} holds {} bytes", tenant.path(), tenant.precise());

    if let Err(refused) = query.try_charge(300 << 20) {
        println!("{refused}"); // names the group that is full
    }
    drop(buffer);
    println!("{}", query.destroy()?); // what was still charged is reported, not lost
    Ok(())
}
