//! A handle of a group that is gone, and the group that has its row now.

use ledgerline::{
    Charge, ControlMode, Group, GroupId, Ledger, Limit, Prepaid, Protection, Refused,
};
use ledgerline::{Settled, Unclaimed, Watch};
use std::cell::RefCell;
use std::sync::Arc;

/// The reason why there is no such group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It was destroyed, and its row is bob's.
    RowIsBobs,
    /// It was destroyed with a charge that is still held, which keeps its row.
    ChargesLeft,
    /// It never existed.
    NeverWas,
    /// It cannot exist: the ledger has no such row.
    Beyond,
}

pub const WAYS: [Gone; 4] = [Gone::RowIsBobs, Gone::ChargesLeft, Gone::NeverWas, Gone::Beyond];

/// The setting of the checks: `stale`, a handle of a group that is gone, and bob, who has its row, if that is possible, below
/// a tenant, with a sibling and a child.
pub struct Stage<'l> {
    pub ledger: &'l Arc<Ledger>,
    pub stale: Group<'l>,
    pub bob: Group<'l>,
    pub kid: Group<'l>,
    pub eve: Group<'l>,
    /// Charges of alice, who was destroyed: a charge of zero, which keeps no row, and more.
    pub nothing: RefCell<Option<Charge<'l>>>,
    pub bobs: RefCell<Option<Charge<'l>>>,
    pub left: Option<Charge<'l>>,
    pub settled: Settled<'l>,
    pub watch: Watch<'l>,
    pub prepaid: Option<Prepaid<'l>>,
    /// A refusal from alice's time.
    pub refused: Refused,
}

impl<'l> Stage<'l> {
    pub fn nothing(&self) -> Charge<'l> {
        self.nothing.take().expect("taken once")
    }
}

pub fn on_stage(way: Gone, act: impl FnOnce(&Stage<'_>)) {
    let ledger = Ledger::builder().capacity(16).items(&["rows"]).anonymous().unwrap();
    let ledger = &Arc::new(ledger);
    let tenant = ledger.root().create("tenant").unwrap();
    let eve = tenant.create("eve").unwrap();
    let alice = ledger.root().create("alice").unwrap();
    let nothing = alice.try_charge(0).unwrap();
    let watch = alice.watch().unwrap();
    let prepaid = alice.prepaid();
    alice.set_max(Limit::units(10_000)).unwrap();
    let refused = alice.try_charge(20_000).unwrap_err();
    drop(alice.try_charge(5_000).unwrap());
    let left = (way == Gone::ChargesLeft).then(|| alice.try_charge(500).unwrap());
    let _seen = watch.look();
    let settled = alice.destroy().unwrap();

    let bob = tenant.create("bob").unwrap();
    assert_eq!(bob.id().index() == alice.id().index(), way != Gone::ChargesLeft);
    let stale = match way {
        Gone::RowIsBobs | Gone::ChargesLeft => alice,
        Gone::NeverWas => ledger.group(GroupId::from_parts(9, 3)),
        Gone::Beyond => ledger.group(GroupId::from_parts(1 << 19, 7)),
    };
    bob.set_max(Limit::units(1 << 20)).unwrap();
    bob.set_high(Limit::units(64 << 10));
    bob.set_low(Limit::units(1_000));
    bob.set_min(Limit::units(500));
    bob.set_oom_group(true);
    bob.add_stat(ledger.item("rows").unwrap(), 42);
    bob.add_reclaimed(7);
    let bobs = bob.try_charge(100_000).unwrap();
    bob.try_charge(2 << 20).unwrap_err();
    let kid = bob.create("kid").unwrap();
    kid.set_min(Limit::units(300));
    let _kids = kid.try_charge(1_000).unwrap();
    bob.set_mode(ControlMode::Measure);
    let stage = Stage {
        ledger,
        stale,
        bob,
        kid,
        eve,
        nothing: RefCell::new(Some(nothing)),
        bobs: RefCell::new(Some(bobs)),
        left,
        settled,
        watch,
        prepaid,
        refused,
    };
    let before = told_of(bob);
    assert!(before.contains("/tenant/bob") && before.contains("min: Limit(500)"), "{before}");
    act(&stage);
    // If the check took bob's charge, it is dropped by now, and bob's values differ.
    if let Some(charge) = stage.bobs.take() {
        assert_eq!(told_of(bob), before, "{way:?}");
        drop(charge);
    }
}

/// Returns everything that a group reports.
fn told_of(group: Group<'_>) -> String {
    group.ledger().root().drain();
    let snapshot = group.ledger().snapshot();
    let of_group = snapshot.groups.iter().find(|of_group| of_group.id == group.id());
    format!(
        "{of_group:?} {:?} {:?} {:?} {:?}",
        (group.name(), group.path(), group.parent(), group.mode(), group.oom_group()),
        (group.max(), group.high(), group.low(), group.min(), group.exists()),
        (group.precise(), group.approximate(), group.peak(), group.protection_from_root()),
        (
            group.max_events(),
            group.high_events(),
            group.events(),
            group.local_events(),
            group.stat()
        ),
    )
}

pub trait Protected {
    fn protection_from_root(self) -> Protection;
}

impl Protected for Group<'_> {
    fn protection_from_root(self) -> Protection {
        self.protection(self.ledger().root(), Unclaimed::Shared)
    }
}
