//! Keeps notes of refused charges for reports: folded by the group that was charged and the group whose limit
//! refused.
//!
//! Nothing is kept until the program asks for notes. Then a refusal, which has already walked to the root and drained
//! cells, tries a lock and writes one of a few rows. A refusal that finds the lock held, by another thread or by the
//! one that its signal handler interrupted, is not noted. So a note neither allocates nor waits. The counts of groups
//! miss no refusal.

use crate::group::Group;
use crate::ledger::Ledger;
use crate::stock::refusal::Refusal;
use crate::table::Table;
use crate::table::id::GroupId;
use crate::table::name::{self, NAME_MAX};
use crate::table::path::{DEPTH_MAX, RowPath};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Number of pairs of a charged and a refusing group that are noted between two calls of [`Group::take_refusals`].
pub const REFUSALS_NOTED: usize = 32;

/// Charges of one group that one limit refused since the last [`Group::take_refusals`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotedRefusal {
    /// The path of the charged group at that time: the group may be gone by now.
    pub charged: String,
    /// The path of the group whose limit refused: the charged group, or an ancestor.
    pub refused_by: String,
    /// The units of the largest of these charges.
    pub units: u64,
    /// Number of refusals noted. Of concurrent refusals, some are not noted.
    pub count: u64,
}

/// The notes of a ledger.
#[derive(Debug)]
pub(crate) struct Notes {
    /// The oldest first, at most as many as there is room for. No thread waits for the lock.
    rows: Mutex<VecDeque<Note>>,
}

/// The names of a path from the group upwards, without the root's.
type Names = [[u8; NAME_MAX]; DEPTH_MAX - 1];

#[derive(Debug)]
struct Note {
    charged: GroupId,
    by: GroupId,
    /// Number of names in `names`, and how many of them are below the refusing group.
    depth: usize,
    below: usize,
    names: Names,
    units: u64,
    count: u64,
}

impl Notes {
    fn new() -> Notes {
        let rows = Mutex::new(VecDeque::with_capacity(REFUSALS_NOTED));
        // Some systems allocate a lock when it is first taken; this takes it now.
        drop(rows.lock());
        Notes { rows }
    }

    /// Calls `change` with the rows, unless the lock is held.
    fn with<T>(&self, change: impl FnOnce(&mut VecDeque<Note>) -> T) -> Option<T> {
        self.rows.try_lock().ok().map(|mut rows| change(&mut rows))
    }

    /// Notes a refusal. Async-signal-safe: it neither allocates nor waits.
    pub(super) fn note(&self, table: &Table, refusal: &Refusal) {
        let Refusal { charged, group: by, requested, .. } = *refusal;
        self.with(|rows| {
            if let Some(note) = rows.iter_mut().find(|it| (it.charged, it.by) == (charged, by)) {
                note.count += 1;
                note.units = note.units.max(requested);
            } else if let Some(note) = Note::new(table, charged, by, requested) {
                if rows.len() == REFUSALS_NOTED {
                    rows.pop_front();
                }
                rows.push_back(note);
            }
        });
    }
}

impl Note {
    /// Creates a note; `None` if the group is gone by now, or does not lie below the one that refused.
    fn new(table: &Table, charged: GroupId, by: GroupId, units: u64) -> Option<Note> {
        let path = RowPath::of(table, charged)?;
        let rows = path.rows();
        let below = rows.iter().position(|&row| row == by.index())?;
        let mut names: Names = [[0; NAME_MAX]; DEPTH_MAX - 1];
        let depth = rows.len() - 1;
        for (name, &row) in names.iter_mut().zip(&rows[..depth]) {
            *name = table.row(row).name_bytes();
        }
        path.is_current(table).then_some(Note { charged, by, depth, below, names, units, count: 1 })
    }

    /// Returns the path without its lowest names.
    fn path(&self, without: usize) -> String {
        let names = self.names[without.min(self.depth)..self.depth].iter().rev();
        let path: String = names.map(|bytes| format!("/{}", name::of_bytes(bytes))).collect();
        if path.is_empty() { "/".to_owned() } else { path }
    }

    fn told(&self) -> NotedRefusal {
        let (units, count) = (self.units, self.count);
        NotedRefusal { charged: self.path(0), refused_by: self.path(self.below), units, count }
    }
}

impl Ledger {
    /// Begins to note charges that limits refuse in this process, for [`Group::take_refusals`]. It takes 60 KiB. Each
    /// refusal looks through the notes, and the first of a group copies its path. Granted charges cost the same as
    /// before.
    pub fn note_refusals(&self) {
        self.control().refusals.get_or_init(|| Box::new(Notes::new()));
    }
}

impl Group<'_> {
    /// Takes the notes of charges that a limit of this group or of one below it refused, since the last call or since
    /// [`Ledger::note_refusals`]; empty without that call. At most the last [`REFUSALS_NOTED`] of the ledger are
    /// noted. The groups' [`max_events`](Self::max_events) count all of them. Not async-signal-safe.
    pub fn take_refusals(self) -> Vec<NotedRefusal> {
        let Some(notes) = self.ledger().control().refusals.get() else { return Vec::new() };
        let top = self.path();
        let is_below = |told: &NotedRefusal| {
            let rest = told.refused_by.strip_prefix(top.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // Refusals meanwhile are not noted, so this allocates before it takes the rows.
        let mut taken: Vec<Note> = Vec::with_capacity(REFUSALS_NOTED);
        let _busy = notes.with(|rows| taken.extend(rows.drain(..)));
        let (mine, others): (Vec<Note>, Vec<Note>) =
            taken.into_iter().partition(|note| is_below(&note.told()));
        if !others.is_empty() {
            let _busy = notes.with(|rows| {
                let room = REFUSALS_NOTED - rows.len();
                rows.extend(others.into_iter().take(room));
            });
        }
        mine.iter().map(Note::told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::REFUSALS_NOTED;
    use crate::{Ledger, Limit};

    #[test]
    fn a_refusal_is_noted_with_who_asked_whose_limit_it_was_and_how_much() {
        let ledger = Ledger::builder().capacity(64).anonymous().unwrap();
        let tenant = ledger.root().create("acme").unwrap();
        let other = ledger.root().create("acme2").unwrap();
        let query = tenant.create("q1").unwrap();
        tenant.set_max(Limit::units(10)).unwrap();
        other.set_max(Limit::units(10)).unwrap();
        query.try_charge(11).unwrap_err();
        assert_eq!(tenant.take_refusals(), [], "nobody asked for notes");
        ledger.note_refusals();
        for units in [11, 30, 12] {
            query.try_charge(units).unwrap_err();
        }
        tenant.try_charge_units(13).unwrap_err();
        other.try_charge(14).unwrap_err();
        // Attempts and uncounted requests do not count as refused.
        assert!(tenant.attempt(15).is_err() && tenant.request(15).uncounted().charge().is_err());
        assert_eq!(tenant.max_events(), 5);
        query.destroy().unwrap();
        let told = |noted: &super::NotedRefusal| {
            (noted.charged.clone(), noted.refused_by.clone(), noted.units, noted.count)
        };
        let of_tenant: Vec<_> = tenant.take_refusals().iter().map(told).collect();
        let acme = || "/acme".to_owned();
        assert_eq!(of_tenant, [("/acme/q1".to_owned(), acme(), 30, 3), (acme(), acme(), 13, 1)]);
        assert_eq!(tenant.take_refusals(), []);
        let all: Vec<_> = ledger.root().take_refusals().iter().map(told).collect();
        assert_eq!(all, [("/acme2".to_owned(), "/acme2".to_owned(), 14, 1)]);
    }

    #[test]
    fn the_last_are_noted_where_there_are_more_than_rows() {
        let ledger = Ledger::builder().capacity(64).anonymous().unwrap();
        ledger.note_refusals();
        for number in 0..REFUSALS_NOTED + 5 {
            let group = ledger.root().create(&format!("g{number}")).unwrap();
            group.set_max(Limit::ZERO).unwrap();
            group.try_charge(1).unwrap_err();
            group.try_charge(1).unwrap_err();
        }
        let noted = ledger.root().take_refusals();
        assert_eq!(noted.len(), REFUSALS_NOTED);
        assert!(noted.iter().all(|noted| noted.count == 2), "{noted:?}");
        assert_eq!((&*noted[0].charged, &*noted[31].charged), ("/g5", "/g36"));
    }

    #[test]
    fn threads_that_are_refused_at_once_are_noted_and_never_more_often_than_refused() {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
        ledger.note_refusals();
        let group = ledger.root().create("g").unwrap();
        group.set_max(Limit::ZERO).unwrap();
        let mut noted = 0;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..2_000).for_each(|_| drop(group.try_charge(1)))))
                .collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                noted += group.take_refusals().iter().map(|noted| noted.count).sum::<u64>();
            }
        });
        noted += group.take_refusals().iter().map(|noted| noted.count).sum::<u64>();
        assert!((1..=8_000).contains(&noted), "{noted}");
        assert_eq!(group.max_events(), 8_000);
    }
}
