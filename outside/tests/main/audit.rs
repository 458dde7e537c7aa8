//! An audited ledger (`LedgerBuilder::audit`) names the line of a wrong uncharge.

use ledgerline::{Charge, Group, Ledger, Mistakes, WrongUncharge};
use std::error::Error;
use std::sync::{Arc, Mutex};

type Tried = Result<(), Box<dyn Error>>;

fn audited() -> Result<Ledger, std::io::Error> {
    Ledger::builder().audit(true).anonymous()
}

/// A program whose two steps return their own buffers; one of them also returns the other's.
fn sort(query: Group<'_>) -> Result<u32, ledgerline::Refusal> {
    query.try_charge_units(4096)?;
    query.uncharge_units(4096);
    query.uncharge_units(4096); // the mistake
    Ok(line!() - 1)
}

/// Returns the wrong uncharges, as (path, units, times, line).
fn wrong(ledger: &Ledger) -> Vec<(String, u64, u64, u32)> {
    let told = |it: WrongUncharge| {
        assert_eq!(it.site.file(), file!());
        (it.path, it.units, it.times, it.site.line())
    };
    ledger.audit_report().wrong.into_iter().map(told).collect()
}

#[test]
fn a_wrong_uncharge_is_named_with_its_group_and_line_and_takes_nothing() -> Tried {
    let ledger = audited()?;
    let tenant = ledger.root().create("acme")?;
    tenant.set_max("1M".parse()?)?;
    let query = tenant.create("q42")?;
    let held = query.try_charge((1 << 20) - 4096)?;
    let mut line = 0;
    for _ in 0..100 {
        line = sort(query)?;
    }
    assert_eq!(wrong(&ledger), [("/acme/q42".to_owned(), 4096, 100, line)]);
    assert_eq!(ledger.mistakes().audited, 100);
    // The limit holds for the other charges, to the unit.
    assert_eq!(query.precise(), held.units());
    assert!(query.try_charge(4097).is_err());
    drop(query.try_charge(4096)?);
    let told = ledger.audit_report().to_string();
    assert!(told.contains("/acme/q42") && told.contains(&format!("{}:{line}:", file!())), "{told}");
    Ok(())
}

#[test]
fn the_report_shows_how_often_each_line_charged_and_returned_that_size() -> Tried {
    let ledger = audited()?;
    let query = ledger.root().create("q")?;
    // An innocent line, and the last to return.
    query.try_charge_units(4096)?;
    let innocent = line!() - 1;
    let mistake = sort(query)?;
    query.uncharge_units(4096);
    let last = line!() - 1;
    let report = ledger.audit_report();
    let [wrong] = &report.wrong[..] else { panic!("{report}") };
    assert_eq!(wrong.site.line(), last, "the last to return is reported");
    let count = |line: u32| {
        let of = |&it: &ledgerline::SiteCount| (it.site.line() == line).then_some(it);
        let it = wrong.sites.iter().find_map(of).expect("the line is named");
        (it.charged, it.returned)
    };
    assert_eq!(count(innocent), (1, 0));
    assert_eq!(count(mistake), (0, 1), "a line that returns and never charges: look here");
    Ok(())
}

#[test]
fn parts_and_sums_of_charges_are_wrong_and_a_guard_is_returned_by_itself_alone() -> Tried {
    let ledger = audited()?;
    let query = ledger.root().create("q")?;
    for units in [100, 200] {
        query.try_charge_units(units)?;
    }
    let guard = query.try_charge(500)?;
    for units in [50, 300, 500] {
        query.uncharge_units(units);
    }
    assert_eq!(wrong(&ledger).iter().map(|it| it.1).collect::<Vec<_>>(), [50, 300, 500]);
    assert_eq!(query.precise(), 800);
    for units in [200, 100] {
        query.uncharge_units(units);
    }
    drop(guard);
    assert_eq!((query.precise(), ledger.mistakes().audited), (0, 3));
    Ok(())
}

#[test]
fn what_guards_do_is_never_wrong() -> Tried {
    let ledger = audited()?;
    let [a, b] = [ledger.root().create("a")?, ledger.root().create("b")?];
    let mut charge = a.try_charge(1000)?;
    let part = charge.split(300).ok_or("it holds 1000")?;
    let part = part.transfer(b).map_err(|(_, refused)| refused)?;
    let units = part.into_units();
    std::thread::scope(|scope| scope.spawn(|| drop(Charge::from_units(b, units))).join())
        .map_err(|_| "the thread panicked")?;
    let other = a.try_charge(24)?;
    charge.merge(other).map_err(|_| "both are a's")?;
    drop(charge);
    let kept = a.try_charge(7)?;
    a.destroy()?;
    drop(kept); // late, but correct
    assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
    assert!(ledger.audit_report().wrong.is_empty() && ledger.outstanding().is_empty());
    Ok(())
}

#[test]
fn a_guard_made_of_units_that_were_never_charged_is_named_where_it_was_made_and_holds_nothing()
-> Tried {
    let ledger = audited()?;
    let query = ledger.root().create("q")?;
    let held = query.try_charge(10)?;
    let invented = Charge::from_units(query, 4096);
    let line = line!() - 1;
    assert_eq!(wrong(&ledger), [("/q".to_owned(), 4096, 1, line)]);
    assert!(!invented.is_counted());
    drop(invented);
    assert_eq!((query.precise(), ledger.mistakes().audited), (10, 1));
    drop(held);
    Ok(())
}

#[test]
fn a_group_that_is_gone_is_named_by_the_path_that_it_had() -> Tried {
    let ledger = audited()?;
    let query = ledger.root().create("acme")?.create("q42")?;
    query.try_charge_units(64)?;
    query.uncharge_units(64);
    query.destroy()?;
    query.uncharge_units(64);
    let report = ledger.audit_report();
    assert_eq!((&*report.wrong[0].path, report.wrong[0].gone), ("/acme/q42", true));
    let Mistakes { strays, audited, .. } = ledger.mistakes();
    assert_eq!((strays, audited), (1, 0));
    Ok(())
}

#[test]
fn what_is_held_and_what_a_destroyed_group_leaves_are_listed_by_the_line_that_charged() -> Tried {
    let ledger = audited()?;
    let query = ledger.root().create("q")?;
    let buffers = (0..3).map(|_| query.try_charge(100)).collect::<Result<Vec<_>, _>>()?;
    let line = line!() - 1;
    let held = ledger.outstanding();
    assert_eq!((held.len(), held[0].charges, held[0].units), (1, 3, 300));
    assert_eq!((&*held[0].path, held[0].site.line(), held[0].guard), ("/q", line, true));
    let settled = query.destroy()?;
    assert_eq!((settled.leftover, settled.outstanding()[0].site.line()), (300, line));
    drop(buffers);
    assert!(settled.outstanding().is_empty() && settled.leak().is_none());
    Ok(())
}

#[test]
fn a_program_may_act_in_the_thread_that_made_the_mistake() -> Tried {
    let told: Arc<Mutex<Vec<_>>> = Arc::default();
    let by = told.clone();
    let ledger = Ledger::builder()
        .on_wrong_uncharge(move |wrong| {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            by.lock().unwrap().push((name, wrong.site.line(), wrong.units));
        })
        .anonymous()?;
    let query = ledger.root().create("q")?;
    let line = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sorter".to_owned());
        thread.spawn_scoped(scope, || sort(query)).map(|it| it.join().expect("it returns"))
    })??;
    assert_eq!(*told.lock().unwrap(), [("sorter".to_owned(), line, 4096)]);
    Ok(())
}

#[test]
fn a_ledger_that_is_not_audited_sees_only_what_falls_below_zero() -> Tried {
    let ledger = Ledger::new()?;
    let query = ledger.root().create("q")?;
    query.try_charge_units(8192)?;
    query.uncharge_units(8192 + (1 << 30));
    assert_eq!((query.precise(), ledger.mistakes().underflows), (8192, 1));
    assert!(ledger.audit_report().wrong.is_empty() && ledger.outstanding().is_empty());
    query.uncharge_units(8192);
    Ok(())
}
