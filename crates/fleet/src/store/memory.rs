//! A store in this process: for tests, and for nodes that are threads.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use tokio::sync::mpsc;

use crate::book::{Book, Change, View};
use crate::lock;
use crate::message::{Nudge, Reply, Sync};

use super::{Answer, Kind, Nudges, Store, StoreError};

/// Books in this process, with a clock of the caller's.
pub struct Memory {
    clock: Box<dyn Fn() -> u64 + Send + std::marker::Sync>,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    books: HashMap<String, Book>,
    listeners: Vec<(String, mpsc::Sender<Nudge>)>,
}

impl Memory {
    const NAME: &'static str = "books in memory";

    /// Creates a store without books. `clock` returns milliseconds.
    pub fn new(clock: impl Fn() -> u64 + Send + std::marker::Sync + 'static) -> Self {
        Self { clock: Box::new(clock), shelf: Mutex::default() }
    }

    /// Restores an earlier book of an organisation, like a store that lost its last writes.
    pub fn restore(&self, organisation: &str, book: Book) {
        lock(&self.shelf).books.insert(organisation.to_owned(), book);
    }

    /// Returns the book of an organisation, as it is now.
    pub fn book(&self, organisation: &str) -> Book {
        lock(&self.shelf).books.get(organisation).cloned().unwrap_or_default()
    }

    fn with<T>(&self, organisation: &str, change: impl FnOnce(&mut Book, u64) -> T) -> T {
        let now = (self.clock)();
        let mut shelf = lock(&self.shelf);
        let book = shelf.books.entry(organisation.to_owned()).or_default();
        let result = change(book, now);
        let nudged = book.nudged();
        shelf.listeners.retain(|(_, listener)| !listener.is_closed());
        for (_, listener) in shelf.listeners.iter().filter(|(whose, _)| whose == organisation) {
            for nudge in &nudged {
                // A slow listener loses nudges, never leases.
                let _ = listener.try_send(nudge.clone());
            }
        }
        result
    }

    fn error(kind: Kind, detail: impl fmt::Display) -> StoreError {
        StoreError::new(Self::NAME, kind, detail)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Store for Memory {
    fn sync<'a>(&'a self, organisation: &'a str, message: &'a Sync) -> Answer<'a, Reply> {
        Box::pin(async move {
            message.check(organisation).map_err(StoreError::malformed(Self::NAME))?;
            Ok(self.with(organisation, |book, now| book.apply(now, message)))
        })
    }

    fn administer<'a>(&'a self, organisation: &'a str, change: &'a Change) -> Answer<'a, ()> {
        Box::pin(async move {
            change.check(organisation).map_err(StoreError::malformed(Self::NAME))?;
            let done = self.with(organisation, |book, now| book.administer(now, change));
            done.map_err(|rejected| Self::error(Kind::Rejected, rejected))
        })
    }

    fn view<'a>(&'a self, organisation: &'a str) -> Answer<'a, View> {
        Box::pin(async move { Ok(self.with(organisation, |book, now| book.view(now))) })
    }

    fn organisations(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async move {
            let mut names: Vec<String> = lock(&self.shelf).books.keys().cloned().collect();
            names.sort();
            Ok(names)
        })
    }

    fn nudges<'a>(&'a self, organisation: &'a str) -> Answer<'a, Nudges> {
        Box::pin(async move {
            let (sender, nudges) = Nudges::channel();
            lock(&self.shelf).listeners.push((organisation.to_owned(), sender));
            Ok(nudges)
        })
    }
}
