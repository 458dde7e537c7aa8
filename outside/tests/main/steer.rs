//! A ledger that a program embeds is steered from another process, by the public API alone: the program receives the
//! changes, its cache gives way, and limits that it keeps to itself stay.

use ledgerline::{Charge, Ledger, Limit, SetMaxError};
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Tried = Result<(), Box<dyn Error>>;

/// Tells the other process which ledger to steer, and how.
const STEER: &str = "OUTSIDE_STEER";
const LONG: Duration = Duration::from_secs(60);

/// A file that is removed after the test.
struct Shared(PathBuf, File);

impl Shared {
    fn new(name: &str) -> std::io::Result<Shared> {
        let path = std::env::temp_dir().join(format!("outside-{}-{name}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Shared(path, file))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs this binary again for the test `the_other_process`, which steers. Returns whether it could.
fn steer(file: &Path, what: &str) -> std::io::Result<bool> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "steer::the_other_process", "--nocapture"]);
    Ok(command.env(STEER, format!("{what} {}", file.display())).status()?.success())
}

#[test]
fn the_other_process() -> Tried {
    let Ok(order) = std::env::var(STEER) else { return Ok(()) };
    let (what, file) = order.split_once(' ').ok_or("an order")?;
    let file = File::options().read(true).write(true).open(file)?;
    let ledger = Ledger::open_in(&file)?;
    let tenant = ledger.find("/acme").ok_or("the tenant is there")?;
    match what {
        "high" => tenant.set_high(Limit::units(700)),
        "lower" => drop(tenant.set_max_now(Limit::units(500))?),
        "busy" => {
            let refused = tenant.set_max(Limit::units(500)).unwrap_err();
            assert!(matches!(refused, SetMaxError::Busy { usage: 1000.., limit: 500 }));
        }
        "locked" => {
            assert!(!ledger.is_steerable());
            assert_eq!(tenant.set_max(Limit::units(500)), Err(SetMaxError::ReadOnly));
            tenant.set_high(Limit::units(5));
        }
        other => return Err(format!("no order {other}").into()),
    }
    Ok(())
}

#[test]
fn a_program_hears_what_another_process_sets_and_its_cache_gives_way() -> Tried {
    let file = Shared::new("steered")?;
    let ledger: &'static Ledger = Box::leak(Box::new(Ledger::builder().create_in(&file.1)?));
    let tenant = ledger.root().create("acme")?;
    let cache = tenant.create("cache")?;
    let pages: Arc<Mutex<Vec<Charge<'static>>>> = Arc::default();
    for _ in 0..10 {
        let page = cache.try_charge(100)?;
        pages.lock().unwrap().push(page);
    }
    let evict = pages.clone();
    let _reclaimer = cache.add_reclaimer(0, move |need| {
        let mut freed = 0;
        while let Some(page) = (freed < need).then(|| evict.lock().unwrap().pop()).flatten() {
            freed += page.units();
        }
        freed
    });
    let watch = tenant.watch()?;
    assert!(steer(&file.0, "high")?);
    assert_eq!(watch.wait(Some(LONG))?.ok_or("nobody told")?.limits, 1);
    assert_eq!(tenant.high(), Limit::units(700));

    assert!(steer(&file.0, "busy")?);
    assert_eq!((tenant.max(), tenant.precise()), (Limit::MAX, 1000));

    assert!(steer(&file.0, "lower")?);
    assert_eq!(watch.wait(Some(LONG))?.ok_or("nobody told")?.limits, 2);
    assert_eq!(tenant.max(), Limit::units(500));
    let start = Instant::now();
    while tenant.precise() > 500 {
        assert!(start.elapsed() < LONG, "the cache was not asked");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(tenant.try_charge(501).is_err());
    Ok(())
}

#[test]
fn a_program_that_keeps_its_limits_to_itself_is_not_steered() -> Tried {
    let file = Shared::new("locked")?;
    let ledger = Ledger::builder().steerable(false).create_in(&file.1)?;
    let tenant = ledger.root().create("acme")?;
    tenant.set_max(Limit::units(1000))?;
    assert!(steer(&file.0, "locked")?);
    assert_eq!((tenant.max(), tenant.high()), (Limit::units(1000), Limit::MAX));
    Ok(())
}
