//! Books as answered by `ledgerline fleet serve`: from the last reading, with its age, and without waiting for a store.

mod metrics;
mod page;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Instant;

use crate::serve::Documents;

use crate::fleet::document;
use crate::fleet::read::Books;
use crate::fleet::watch::{Seen, Watch};
use metrics::Scrape;

/// The served view of the books that a [`Watch`] reads.
#[derive(Debug)]
pub struct Served {
    watch: Watch,
}

impl Served {
    /// Makes a server's view of the books that are read.
    #[must_use]
    pub fn new(watch: Watch) -> Self {
        Self { watch }
    }
}

impl Documents for Served {
    fn page(&self) -> String {
        page::of(&self.watch.seen(), Instant::now(), self.watch.interval())
    }

    fn style(&self) -> &'static str {
        page::STYLE
    }

    fn json(&self) -> String {
        json(&self.watch.seen(), Instant::now())
    }

    fn metrics(&self) -> Result<String, fmt::Error> {
        crate::serve::encoded(Scrape { seen: self.watch.seen(), now: Instant::now() })
    }
}

/// Returns the document of `fleet show`, with its age, and the reason if the store could not be read since.
fn json(seen: &Seen, now: Instant) -> String {
    let none = Books::default();
    let books = seen.books.as_ref().map_or(&none, |(books, _)| books);
    let mut document = document::text(books);
    document["schema"] = "ledgerline/serve-fleet.v1".into();
    document["age_ms"] = age(seen, now).map(|age| (age * 1000.0) as u64).into();
    document["trouble"] = seen.trouble.clone().into();
    document.to_string()
}

/// Returns the age of the shown data, in seconds.
fn age(seen: &Seen, now: Instant) -> Option<f64> {
    seen.books.as_ref().map(|(_, at)| now.saturating_duration_since(*at).as_secs_f64())
}
