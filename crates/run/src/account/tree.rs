//! The lines of an account: processes below those that started them; small ones, and those of one program, folded.
//!
//! ```text
//! rows of the ledger          a row for each program that a process executed, below it its threads
//!   joined                    one line for a process, with the chain of its programs
//!   moved                     below the process that started it
//!   folded, alike             processes of one program that ended, below one parent: `cc x30`
//!   folded, small             peaks below 1 % of the root's: one line with the names
//!   chosen                    the largest, with the way from each to the root
//! ```

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use ledgerline_protocol::Identity;

use crate::account::model::{Account, Row, State};

/// Peaks below one part in this many of the root's are folded.
const SMALL: u64 = 100;
/// The most levels below the root. Deeper processes are shown on the last one, since no reader follows that far.
const DEEPEST: usize = 40;

/// A line, and the lines below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The numbers. For several rows: the largest peak, and the sums of the charged, refused and held units.
    pub row: Row,
    /// The programs that the process executed before, the first one first.
    pub before: Vec<String>,
    /// The number of processes that it stands for; 0 for other lines.
    pub processes: u64,
    /// For a line of several small ones, their names with counts; otherwise empty.
    pub small: Vec<(String, u64)>,
    /// The lines below.
    pub below: Vec<Line>,
}

impl Line {
    fn new(row: &Row) -> Line {
        let is_process = !row.program.is_empty();
        let processes = if is_process { row.counted.processes.max(1) } else { 0 };
        Line {
            row: row.clone(),
            before: Vec::new(),
            processes,
            small: Vec::new(),
            below: Vec::new(),
        }
    }

    /// Returns the largest peak of the line and of those below.
    fn most(&self) -> u64 {
        self.below.iter().map(Line::most).fold(self.row.peak, u64::max)
    }

    /// Returns whether it has more information than its size.
    fn is_notable(&self) -> bool {
        let row = &self.row;
        row.state == State::Damaged
            || row.max.is_some()
            || row.high.is_some()
            || row.counted.refused > 0
            || row.counted.forgotten > 0
            || self.below.iter().any(Line::is_notable)
    }

    /// Counts the names of the line and of those below.
    fn count_names(&self, into: &mut BTreeMap<String, u64>) {
        match self.small.is_empty() {
            true => *into.entry(self.row.called.clone()).or_default() += self.processes.max(1),
            false => {
                for (name, times) in &self.small {
                    *into.entry(name.clone()).or_default() += times;
                }
            }
        }
        self.below.iter().for_each(|line| line.count_names(into));
    }

    /// Adds another line's numbers, and takes over its lines below.
    fn add(&mut self, other: Line) {
        let (row, more) = (&mut self.row, other.row);
        self.processes += other.processes;
        // The numbers are of several processes.
        (row.pid, row.owner) = (0, 0);
        row.current = row.current.saturating_add(more.current);
        row.at_exit = row.at_exit.saturating_add(more.at_exit);
        row.peak = row.peak.max(more.peak);
        row.charges = row.charges.saturating_add(more.charges);
        row.uncharges = row.uncharges.saturating_add(more.uncharges);
        row.resident = row.resident.max(more.resident);
        let (counted, more) = (&mut row.counted, more.counted);
        counted.refused = counted.refused.saturating_add(more.refused);
        counted.mapped.private = counted.mapped.private.saturating_add(more.mapped.private);
        counted.folded |= more.folded;
        self.below.extend(other.below);
    }

    /// Returns the number of lines in this tree.
    fn count(&self) -> usize {
        1 + self.below.iter().map(Line::count).sum::<usize>()
    }
}

impl Line {
    /// Returns the process with the largest peak, of charges or of resident memory, among those with a line of their own.
    pub fn largest_process(&self, of_resident: bool) -> Option<&Line> {
        let below = self.below.iter().filter_map(|line| line.largest_process(of_resident));
        let own = Some(self).filter(|line| line.row.depth == 1 && line.row.pid != 0);
        below.chain(own).max_by_key(|line| {
            let resident = line.row.resident.filter(|_| of_resident);
            (resident, line.row.peak, std::cmp::Reverse(line.row.pid))
        })
    }
}

/// The shown lines of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The root's line; `None` for an account without rows.
    pub root: Option<Line>,
    /// The number of omitted lines.
    pub hidden: usize,
}

impl Tree {
    /// Returns all rows, each process in one line.
    pub fn whole(account: &Account) -> Tree {
        Tree { root: whole(account), hidden: 0 }
    }

    /// Returns at most `most` lines.
    pub fn folded(account: &Account, most: usize) -> Tree {
        let Some(mut root) = whole(account) else { return Tree::default() };
        fold(&mut root, account.root_peak() / SMALL);
        let all = root.count();
        let shown = chosen(&root, most);
        let mut at = 0;
        keep(&mut root, &shown, &mut at);
        Tree { hidden: all - root.count(), root: Some(root) }
    }
}

fn whole(account: &Account) -> Option<Line> {
    let distinct = Account { rows: account.distinct(), ..account.clone() };
    let parents = distinct.parents();
    let rows = &distinct.rows;
    rows.first()?;
    // Row 0 is the root, which is its own parent.
    let chains = chains(rows);
    let mut first_of: Vec<usize> = (0..rows.len()).collect();
    for chain in &chains {
        chain.iter().for_each(|&at| first_of[at] = chain[0]);
    }
    let processes = Processes::new(rows, &first_of);
    let mut above: Vec<usize> = (0..rows.len())
        .map(|at| match first_of[at] == at && rows[at].depth == 1 {
            true => processes.starter(at).unwrap_or(0),
            false => first_of[parents[at]],
        })
        .collect();
    let mut lines: Vec<Option<Line>> = rows.iter().map(|row| Some(Line::new(row))).collect();
    // The row of the last executed program stands for the process.
    for (chain, at) in
        chains.iter().flat_map(|chain| chain.iter().skip(1).map(move |&at| (chain, at)))
    {
        if let Some(later) = lines[at].take()
            && let Some(line) = &mut lines[chain[0]]
        {
            become_later(line, later);
        }
    }
    // In a tree by paths a pass from the last row to the first would do, but a process may precede the one that started
    // it.
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
    (1..rows.len()).filter(|&at| first_of[at] == at).for_each(|at| below[above[at]].push(at));
    let (mut order, mut level) = (vec![0], vec![0; rows.len()]);
    let mut next = 0;
    while let Some(&at) = order.get(next) {
        order.extend(&below[at]);
        if level[above[at]] == DEEPEST {
            above[at] = above[above[at]];
        }
        level[at] = level[above[at]] + usize::from(at > 0);
        next += 1;
    }
    for &at in order.iter().skip(1).rev() {
        if let Some(line) = lines[at].take()
            && let Some(parent) = &mut lines[above[at]]
        {
            parent.below.push(line);
        }
    }
    let mut root = lines[0].take();
    root.iter_mut().for_each(sort);
    root
}

fn is_process(row: &Row) -> bool {
    row.depth == 1 && row.owner != 0
}

/// Returns the rows of each process that executed others, the first program's first.
fn chains(rows: &[Row]) -> Vec<Vec<usize>> {
    let mut by_owner: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| is_process(row)) {
        by_owner.entry(row.owner).or_default().push(at);
    }
    let mut chains: Vec<Vec<usize>> = Vec::new();
    for mut all in by_owner.into_values() {
        all.sort_by_key(|&at| (rows[at].counted.origin.started, at));
        // Without the mark, an earlier row with the same id was another process's.
        let goes_on = |&before: &usize, _: &usize| rows[before].counted.origin.executed;
        chains.extend(all.chunk_by(goes_on).filter(|chain| chain.len() > 1).map(<[usize]>::to_vec));
    }
    chains
}

/// The processes by id and namespace.
struct Processes<'r> {
    rows: &'r [Row],
    by_number: HashMap<(u32, i64), Vec<usize>>,
}

impl<'r> Processes<'r> {
    fn new(rows: &'r [Row], first_of: &[usize]) -> Processes<'r> {
        let mut by_number: HashMap<_, Vec<usize>> = HashMap::new();
        for (at, row) in rows.iter().enumerate() {
            if is_process(row) && first_of[at] == at {
                by_number.entry((row.pid, distance(row))).or_default().push(at);
            }
        }
        Processes { rows, by_number }
    }

    /// Returns the row of the process that started another one, or all processes of a row: among those with the
    /// parent's id, the youngest one that is older.
    fn starter(&self, at: usize) -> Option<usize> {
        let row = &self.rows[at];
        let age = |at: usize| (self.rows[at].counted.origin.started, at);
        let parent = u32::try_from(row.counted.origin.parent).ok().filter(|&parent| parent != 0)?;
        let named = self.by_number.get(&(parent, distance(row)))?;
        let may_be = |&other: &usize| row.owner == 0 || age(other) < age(at);
        named.iter().copied().filter(may_be).max_by_key(|&other| age(other))
    }
}

/// Returns the distance of a process's namespace from the run's.
fn distance(row: &Row) -> i64 {
    Identity::from_owner(row.owner).distance()
}

/// Merges the row of a program that the process executed later: the line becomes that program's, with the larger peak.
fn become_later(line: &mut Line, mut later: Line) {
    let mut before = std::mem::take(&mut line.before);
    before.push(line.row.called.clone());
    later.row.peak = later.row.peak.max(line.row.peak);
    later.row.charges = later.row.charges.saturating_add(line.row.charges);
    later.row.uncharges = later.row.uncharges.saturating_add(line.row.uncharges);
    let refused = line.row.counted.refused;
    later.row.counted.refused = later.row.counted.refused.saturating_add(refused);
    later.row.counted.origin.parent = line.row.counted.origin.parent;
    later.below.append(&mut line.below);
    *line = Line { before, ..later };
}

/// Sorts the largest first, and equal lines in their old order.
fn sort(line: &mut Line) {
    line.below.iter_mut().for_each(sort);
    line.below
        .sort_by_key(|line| (std::cmp::Reverse(line.most()), line.row.counted.origin.started));
}

/// Folds processes of one program below a line, and then small ones.
fn fold(line: &mut Line, small: u64) {
    let mut alike: Vec<Line> = Vec::new();
    let mut place: HashMap<_, usize> = HashMap::new();
    for one in std::mem::take(&mut line.below) {
        let has_ended = one.processes > 0
            && one.row.state == State::Exited
            && (one.row.max, one.row.high) == (None, None);
        match place.entry((one.row.called.clone(), one.before.clone())) {
            _ if !has_ended => alike.push(one),
            Entry::Occupied(at) => alike[*at.get()].add(one),
            Entry::Vacant(free) => {
                free.insert(alike.len());
                alike.push(one);
            }
        }
    }
    alike.iter_mut().for_each(|one| fold(one, small));
    let (few, large): (Vec<Line>, Vec<Line>) =
        alike.into_iter().partition(|one| one.most() < small && !one.is_notable());
    line.below = large;
    if few.iter().map(Line::count).sum::<usize>() > 1 {
        line.below.push(small_ones(few));
    } else {
        line.below.extend(few);
    }
    // A folded line is sorted by its peak.
    sort_folded(line);
}

/// Like [`sort`], but only the lines right below, with those of small ones at the end.
fn sort_folded(line: &mut Line) {
    line.below.sort_by_key(|line| {
        (!line.small.is_empty(), std::cmp::Reverse(line.most()), line.row.counted.origin.started)
    });
}

/// Returns one line for several.
fn small_ones(few: Vec<Line>) -> Line {
    let mut names = BTreeMap::new();
    few.iter().for_each(|line| line.count_names(&mut names));
    let mut small: Vec<(String, u64)> = names.into_iter().collect();
    small.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    let mut all = few.into_iter().flat_map(flat);
    let first = all.next().expect("there are several");
    let mut line = all.fold(first, |mut sum, one| {
        sum.add(one);
        sum
    });
    line.small = small;
    line.before.clear();
    line.row.state = State::Live;
    line
}

/// Returns a line and those below as separate lines.
fn flat(mut line: Line) -> Vec<Line> {
    let below = std::mem::take(&mut line.below);
    std::iter::once(line).chain(below.into_iter().flat_map(flat)).collect()
}

/// Returns which lines are shown if only `most` fit, in the order of the tree: the notable ones, those with the largest
/// peaks, and the path from each to the root.
fn chosen(root: &Line, most: usize) -> Vec<bool> {
    /// Collects a line's own weight, and those of the lines below it.
    fn weigh(line: &Line, above: usize, into: &mut Vec<(usize, (bool, u64, u64))>) {
        let at = into.len();
        let damaged = line.row.state == State::Damaged;
        into.push((above, (damaged, line.row.peak, line.processes)));
        line.below.iter().for_each(|one| weigh(one, at, into));
    }
    let mut all = Vec::new();
    weigh(root, 0, &mut all);
    let mut by_weight: Vec<usize> = (0..all.len()).collect();
    by_weight.sort_by_key(|&at| std::cmp::Reverse(all[at].1));
    let mut shown = vec![false; all.len()];
    let mut room = most;
    for index in by_weight {
        let mut missing = Vec::new();
        let mut at = index;
        while !shown[at] && missing.len() <= room {
            missing.push(at);
            if all[at].0 == at {
                break;
            }
            at = all[at].0;
        }
        if missing.len() <= room {
            room -= missing.len();
            missing.into_iter().for_each(|at| shown[at] = true);
        }
    }
    shown
}

/// Removes the lines that are not shown; `at` counts the lines in the order of the tree.
fn keep(line: &mut Line, shown: &[bool], at: &mut usize) {
    *at += 1;
    let mut kept = Vec::new();
    for mut one in std::mem::take(&mut line.below) {
        let is_shown = shown[*at];
        keep(&mut one, shown, at);
        if is_shown {
            kept.push(one);
        }
    }
    line.below = kept;
}

#[cfg(test)]
mod tests;
