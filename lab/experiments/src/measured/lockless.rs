//! Linux 3e32cb2e0a12, "mm: memcontrol: lockless page counters": how long the accounting of a page fault takes on
//! spinlocked 64-bit counters, on page counters, and on ours.
//!
//! Each thread faults pages in a group of its own below the root, takes them from its stock, and visits the counters a
//! few times in 32 faults: every other visit charges 32 pages, the ones between return them. Ours charges every page to
//! its group and returns 32 at a time. Its groups hold a process's worth of pages beside those, since an idle stock of
//! ours is at most a sixteenth of what its group holds.

use super::row::{Measured, Note};
use super::variants::{Session, Timed, row};
use crate::history::{Counter, PageCounter, ResCounter, Tree};
use ledgerline::{Group, Ledger, Limit};
use ledgerline_bench::measure::harness::{Body, Case};
use ledgerline_coherence::experiments::page_counter_lockless::{VISITS, locked as name};
use std::error::Error;
use std::hint::black_box;

/// Pages that a visit moves, and the number of faults by which visits are counted.
const BATCH: u32 = 32;
const PAGE: u64 = 4096;
/// Pages that stay charged to a group.
const BASE: u64 = 10_000;
/// Far above every charge, in pages.
const MAX: u64 = 1 << 28;
/// Faults after which all charges are returned, for every number of visits.
const GRANULE: u64 = 2 * BATCH as u64;

pub(super) fn measure(session: &Session<'_>) -> Result<Vec<Measured>, Box<dyn Error>> {
    let threads = session.cpus.len();
    let ledger = Ledger::new()?;
    let mut cases = Vec::new();
    for visits in VISITS {
        let bytes = u64::from(BATCH) * PAGE;
        let locked = theirs::<ResCounter>(threads, visits, MAX * PAGE, bytes);
        cases.push(Case { name: "locked", granule: GRANULE, body: locked });
        let lockless = theirs::<PageCounter>(threads, visits, MAX as i64, BATCH.into());
        cases.push(Case { name: "lockless", granule: GRANULE, body: lockless });
    }
    cases.push(Case { name: "ours", granule: GRANULE, body: ours(&ledger, threads)? });
    let timed = session.time(&cases);
    let (ours, pairs) = timed.split_last().expect("ours is the last");
    let about = format!(
        "ns of accounting a fault on each CPU; a fault itself takes some hundred times as long; {}",
        session.few()
    );
    let of = |kind: usize| pairs.iter().skip(kind).step_by(2);
    let (locked, lockless) = (Timed::all(of(0)), Timed::all(of(1)));
    let range = Some(Note::Row("from the least to the most visits".to_owned()));
    let mut rows = vec![
        row("lockless", None, lockless.as_ref(), Some(ours), Some(Note::Table(about))),
        row(
            "locked, 1 to 4 visits in 32 faults",
            locked.as_ref(),
            lockless.as_ref(),
            Some(ours),
            range,
        ),
    ];
    for (visits, (locked, lockless)) in VISITS.iter().zip(of(0).zip(of(1))) {
        rows.push(row(&name(*visits), Some(locked), Some(lockless), Some(ours), None));
    }
    Ok(rows)
}

/// Does faults, of which `visits` in 32 visit the counters: `visit(true)` charges, `visit(false)` returns.
#[inline(always)]
fn faults(n: u64, visits: u32, visit: impl Fn(bool)) {
    let mut due = 0;
    let mut charge = true;
    for _ in 0..n {
        // Stands for the word of the stock that every fault writes.
        *black_box(&mut due) += visits;
        if due >= BATCH {
            due -= BATCH;
            visit(charge);
            charge = !charge;
        }
    }
}

/// Returns the body for a kernel design, with a batch of pages in its unit.
fn theirs<C: Counter>(
    threads: usize,
    visits: u32,
    max: C::Amount,
    batch: C::Amount,
) -> Body<'static> {
    let mut counters = Tree::<C>::default();
    let root = counters.add(max, None);
    let groups: Vec<usize> = (0..threads).map(|_| counters.add(max, Some(root))).collect();
    Box::new(move |thread, n| {
        faults(n, visits, |charge| {
            if charge {
                assert!(counters.try_charge(groups[thread], batch), "far below the limit");
            } else {
                counters.uncharge(groups[thread], batch);
            }
        });
    })
}

fn ours(ledger: &Ledger, threads: usize) -> Result<Body<'_>, Box<dyn Error>> {
    let root = ledger.root();
    root.set_max(Limit::units(MAX * PAGE))?;
    let mut groups = Vec::new();
    for thread in 0..threads {
        let group: Group<'_> = root.create(&format!("group{thread}"))?;
        group.set_max(Limit::units(MAX * PAGE))?;
        group.try_charge_units(BASE * PAGE).map_err(|_| "a charge was refused")?;
        groups.push(group);
    }
    Ok(Box::new(move |thread, n| {
        let group = groups[thread];
        for _ in 0..n / u64::from(BATCH) {
            for _ in 0..BATCH {
                assert!(group.try_charge_units(black_box(PAGE)).is_ok(), "far below the limit");
            }
            group.uncharge_units(u64::from(BATCH) * PAGE);
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_granule_visits_as_often_as_was_asked_and_returns_all() {
        for visits in VISITS {
            let (charges, returns) = (Cell::new(0), Cell::new(0));
            faults(GRANULE, visits, |charge| {
                let which = if charge { &charges } else { &returns };
                which.set(which.get() + 1);
            });
            assert_eq!((charges.get(), returns.get()), (visits, visits), "{visits}");
        }
    }

    #[test]
    fn ours_returns_all_it_charges() {
        let ledger = Ledger::new().unwrap();
        ours(&ledger, 2).unwrap()(1, 10 * GRANULE);
        assert_eq!(ledger.root().precise(), 2 * BASE * PAGE);
        assert!(ledger.root().peak().value >= (2 * BASE + 32) * PAGE);
    }
}
