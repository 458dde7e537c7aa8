//! Which books are read, and what that costs the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ledgerline_fleet::book::View;
use ledgerline_fleet::store::{Store, StoreError};

/// One organisation's book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Book {
    /// The first name of its budgets' paths.
    pub organisation: String,
    /// What the store says.
    pub view: View,
}

impl Book {
    /// It has neither budgets nor nodes: nobody has made it.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.view.budgets.is_empty() && self.view.nodes.is_empty()
    }
}

/// The books that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Sorted by organisation, or in the order in which they were named.
    pub books: Vec<Book>,
    /// Organisations that have books and are not among these.
    pub more: usize,
}

/// Reads books of a store. A reading is one call for each book, one after the other. Where no organisation is named it
/// asks for the list of them as well, but at most once in [`LIST_AGAIN`](Self::LIST_AGAIN).
pub struct Reader {
    store: Arc<dyn Store>,
    named: Vec<String>,
    most: usize,
    listed: Option<(Instant, Vec<String>)>,
}

impl Reader {
    /// How long a list of organisations serves.
    pub const LIST_AGAIN: Duration = Duration::from_secs(30);

    /// How many books a view that is read again and again has, where no organisation is named.
    pub const MOST: usize = 50;

    /// Of the named organisations, each once; if none is named, of all that the store has, and `most` of them at most.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, named: &[String], most: usize) -> Self {
        let mut once: Vec<String> = Vec::new();
        for name in named {
            if !once.contains(name) {
                once.push(name.clone());
            }
        }
        Self { store, named: once, most, listed: None }
    }

    /// Reads the books. Of organisations that are not named, those without budgets and nodes are left out.
    ///
    /// # Errors
    /// The first error of the store.
    pub async fn read(&mut self) -> Result<Books, StoreError> {
        let (all, most) = match self.named.is_empty() {
            true => (self.list().await?, self.most),
            false => (self.named.clone(), usize::MAX),
        };
        let mut books = Books { books: Vec::new(), more: all.len().saturating_sub(most) };
        for organisation in all.into_iter().take(most) {
            let view = self.store.view(&organisation).await?;
            let book = Book { organisation, view };
            if !book.is_blank() || !self.named.is_empty() {
                books.books.push(book);
            }
        }
        Ok(books)
    }

    async fn list(&mut self) -> Result<Vec<String>, StoreError> {
        if let Some((at, listed)) = &self.listed
            && at.elapsed() < Self::LIST_AGAIN
        {
            return Ok(listed.clone());
        }
        let listed = self.store.organisations().await?;
        self.listed = Some((Instant::now(), listed.clone()));
        Ok(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline_fleet::book::Change;
    use ledgerline_fleet::store::Memory;

    fn set(path: &str) -> Change {
        Change::Set { path: path.to_owned(), limit: Some(1), minimum: None }
    }

    #[test]
    fn all_books_are_read_or_those_that_are_named_and_it_is_said_how_many_there_are_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store: Arc<dyn Store> = Arc::new(Memory::new(|| 1));
            for name in ["b", "a", "c"] {
                store.administer(name, &set(&format!("/{name}"))).await.unwrap();
            }
            store.administer("gone", &set("/gone")).await.unwrap();
            let delete = Change::Delete { path: "/gone".to_owned() };
            store.administer("gone", &delete).await.unwrap();
            let names = |books: &Books| {
                let names = books.books.iter().map(|book| book.organisation.clone());
                (names.collect::<Vec<_>>().join(" "), books.more)
            };
            let mut all = Reader::new(store.clone(), &[], 10);
            assert_eq!(names(&all.read().await.unwrap()), ("a b c".to_owned(), 0));
            store.administer("d", &set("/d")).await.unwrap();
            let later = all.read().await.unwrap();
            assert_eq!(names(&later).0, "a b c", "the list serves for a while");
            let mut some = Reader::new(store.clone(), &[], 2);
            assert_eq!(names(&some.read().await.unwrap()), ("a b".to_owned(), 3));
            let named = ["gone".to_owned(), "b".to_owned()];
            let mut named = Reader::new(store, &named, 1);
            assert_eq!(names(&named.read().await.unwrap()), ("gone b".to_owned(), 0));
        });
    }
}
