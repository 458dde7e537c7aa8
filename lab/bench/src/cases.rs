//! The bodies of the suite `charge`: the public interface in bare loops. (Those with guards: `guards`.)
//!
//! The amount goes through `black_box` once, before the loop; what keeps the operations in the loop
//! is that they write memory that others can see. Loops over one thing do four operations a turn:
//! enough that counting the turns does not weigh on the cheapest of them, and not so much code that
//! fetching it weighs on the others (with eight it does). Walks over many groups do one a turn, with
//! the handle loaded from memory; `pair_groups1` shows what that costs by itself.

use super::guards;
use super::peers::{Atomics, Locked};
use ledgerline::percpu::Array;
use ledgerline::{CreateError, Group, Ledger, Limit};
use ledgerline_measure::harness::{Body, Case};
use std::error::Error;
use std::hint::black_box;

/// What each operation moves.
const UNITS: u64 = 64;
/// A limit at every level, far above what is ever charged.
const MAX: u64 = 1 << 40;
/// Operations a turn of the loops.
pub(super) const UNROLLED: u64 = 4;

macro_rules! four_times {
    ($operation:expr) => {{
        $operation;
        $operation;
        $operation;
        $operation;
    }};
}
pub(super) use four_times;

/// Cases that the harness times, in the order of the report.
pub(super) const NAMES: [&str; 18] = [
    "bare_add",
    "pair_depth1",
    "pair_depth3",
    "pair_depth8",
    "pair_groups1",
    "pair_groups8",
    "pair_groups1000",
    "pair_groups10000",
    "guard_depth1",
    "guard_depth3",
    "guard_depth8",
    "guard_question",
    "guard_vec",
    "guard_split",
    "guard_transfer",
    "atomics_depth3",
    "mutex_depth3",
    "create_destroy",
];

/// Makes a case for so many threads, which share its groups; they live in `ledger`, which is new.
pub(super) fn case<'l>(
    name: &'static str,
    ledger: &'l Ledger,
    threads: usize,
) -> Result<Case<'l>, Box<dyn Error>> {
    let (granule, body): (u64, Body<'l>) = match name {
        "bare_add" => {
            let array = Array::new(1)?;
            (UNROLLED, Box::new(move |_, n| bare_add(&array, black_box(UNITS) as i64, n)))
        }
        "pair_depth1" => chain(ledger, 1, pair)?,
        "pair_depth3" => chain(ledger, 3, pair)?,
        "pair_depth8" => chain(ledger, 8, pair)?,
        "guard_depth1" => chain(ledger, 1, guards::guard)?,
        "guard_depth3" => chain(ledger, 3, guards::guard)?,
        "guard_depth8" => chain(ledger, 8, guards::guard)?,
        "guard_question" => chain(ledger, 3, guards::question)?,
        "guard_vec" => chain(ledger, 3, guards::vec)?,
        "guard_split" => chain(ledger, 3, guards::split)?,
        "guard_transfer" => {
            let tenant = level(ledger.root())?;
            let (from, to) = (level(tenant)?, level(tenant)?);
            let body = move |_, n| guards::transfer(from, to, black_box(UNITS), n);
            (UNROLLED, Box::new(body))
        }
        "pair_groups1" => wide(ledger, 1)?,
        "pair_groups8" => wide(ledger, 8)?,
        "pair_groups1000" => wide(ledger, 1_000)?,
        "pair_groups10000" => wide(ledger, 10_000)?,
        "atomics_depth3" => {
            let peer = Atomics::new(MAX);
            (UNROLLED, Box::new(move |_, n| atomics(&peer, black_box(UNITS), n)))
        }
        "mutex_depth3" => {
            let peer = Locked::new(MAX);
            (UNROLLED, Box::new(move |_, n| locked(&peer, black_box(UNITS), n)))
        }
        "create_destroy" => {
            let root = ledger.root();
            let names: Vec<String> = (0..threads).map(|thread| format!("q{thread}")).collect();
            (1, Box::new(move |thread, n| create_destroy(root, &names[thread], n)))
        }
        _ => unreachable!("{name} is in the table of cases"),
    };
    Ok(Case { name, granule, body })
}

/// One group with so many levels, the root included: a charge of `/a/b` passes three.
fn chain<'l>(
    ledger: &'l Ledger,
    levels: usize,
    work: fn(Group<'_>, u64, u64),
) -> Result<(u64, Body<'l>), Box<dyn Error>> {
    let mut group = ledger.root();
    group.set_max(Limit::units(MAX))?;
    for _ in 1..levels {
        group = level(group)?;
    }
    Ok((UNROLLED, Box::new(move |_, n| work(group, black_box(UNITS), n))))
}

/// A group with a limit.
fn level(parent: Group<'_>) -> Result<Group<'_>, Box<dyn Error>> {
    let group = parent.create("level")?;
    group.set_max(Limit::units(MAX))?;
    Ok(group)
}

/// So many groups below the root, walked in an order that is random and always the same.
fn wide(ledger: &Ledger, count: usize) -> Result<(u64, Body<'_>), Box<dyn Error>> {
    /// Fewer handles are repeated up to this many, so that the walk's ends weigh alike.
    const WALK_LEAST: usize = 8;
    let mut groups = (0..count)
        .map(|number| ledger.root().create(&number.to_string()))
        .collect::<Result<Vec<Group<'_>>, CreateError>>()?;
    for group in &groups {
        group.set_max(Limit::units(MAX))?;
    }
    shuffle(&mut groups);
    let walk: Vec<Group<'_>> = groups.iter().copied().cycle().take(count.max(WALK_LEAST)).collect();
    Ok((walk.len() as u64, Box::new(move |_, n| pairs(&walk, black_box(UNITS), n))))
}

/// Fisher and Yates' shuffle with a fixed seed.
fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..items.len()).rev() {
        // Xorshift; its bias against a small modulus is of no account here.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(last, (state % (last as u64 + 1)) as usize);
    }
}

#[inline(never)]
fn bare_add(array: &Array, units: i64, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!(array.add(0, units));
    }
}

#[inline(always)]
fn charge_uncharge(group: Group<'_>, units: u64) {
    if group.try_charge_units(units).is_err() {
        refused();
    }
    group.uncharge_units(units);
}

#[inline(never)]
fn pair(group: Group<'_>, units: u64, n: u64) {
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

#[inline(never)]
fn atomics(peer: &Atomics, units: u64, n: u64) {
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
fn locked(peer: &Locked, units: u64, n: u64) {
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

#[cold]
#[inline(never)]
pub(super) fn refused() -> ! {
    panic!("a charge far below the limit was refused");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_leaves_nothing_charged() {
        for name in NAMES {
            let ledger = Ledger::new().unwrap();
            let case = case(name, &ledger, 2).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let case = &case;
                    scope.spawn(move || (case.body)(thread, 2 * case.granule));
                }
            });
            assert_eq!(ledger.root().precise(), 0, "{name}");
            let charged = name.starts_with("pair_") || name.starts_with("guard_");
            assert_eq!(ledger.root().peak().value > 0, charged, "{name}");
            if name == "create_destroy" {
                assert_eq!(ledger.snapshot().groups.len(), 1, "only the root is left");
            }
        }
    }

    #[test]
    fn a_shuffle_keeps_the_items_and_moves_them_the_same_way_each_time() {
        let shuffled = || {
            let mut items: Vec<u32> = (0..1000).collect();
            shuffle(&mut items);
            items
        };
        let mut items = shuffled();
        assert_eq!(items, shuffled());
        let followed = items.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(followed < 20, "{followed} neighbours stayed together");
        items.sort_unstable();
        assert!(items.into_iter().eq(0..1000));
    }
}
