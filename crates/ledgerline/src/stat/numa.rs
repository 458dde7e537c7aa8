//! NUMA statistics: count whether allocations come from the preferred node, and from the running CPU's
//! node.
//!
//! ```text
//! an allocation that wanted zone P and came from zone A, on a CPU of node R:
//!     A's node = P's node:  A counts numa_hit
//!     otherwise:            A counts numa_miss, P counts numa_foreign
//!     A's node = R:         A counts numa_local        otherwise: A counts numa_other
//!     interleaved, and A's node = P's node:            A counts numa_interleave as well
//! ```
//!
//! These are the kernel's rules (`zone_statistics`). The mail of the series of Linux commit
//! 1d90ca897cb0, "mm: update NUMA counter threshold size", has them in full. The zone that *gave* the
//! page counts hits, misses, local and other; the preferred zone counts foreign. For each zone, hit +
//! miss = local + other; over all zones, miss = foreign.

use super::{At, Counters, PlaceId, PlaceKind, Places, Width};
use crate::percpu;
use std::fmt;
use std::io;

crate::items! {
    /// The counts of a zone's allocations, with the names of `/proc/vmstat` and `/proc/zoneinfo`.
    pub enum NumaItem {
        /// Allocations that came from the node that was wanted.
        Hit = "numa_hit",
        /// Allocations that came from here although another node was wanted.
        Miss = "numa_miss",
        /// Allocations that wanted this node and came from another.
        Foreign = "numa_foreign",
        /// Interleaved allocations that came from the node whose turn it was.
        Interleave = "numa_interleave",
        /// Allocations by a CPU of the node that they came from.
        Local = "numa_local",
        /// Allocations by a CPU of another node.
        Other = "numa_other",
    }
}

impl NumaItem {
    /// Returns the name in a node's `numastat`, which uses different names.
    pub const fn numastat(self) -> &'static str {
        match self {
            NumaItem::Hit => "numa_hit",
            NumaItem::Miss => "numa_miss",
            NumaItem::Foreign => "numa_foreign",
            NumaItem::Interleave => "interleave_hit",
            NumaItem::Local => "local_node",
            NumaItem::Other => "other_node",
        }
    }
}

/// The class of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// It came from the preferred node.
    pub hit: bool,
    /// It came from the running CPU's node.
    pub local: bool,
}

/// Classifies an allocation by the preferred node, the node that it came from, and the running CPU's
/// node.
#[inline(always)]
pub const fn classify(preferred: u32, actual: u32, running: u32) -> Class {
    Class { hit: actual == preferred, local: actual == running }
}

/// Returns the node that the calling thread runs on. Takes one load with restartable sequences,
/// otherwise a system call. Async-signal-safe.
#[inline]
pub fn running_node() -> u32 {
    percpu::running_node()
}

/// NUMA counters of the zones of a tree of places.
///
/// Threads may share it. See [`Counters`] for the cost of the widths. The kernel used `u16` from 4.14
/// on, and whole words since 5.14.
///
/// ```
/// use ledgerline::stat::Places;
/// use ledgerline::stat::numa::{Numa, NumaItem};
///
/// let mut tree = Places::builder("machine");
/// let nodes = [tree.node("0")?, tree.node("1")?];
/// let zones = [tree.zone(nodes[0], "Normal")?, tree.zone(nodes[1], "Normal")?];
/// let numa: Numa = Numa::new(&tree.build()?)?;
/// let [here, there] = [numa.zone(zones[0])?, numa.zone(zones[1])?];
///
/// here.count(here); // wanted from here, came from here
/// there.count(here); // node 0 was full
/// assert_eq!(numa.counters().precise(zones[0], NumaItem::Foreign), 1);
/// assert_eq!(numa.counters().precise(zones[1], NumaItem::Miss), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Numa<W: Width = i64> {
    counters: Counters<NumaItem, W>,
}

/// A zone whose allocations are counted. Made by [`Numa::zone`].
#[derive(Clone, Copy, Debug)]
pub struct Zone<'n, W: Width = i64> {
    at: At<'n, NumaItem, W>,
    node: u32,
}

/// A place that is not part of a node whose name is its number (`0`, or `node0`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotInANode {
    /// The place's path.
    pub place: String,
}

impl fmt::Display for NotInANode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the place {:?} is not part of a node that is named by its number", self.place)
    }
}

impl std::error::Error for NotInANode {}

impl<W: Width> Numa<W> {
    /// Makes counters for the zones of these places.
    ///
    /// # Errors
    /// As for [`Counters::new`].
    pub fn new(places: &Places) -> io::Result<Numa<W>> {
        Counters::new(places).map(Numa::from)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters<NumaItem, W> {
        &self.counters
    }

    /// Makes a handle to a zone or a whole node. Its node is looked up once, here.
    ///
    /// # Errors
    /// [`NotInANode`].
    ///
    /// # Panics
    /// If the place belongs to another tree.
    pub fn zone(&self, place: PlaceId) -> Result<Zone<'_, W>, NotInANode> {
        let places = self.counters.places();
        let node = node(places, place).ok_or_else(|| NotInANode { place: places.path(place) })?;
        Ok(Zone { at: self.counters.at(place), node })
    }
}

impl<W: Width> From<Counters<NumaItem, W>> for Numa<W> {
    /// Uses counters that were made with other settings, a threshold for instance.
    fn from(counters: Counters<NumaItem, W>) -> Numa<W> {
        Numa { counters }
    }
}

impl<W: Width> Zone<'_, W> {
    /// Counts an allocation of the running CPU that preferred `preferred` and came from this zone.
    /// Makes two or three updates. Async-signal-safe.
    #[inline]
    pub fn count(self, preferred: Zone<'_, W>) {
        self.count_on(running_node(), preferred);
    }

    /// Like [`count`](Self::count), but for a CPU of the node `running`.
    #[inline]
    pub fn count_on(self, running: u32, preferred: Zone<'_, W>) -> Class {
        let class = classify(preferred.node, self.node, running);
        if class.hit {
            self.at.inc(NumaItem::Hit);
        } else {
            self.at.inc(NumaItem::Miss);
            preferred.at.inc(NumaItem::Foreign);
        }
        self.at.inc(if class.local { NumaItem::Local } else { NumaItem::Other });
        class
    }

    /// Like [`count`](Self::count), but for an interleaved allocation whose turn it was to come from
    /// `preferred`.
    #[inline]
    pub fn count_interleaved(self, preferred: Zone<'_, W>) {
        if self.count_on(running_node(), preferred).hit {
            self.at.inc(NumaItem::Interleave);
        }
    }

    /// Returns the number of its node.
    pub fn node(self) -> u32 {
        self.node
    }
}

/// Returns the number of the node that a place is, or lies in.
fn node(places: &Places, place: PlaceId) -> Option<u32> {
    let up = |&at: &PlaceId| places.parent(at);
    let mut above = std::iter::successors(Some(place), up);
    let node = above.find(|&at| places.kind(at) == PlaceKind::Node)?;
    let name = places.name(node);
    name.strip_prefix("node").unwrap_or(name).parse().ok()
}

#[cfg(test)]
mod tests;
