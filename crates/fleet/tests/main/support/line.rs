//! Books in memory behind a connection that can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ledgerline_fleet::book::{Change, Terms, View};
use ledgerline_fleet::fleet::Fleet;
use ledgerline_fleet::message::{Reply, Sync};
use ledgerline_fleet::store::{Answer, Kind, Memory, Nudges, Store, StoreError};

/// Books in memory that can be cut off or fail, and that count messages.
pub struct Line {
    pub memory: Memory,
    pub cut: AtomicBool,
    pub fails: AtomicBool,
    pub syncs: AtomicU64,
    /// The duration of an answer, in milliseconds.
    pub takes: AtomicU64,
}

impl Line {
    pub async fn new(ttl: u64, budgets: &[(&str, u64)]) -> Arc<Self> {
        let start = Instant::now();
        let memory = Memory::new(move || start.elapsed().as_millis() as u64 + 1);
        let terms = Change::from(Terms { ttl, grace: ttl });
        memory.administer("acme", &terms).await.unwrap();
        for (path, limit) in budgets {
            let (path, limit) = ((*path).to_owned(), Some(*limit));
            memory.administer("acme", &Change::Set { path, limit, minimum: None }).await.unwrap();
        }
        let [cut, fails] = [false; 2].map(AtomicBool::new);
        Arc::new(Self { memory, cut, fails, syncs: AtomicU64::new(0), takes: AtomicU64::new(0) })
    }

    pub async fn leased(&self, path: &str) -> u64 {
        let view = self.memory.view("acme").await.unwrap();
        view.budgets.iter().find(|budget| budget.path == path).map_or(0, |budget| budget.leased)
    }
}

impl Store for Line {
    fn sync<'a>(&'a self, organisation: &'a str, message: &'a Sync) -> Answer<'a, Reply> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            while self.cut.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_millis(self.takes.load(Ordering::Relaxed))).await;
            if self.fails.load(Ordering::Relaxed) {
                return Err(torn());
            }
            self.memory.sync(organisation, message).await
        })
    }

    fn administer<'a>(&'a self, organisation: &'a str, change: &'a Change) -> Answer<'a, ()> {
        self.memory.administer(organisation, change)
    }

    fn view<'a>(&'a self, organisation: &'a str) -> Answer<'a, View> {
        self.memory.view(organisation)
    }

    fn organisations(&self) -> Answer<'_, Vec<String>> {
        self.memory.organisations()
    }

    fn nudges<'a>(&'a self, organisation: &'a str) -> Answer<'a, Nudges> {
        self.memory.nudges(organisation)
    }
}

/// Returns the error of the store's calls while it fails.
pub fn torn() -> StoreError {
    let [store, detail] = ["a line", "torn"].map(str::to_owned);
    StoreError { store, kind: Kind::Unreachable, detail }
}

pub fn join(store: &Arc<Line>, name: &str) -> Fleet {
    Fleet::join(store.clone(), name).reserve(10).start().unwrap()
}

/// Waits until a condition holds. If it never does, the runner's time limit ends the test.
pub async fn until(mut is: impl AsyncFnMut() -> bool) {
    while !is().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub const LONG: Duration = Duration::from_secs(60);
pub const BUDGETS: &[(&str, u64)] = &[("/acme", 1_000), ("/acme/batch", 500)];
