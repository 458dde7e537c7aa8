//! The loops of `charge.c` in Rust, for that program to call in turn with its own.

use ledgerline::{Group, Ledger};
use std::hint::black_box;
use std::sync::OnceLock;

fn group() -> Group<'static> {
    static GROUP: OnceLock<Group<'static>> = OnceLock::new();
    *GROUP.get_or_init(|| {
        let ledger = Ledger::new().expect("address space").into_static();
        let group = ledger.root().create("tenant").and_then(|it| it.create("query"));
        let group = group.expect("there is room");
        group.try_charge_units(1 << 20).expect("there is no limit");
        group
    })
}

/// Charges 64 units without a guard and uncharges them, `pairs` times.
#[unsafe(no_mangle)]
pub extern "C" fn baseline_units(pairs: u64) {
    let group = group();
    for _ in 0..pairs {
        assert!(black_box(group).try_charge_units(black_box(64)).is_ok());
        black_box(group).uncharge_units(black_box(64));
    }
}
