//! `/proc/zoneinfo`: one zone of a node.

use super::{Stat, Word};
use std::borrow::Cow;
use std::fmt;

/// Prints a zone as `/proc/zoneinfo` does. The file is the sequence of its zones.
///
/// The order is the kernel's: the pages, the zone's items, after them the NUMA items, then each CPU's page
/// set. Empty parts are left out. The kernel prints a zone without pages only up to the protection, and
/// the items of a node in its first zone with pages.
///
/// ```
/// use ledgerline::stat::print::{Stat, Zone};
///
/// let mut zone = Zone::new(0, "Normal");
/// zone.pages = vec![Stat::new("free", 3976), Stat::new("min", 32)];
/// zone.stats = vec![Stat::new("nr_mlock", 5)];
/// zone.numa = vec![Stat::new("numa_hit", 41)];
/// assert_eq!(
///     zone.to_string(),
///     "Node 0, zone   Normal
///   pages free     3976
///         min      32
///       nr_mlock     5
///       numa_hit     41
/// "
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The node that it is part of.
    pub node: u32,
    /// Its name.
    pub name: Cow<'static, str>,
    /// The items of the node.
    pub node_stats: Vec<Stat>,
    /// Its pages: `free`, then `boost`, `min`, `low`, `high`, `promo`, `spanned`, `present`, `managed`
    /// and `cma` in the kernel; the first stands on the line that begins with `pages`.
    pub pages: Vec<Stat>,
    /// Pages kept from allocations that could use a higher zone, for each such zone.
    pub protection: Vec<u64>,
    /// The items of the zone.
    pub stats: Vec<Stat>,
    /// The NUMA items of the zone.
    pub numa: Vec<Stat>,
    /// The page set of each CPU.
    pub pagesets: Vec<Pageset>,
    /// The lines at the end: `node_unreclaimable` and `start_pfn`.
    pub tail: Vec<Stat>,
}

/// A CPU's page set of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pageset {
    /// The CPU.
    pub cpu: u32,
    /// `count`, `high`, `batch`, `high_min` and `high_max` in the kernel.
    pub stats: Vec<Stat>,
    /// How far its differences may grow before they are folded.
    pub threshold: u64,
}

impl Zone {
    /// Makes a zone without numbers.
    pub fn new(node: u32, name: impl Into<Cow<'static, str>>) -> Zone {
        Zone { node, name: name.into(), ..Zone::default() }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Right-aligned in eight columns, into which all names of zones fit.
        let left = 8usize.saturating_sub(self.name.chars().count());
        writeln!(f, "Node {}, zone {:left$}{}", self.node, "", Word(&self.name, 0))?;
        if !self.node_stats.is_empty() {
            writeln!(f, "  per-node stats")?;
        }
        items(f, &self.node_stats)?;
        for (at, Stat { name, value }) in self.pages.iter().enumerate() {
            let start = if at == 0 { "  pages " } else { "        " };
            writeln!(f, "{start}{} {value}", Word(name, 8))?;
        }
        if let Some((first, others)) = self.protection.split_first() {
            write!(f, "        protection: ({first}")?;
            others.iter().try_for_each(|pages| write!(f, ", {pages}"))?;
            writeln!(f, ")")?;
        }
        items(f, &self.stats)?;
        items(f, &self.numa)?;
        if !self.pagesets.is_empty() {
            writeln!(f, "  pagesets")?;
        }
        self.pagesets.iter().try_for_each(|set| write!(f, "{set}"))?;
        for Stat { name, value } in &self.tail {
            labelled(f, "  ", name, 19, *value)?;
        }
        Ok(())
    }
}

impl fmt::Display for Pageset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    cpu: {}", self.cpu)?;
        for Stat { name, value } in &self.stats {
            labelled(f, "              ", name, 8, *value)?;
        }
        writeln!(f, "  vm stats threshold: {}", self.threshold)
    }
}

fn items(f: &mut fmt::Formatter<'_>, stats: &[Stat]) -> fmt::Result {
    stats.iter().try_for_each(|stat| writeln!(f, "      {} {}", Word(&stat.name, 12), stat.value))
}

/// Prints a name with a colon, and the value `width` characters after the name's start and a space.
fn labelled(
    f: &mut fmt::Formatter<'_>,
    start: &str,
    name: &str,
    width: usize,
    value: u64,
) -> fmt::Result {
    let left = width.saturating_sub(name.chars().count());
    writeln!(f, "{start}{}:{:left$} {value}", Word(name, 0), "")
}
