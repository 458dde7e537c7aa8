//! Reads the books periodically, on its own thread, so that readers never wait for a slow store.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::fleet::read::{Books, Reader};
use crate::fleet::words::{advised, unknown};

/// The results of the last readings.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The last books that could be read, and the time.
    pub books: Option<(Arc<Books>, Instant)>,
    /// The error of the last reading, if it failed.
    pub trouble: Option<String>,
    /// The number of readings so far.
    pub readings: u64,
}

/// Reads books until it is dropped. A reading begins at most once in an interval, and one ends before the next begins.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
    /// Milliseconds.
    interval: AtomicU64,
    paused: AtomicBool,
}

impl Watch {
    /// Starts the thread that reads.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(mut reader: Reader, interval: Duration) -> io::Result<Self> {
        let watch = Self { shared: Arc::default() };
        watch.set_interval(interval);
        let weak = Arc::downgrade(&watch.shared);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("fleet-books".to_owned()).spawn(move || {
            while let Some(began) = due(&weak) {
                let read = runtime.block_on(reader.read());
                let Some(shared) = weak.upgrade() else { return };
                let mut seen = shared.seen();
                seen.readings += 1;
                match read {
                    Ok(books) => {
                        seen.books = Some((Arc::new(books), began));
                        seen.trouble = None;
                    }
                    Err(error) => seen.trouble = Some(advised(&error)),
                }
                drop(seen);
                shared.changed.notify_all();
            }
        })?;
        Ok(watch)
    }

    /// Returns the last results without waiting.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.shared.seen().clone()
    }

    /// Waits for a reading after this many, up to a time.
    #[must_use]
    pub fn after(&self, readings: u64, patience: Duration) -> Seen {
        // More than a year is as good as for ever.
        let patience = patience.min(Duration::from_secs(366 * 86_400));
        let seen = self.shared.seen();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(seen, patience, |seen| seen.readings <= readings);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Returns the error of the first reading, or the named organisations without a book. Waits for it, up to a time.
    #[must_use]
    pub fn missing(&self, patience: Duration) -> Vec<String> {
        let seen = self.after(0, patience);
        if let Some(trouble) = seen.trouble {
            return vec![trouble];
        }
        let books = seen.books.map(|(books, _)| books).unwrap_or_default();
        let blank = books.books.iter().filter(|book| book.is_blank());
        blank.map(|book| unknown(&book.organisation)).collect()
    }

    /// Passes each reading to `tell`, books or an error, until `tell` returns false.
    ///
    /// # Errors
    /// Any error that `tell` returns.
    pub fn tell(
        &self,
        mut tell: impl FnMut(Result<&Books, &str>) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut readings = 0;
        loop {
            let seen = self.after(readings, Duration::MAX);
            let told = match (&seen.trouble, &seen.books) {
                (Some(trouble), _) => tell(Err(trouble))?,
                (None, Some((books, _))) => tell(Ok(books))?,
                (None, None) => true,
            };
            if !told {
                return Ok(());
            }
            readings = seen.readings;
        }
    }

    /// Returns the interval between readings.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.shared.interval.load(Ordering::Relaxed))
    }

    /// Sets the interval: a tenth of a second at least.
    pub fn set_interval(&self, interval: Duration) {
        let milliseconds = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(100);
        self.shared.interval.store(milliseconds, Ordering::Relaxed);
    }

    /// Pauses the readings, or resumes them.
    pub fn pause(&self, paused: bool) {
        self.shared.paused.store(paused, Ordering::Relaxed);
    }
}

impl Shared {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the next reading is due. `None` when the watch was dropped.
fn due(shared: &Weak<Shared>) -> Option<Instant> {
    /// The delay after which a change of the interval is noticed.
    const TICK: Duration = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    loop {
        let shared = shared.upgrade()?;
        let interval = Duration::from_millis(shared.interval.load(Ordering::Relaxed));
        let first = shared.seen().readings == 0;
        if first || (waited >= interval && !shared.paused.load(Ordering::Relaxed)) {
            return Some(Instant::now());
        }
        drop(shared);
        thread::sleep(TICK);
        waited += TICK;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline_fleet::book::{Change, View};
    use ledgerline_fleet::message::{Reply, Sync};
    use ledgerline_fleet::store::{Answer, Kind, Memory, Nudges, Store, StoreError};

    /// A store that answers, or exceeds its time limit and reports that.
    struct Slow(Memory, Arc<AtomicBool>);

    impl Store for Slow {
        fn sync<'a>(&'a self, organisation: &'a str, message: &'a Sync) -> Answer<'a, Reply> {
            self.0.sync(organisation, message)
        }

        fn administer<'a>(&'a self, organisation: &'a str, change: &'a Change) -> Answer<'a, ()> {
            self.0.administer(organisation, change)
        }

        fn view<'a>(&'a self, organisation: &'a str) -> Answer<'a, View> {
            Box::pin(async move {
                if self.1.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    let store = "a store".to_owned();
                    let detail = "no answer".to_owned();
                    return Err(StoreError { store, kind: Kind::Slow, detail });
                }
                self.0.view(organisation).await
            })
        }

        fn organisations(&self) -> Answer<'_, Vec<String>> {
            self.0.organisations()
        }

        fn nudges<'a>(&'a self, organisation: &'a str) -> Answer<'a, Nudges> {
            self.0.nudges(organisation)
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_store_that_is_slow_holds_up_nobody_and_the_last_books_stay_with_their_age() {
        let slow = Arc::new(AtomicBool::new(false));
        let store = Arc::new(Slow(Memory::new(|| 1), slow.clone()));
        let reader = Reader::new(store, &["a".to_owned()], 1);
        let watch = Watch::start(reader, Duration::from_millis(100)).unwrap();
        let missing = watch.missing(LONG);
        assert!(missing.len() == 1 && missing[0].contains("a has no budgets"), "{missing:?}");
        let first = watch.after(0, LONG);
        assert!(first.books.is_some() && first.trouble.is_none());
        slow.store(true, Ordering::Relaxed);
        let mut seen = first;
        while seen.trouble.is_none() {
            seen = watch.after(seen.readings, LONG);
        }
        let (books, at) = seen.books.clone().expect("the last that could be read");
        assert_eq!(books.books.len(), 1);
        let told = seen.trouble.clone().unwrap();
        assert!(told.contains("a store did not answer in time"), "{told}");
        let began = Instant::now();
        let now = watch.seen();
        assert!(now.books.unwrap().1 >= at && began.elapsed() < Duration::from_millis(300));
        slow.store(false, Ordering::Relaxed);
        while seen.trouble.is_some() {
            seen = watch.after(seen.readings, LONG);
        }
    }
}
