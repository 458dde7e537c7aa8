//! The choice of books to read, and their cost for the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ledgerline_fleet::book::View;
use ledgerline_fleet::store::{Kind, Store, StoreError};

/// One organisation's book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Book {
    /// The first name of its budgets' paths.
    pub organisation: String,
    /// The store's view of it.
    pub view: View,
}

impl Book {
    /// Returns whether it has neither budgets nor nodes: it was never made.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.view.budgets.is_empty() && self.view.nodes.is_empty()
    }
}

/// An organisation whose book makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The first name of its budgets' paths.
    pub organisation: String,
    /// The damage, with its key and field as far as they are known. It may contain any characters.
    pub why: String,
}

/// The requested books.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Sorted by organisation, or in the order in which they were named.
    pub books: Vec<Book>,
    /// Organisations whose books make no sense. The other books are not affected.
    pub damaged: Vec<Damaged>,
    /// The number of further organisations with books.
    pub more: usize,
}

/// Reads books of a store. A reading is one call for each book, one after the other. Without named organisations it
/// also requests their list, but at most once in [`LIST_AGAIN`](Self::LIST_AGAIN).
pub struct Reader {
    store: Arc<dyn Store>,
    named: Vec<String>,
    most: usize,
    listed: Option<(Instant, Vec<String>)>,
}

impl Reader {
    /// The time for which a list of organisations is used.
    pub const LIST_AGAIN: Duration = Duration::from_secs(30);

    /// The most books in a view that is read periodically, if no organisation is named.
    pub const MOST: usize = 50;

    /// Makes a reader of the named organisations, each once; if none is named, of all in the store, but at most `most`
    /// of them.
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

    /// The most damaged books that are reported. With more the store is not a fleet's.
    const DAMAGED: usize = 64;

    /// The most budgets, leases, nodes and events that are read, of all organisations together. They are kept in
    /// memory.
    const ROWS: usize = 200_000;

    /// Reads the books. Among organisations that are not named, those without budgets and nodes are left out. A book
    /// that makes no sense is reported, and does not affect the others.
    ///
    /// # Errors
    /// The first error of the store that concerns more than one organisation.
    /// The first error of the store that is not one organisation's alone.
    pub async fn read(&mut self) -> Result<Books, StoreError> {
        let (all, most) = match self.named.is_empty() {
            true => (self.list().await?, self.most),
            false => (self.named.clone(), usize::MAX),
        };
        let mut books = Books::default();
        let mut rows = 0;
        let mut left = all.len();
        for organisation in all.into_iter().take(most) {
            if rows > Self::ROWS {
                break;
            }
            left -= 1;
            let view = match self.store.view(&organisation).await {
                Ok(view) => view,
                Err(error)
                    if matches!(error.kind, Kind::Nonsense | Kind::OtherVersion)
                        && books.damaged.len() < Self::DAMAGED =>
                {
                    books.damaged.push(Damaged { organisation, why: error.to_string() });
                    continue;
                }
                Err(error) => return Err(error),
            };
            let holds = view.budgets.iter().map(|budget| 1 + budget.holds.len()).sum::<usize>();
            rows += holds + view.nodes.len() + view.events.len() + view.refusals.len();
            let book = Book { organisation, view };
            if !book.is_blank() || !self.named.is_empty() {
                books.books.push(book);
            }
        }
        books.more = left;
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
    use ledgerline_fleet::message::{Reply, Sync};
    use ledgerline_fleet::store::{Answer, Memory, Nudges};

    fn set(path: &str) -> Change {
        Change::Set { path: path.to_owned(), limit: Some(1), minimum: None }
    }

    /// A store in which the book of one organisation makes no sense.
    struct Damages(Memory);

    impl Store for Damages {
        fn sync<'a>(&'a self, organisation: &'a str, message: &'a Sync) -> Answer<'a, Reply> {
            self.0.sync(organisation, message)
        }

        fn administer<'a>(&'a self, organisation: &'a str, change: &'a Change) -> Answer<'a, ()> {
            self.0.administer(organisation, change)
        }

        fn view<'a>(&'a self, organisation: &'a str) -> Answer<'a, View> {
            let kind = match organisation {
                "nonsense" => Kind::Nonsense,
                "gone" => Kind::Unreachable,
                _ => return self.0.view(organisation),
            };
            let (store, detail) = ("a store".to_owned(), "key budgets".to_owned());
            Box::pin(async move { Err(StoreError { store, kind, detail }) })
        }

        fn organisations(&self) -> Answer<'_, Vec<String>> {
            self.0.organisations()
        }

        fn nudges<'a>(&'a self, organisation: &'a str) -> Answer<'a, Nudges> {
            self.0.nudges(organisation)
        }
    }

    #[test]
    fn the_damage_of_one_organisation_is_that_organisations() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store: Arc<dyn Store> = Arc::new(Damages(Memory::new(|| 1)));
            for name in ["a", "nonsense", "z"] {
                store.administer(name, &set(&format!("/{name}"))).await.unwrap();
            }
            let read = Reader::new(store.clone(), &[], 10).read().await.unwrap();
            let names: Vec<_> = read.books.iter().map(|book| &*book.organisation).collect();
            assert_eq!((names, read.more), (vec!["a", "z"], 0));
            let [Damaged { organisation, why }] = &read.damaged[..] else { panic!("{read:?}") };
            assert!(organisation == "nonsense" && why.contains("key budgets"), "{why}");
            // A store that cannot be reached affects all organisations.
            store.administer("gone", &set("/gone")).await.unwrap();
            let error = Reader::new(store, &[], 10).read().await.unwrap_err();
            assert_eq!(error.kind, Kind::Unreachable);
        });
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
