//! Groups of a ledger in the form of observers and operators: by path, with limits as the user set them.

use ledgerline::container::UNTRACKED;
use ledgerline::{Group, GroupSnapshot, GroupState, Ledger, Limit};
use ledgerline_protocol::Item;

use ledgerline_run::account::model::is_damaged;
use strsim::levenshtein;

/// The most names that an error suggests.
const SUGGESTED: usize = 3;

/// A group that was found by its path.
pub struct Found<'l> {
    pub group: Group<'l>,
    pub path: String,
    pub is_root: bool,
    /// Whether its process has ended.
    pub has_ended: bool,
}

/// Finds the group at a path, with or without a leading slash. An error suggests groups with similar names.
pub fn find<'l>(ledger: &'l Ledger, path: &str) -> Result<Found<'l>, String> {
    let snapshot = ledger.snapshot();
    let wanted = format!("/{}", path.trim_matches('/'));
    let Some(found) = snapshot.groups.iter().find(|group| group.path == wanted) else {
        let near = near(&wanted, &snapshot.groups);
        let near = if near.is_empty() { String::new() } else { format!(" (like {near}?)") };
        return Err(format!(
            "there is no group {path:?}{near}; `ledgerline show` without a group lists them"
        ));
    };
    if is_damaged(ledger, found) {
        return Err(format!(
            "the group {path:?} is damaged: a program wrote over it, and its numbers mean nothing"
        ));
    }
    Ok(Found {
        group: ledger.group(found.id),
        is_root: found.depth == 0,
        has_ended: found.state == GroupState::Exited,
        path: wanted,
    })
}

/// Returns the paths that are most similar to a missing one.
fn near(wanted: &str, groups: &[GroupSnapshot]) -> String {
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let distance = |path: &str| {
        let whole = levenshtein(wanted, path);
        // For example `/q1` for `/acme/q1`, or processes of one program, like `/sh.12`.
        let stem = |name: String| name.split('.').next().unwrap_or_default().to_owned();
        if last(path) == last(wanted) || stem(last(path)) == last(wanted) {
            1.min(whole)
        } else {
            whole
        }
    };
    let most = (wanted.len() / 3).max(2);
    let mut alike: Vec<(usize, &str)> = groups
        .iter()
        .filter(|group| group.depth > 0)
        .map(|group| (distance(&group.path), &*group.path))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    alike.sort();
    alike.truncate(SUGGESTED);
    let names: Vec<&str> = alike.into_iter().map(|(_, path)| path).collect();
    names.join(", ")
}

impl Found<'_> {
    /// Returns the part of the root's max that a run keeps as its reserve, which the user's limit includes: 0 for any
    /// other group, and in any other ledger.
    pub fn reserve(&self) -> u64 {
        self.of_run(Item::Reserved)
    }

    /// Returns a count of the root of a run; 0 for any other group, and in any other ledger.
    fn of_run(&self, item: Item) -> u64 {
        let ledger = self.group.ledger();
        if !self.is_root || ledger.item_names() != Item::NAMES {
            return 0;
        }
        let stat = ledger.root().stat();
        stat.get(item.name()).map_or(0, |line| line.own.max(0).cast_unsigned())
    }
}

/// Returns a group's max as the user sees it.
pub fn max(found: &Found<'_>) -> Limit {
    // The root's own max is a mark then.
    if let Some(resident) = found.of_run(Item::RESIDENT_MAX).checked_sub(1) {
        return Limit::units(resident);
    }
    let max = found.group.max();
    max.get().map_or(max, |units| Limit::units(units.saturating_add(found.reserve())))
}

/// Returns whether the library sets the root's max from the container's limit.
pub fn follows_container(ledger: &Ledger) -> bool {
    ledger.root().child(UNTRACKED).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_there_is_met_with_those_like_it() {
        let ledger = Ledger::builder().capacity(16).anonymous().unwrap();
        let acme = ledger.root().create("acme").unwrap();
        for name in ["q1", "q2", "sh.4711"] {
            acme.create(name).unwrap();
        }
        let told = |path| find(&ledger, path).err().expect("it is not there");
        assert!(told("/acmee").starts_with("there is no group \"/acmee\" (like /acme?)"));
        assert!(told("q1").contains("(like /acme/q1?)"), "{}", told("q1"));
        assert!(told("/sh").contains("(like /acme/sh.4711?)"), "{}", told("/sh"));
        assert!(!told("/other/thing").contains("like"), "{}", told("/other/thing"));
        for path in ["acme/q2", "/acme/q2/"] {
            assert!(find(&ledger, path).is_ok_and(|found| found.path == "/acme/q2"));
        }
        assert!(find(&ledger, "/").is_ok_and(|found| found.is_root));
    }
}
