//! Checks of a change, before anything is changed.

use super::ask::{Change, Which};
use crate::steered::{self, Found};
use ledgerline::container::UNTRACKED;
use ledgerline::{Limit, Snapshot, size};
use std::collections::HashMap;

/// The number of the largest holders that are named.
const HOLDERS: usize = 3;

/// Checks all changes.
pub(super) fn all(found: &Found<'_>, changes: &[Change], now: bool) -> Result<(), String> {
    let path = &found.path;
    if found.has_ended {
        return Err(format!(
            "the process of {path} has ended, so it charges nothing that a limit could refuse"
        ));
    }
    let is_limit = |change: &&Change| [Which::Max, Which::High].contains(&change.which);
    let slip = changes.iter().filter(is_limit).find(|change| change.is_bare);
    // In a ledger of other units a small number is a valid limit.
    if let Some(change) = slip
        && found.group.ledger().snapshot().unit == "bytes"
    {
        let bytes = change.limit.get().unwrap_or(0);
        return Err(format!(
            "{}={bytes} is {bytes} bytes; write {bytes}M, {bytes}K, or at least 1048576 without a unit",
            change.which.name()
        ));
    }
    for change in changes.iter().filter(|change| change.which == Which::Max) {
        if found.is_root && steered::follows_container(found.group.ledger()) {
            return Err(
                "the max of / follows the container's limit, which would be set again: change the \
                        container's (memory.max of its cgroup), or set the max of groups below"
                    .to_owned(),
            );
        }
        if *path == format!("/{UNTRACKED}") {
            return Err(format!(
                "{path} has memory that the kernel charges and no program asked for: a max would refuse nothing"
            ));
        }
        let reserve = found.reserve();
        if change.limit.get().is_some_and(|units| units < reserve) {
            return Err(format!(
                "max={}: the run keeps {} of it as its reserve (run --reserve); give at least that",
                change.limit,
                size::format(reserve)
            ));
        }
        let usage = found.group.precise();
        if !now && usage > kept(found, change.limit).get().unwrap_or(u64::MAX) {
            return Err(busy(found, change.limit, usage));
        }
    }
    Ok(())
}

/// Returns the ledger's max for the user's: a run keeps its reserve.
pub(super) fn kept(found: &Found<'_>, limit: Limit) -> Limit {
    limit.get().map_or(limit, |units| Limit::units(units.saturating_sub(found.reserve())))
}

/// Returns why a max is not set, with the largest holders.
pub(super) fn busy(found: &Found<'_>, limit: Limit, usage: u64) -> String {
    let room = kept(found, limit).get().unwrap_or(u64::MAX);
    let path = &found.path;
    let charged = found.group.precise();
    let by = size::format(usage.saturating_sub(room));
    let held = size::format(usage);
    let idle = usage.saturating_sub(charged);
    let idle = match charged <= room {
        true => format!(" ({} of that lie prepaid in the program's cells)", size::format(idle)),
        false => String::new(),
    };
    let holders = holders(&found.group.ledger().snapshot(), path);
    let holders = if holders.is_empty() { String::new() } else { format!("; {holders}") };
    format!(
        "{path}: max cannot be {limit}: {held} are in use{idle}, {by} too much{holders}. Have some returned \
         first, or use --now: then nothing more is let in until usage has come down"
    )
}

/// Returns the largest holders below a group, itself included, each without the groups below it.
fn holders(snapshot: &Snapshot, path: &str) -> String {
    let prefix = format!("{}/", path.trim_end_matches('/'));
    let mut below: HashMap<&str, u64> = HashMap::new();
    for group in snapshot.groups.iter().filter(|group| group.depth > 0) {
        let parent = group.path.rfind('/').map_or("/", |at| &group.path[..at.max(1)]);
        *below.entry(parent).or_default() += group.current;
    }
    let mut own: Vec<(u64, &str)> = snapshot
        .groups
        .iter()
        .filter(|group| group.path == path || group.path.starts_with(&prefix))
        .map(|group| {
            let held = below.get(&*group.path).copied().unwrap_or(0);
            (group.current.saturating_sub(held), &*group.path)
        })
        .filter(|(units, _)| *units > 0)
        .collect();
    own.sort_by(|a, b| b.cmp(a));
    own.truncate(HOLDERS);
    let told: Vec<String> =
        own.iter().map(|(units, path)| format!("{path} holds {}", size::format(*units))).collect();
    told.join(", ")
}
