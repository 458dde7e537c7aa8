//! The possible rows: the groups of a look with their rates, or the programs that groups were merged into.

use crate::top::column::Column;
use crate::watch::{Look, Rates, Row, State};
use ledgerline::GroupId;
use std::cmp::Ordering;
use std::collections::HashMap;

/// The identity of a row, by which the next look's row is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A group.
    Group(GroupId),
    /// All groups of one program.
    Program(String),
}

/// A possible row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// The first of its rows in the look.
    pub row: usize,
    /// With merged programs, all of its rows in the look that are not below another one of them; empty otherwise.
    pub members: Vec<usize>,
    /// Levels below the root.
    pub depth: u32,
    /// The index of its parent; the root's is its own.
    pub parent: usize,
    /// Whether rows lie below it.
    pub has_children: bool,
    /// The numbers that it is sorted by.
    pub figures: Figures,
}

/// The numbers of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Charged now.
    pub current: u64,
    /// The peak of the charge; of several groups the largest.
    pub peak: u64,
    /// Growth per second.
    pub growth: f64,
    /// The part of its max; of several groups the largest.
    pub share: Option<f64>,
    /// Refusals and events of max and high, per second.
    pub limits: f64,
    /// Refusals per second.
    pub refused: f64,
    /// Charges per second.
    pub charges: f64,
}

impl Figures {
    /// Returns the figures of one group.
    pub fn of(row: &Row, rates: &Rates) -> Figures {
        // The numbers of a damaged row are meaningless, its limits included.
        if row.state == State::Damaged {
            return Figures::default();
        }
        Figures {
            current: row.current,
            peak: row.peak,
            growth: rates.growth,
            share: row.share_of_max(),
            limits: rates.counts.refused + rates.counts.max_events + rates.counts.high_events,
            refused: rates.counts.refused,
            charges: rates.counts.charges,
        }
    }

    /// Adds a group of the same program. If it is `below` another group of the program, that one's figures include its
    /// own, except for the events of its own limits.
    fn add(&mut self, other: &Figures, below: bool) {
        self.peak = self.peak.max(other.peak);
        self.share = [self.share, other.share].into_iter().flatten().reduce(f64::max);
        if below {
            self.limits += other.limits - other.refused;
            return;
        }
        self.current = self.current.saturating_add(other.current);
        self.growth += other.growth;
        self.limits += other.limits;
        self.refused += other.refused;
        self.charges += other.charges;
    }

    /// Orders by a column, the largest first; names are not compared here.
    pub fn compare(&self, other: &Figures, column: Column) -> Ordering {
        match column {
            Column::Name => Ordering::Equal,
            Column::Current => other.current.cmp(&self.current),
            Column::Peak => other.peak.cmp(&self.peak),
            Column::Growth => other.growth.total_cmp(&self.growth),
            Column::Share => other.share.unwrap_or(-1.0).total_cmp(&self.share.unwrap_or(-1.0)),
            Column::Limits => other.limits.total_cmp(&self.limits),
            Column::Refused => other.refused.total_cmp(&self.refused),
            Column::Charges => other.charges.total_cmp(&self.charges),
        }
    }
}

impl Entry {
    /// Returns its identity in the next look.
    pub fn key(&self, look: &Look) -> Key {
        let row = &look.rows[self.row];
        if self.members.is_empty() { Key::Group(row.id) } else { Key::Program(row.program.clone()) }
    }

    /// Returns whether it is the row of a key, without making one.
    pub fn is(&self, key: &Key, look: &Look) -> bool {
        let row = &look.rows[self.row];
        match key {
            Key::Group(id) => self.members.is_empty() && row.id == *id,
            Key::Program(program) => !self.members.is_empty() && row.program == *program,
        }
    }

    /// Returns its name.
    pub fn name<'l>(&self, look: &'l Look) -> &'l str {
        let row = &look.rows[self.row];
        if self.members.is_empty() { &row.name } else { &row.program }
    }

    /// Returns its name on a line: its path in a `flat` list, and the number of groups that it stands for.
    pub fn label(&self, look: &Look, flat: bool) -> String {
        match self.members.len() {
            0 if flat => look.rows[self.row].path.clone(),
            0 | 1 => self.name(look).to_owned(),
            many => format!("{} ({many})", self.name(look)),
        }
    }

    /// Returns the groups that it stands for.
    pub fn rows(&self) -> &[usize] {
        if self.members.is_empty() { std::slice::from_ref(&self.row) } else { &self.members }
    }
}

/// Returns each group, in the look's order: a parent comes before those below it.
pub fn groups(look: &Look, rates: &[Rates]) -> Vec<Entry> {
    let parents = look.parents();
    let mut entries: Vec<Entry> = Vec::with_capacity(look.rows.len());
    for (place, (row, rates)) in look.rows.iter().zip(rates).enumerate() {
        let parent = parents[place];
        let depth = if place == 0 { 0 } else { entries[parent].depth + 1 };
        if place > 0 {
            entries[parent].has_children = true;
        }
        let figures = Figures::of(row, rates);
        entries.push(Entry { row: place, depth, parent, figures, ..Entry::default() });
    }
    entries
}

/// Returns the root, and below it each program: the sum of its groups, without counting any twice. The threads of a
/// process belong to its program; a group without a process belongs to the program of its own name.
pub fn programs(look: &Look, rates: &[Rates]) -> Vec<Entry> {
    let groups = groups(look, rates);
    let mut programs: Vec<&str> = Vec::with_capacity(groups.len());
    for (place, group) in groups.iter().enumerate() {
        let (row, above) = (&look.rows[place], &look.rows[group.parent]);
        let of_process = row.pid != 0 && group.parent != 0 && above.pid == row.pid;
        programs.push(if of_process { programs[group.parent] } else { &row.program });
    }
    // The groups from the root down to the last one, and the number of each program's among them. The root belongs to
    // none.
    let mut open: Vec<usize> = vec![0];
    let mut among: HashMap<&str, usize> = HashMap::new();
    let mut entries = vec![Entry { has_children: groups.len() > 1, ..groups[0].clone() }];
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (place, group) in groups.iter().enumerate().skip(1) {
        let program = programs[place];
        let entry = *places.entry(program).or_insert_with(|| {
            entries.push(Entry { row: place, depth: 1, ..Entry::default() });
            entries.len() - 1
        });
        let entry = &mut entries[entry];
        while let Some(last) = open.pop_if(|last| *last != group.parent && *last != 0) {
            among.entry(programs[last]).and_modify(|count| *count -= 1);
        }
        let count = among.entry(program).or_default();
        let below = *count > 0;
        *count += 1;
        open.push(place);
        entry.figures.add(&group.figures, below);
        if !below {
            entry.members.push(place);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::{look, row, tenants};
    use crate::watch::Counts;

    #[test]
    fn groups_know_their_parents_and_whether_something_lies_below_them() {
        let look = tenants();
        let entries = groups(&look, &vec![Rates::default(); look.rows.len()]);
        let told: Vec<_> =
            entries.iter().map(|it| (it.parent, it.depth, it.has_children)).collect();
        let expected = [
            (0, 0, true),
            (0, 1, true),
            (1, 2, false),
            (1, 2, false),
            (0, 1, true),
            (4, 2, false),
            (0, 1, false),
        ];
        assert_eq!(told, expected);
        assert_eq!(entries[4].figures.share, Some(400.0 / 410.0));
    }

    #[test]
    fn limits_are_refusals_and_events_of_max_and_high() {
        let counts =
            Counts { refused: 1.5, max_events: 2.0, high_events: 4.0, ..Counts::default() };
        let rates = Rates { counts, growth: 0.0 };
        assert_eq!(Figures::of(&row("/a", 1), &rates).limits, 7.5);
        let damaged = Row { state: State::Damaged, max: Some(0), ..row("/a", 0) };
        assert_eq!(Figures::of(&damaged, &rates), Figures::default());
    }

    #[test]
    fn groups_of_one_program_are_one_row_that_counts_no_unit_twice() {
        let mut look = look(vec![
            row("/", 100),
            row("/sh.1", 60),
            row("/sh.1/sh.2", 20),
            row("/sh.1/cc.3", 30),
            row("/sh.4", 7),
        ]);
        look.rows[4].peak = 80;
        look.rows[2].max = Some(40);
        let mut rates = vec![Rates::default(); 5];
        let counts = |charges, refused, max_events| Counts {
            charges,
            refused,
            max_events,
            ..Counts::default()
        };
        rates[1] = Rates { counts: counts(5.0, 2.0, 0.0), growth: -3.0 };
        rates[2] = Rates { counts: counts(4.0, 2.0, 2.0), growth: 0.0 };
        rates[4] = Rates { counts: counts(1.0, 0.0, 0.0), growth: 1.0 };
        let merged = programs(&look, &rates);
        let names: Vec<&str> = merged.iter().map(|entry| entry.name(&look)).collect();
        assert_eq!(names, ["/", "sh", "cc"]);
        let sh = &merged[1];
        assert_eq!(sh.members, [1, 4], "what lies below another is in that");
        let expected = Figures {
            current: 67,
            peak: 80,
            growth: -2.0,
            share: Some(0.5),
            limits: 4.0,
            refused: 2.0,
            charges: 6.0,
        };
        assert_eq!(sh.figures, expected);
        assert_eq!(sh.key(&look), Key::Program("sh".to_owned()));
        assert!(sh.is(&sh.key(&look), &look) && !merged[2].is(&sh.key(&look), &look));
        assert_eq!(merged[0].key(&look), Key::Group(look.rows[0].id));
    }

    #[test]
    fn threads_are_of_the_program_of_their_process() {
        let mut look = look(vec![
            row("/", 9),
            row("/python3.7", 8),
            row("/python3.7/worker", 3),
            row("/python3.7/sh.9", 2),
            row("/worker", 1),
        ]);
        for (place, pid) in [(1, 7), (2, 7), (3, 9)] {
            look.rows[place].pid = pid;
        }
        let merged = programs(&look, &[Rates::default(); 5]);
        let told: Vec<_> = merged.iter().map(|it| (it.name(&look), it.figures.current)).collect();
        assert_eq!(told, [("/", 9), ("python3", 8), ("sh", 2), ("worker", 1)]);
    }
}
