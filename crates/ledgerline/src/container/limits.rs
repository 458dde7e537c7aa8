//! The limits of this process, and the kernel's charge against each.

use super::cgroup::{self, Hierarchy, Version};
use crate::os;
use crate::size;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Version 1 writes a number a little below 2^63 when there is no limit. No machine has 2^62 bytes.
const NONE: u64 = 1 << 62;

/// The origin of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// `memory.max` of the cgroup (version 2) with this folder. Above it the kernel kills.
    Max(PathBuf),
    /// `memory.high` of the cgroup (version 2) with this folder. Above it the kernel slows the program down.
    High(PathBuf),
    /// `memory.limit_in_bytes` of the cgroup (version 1) with this folder. Above it the kernel kills.
    LimitInBytes(PathBuf),
    /// `hierarchical_memory_limit` in `memory.stat` of the cgroup (version 1) with this folder: the limit of a cgroup
    /// further up that is not visible from here.
    Hierarchical(PathBuf),
    /// The resource limit on address space (`ulimit -v`).
    AddressSpace,
    /// The resource limit on private writable memory (`ulimit -d`).
    Data,
    /// The memory of the machine.
    Machine,
}

impl fmt::Display for Source {
    /// `memory.high of /sys/fs/cgroup/job`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, folder) = match self {
            Source::Max(folder) => ("memory.max", folder),
            Source::High(folder) => ("memory.high", folder),
            Source::LimitInBytes(folder) => ("memory.limit_in_bytes", folder),
            Source::Hierarchical(folder) => ("hierarchical_memory_limit", folder),
            Source::AddressSpace => return f.write_str("the limit on address space (ulimit -v)"),
            Source::Data => return f.write_str("the limit on data (ulimit -d)"),
            Source::Machine => return f.write_str("the machine's memory"),
        };
        write!(f, "{file} of {}", folder.display())
    }
}

/// A limit that applies to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bound {
    /// The limit in bytes.
    pub bytes: u64,
    /// The origin of the limit.
    pub source: Source,
}

impl fmt::Display for Bound {
    /// `256.0M, memory.high of /sys/fs/cgroup/job`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", size::format(self.bytes), self.source)
    }
}

/// All limits on the memory of this process. Limits on swap are not included, since the kernel does not charge swapped
/// pages as memory.
///
/// ```
/// use ledgerline::container::Limits;
///
/// let limits = Limits::read();
/// if let Some(smallest) = limits.smallest() {
///     println!("{smallest}"); // 256.0M, memory.max of /sys/fs/cgroup/job
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    bounds: Vec<Bound>,
}

impl Limits {
    /// Reads the limits: `memory.max` and `memory.high` of this process's cgroup and of those above it (version 2),
    /// `memory.limit_in_bytes` (version 1), the resource limits on address space and data, and the machine's memory. Limits
    /// that cannot be read are left out. Costs some tenths of a millisecond: a few files of `/proc`, and two of each cgroup.
    pub fn read() -> Limits {
        Limits::read_in(Path::new("/"))
    }

    /// Like [`read`](Self::read), but looks for `/proc` and the mounts of cgroups below another folder: for a system that is
    /// mounted there, and for tests.
    pub fn read_in(system: &Path) -> Limits {
        let mut bounds = Vec::new();
        for hierarchy in cgroup::hierarchies(system) {
            match hierarchy.version {
                Version::V2 => version_2(&hierarchy, &mut bounds),
                Version::V1 => version_1(&hierarchy, &mut bounds),
            }
        }
        resources(&text(&system.join("proc/self/limits")), &mut bounds);
        let memory = field(&text(&system.join("proc/meminfo")), "MemTotal:");
        let machine = memory.map(|kib| kib.saturating_mul(1024));
        bounds.extend(machine.map(|bytes| Bound { bytes, source: Source::Machine }));
        Limits { bounds }
    }

    /// Returns all limits: those of cgroups first, from the process's own up.
    pub fn all(&self) -> &[Bound] {
        &self.bounds
    }

    /// Returns the smallest limit; of equal ones, the first.
    pub fn smallest(&self) -> Option<&Bound> {
        self.bounds.iter().min_by_key(|bound| bound.bytes)
    }
}

fn version_2(hierarchy: &Hierarchy, bounds: &mut Vec<Bound>) {
    for folder in &hierarchy.folders {
        for (file, source) in
            [("memory.max", Source::Max as fn(PathBuf) -> Source), ("memory.high", Source::High)]
        {
            let bytes = amount(&text(&folder.join(file)));
            bounds.extend(bytes.map(|bytes| Bound { bytes, source: source(folder.clone()) }));
        }
    }
}

fn version_1(hierarchy: &Hierarchy, bounds: &mut Vec<Bound>) {
    let mut smallest = u64::MAX;
    for (level, folder) in hierarchy.folders.iter().enumerate() {
        // In older kernels a cgroup could lie below another without counting into it.
        if level > 0 && text(&folder.join("memory.use_hierarchy")).trim() == "0" {
            break;
        }
        if let Some(bytes) = amount(&text(&folder.join("memory.limit_in_bytes"))) {
            smallest = smallest.min(bytes);
            bounds.push(Bound { bytes, source: Source::LimitInBytes(folder.clone()) });
        }
    }
    let own = &hierarchy.folders[0];
    let whole = field(&text(&own.join("memory.stat")), "hierarchical_memory_limit");
    if let Some(bytes) = whole.filter(|&bytes| bytes < smallest && bytes < NONE) {
        bounds.push(Bound { bytes, source: Source::Hierarchical(own.clone()) });
    }
}

/// Adds the soft limits of `/proc/self/limits`.
fn resources(limits: &str, bounds: &mut Vec<Bound>) {
    for (name, source) in
        [("Max address space", Source::AddressSpace), ("Max data size", Source::Data)]
    {
        let soft = limits
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.split_ascii_whitespace().next())
            .and_then(amount);
        bounds.extend(soft.map(|bytes| Bound { bytes, source }));
    }
}

/// Parses a limit as the kernel writes it. Returns `None` if there is none.
fn amount(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|&bytes| bytes < NONE)
}

/// Returns the number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with([' ', '\t'])))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn text(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Returns whether the kernel charges the same memory against both limits.
pub(super) fn have_one_measure(a: &Bound, b: &Bound) -> bool {
    match (folder(&a.source), folder(&b.source)) {
        (None, None) => a.source == b.source,
        (a, b) => a == b,
    }
}

/// Returns the folder of the cgroup that a limit belongs to.
pub(super) fn folder(source: &Source) -> Option<(Version, &Path)> {
    match source {
        Source::Max(folder) | Source::High(folder) => Some((Version::V2, folder)),
        Source::LimitInBytes(folder) | Source::Hierarchical(folder) => Some((Version::V1, folder)),
        Source::AddressSpace | Source::Data | Source::Machine => None,
    }
}

/// Page cache counts up to this fraction of the limit.
const CACHE: u64 = 16;

/// Returns the memory that the kernel charges against a limit and cannot reclaim by itself, or `None` if that cannot be
/// read.
///
/// **Page cache does not count beyond a sixteenth of the limit.** Before the kernel kills, it drops clean pages and writes
/// dirty ones back, so a file of any size must not cause a refusal. But the kernel does not always find these pages in time:
/// it killed in a cgroup of 256 MiB with 8 and 13 MiB of clean pages, and with 28 MiB under writeback. The counted part
/// leaves room for that.
pub(super) fn usage(system: &Path, source: &Source, limit: u64) -> Option<u64> {
    let Some((version, folder)) = folder(source) else { return own(system, source) };
    let (file, prefix) = match version {
        Version::V2 => ("memory.current", ""),
        Version::V1 => ("memory.usage_in_bytes", "total_"),
    };
    let all = amount(&text(&folder.join(file)))?;
    let stat = text(&folder.join("memory.stat"));
    let sum = |names: &[&str]| {
        let each = names.iter().filter_map(|name| field(&stat, &format!("{prefix}{name}")));
        each.fold(0u64, u64::saturating_add)
    };
    let cache = sum(&["inactive_file", "active_file"]);
    // Version 1 does not report how much of the slab is reclaimable.
    let free = cache.saturating_sub(limit / CACHE).saturating_add(sum(&["slab_reclaimable"]));
    Some(all.saturating_sub(free))
}

/// Returns the memory that counts against a limit of this process.
fn own(system: &Path, source: &Source) -> Option<u64> {
    // In pages: size, resident, shared, text, 0, data.
    let statm = text(&system.join("proc/self/statm"));
    let at = match source {
        Source::AddressSpace => 0,
        Source::Data => 5,
        _ => 1,
    };
    let pages: u64 = statm.split_ascii_whitespace().nth(at)?.parse().ok()?;
    pages.checked_mul(os::page_size() as u64)
}

/// How many events the kernel had counted at the last look: the cgroup met its high or max, or protected memory was taken.
#[derive(Debug, Default)]
pub(super) struct Events {
    seen: Option<u64>,
}

impl Events {
    /// Returns whether the kernel has counted more since the last look. Version 1 does not count them.
    pub(super) fn are_more(&mut self, cgroup: Option<(Version, &Path)>) -> bool {
        let Some((Version::V2, folder)) = cgroup else { return false };
        let events = text(&folder.join("memory.events"));
        let each =
            ["low", "high", "max", "oom"].into_iter().filter_map(|name| field(&events, name));
        let now = each.fold(0u64, u64::saturating_add);
        self.seen.replace(now).is_some_and(|before| now > before)
    }
}

#[cfg(test)]
mod tests;
