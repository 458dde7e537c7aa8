//! Effective protection is how much of a group reclaim must leave (`min`), or leaves unless nothing else is left
//! (`low`). It matters if a parent's protection does not suffice for all children with a setting.
//!
//! It is a query over the current tree, from the reclaimed group downwards. Nothing is stored, so nothing is stale.
//! For a child with usage `usage` and setting `setting` (either of the two):
//!
//! ```text
//! claim     = min(usage, setting)                     protection for memory that is not there is of no use
//! effective = setting                                 right below the group that is reclaimed
//! effective = claim * parent / claims                 if the children's claims exceed the parent's effective
//! effective = claim                                   otherwise, and if protection is recursive also a share
//!           + (parent - claims) * (usage - claim) / (parent_usage - claims)       of what no child claims
//! ```
//!
//! The formula is that of the kernel's memory controller (`effective_protection`); products are taken
//! in 128 bits here, since in 64 they overflow from 2^32 pages on and leave a group unprotected.

use crate::group::Group;
use crate::ledger::Ledger;
use crate::sync::Ordering;
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use crate::table::row::{Row, state};
use std::collections::BTreeMap;

/// How much of a group is protected from reclaim, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Protection {
    /// Never reclaimed.
    pub min: u64,
    /// Reclaimed only if nothing unprotected is left.
    pub low: u64,
}

/// The use of protection that a parent is granted and its children do not claim (cgroup v2's `memory_recursiveprot`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclaimed {
    /// It protects no child.
    Lost,
    /// It protects the children in proportion to their usage.
    Shared,
}

/// The protection that a parent can give, and the claims of its children.
#[derive(Clone, Copy, Debug, Default)]
struct Parent {
    effective: u64,
    usage: u64,
    /// Sum of the children's claims: each at most 2^62, and a ledger has 2^20 groups.
    claims: u128,
}

/// Computes the formula of the module's documentation, below the first level.
fn effective(usage: u64, setting: u64, parent: Parent, unclaimed: Unclaimed) -> u64 {
    let claim = u128::from(usage.min(setting));
    let usage = u128::from(usage);
    let (granted, parent_usage) = (u128::from(parent.effective), u128::from(parent.usage));
    // The numbers are read one after the other, so a child's claim may exceed the sum.
    let claims = parent.claims.max(claim);
    let protected = if claims > granted {
        // Not zero: it is above `granted`.
        claim * granted / claims
    } else if unclaimed == Unclaimed::Shared && parent_usage > claims && usage > claim {
        let share = (granted - claims) * (usage - claim) / (parent_usage - claims);
        // The children's usage may have passed their parent's between the readings.
        (claim + share).min(usage).min(granted)
    } else {
        claim
    };
    u64::try_from(protected).expect("at most what the parent is granted, a u64")
}

impl Group<'_> {
    /// Returns the group's effective protection when `top` is reclaimed (the root, if the whole ledger is). It is
    /// zero for `top` itself and for groups outside of it, which that reclaim does not touch, and if one of the two
    /// groups is gone.
    ///
    /// A group right below `top` has its setting. Further down, a group claims its setting up to its usage. If the
    /// children claim more than their parent has, they share it in proportion to their claims. Unclaimed protection
    /// is shared in proportion to the rest of their usage, or lost ([`Unclaimed`]).
    ///
    /// Usage includes idle stock. For each level with protection to share, this costs a pass over the rows in use,
    /// about a nanosecond a row. It allocates nothing.
    ///
    /// ```
    /// # use ledgerline::{Ledger, Limit, Unclaimed};
    /// let ledger = Ledger::new()?;
    /// let parent = ledger.root().create("parent")?;
    /// let [a, b] = [parent.create("a")?, parent.create("b")?];
    /// parent.set_min(Limit::units(50));
    /// a.set_min(Limit::units(75));
    /// b.set_min(Limit::units(25));
    /// let _used = (a.try_charge(50)?, b.try_charge(50)?);
    /// ledger.root().drain();
    /// let min = |group: ledgerline::Group| group.protection(ledger.root(), Unclaimed::Lost).min;
    /// assert_eq!((min(a), min(b)), (33, 16)); // 50 and 25 are claimed, and 50 are there
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn protection(self, top: Group<'_>, unclaimed: Unclaimed) -> Protection {
        // While this group exists, so does `top` if it is an ancestor. So `top` is checked first and last.
        let now = || self.read(|_| self.protection_now(top, unclaimed)).flatten();
        top.read(|_| now()).flatten().unwrap_or_default()
    }

    fn protection_now(self, top: Group<'_>, unclaimed: Unclaimed) -> Option<Protection> {
        let path = RowPath::new(self.table(), self.id().index())?;
        let level = path.rows().iter().position(|&row| row == top.id().index())?;
        let mut protection = None;
        down(self.ledger(), &path.rows()[..level], unclaimed, |of_row| protection = Some(of_row));
        protection
    }
}

/// Returns a row's min and low.
fn settings(row: &Row) -> [u64; 2] {
    let limits = &row.counter.limits;
    [&limits.min, &limits.low].map(|setting| setting.load(Ordering::Relaxed))
}

/// Computes the effective protection of the rows of a path when the parent of the topmost one is reclaimed. `rows`
/// has the deepest first; `hand_out` gets the topmost first. Costs a pass over the rows in use for each row that can
/// have protection.
pub(crate) fn down(
    ledger: &Ledger,
    rows: &[u32],
    unclaimed: Unclaimed,
    hand_out: impl FnMut(Protection),
) {
    protect_with(ledger, rows, unclaimed, |parent| claims(ledger, parent), hand_out);
}

/// Like [`down`], with a function that returns the claims of a row's children.
fn protect_with(
    ledger: &Ledger,
    rows: &[u32],
    unclaimed: Unclaimed,
    claims: impl Fn(u32) -> [u128; 2],
    mut hand_out: impl FnMut(Protection),
) {
    let Some((&first, below)) = rows.split_last() else { return };
    let mut granted = settings(ledger.table().row(first));
    let mut hand = |[min, low]: [u64; 2]| hand_out(Protection { min, low });
    hand(granted);
    let mut parent = first;
    for &row in below.iter().rev() {
        let child = ledger.table().row(row);
        granted = if may_protect(granted, child, unclaimed) {
            let claims = claims(parent);
            let usage = ledger.table().row(parent).counter.usage();
            std::array::from_fn(|which| {
                let parent = Parent { effective: granted[which], usage, claims: claims[which] };
                effective(child.counter.usage(), settings(child)[which], parent, unclaimed)
            })
        } else {
            [0; 2]
        };
        hand(granted);
        parent = row;
    }
}

/// Returns whether a child can have any protection from its parent's. Without a grant to the parent there is none.
/// Without a setting of its own, the child has only a share of unclaimed protection.
fn may_protect(granted: [u64; 2], child: &Row, unclaimed: Unclaimed) -> bool {
    let may = |(granted, setting)| granted > 0 && (unclaimed == Unclaimed::Shared || setting > 0);
    granted.into_iter().zip(settings(child)).any(may)
}

/// Returns the effective protection of many groups when `top` is reclaimed, and whether it depends on the usage of
/// others. Right below `top` it does not: there it is the group's own setting. Costs one pass over the rows in use,
/// and none if no group's protection depends on others.
pub(crate) fn below(top: Group<'_>, groups: &[GroupId]) -> Vec<(Protection, bool)> {
    let ledger = top.ledger();
    let row = |index: u32| ledger.table().row(index);
    let below_top = |&id: &GroupId| {
        let path = RowPath::of(ledger.table(), id)?;
        let level = path.rows().iter().position(|&row| row == top.id().index())?;
        Some(path.rows()[..level].to_vec())
    };
    let paths: Vec<Vec<u32>> = groups.iter().map(|id| below_top(id).unwrap_or_default()).collect();
    let mut claims: BTreeMap<u32, [u128; 2]> = BTreeMap::new();
    for rows in &paths {
        // Stops at the first row without a setting: no grant reaches deeper.
        for pair in rows.windows(2).rev() {
            if !may_protect(settings(row(pair[1])), row(pair[0]), Unclaimed::Lost) {
                break;
            }
            claims.insert(pair[1], [0; 2]);
        }
    }
    if !claims.is_empty() {
        each_child(ledger, |parent, row| {
            if let Some(claims) = claims.get_mut(&parent) {
                add_claim(claims, row);
            }
        });
    }
    // A setting made meanwhile does not count yet.
    let claims = |parent: u32| claims.get(&parent).copied().unwrap_or_default();
    let of = |rows: &Vec<u32>| {
        let mut protection = Protection::default();
        protect_with(ledger, rows, Unclaimed::Lost, claims, |of_row| protection = of_row);
        (protection, rows.len() > 1 && protection != Protection::default())
    };
    paths.iter().map(of).collect()
}

/// Returns the sums of the min and of the low that the children of a row claim.
fn claims(ledger: &Ledger, parent: u32) -> [u128; 2] {
    let mut claims = [0; 2];
    each_child(ledger, |of, row| {
        if of == parent {
            add_claim(&mut claims, row);
        }
    });
    claims
}

/// Calls `show` for every row in use but the root's, with its parent, in one pass.
fn each_child(ledger: &Ledger, mut show: impl FnMut(u32, &Row)) {
    for index in 1..ledger.table().high_water() {
        let row = ledger.table().row(index);
        if row.state.load(Ordering::Relaxed) == state::LIVE {
            show(row.parent.load(Ordering::Relaxed), row);
        }
    }
}

/// Adds a row's claims to its siblings'.
fn add_claim(claims: &mut [u128; 2], row: &Row) {
    let usage = row.counter.usage();
    for (claims, setting) in claims.iter_mut().zip(settings(row)) {
        *claims += u128::from(usage.min(setting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ledger, Limit};
    use proptest::prelude::*;

    /// Computes the formula by trial: the largest number that satisfies its defining inequality, found a bit at a
    /// time. No division, and no common code.
    fn by_trial(usage: u64, setting: u64, parent: Parent, unclaimed: Unclaimed) -> u64 {
        let largest = |holds: &dyn Fn(u128) -> bool| {
            (0..64).rev().fold(0u128, |found, bit| {
                if holds(found | 1 << bit) { found | 1 << bit } else { found }
            })
        };
        let claim = u128::from(if usage < setting { usage } else { setting });
        let granted = u128::from(parent.effective);
        if parent.claims > granted {
            return largest(&|n| n * parent.claims <= claim * granted) as u64;
        }
        let over = u128::from(parent.usage).saturating_sub(parent.claims);
        let mine = u128::from(usage) - claim;
        if unclaimed == Unclaimed::Lost || over == 0 || mine == 0 {
            return claim as u64;
        }
        (claim + largest(&|n| n * over <= (granted - parent.claims) * mine)) as u64
    }

    /// Numbers of every size up to `most`, more often near the ends of the range.
    fn sizes(most: u64) -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            Just(most),
            0u64..100,
            (0u32..63, any::<u64>())
                .prop_map(move |(bits, low)| (1 << bits | low & ((1 << bits) - 1)).min(most)),
            (0u64..1000).prop_map(move |below| most - below),
        ]
    }

    #[test]
    fn a_million_families_get_what_the_inequality_says() {
        let runs = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
        let mut runner = proptest::test_runner::TestRunner::new(crate::cases::few(file!(), runs));
        // Seven children's usage fits into their parent's 64 bits.
        let children = prop::collection::vec((sizes(u64::MAX / 7), sizes(u64::MAX)), 1..8);
        runner
            .run(&(children, sizes(u64::MAX)), |(children, granted)| {
                let usage = children.iter().map(|&(usage, _)| usage).sum();
                let claims = children.iter().map(|&(u, s)| u128::from(u.min(s))).sum();
                let parent = Parent { effective: granted.min(usage), usage, claims };
                for unclaimed in [Unclaimed::Lost, Unclaimed::Shared] {
                    let mut sum = 0u128;
                    for &(usage, setting) in &children {
                        let protected = effective(usage, setting, parent, unclaimed);
                        prop_assert_eq!(protected, by_trial(usage, setting, parent, unclaimed));
                        prop_assert!(protected <= usage);
                        sum += u128::from(protected);
                    }
                    prop_assert!(sum <= u128::from(parent.effective));
                }
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn where_64_bits_overflow_the_child_keeps_its_protection() {
        // 2^40 pages granted, of which a child of 2^24 + 5 pages claims half of all claims.
        let parent = Parent { effective: 1 << 40, usage: u64::MAX >> 2, claims: 1 << 41 };
        assert_eq!(effective((1 << 40) + 5, 1 << 50, parent, Unclaimed::Lost), (1 << 39) + 2);
    }

    /// The published case: four children ask for 75, 25, 0 and 500 MiB of min below a parent with 50, and
    /// use 50, 50, 50 and 0. Reclaimed in proportion to what is not protected, they end at about 29, 21, 0
    /// and 0.
    #[test]
    fn children_of_a_parent_with_50_mib_end_at_29_and_21() {
        const MIB: u64 = 1 << 20;
        let ledger = Ledger::new().unwrap();
        let parent = ledger.root().create("parent").unwrap();
        parent.set_min(Limit::units(50 * MIB));
        let asked = [75, 25, 0, 500].map(|min| {
            let child = parent.create(&format!("with {min}")).unwrap();
            child.set_min(Limit::units(min * MIB));
            child
        });
        for (child, usage) in asked.iter().zip([50, 50, 50, 0]) {
            child.try_charge_units(usage * MIB).unwrap();
        }
        for _ in 0..4000 {
            ledger.root().drain();
            // All are read before any is reclaimed.
            let reclaim = asked.map(|child| {
                let min = child.protection(ledger.root(), Unclaimed::Lost).min;
                child.precise().saturating_sub(min) / 128
            });
            for (child, units) in asked.iter().zip(reclaim) {
                child.uncharge_units(units);
            }
        }
        let left = asked.map(|child| child.precise() as f64 / MIB as f64);
        for (left, published) in left.iter().zip([29.0, 21.0, 0.0, 0.0]) {
            assert!((left - published).abs() < 1.0, "{left} of {published}");
        }
    }

    #[test]
    fn protection_is_of_those_below_the_reclaimed_group_alone() {
        let ledger = Ledger::new().unwrap();
        let [a, b] = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
        let child = a.create("child").unwrap();
        for group in [a, b, child] {
            group.set_min(Limit::units(100));
            group.set_low(Limit::units(200));
        }
        child.try_charge_units(60).unwrap();
        ledger.root().drain();
        let of = |group: Group<'_>, top| group.protection(top, Unclaimed::Lost);
        assert_eq!(of(a, ledger.root()), Protection { min: 100, low: 200 });
        assert_eq!(of(child, ledger.root()), Protection { min: 60, low: 60 });
        assert_eq!(
            of(child, a),
            Protection { min: 100, low: 200 },
            "right below what is reclaimed"
        );
        for (group, top) in [(ledger.root(), ledger.root()), (a, a), (b, a), (a, child)] {
            assert_eq!(of(group, top), Protection::default());
        }
    }

    #[test]
    fn what_nobody_claims_is_shared_out_only_if_that_is_asked_for() {
        let ledger = Ledger::new().unwrap();
        let parent = ledger.root().create("parent").unwrap();
        let [a, b] = ["a", "b"].map(|name| parent.create(name).unwrap());
        parent.set_low(Limit::units(90));
        a.set_low(Limit::units(10));
        a.try_charge_units(50).unwrap();
        b.try_charge_units(70).unwrap();
        ledger.root().drain();
        let low = |group: Group<'_>, unclaimed| group.protection(ledger.root(), unclaimed).low;
        assert_eq!((low(a, Unclaimed::Lost), low(b, Unclaimed::Lost)), (10, 0));
        // 80 of 110 unclaimed units: 40 * 80 / 110 and 70 * 80 / 110.
        assert_eq!((low(a, Unclaimed::Shared), low(b, Unclaimed::Shared)), (39, 50));
    }
}
