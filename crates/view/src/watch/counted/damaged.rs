//! The detection of damaged rows, which a program overwrote.

use ledgerline::container::UNTRACKED;
use ledgerline::{GroupSnapshot, GroupState, Limit};
use ledgerline_protocol::Identity;

use super::Counted;

/// More than any machine holds, or any real count.
pub const MOST: u64 = 1 << 56;
/// More processes than a run has ever started.
pub const MOST_PROCESSES: u64 = u32::MAX as u64;
/// More than any real limit, less than no limit.
const LARGEST_LIMIT: u64 = 1 << 60;
/// The largest id of a process.
const LARGEST_PID: u32 = 1 << 22;

/// Returns whether a group has values that are impossible: a program overwrote its row. Overwritten values that are
/// possible are not noticed.
pub fn is_damaged(group: &GroupSnapshot, counted: &Counted, of_run: bool) -> bool {
    let numbers = [
        group.current,
        group.approximate,
        group.peak.value,
        group.at_exit,
        group.charges,
        group.uncharges,
        group.max_events,
        group.high_events,
    ];
    let is_limit = |limit: Limit| limit.get().is_none_or(|units| units <= LARGEST_LIMIT);
    // In a run each row is a process's. The exceptions have no owner: a row of several processes, and the one for
    // untracked memory. The library itself checks that limits are valid, also those from `ledgerline set`.
    let is_nobodys = of_run
        && group.depth > 0
        && group.owner == 0
        && counted.processes == 0
        && group.name != UNTRACKED;
    group.state == GroupState::Damaged
        || counted.absurd
        || counted.processes.max(counted.left_out) > MOST_PROCESSES
        || numbers.into_iter().any(|number| number > MOST)
        || ![group.max, group.high].into_iter().all(is_limit)
        || Identity::from_owner(group.owner).pid() > LARGEST_PID
        || (group.depth == 0 && group.owner != 0)
        || is_nobodys
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline::Ledger;

    /// Returns a root, and a row like that of a run's process.
    fn groups() -> [GroupSnapshot; 2] {
        let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
        ledger.root().create("job.7").unwrap();
        let [root, mut process] = ledger.snapshot().groups.try_into().unwrap();
        process.owner = 7;
        [root, process]
    }

    fn none() -> Counted {
        Counted::default()
    }

    #[test]
    fn what_a_machine_can_hold_is_no_damage() {
        let [root, mut process] = groups();
        assert!(!is_damaged(&root, &none(), true) && !is_damaged(&process, &none(), true));
        (process.current, process.charges) = (1 << 50, 1 << 50);
        // A user may set a limit of it.
        process.max = Limit::units(1 << 40);
        assert!(!is_damaged(&process, &none(), true));
        // In ledgers of other programs rows have no owner.
        process.owner = 0;
        assert!(!is_damaged(&process, &none(), false));
    }

    #[test]
    fn what_no_machine_holds_and_no_run_sets_is() {
        let [mut root, process] = groups();
        let with = |change: fn(&mut GroupSnapshot)| {
            let mut changed = process.clone();
            change(&mut changed);
            is_damaged(&changed, &none(), true)
        };
        assert!(with(|group| group.current = 1 << 57));
        assert!(with(|group| group.peak.value = 1 << 57));
        assert!(with(|group| group.at_exit = u64::MAX));
        assert!(with(|group| group.charges = 1 << 60));
        assert!(with(|group| group.max_events = 1 << 60));
        assert!(with(|group| group.max = Limit::units(1 << 61)));
        assert!(with(|group| group.owner = 0));
        let mut of_several = process.clone();
        of_several.owner = 0;
        assert!(!is_damaged(&of_several, &Counted { processes: 3, ..none() }, true));
        assert!(with(|group| group.owner = 1 << 23));
        assert!(with(|group| group.state = GroupState::Damaged));
        assert!(is_damaged(&process, &Counted { absurd: true, ..none() }, true));
        let too_many = MOST_PROCESSES + 1;
        assert!(is_damaged(&process, &Counted { processes: too_many, ..none() }, true));
        assert!(is_damaged(&root, &Counted { left_out: too_many, ..none() }, true));
        root.owner = 1;
        assert!(is_damaged(&root, &none(), true), "a root of somebody's");
    }
}
