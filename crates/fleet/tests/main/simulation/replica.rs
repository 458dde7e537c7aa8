//! The replica to which a store fails over: an earlier state of a book.

use ledgerline_fleet::book::{Book, Change};
use ledgerline_fleet::message::Sync;

/// A change of a book.
#[derive(Clone, Debug)]
pub enum Deed {
    Sync(Sync),
    Change(Change),
}

/// An earlier state of a book, and the changes since, by the store's clock. Repeating changes is cheaper than copying a large
/// book each time.
#[derive(Debug)]
pub struct Replica {
    book: Book,
    deeds: Vec<(u64, Deed)>,
    /// Number of changes that the replica has.
    known: usize,
}

/// Number of changes to remember before the replica's are applied.
const MANY: usize = 64;

impl Replica {
    pub fn of(book: &Book) -> Self {
        Self { book: book.clone(), deeds: Vec::new(), known: 0 }
    }

    /// Records a change of the book.
    pub fn done(&mut self, now: u64, deed: Deed) {
        self.deeds.push((now, deed));
    }

    /// Brings the replica up to date.
    pub fn catch_up(&mut self) {
        self.known = self.deeds.len();
        if self.known >= MANY {
            self.do_known();
        }
    }

    /// Returns the book as of the last time the replica caught up, and forgets later changes.
    pub fn fail_over(&mut self) -> Book {
        self.do_known();
        self.deeds.clear();
        self.book.clone()
    }

    fn do_known(&mut self) {
        for (now, deed) in self.deeds.drain(..self.known) {
            match deed {
                Deed::Sync(message) => drop(self.book.apply(now, &message)),
                // The change may be rejected, as it was the first time.
                Deed::Change(change) => drop(self.book.administer(now, &change)),
            }
        }
        self.book.nudged();
        self.known = 0;
    }
}
