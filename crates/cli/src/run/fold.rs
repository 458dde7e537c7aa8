//! Folds the rows of ended processes by program, once there are many.
//!
//! Those with the largest peaks keep rows of their own, since the account shows them. So a run of any number of
//! processes needs no more rows than the processes that live at the same time, and each process that starts looks at
//! few.

use std::collections::HashMap;

use ledgerline::{Group, Ledger, StatLine};
use ledgerline_protocol::{Item, program};

/// The most ended processes with rows of their own.
const KEPT: usize = 100;
/// The excess from which the smallest are folded: each fold is a look at all rows.
const SLACK: usize = 28;
/// The most programs with a row of their own; further ones share [`OTHERS`].
const PROGRAMS: usize = 200;
const OTHERS: &str = "(other programs)";

/// The rows that stand for a program's ended processes.
pub(super) struct Folded<'l> {
    ledger: &'l Ledger,
    /// The rows by the program and the reason why it is not accounted (0 if it is).
    rows: HashMap<(String, i64), Group<'l>>,
}

impl<'l> Folded<'l> {
    pub(super) fn new(ledger: &'l Ledger) -> Folded<'l> {
        Folded { ledger, rows: HashMap::new() }
    }

    /// Folds the smaller of the ended processes, if there are too many.
    pub(super) fn fold(&mut self) {
        let mut ended: Vec<Group<'_>> = self.ledger.ended().collect();
        if ended.len() <= KEPT + SLACK {
            return;
        }
        ended.sort_by_cached_key(|group| std::cmp::Reverse(group.peak().value));
        let mut by_program: HashMap<(String, i64), Vec<Group<'_>>> = HashMap::new();
        for group in ended.drain(KEPT..) {
            let name = group.name();
            let blind = group.stat().get(Item::Blind.name()).map_or(0, |line| line.own);
            let name = match program(&name) {
                "" => "program",
                name => name,
            };
            let mut key = (name.to_owned(), blind);
            if !self.rows.contains_key(&key) && self.rows.len() >= PROGRAMS {
                key.0 = OTHERS.to_owned();
            }
            by_program.entry(key).or_default().push(group);
        }
        for (key, processes) in by_program {
            let blind = key.1;
            let row = match self.rows.get(&key) {
                Some(&row) => row,
                // A program may have taken all rows. Then its processes keep theirs.
                None => match self.ledger.root().create(&key.0) {
                    Ok(row) => *self.rows.entry(key).or_insert(row),
                    Err(_) => continue,
                },
            };
            let own = |group: &Group<'_>, item: Item| {
                group.stat().get(item.name()).map_or(0, |line| line.own)
            };
            let most = processes.iter().chain([&row]).map(|group| own(group, Item::Resident)).max();
            // If all have one parent, the row is below that.
            let is_new = row.stat().get(Item::Ended.name()).is_none_or(|line| line.own == 0);
            let before = Some(row).filter(|_| !is_new);
            let mut parents = processes.iter().chain(&before).map(|group| own(group, Item::Parent));
            let parent = parents.next().filter(|parent| parents.all(|other| other == *parent));
            let folded = self.fold_into(row, &processes);
            // Reasons, resident peaks and identities cannot be added up.
            let known = [
                (Item::Blind, blind),
                (Item::Resident, most.unwrap_or(0)),
                (Item::Parent, parent.unwrap_or(0)),
                (Item::Started, 0),
                (Item::Executed, 0),
            ];
            for (item, want) in known {
                if folded > 0 {
                    self.add(row, item, want - own(&row, item));
                }
            }
        }
    }

    /// Adds to an item of a row.
    fn add(&self, row: Group<'_>, item: Item, more: i64) {
        if let Some(item) = self.ledger.item(item.name())
            && more != 0
        {
            row.add_stat(item, more);
        }
    }

    fn fold_into(&self, row: Group<'_>, processes: &[Group<'_>]) -> usize {
        let add = |item, more| self.add(row, item, more);
        // The first and the largest refusals are not sums. Until they are corrected, the row shows no refusal: its
        // first one is negative.
        let before = refused(row, |line| line.own);
        let all = self.refusals(processes);
        let hidden = before[0] + all.iter().map(|(_, refused)| refused[0]).sum::<i64>();
        add(Item::RefusedFirst, -hidden);
        let folded = self.ledger.fold_ended(processes, row);
        let of_folded = || {
            all.iter().filter(|(process, _)| folded.contains(process)).map(|&(_, refused)| refused)
        };
        let want = of_folded().chain([before]).filter(|refused| refused[0] > 0).reduce(|a, b| {
            let first = if a[1] <= b[1] { a } else { b };
            [first[0], first[1], a[2].max(b[2]), first[3]]
        });
        for (at, item) in Item::REFUSED.into_iter().enumerate().rev() {
            let sum = before[at] + of_folded().map(|refused| refused[at]).sum::<i64>();
            let now = if at == 0 { sum - hidden } else { sum };
            add(item, want.map_or(0, |want| want[at]) - now);
        }
        add(Item::Ended, folded.len() as i64);
        folded.len()
    }

    /// Returns the refusals of each row of these processes, if there were any.
    fn refusals<'p>(&self, processes: &[Group<'p>]) -> Vec<(Group<'p>, Refused)> {
        if processes.iter().all(|&process| refused(process, |line| line.subtree)[0] == 0) {
            return Vec::new();
        }
        let mut process = None;
        let mut found = Vec::new();
        for group in self.ledger.snapshot().groups {
            // A process's rows are below its topmost one.
            if group.depth <= 1 {
                process = processes.iter().find(|process| process.id() == group.id);
            }
            if let Some(&process) = process {
                let own = refused(self.ledger.group(group.id), |line| line.own);
                found.push((process, own));
            }
        }
        found
    }
}

/// The numbers of [`Item::REFUSED`].
type Refused = [i64; Item::REFUSED.len()];

/// Returns the refusals of a group: [`Item::REFUSED`].
fn refused(group: Group<'_>, part: fn(&StatLine) -> i64) -> Refused {
    let stat = group.stat();
    Item::REFUSED.map(|item| stat.get(item.name()).map_or(0, part))
}
