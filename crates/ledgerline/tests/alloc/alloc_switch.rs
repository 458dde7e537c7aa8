//! The global allocator's switches, which apply to the whole process.

use crate::common::ran_alone;
use ledgerline::{Group, Ledger, Mistakes, alloc};
use std::sync::mpsc;

fn group() -> Group<'static> {
    let ledger = Ledger::builder().capacity(64).anonymous().unwrap().into_static();
    ledger.root().create("query").unwrap()
}

#[test]
fn nobody_is_charged_where_nobody_is_current_unless_there_is_a_default() {
    if ran_alone("nobody_is_charged_where_nobody_is_current_unless_there_is_a_default") {
        return;
    }
    let [group, default] = [group(), group()];
    assert_eq!(alloc::set_default(None), None);
    let before = vec![0u8; 1000];
    alloc::set_default(Some(default));
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let during = vec![0u8; 1 << 20];
        let own = group.scope(|| vec![0u8; 500]);
        send.send((during, own)).unwrap();
    });
    let (during, own) = receive.recv().unwrap();
    assert_eq!(alloc::set_default(None), Some(default));
    // At least, since the harness's threads sometimes have no group.
    assert!(default.precise() >= 1 << 20);
    assert_eq!(group.precise(), 500);
    let held = default.precise();
    drop((before, during, own));
    assert!(default.precise() + (1 << 20) <= held);
    assert_eq!(group.precise(), 0);
}

#[test]
fn switched_off_it_charges_nobody_and_still_credits_what_was_charged() {
    if ran_alone("switched_off_it_charges_nobody_and_still_credits_what_was_charged") {
        return;
    }
    let group = group();
    let pairs = || (0..1000).for_each(|_| drop(std::hint::black_box(Box::new([0u8; 64]))));
    let (before, off) = group.scope(|| {
        // From here on the thread carries units of the group.
        pairs();
        let before = vec![0u8; 1000];
        alloc::set_accounting(false);
        let off = [vec![0u8; 50], vec![0u8; 1 << 20]];
        alloc::set_accounting(true);
        (before, off)
    });
    assert_eq!(group.precise(), 1000);
    group.scope(pairs);
    alloc::set_accounting(false);
    group.scope(pairs);
    drop(before);
    assert_eq!(group.precise(), 0);
    alloc::set_accounting(true);
    drop(off);
    assert_eq!(group.precise(), 0);
    // The pairs, and the block of 1000; nothing from the time while it was off.
    let settled = group.destroy().unwrap();
    assert_eq!((settled.charges, settled.uncharges), (2001, 2001));
    assert_eq!(group.ledger().mistakes(), Mistakes::default());
}
