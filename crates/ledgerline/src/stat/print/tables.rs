//! Turns snapshots of counters into printable stats.

use super::{Pageset, Stat, Zone};
use crate::stat::numa::NumaItem;
use crate::stat::{CountersSnapshot, Item, PlaceKind};

/// Returns the stats of `/proc/vmstat`: the sums of each table, one table after the other. The kernel has
/// the items of zones first, then those of NUMA, then those of nodes. [`Flat`](super::Flat) prints it.
///
/// ```
/// use ledgerline::stat::print::{Flat, vmstat};
/// use ledgerline::stat::{Counters, Places};
///
/// ledgerline::items! {
///     /// What zones count.
///     enum ZoneItem {
///         /// Pages that are free.
///         Free = "nr_free_pages",
///     }
/// }
/// let places = Places::single("machine")?;
/// let zones = Counters::<ZoneItem, i8>::new(&places)?;
/// zones.add(places.root(), ZoneItem::Free, 3976);
/// assert_eq!(Flat(&vmstat(&[&zones.table()])).to_string(), "nr_free_pages 3976\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn vmstat(tables: &[&CountersSnapshot]) -> Vec<Stat> {
    tables.iter().flat_map(|table| stats(table, 0)).collect()
}

/// Returns the stats of a node's `numastat`: the sums of the zones of that place (by its position in the
/// table), with the names that this file uses for the items. [`Flat`](super::Flat) prints it. Empty if
/// there is no such place.
pub fn numastat(numa: &CountersSnapshot, place: usize) -> Vec<Stat> {
    let stat = |(name, value): (&str, u64)| match NumaItem::from_name(name) {
        Ok(item) => Stat::new(item.numastat(), value),
        Err(_) => Stat::new(name.to_owned(), value),
    };
    numa.values(place).map(stat).collect()
}

/// Returns the zones of `/proc/zoneinfo`: the zones of a table with their items, after them those of
/// `numa`, and the items of `nodes` in the first zone of each node. In `numa` and `nodes` it looks places
/// up by path.
///
/// `pages free` is the item `nr_free_pages`, if there is one, and each CPU has the threshold of the zone.
/// Counters have none of the kernel's other numbers of a zone, such as its watermarks and its size: set
/// them in the [`Zone`] before printing it.
pub fn zoneinfo(
    zones: &CountersSnapshot,
    numa: Option<&CountersSnapshot>,
    nodes: Option<&CountersSnapshot>,
) -> Vec<Zone> {
    let mut printed = Vec::new();
    for (position, node) in zones.of_kind(PlaceKind::Node).enumerate() {
        let name = &zones.places[node].name;
        let number = name.strip_prefix("node").unwrap_or(name).parse().unwrap_or(position as u32);
        let mut node_stats = at_path(nodes, name);
        for at in zones.children(node).filter(|&at| zones.places[at].kind == PlaceKind::Zone) {
            let place = &zones.places[at];
            let free = zones.value(at, "nr_free_pages").map(|free| Stat::new("free", free));
            let threshold = place.threshold.into();
            let set = |cpu| Pageset { cpu, threshold, ..Pageset::default() };
            let mut zone = Zone::new(number, place.name.clone());
            zone.node_stats = std::mem::take(&mut node_stats);
            zone.pages.extend(free);
            zone.stats = stats(zones, at);
            zone.numa = at_path(numa, &format!("{name}/{}", place.name));
            zone.pagesets = (0..zones.cpus).map(set).collect();
            printed.push(zone);
        }
    }
    printed
}

/// Returns the stats of a table at a path; empty without a table or without that path.
fn at_path(table: Option<&CountersSnapshot>, path: &str) -> Vec<Stat> {
    table.and_then(|table| Some(stats(table, table.find(path)?))).unwrap_or_default()
}

fn stats(table: &CountersSnapshot, place: usize) -> Vec<Stat> {
    table.values(place).map(|(name, value)| Stat::new(name.to_owned(), value)).collect()
}
