//! Readings: bounds that hold, peaks that are not mostly stock, and no data of a next tenant.

use ledgerline::{CreateError, Estimate, Group, Ledger, Limit};

const MIB: u64 = 1 << 20;

fn holds(estimate: Estimate, truth: u64) {
    let Estimate { value, bound, .. } = estimate;
    assert!(value >= truth && value - bound.min(value) <= truth, "{estimate:?} for {truth}");
    assert!(value <= truth + truth / 4 + 16 * MIB, "{value} for {truth}");
}

#[test]
fn fifty_thousand_small_groups_read_as_what_they_hold() {
    let ledger = Ledger::new().unwrap();
    let mut held = Vec::new();
    for number in 0..50_000u64 {
        let group = ledger.root().create(&number.to_string()).unwrap();
        held.push(group.try_charge(1000).unwrap());
        if number % 1000 == 0 {
            holds(ledger.root().approximate(), 1000 * (number + 1));
        }
    }
    holds(ledger.root().approximate(), 50_000_000);
    assert!(ledger.root().approximate().bound < 29 * MIB);
    // The same after most of it is returned.
    while held.len() > 100 {
        held.pop();
        if held.len() % 1000 == 0 {
            holds(ledger.root().approximate(), 1000 * held.len() as u64);
        }
    }
}

#[test]
fn the_peak_of_a_small_group_is_about_what_it_held() {
    let ledger = Ledger::new().unwrap();
    let group = ledger.root().create("small").unwrap();
    drop(group.try_charge(10).unwrap());
    let peak = group.peak();
    assert!(peak.value >= 10 && peak.value - peak.bound <= 10, "{peak:?}");
    assert!(peak.value < 20, "{peak:?}");
}

#[test]
fn a_handle_of_a_group_that_is_gone_tells_nothing_of_the_next_one() {
    let ledger = Ledger::new().unwrap();
    let alice = ledger.root().create("alice").unwrap();
    alice.destroy().unwrap();
    let bob = ledger.root().create("bob").unwrap();
    assert_eq!(alice.id().index(), bob.id().index(), "bob has alice's row");
    bob.set_max(Limit::units(1000)).unwrap();
    bob.set_high(Limit::units(900));
    bob.set_low(Limit::units(7));
    bob.set_min(Limit::units(3));
    let _held = bob.try_charge(950).unwrap();
    bob.try_charge(100).unwrap_err();

    let refused = alice.try_charge(1).unwrap_err().to_string();
    assert!(!refused.contains("bob") && refused.contains("(destroyed)"), "{refused}");
    assert_eq!((alice.path(), alice.name()), ("(destroyed)".into(), "(destroyed)".into()));
    assert_eq!((alice.max(), alice.high()), (Limit::MAX, Limit::MAX));
    assert_eq!((alice.low(), alice.min()), (Limit::ZERO, Limit::ZERO));
    assert_eq!((alice.precise(), alice.approximate().value, alice.peak().value), (0, 0, 0));
    assert_eq!((alice.max_events(), alice.events().max, alice.parent()), (0, 0, None));
    assert!(alice.stat().lines.iter().all(|line| (line.own, line.subtree) == (0, 0)));
    alice.set_high(Limit::ZERO);
    assert_eq!(bob.high(), Limit::units(900));
}

#[test]
fn a_name_that_would_mislead_a_reader_is_refused() {
    let root = Ledger::new().unwrap();
    let create = |name: &str| root.root().create(name).map(Group::name);
    let bad = [
        "a\u{7f}",
        "a\u{85}b",
        "a\u{9b}31m",
        "\u{2028}",
        "a\u{2029}",
        "\u{202e}txt",
        "\u{200f}",
        "\u{2066}a",
        "\u{3164}",
        "acme\u{fe0f}",
        "\u{2800}",
        "a/b",
        "",
        "\n",
        "\u{1b}[31m",
    ];
    for name in bad {
        assert!(matches!(create(name), Err(CreateError::BadName { .. })), "{name:?}");
    }
    for name in ["q42", "Zürich", "名前", "a b", "émile's"] {
        assert_eq!(create(name).unwrap(), name);
    }
}
