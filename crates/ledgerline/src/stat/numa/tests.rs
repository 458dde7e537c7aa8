//! Every case of the kernel's rules, and the sums that follow from them.

use super::*;
use crate::stat::Item;
use proptest::prelude::*;

/// Two nodes; the first has two zones.
fn machine() -> (Places, [PlaceId; 3]) {
    let mut tree = Places::builder("machine");
    let [zero, one] = ["0", "node1"].map(|name| tree.node(name).unwrap());
    let zones = [(zero, "DMA32"), (zero, "Normal"), (one, "Normal")];
    let zones = zones.map(|(node, name)| tree.zone(node, name).unwrap());
    (tree.build().unwrap(), zones)
}

fn counts<W: Width>(numa: &Numa<W>, place: PlaceId) -> [i64; 6] {
    std::array::from_fn(|item| numa.counters().precise(place, NumaItem::ALL[item]))
}

/// Preferred zone, zone of the allocation, running node; then the counts of zones 0, 1 and 2 for hit,
/// miss, foreign, interleave, local, other. Derived from the kernel's text, not from `classify`.
#[rustfmt::skip]
const CASES: [(usize, usize, u32, [[i64; 6]; 3]); 12] = [
    // From the preferred zone.
    (1, 1, 0, [[0; 6], [1, 0, 0, 0, 1, 0], [0; 6]]),
    (1, 1, 1, [[0; 6], [1, 0, 0, 0, 0, 1], [0; 6]]),
    (2, 2, 0, [[0; 6], [0; 6], [1, 0, 0, 0, 0, 1]]),
    (2, 2, 1, [[0; 6], [0; 6], [1, 0, 0, 0, 1, 0]]),
    // From another zone of the preferred node: a hit of the zone that gave.
    (1, 0, 0, [[1, 0, 0, 0, 1, 0], [0; 6], [0; 6]]),
    (1, 0, 1, [[1, 0, 0, 0, 0, 1], [0; 6], [0; 6]]),
    // From another node: a miss of the zone that gave, foreign for the preferred zone.
    (1, 2, 0, [[0; 6], [0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1]]),
    (1, 2, 1, [[0; 6], [0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 1, 0]]),
    (2, 0, 0, [[0, 1, 0, 0, 1, 0], [0; 6], [0, 0, 1, 0, 0, 0]]),
    (2, 0, 1, [[0, 1, 0, 0, 0, 1], [0; 6], [0, 0, 1, 0, 0, 0]]),
    // On a node without memory.
    (1, 1, 7, [[0; 6], [1, 0, 0, 0, 0, 1], [0; 6]]),
    (1, 2, 7, [[0; 6], [0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1]]),
];

#[test]
fn every_case_counts_as_the_kernel_does() {
    for (preferred, actual, running, expected) in CASES {
        let (places, zones) = machine();
        let numa: Numa = Numa::new(&places).unwrap();
        let [preferred, actual] = [preferred, actual].map(|at| numa.zone(zones[at]).unwrap());
        actual.count_on(running, preferred);
        for (zone, expected) in zones.into_iter().zip(expected) {
            let case = format!("{}, {}, {running}", preferred.node, actual.node);
            assert_eq!(counts(&numa, zone), expected, "{case}: {}", places.path(zone));
        }
    }
}

#[test]
fn an_interleaved_allocation_hits_where_its_turn_was_and_nowhere_else() {
    let (places, zones) = machine();
    let numa = Numa::<i8>::new(&places).unwrap();
    let [low, here, there] = zones.map(|zone| numa.zone(zone).unwrap());
    here.count_interleaved(here);
    low.count_interleaved(here);
    there.count_interleaved(here);
    here.count(here);
    let interleaved = zones.map(|zone| counts(&numa, zone)[3]);
    assert_eq!(interleaved, [1, 1, 0]);
    assert_eq!(counts(&numa, places.root())[..4], [3, 1, 1, 2]);
}

#[test]
fn the_running_cpu_decides_what_is_local() {
    let node = running_node();
    let mut tree = Places::builder("machine");
    let [home, away] = [node, node + 1].map(|node| tree.node(&node.to_string()).unwrap());
    let numa = Numa::<u16>::new(&tree.build().unwrap()).unwrap();
    let [home_zone, away_zone] = [home, away].map(|node| numa.zone(node).unwrap());
    // On a machine with several nodes the thread may move; the sums stay the same.
    for _ in 0..100 {
        home_zone.count(home_zone);
        away_zone.count(home_zone);
    }
    assert_eq!(home_zone.node(), node);
    let (home, away) = (counts(&numa, home), counts(&numa, away));
    assert_eq!((home[4] + home[5], away[4] + away[5]), (100, 100));
    if !std::path::Path::new("/sys/devices/system/node/node1").exists() {
        assert_eq!((home[4], away[5]), (100, 100), "one node: home is local, away is not");
    }
}

#[test]
fn a_place_outside_of_all_nodes_is_refused() {
    let mut tree = Places::builder("machine");
    let rack = tree.add(tree.root(), PlaceKind::Other, "rack").unwrap();
    let node = tree.node("first").unwrap();
    let zone = tree.zone(node, "Normal").unwrap();
    let numa: Numa = Numa::new(&tree.build().unwrap()).unwrap();
    for (place, path) in [(rack, "rack"), (node, "first"), (zone, "first/Normal")] {
        assert_eq!(numa.zone(place).unwrap_err(), NotInANode { place: path.into() });
    }
}

#[test]
fn the_items_have_the_names_and_the_order_of_vmstat() {
    let Ok(kernel) = std::fs::read_to_string("/proc/vmstat") else { return };
    let numa: Vec<&str> = kernel
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| name.starts_with("numa_"))
        .take(NumaItem::ALL.len())
        .collect();
    let ours: Vec<&str> = NumaItem::ALL.iter().map(|item| item.name()).collect();
    assert!(numa.is_empty() || numa == ours, "{numa:?}");
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    #[test]
    fn what_is_given_and_what_is_missed_add_up(
        allocations in prop::collection::vec((0usize..3, 0usize..3, 0u32..4), 0..300),
    ) {
        let (places, zones) = machine();
        let numa = Numa::<u16>::new(&places).unwrap();
        for &(preferred, actual, running) in &allocations {
            let [preferred, actual] = [preferred, actual].map(|at| numa.zone(zones[at]).unwrap());
            actual.count_on(running, preferred);
        }
        for (at, zone) in zones.into_iter().enumerate() {
            let [hit, miss, _, _, local, other] = counts(&numa, zone);
            let given = allocations.iter().filter(|allocation| allocation.1 == at).count() as i64;
            prop_assert_eq!((hit + miss, local + other), (given, given));
        }
        let [_, miss, foreign, ..] = counts(&numa, places.root());
        prop_assert_eq!(miss, foreign);
    }
}
