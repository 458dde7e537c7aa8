//! What a store that fails over falls back to: a book as it was some time ago.

use ledgerline_fleet::book::{Book, Change};
use ledgerline_fleet::message::Sync;

/// Something that changed a book.
#[derive(Clone, Debug)]
pub enum Deed {
    Sync(Sync),
    Change(Change),
}

/// A book, and what was done to it since, by the store's clock. (To remember and to do it again takes less than to copy a large
/// book each time.)
#[derive(Debug)]
pub struct Replica {
    book: Book,
    deeds: Vec<(u64, Deed)>,
    /// How many of the deeds the replica has.
    known: usize,
}

/// So many deeds are remembered before those that the replica has are done.
const MANY: usize = 64;

impl Replica {
    pub fn of(book: &Book) -> Self {
        Self { book: book.clone(), deeds: Vec::new(), known: 0 }
    }

    /// This was done to the book.
    pub fn done(&mut self, now: u64, deed: Deed) {
        self.deeds.push((now, deed));
    }

    /// From now on it has all that was done.
    pub fn catch_up(&mut self) {
        self.known = self.deeds.len();
        if self.known >= MANY {
            self.do_known();
        }
    }

    /// The book as it was when the replica last caught up. What was done since is forgotten.
    pub fn fail_over(&mut self) -> Book {
        self.do_known();
        self.deeds.clear();
        self.book.clone()
    }

    fn do_known(&mut self) {
        for (now, deed) in self.deeds.drain(..self.known) {
            match deed {
                Deed::Sync(message) => drop(self.book.apply(now, &message)),
                // It may have been rejected, as it was then.
                Deed::Change(change) => drop(self.book.administer(now, &change)),
            }
        }
        self.book.nudged();
        self.known = 0;
    }
}
