//! Which rows of an account make no sense: a program wrote over them.

use ledgerline::container::UNTRACKED;
use ledgerline::{GroupSnapshot, GroupState, Limit};
use ledgerline_protocol::Identity;

use super::{Counted, Row, State};

/// More than any machine holds, or anybody counts.
pub(super) const MOST: u64 = 1 << 56;
/// More than anybody sets as a limit, less than no limit.
const LARGEST_LIMIT: u64 = 1 << 60;
/// The largest id of a process.
const LARGEST_PID: u32 = 1 << 22;

/// Whether a group says what is true of none: a program wrote over its row. What was written and makes sense is not
/// noticed.
pub(super) fn is_damaged(
    group: &GroupSnapshot,
    counted: &Counted,
    limits: Option<[Limit; 2]>,
) -> bool {
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
    // Of a run it is known which limits there are, and that each row is a process's.
    let others = limits.is_some_and(|of_root| match group.depth {
        0 => [group.max, group.high] != of_root,
        _ => {
            // (A row of several processes has no owner, nor has the one for what is untracked.)
            let is_nobodys = group.owner == 0 && counted.processes == 0 && group.name != UNTRACKED;
            [group.max, group.high] != [Limit::MAX; 2] || is_nobodys
        }
    });
    group.state == GroupState::Damaged
        || counted.absurd
        || numbers.into_iter().any(|number| number > MOST)
        || ![group.max, group.high].into_iter().all(is_limit)
        || Identity::from_owner(group.owner).pid() > LARGEST_PID
        || (group.depth == 0 && group.owner != 0)
        || others
}

impl Row {
    /// A row that a program wrote over: nothing that it says is a fact.
    pub(super) fn damaged(group: &GroupSnapshot) -> Row {
        Row {
            path: group.path.clone(),
            name: group.name.clone(),
            depth: group.depth as usize,
            state: State::Damaged,
            ..Row::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Mapped;
    use ledgerline::Ledger;

    const NONE: Counted = Counted {
        mapped: Mapped { private: 0, shared: 0, file: 0 },
        refused: 0,
        refused_heap: 0,
        max_heap: None,
        most_refused: None,
        folded: false,
        processes: 0,
        spared: 0,
        resident: 0,
        reserve: 0,
        blind: None,
        absurd: false,
    };

    /// A root, and a row as a process of a run has it.
    fn groups() -> [GroupSnapshot; 2] {
        let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
        ledger.root().create("job.7").unwrap();
        let [root, mut process] = ledger.snapshot().groups.try_into().unwrap();
        process.owner = 7;
        [root, process]
    }

    const LIMITS: Option<[Limit; 2]> = Some([Limit::MAX; 2]);

    #[test]
    fn what_a_machine_can_hold_is_no_damage() {
        let [root, mut process] = groups();
        assert!(!is_damaged(&root, &NONE, LIMITS) && !is_damaged(&process, &NONE, LIMITS));
        (process.current, process.charges) = (1 << 50, 1 << 50);
        assert!(!is_damaged(&process, &NONE, LIMITS));
        // In somebody else's ledger rows have limits, and no owner.
        (process.max, process.owner) = (Limit::units(1 << 40), 0);
        assert!(!is_damaged(&process, &NONE, None));
    }

    #[test]
    fn what_no_machine_holds_and_no_run_sets_is() {
        let [mut root, process] = groups();
        let with = |change: fn(&mut GroupSnapshot)| {
            let mut changed = process.clone();
            change(&mut changed);
            is_damaged(&changed, &NONE, LIMITS)
        };
        assert!(with(|group| group.current = 1 << 57));
        assert!(with(|group| group.peak.value = 1 << 57));
        assert!(with(|group| group.at_exit = u64::MAX));
        assert!(with(|group| group.charges = 1 << 60));
        assert!(with(|group| group.max_events = 1 << 60));
        assert!(with(|group| group.max = Limit::units(1 << 30)));
        assert!(with(|group| group.owner = 0));
        let mut of_several = process.clone();
        of_several.owner = 0;
        assert!(!is_damaged(&of_several, &Counted { processes: 3, ..NONE }, LIMITS));
        assert!(with(|group| group.owner = 1 << 23));
        assert!(with(|group| group.state = GroupState::Damaged));
        assert!(is_damaged(&process, &Counted { absurd: true, ..NONE }, LIMITS));
        let limits = Some([Limit::units(1 << 30), Limit::MAX]);
        assert!(is_damaged(&root, &NONE, limits), "another limit than was set");
        root.owner = 1;
        assert!(is_damaged(&root, &NONE, LIMITS), "a root of somebody's");
    }
}
