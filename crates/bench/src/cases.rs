//! The cases of the suite `charge`: the public interface in bare loops. `guards` has the cases with guards.
//!
//! Walks over many groups do one operation per turn, with the handle loaded from memory; `pair_groups1` shows the cost
//! of that by itself.

use super::guards;
use super::loops::{UNROLLED, bare_add, four_times, refused};
use super::peers::{AtomicPeaks, Atomics, Locked, Peer};
use super::queries;
use super::rounds::{Made, Work};
use crate::measure::shuffle::shuffle;
use ledgerline::percpu::Array;
use ledgerline::{CreateError, Group, Ledger, Limit};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// The case about memory, which is timed as a whole and not in rounds.
pub(super) const MILLION: &str = "create_million";

/// A pair in a ledger in a file with many groups: without an observer, and with one in another process (`watched`).
pub(super) const UNWATCHED: &str = "pair_unwatched";
pub(super) const WATCHED: &str = "pair_watched";

/// The units of each operation.
const UNITS: u64 = 64;
/// A limit at every level, far above any charge.
const MAX: u64 = 1 << 40;
/// Makes a case for a number of threads, which share its groups. The groups live in the ledger, which is new.
pub(super) type Make = for<'l> fn(&'l Ledger, usize) -> Made<Work<'l>>;

/// All cases, in the order of the report.
pub(super) const CASES: [(&str, Make); 33] = [
    ("bare_add", |_, _| {
        let array = Array::new(1)?;
        Ok((UNROLLED, Box::new(move |_, n| bare_add(&array, black_box(UNITS) as i64, n))))
    }),
    ("pair_depth1", |ledger, _| chain(ledger, 1, pair)),
    ("pair_depth3", |ledger, _| chain(ledger, 3, pair)),
    ("pair_depth8", |ledger, _| chain(ledger, 8, pair)),
    ("pair_groups1", |ledger, _| wide(ledger, 1)),
    ("pair_groups8", |ledger, _| wide(ledger, 8)),
    ("pair_groups1000", |ledger, _| wide(ledger, 1_000)),
    ("pair_groups10000", |ledger, _| wide(ledger, 10_000)),
    ("guard_depth1", |ledger, _| chain(ledger, 1, guards::guard)),
    ("guard_depth3", |ledger, _| chain(ledger, 3, guards::guard)),
    ("guard_depth8", |ledger, _| chain(ledger, 8, guards::guard)),
    ("guard_question", |ledger, _| chain(ledger, 3, guards::question)),
    ("guard_vec", |ledger, _| chain(ledger, 3, guards::vec)),
    ("guard_split", |ledger, _| chain(ledger, 3, guards::split)),
    ("guard_transfer", |ledger, _| {
        let tenant = level(ledger.root())?;
        let (from, to) = (level(tenant)?, level(tenant)?);
        let body = move |_, n| guards::transfer(from, to, black_box(UNITS), n);
        Ok((UNROLLED, Box::new(body)))
    }),
    ("atomics_depth3", |_, _| shared(Atomics::new(MAX))),
    ("mutex_depth3", |_, _| shared(Locked::new(MAX))),
    ("create_destroy", |ledger, threads| {
        let root = ledger.root();
        let names: Vec<String> = (0..threads).map(|thread| format!("q{thread}")).collect();
        Ok((1, Box::new(move |thread, n| create_destroy(root, &names[thread], n))))
    }),
    ("large_64k", queries::large_64k),
    ("large_1m", queries::large_1m),
    ("grow_shrink", queries::grow_shrink),
    ("grow_shrink_1m", queries::grow_shrink_1m),
    ("own_query", queries::own_query),
    ("short_query", queries::short_query),
    ("transfer_cells", queries::transfer_cells),
    ("refusal", queries::refusal),
    ("atomics_peaks", |_, _| shared(AtomicPeaks::new(MAX))),
    ("atomics_grow", queries::atomics_grow),
    ("atomics_refusal", queries::atomics_refusal),
    ("mutex_grow", queries::mutex_grow),
    // These ledgers lie in files.
    (UNWATCHED, |ledger, _| chain(ledger, 3, pair)),
    (WATCHED, |_, _| Err("a ledger in no file cannot be watched".into())),
    (MILLION, |_, _| Err("it is measured as a whole, not in rounds".into())),
];

/// Makes a chain of this many levels, the root included, and returns the last group: a charge of `/a/b` passes three.
pub(super) fn chain<'l>(
    ledger: &'l Ledger,
    levels: usize,
    work: fn(Group<'_>, u64, u64),
) -> Made<Work<'l>> {
    let mut group = ledger.root();
    group.set_max(Limit::units(MAX))?;
    for _ in 1..levels {
        group = level(group)?;
    }
    Ok((UNROLLED, Box::new(move |_, n| work(group, black_box(UNITS), n))))
}

/// Returns a unique name for a group: threads make groups of their own, and cases share a ledger.
fn unique() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed).to_string()
}

/// Makes a group with a limit.
fn level(parent: Group<'_>) -> Made<Group<'_>> {
    let group = parent.create(&unique())?;
    group.set_max(Limit::units(MAX))?;
    Ok(group)
}

/// Makes `count` groups below the root, walked in a random order that is always the same.
fn wide(ledger: &Ledger, count: usize) -> Made<Work<'_>> {
    /// Fewer handles are repeated up to this number, so that the ends of the walk weigh the same.
    const WALK_LEAST: usize = 8;
    let mut groups = (0..count)
        .map(|_| ledger.root().create(&unique()))
        .collect::<Result<Vec<Group<'_>>, CreateError>>()?;
    for group in &groups {
        group.set_max(Limit::units(MAX))?;
    }
    shuffle(&mut groups);
    let walk: Vec<Group<'_>> = groups.iter().copied().cycle().take(count.max(WALK_LEAST)).collect();
    Ok((walk.len() as u64, Box::new(move |_, n| pairs(&walk, black_box(UNITS), n))))
}

#[inline(always)]
fn charge_uncharge(group: Group<'_>, units: u64) {
    if group.try_charge_units(units).is_err() {
        refused();
    }
    group.uncharge_units(units);
}

#[inline(never)]
pub(super) fn pair(group: Group<'_>, units: u64, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!(charge_uncharge(group, units));
    }
}

#[inline(never)]
fn pairs(groups: &[Group<'_>], units: u64, n: u64) {
    for _ in 0..n / groups.len() as u64 {
        for &group in groups {
            charge_uncharge(group, units);
        }
    }
}

/// Makes work on a counter that all threads share, without per-CPU memory.
pub(super) fn shared<P: Peer + 'static>(peer: P) -> Made<Work<'static>> {
    Ok((UNROLLED, Box::new(move |_, n| peer_pair(&peer, black_box(UNITS), n))))
}

#[inline(never)]
fn peer_pair<P: Peer>(peer: &P, units: u64, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!({
            if !peer.try_charge(units) {
                refused();
            }
            peer.uncharge(units);
        });
    }
}

#[inline(never)]
fn create_destroy(parent: Group<'_>, name: &str, n: u64) {
    for _ in 0..n {
        let group = parent.create(name).expect("a ledger of a few groups has room");
        group.destroy().expect("a group without children or charges can be destroyed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_leaves_nothing_charged() {
        for (name, make) in CASES {
            let ledger = Ledger::new().unwrap();
            let made = make(&ledger, 2);
            if [WATCHED, MILLION].contains(&name) {
                assert!(made.is_err(), "{name} is not made of a ledger alone");
                continue;
            }
            let (granule, body) = made.unwrap();
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let body = &body;
                    scope.spawn(move || body(thread, 2 * granule));
                }
            });
            assert_eq!(ledger.root().precise(), 0, "{name}");
            let without = ["bare_add", "create_destroy"].contains(&name);
            let peer = name.starts_with("atomics_") || name.starts_with("mutex_");
            let charged = !without && !peer;
            assert_eq!(ledger.root().peak().value > 0, charged, "{name}");
            if name == "create_destroy" {
                assert_eq!(ledger.snapshot().groups.len(), 1, "only the root is left");
            }
        }
    }
}
