//! Pools on a budget of a fleet, with books in memory: queries grow beyond this node's lease while the fleet has room.
//! Without room they are asked to spill or refused, with an explanation.

use crate::support::{MIB, fill, fixed, query, spill, spiller};
use ledgerline::Limit;
use ledgerline_datafusion::LedgerPool;
use ledgerline_fleet::book::{BudgetView, Change, Terms, View};
use ledgerline_fleet::fleet::{Budget, Fleet};
use ledgerline_fleet::message::{Reply, Sync};
use ledgerline_fleet::node::AtEnd;
use ledgerline_fleet::store::{Answer, Memory, Nudges, Store};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

const PATH: &str = "/acme/batch";
const LIMIT: usize = 200 * MIB;
/// A test whose wait exceeds this takes too long.
const LONG: Duration = Duration::from_secs(60);

/// Books in memory, which can be disconnected.
struct Line {
    memory: Memory,
    cut: watch::Sender<bool>,
}

impl Line {
    async fn new(ttl: u64) -> Arc<Self> {
        let start = Instant::now();
        let memory = Memory::new(move || start.elapsed().as_millis() as u64 + 1);
        let terms = Change::from(Terms { ttl, grace: ttl });
        memory.administer("acme", &terms).await.unwrap();
        let line = Self { memory, cut: watch::Sender::new(false) };
        line.limit("/acme", 2 * LIMIT).await;
        line.limit(PATH, LIMIT).await;
        Arc::new(line)
    }

    async fn limit(&self, path: &str, limit: usize) {
        let (path, limit) = (path.to_owned(), Some(limit as u64));
        let change = Change::Set { path, limit, minimum: None };
        self.memory.administer("acme", &change).await.unwrap();
    }

    fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }

    async fn batch(&self) -> BudgetView {
        let paths = [PATH.to_owned()];
        let totals = self.memory.totals("acme", &paths).await.unwrap();
        totals.into_iter().next().unwrap().unwrap()
    }
}

impl Store for Line {
    fn sync<'a>(&'a self, organisation: &'a str, message: &'a Sync) -> Answer<'a, Reply> {
        Box::pin(async move {
            drop(self.cut.subscribe().wait_for(|cut| !cut).await);
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

async fn budget(store: &Arc<Line>, node: &str) -> Budget {
    let fleet = Fleet::join(store.clone(), node).start().unwrap();
    fleet.budget(PATH).await.unwrap()
}

/// Makes a pool of a node, which waits for the store.
async fn waiting(store: &Arc<Line>, node: &str) -> LedgerPool {
    LedgerPool::builder(budget(store, node).await).wait_for_lease(LONG).build()
}

/// Makes a pool of a node, which does not wait.
async fn hasty(store: &Arc<Line>, node: &str) -> LedgerPool {
    LedgerPool::builder(budget(store, node).await).build()
}

/// Returns the units that a node has leased.
fn lease(pool: &LedgerPool) -> usize {
    pool.group().max().get().unwrap() as usize
}

/// Waits for a condition; a test that waits in vain fails by its runner's limit.
async fn until(mut is: impl AsyncFnMut() -> bool) {
    while !is().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_goes_on_beyond_the_lease_while_the_fleet_has_room() {
    let pool = waiting(&Line::new(60_000).await, "a").await;
    assert!(lease(&pool) < 2 * MIB, "the first lease is a reserve");
    let query = query(&pool, "q");
    let [join, sort] = [fixed(&query.pool(), "Join[0]"), spiller(&query.pool(), "Sort[0]")];
    join.try_grow(50 * MIB).unwrap();
    assert_eq!(fill(&sort, MIB / 4, 100 * MIB), 100 * MIB);
    drop((join, sort));
    let report = query.end().unwrap();
    assert_eq!((report.refused, report.asked_to_spill, report.overrun), (0, 0, 0), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_workers_wait_the_fleets_task_goes_on() {
    let pool = waiting(&Line::new(60_000).await, "a").await;
    let query = query(&pool, "q");
    let tasks = (0..8).map(|at| {
        let join = fixed(&query.pool(), &format!("Join[{at}]"));
        tokio::spawn(async move { join.try_grow(20 * MIB).map(|()| join) })
    });
    let mut held = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        held.push(task.await.unwrap().unwrap());
    }
    assert_eq!(query.pool().reserved(), 160 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_nearly_used_up_grows_before_anybody_is_refused() {
    let pool = hasty(&Line::new(60_000).await, "a").await;
    let query = query(&pool, "q");
    let join = fixed(&query.pool(), "Join[0]");
    while join.size() < 100 * MIB {
        let before = lease(&pool);
        // The budget has room for a quarter more than that.
        let step = ((before - join.size()) * 4 / 5).min(100 * MIB - join.size());
        join.try_grow(step).unwrap();
        until(async || lease(&pool) >= join.size() * 5 / 4).await;
    }
    assert_eq!(query.end().unwrap().refused, 0);
}

/// A query's growth while the store is asked in advance looks like a lack in the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_taken_while_the_store_was_asked_is_no_refusal_of_the_store() {
    let mut queries = JoinSet::new();
    for _ in 0..40 {
        let pool = waiting(&Line::new(60_000).await, "a").await;
        queries.spawn(async move {
            let query = query(&pool, "q");
            let sort = spiller(&query.pool(), "Sort[0]");
            fill(&sort, MIB / 4, 100 * MIB)
        });
    }
    assert_eq!(queries.join_all().await, [100 * MIB; 40]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_meets_the_end_of_the_fleet_is_told_of_the_lease_and_of_the_limit() {
    let pool = waiting(&Line::new(60_000).await, "a").await;
    let query = query(&pool, "q42");
    let sort = spiller(&query.pool(), "Sort[0]");
    let sorted = fill(&sort, MIB, usize::MAX);
    assert!(sorted > LIMIT * 3 / 4, "it gets all that spillers may have: {sorted}");
    let text = sort.try_grow(20 * MIB).unwrap_err().to_string();
    assert!(
        text.contains("/acme/batch has 162.5 MB of 200.0 MB for consumers that can spill"),
        "{text}"
    );
    assert!(text.contains("; /acme/batch holds 162.0 MB of lease 200.0 MB\n"), "{text}");
    let told = "\nFleet: this node has leased 200.0 MB of /acme/batch; all nodes have ";
    assert!(text.contains(told) && text.contains(" of /acme's limit of 400.0 MB, "), "{text}");
    let told = "; all nodes have 200.0 MB of /acme/batch's limit of 200.0 MB, ";
    assert!(text.contains(told), "{text}");
    let text = fixed(&query.pool(), "Join[0]").try_grow(LIMIT).unwrap_err().to_string();
    assert!(text.contains("/acme/batch is full, 162.0 MB of lease 200.0 MB in use"), "{text}");
    assert!(text.contains("Fleet: this node has leased 200.0 MB of /acme/batch"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_spill_waits_for_what_another_node_holds_idle() {
    let store = Line::new(60_000).await;
    let (a, b) = (waiting(&store, "a").await, waiting(&store, "b").await);
    let [at_a, at_b] = [query(&a, "q"), query(&b, "q")];
    let held = fixed(&at_a.pool(), "Join[0]");
    held.try_grow(LIMIT - 10 * MIB).unwrap();
    held.shrink(LIMIT - 20 * MIB);
    let join = fixed(&at_b.pool(), "Join[0]");
    join.try_grow(LIMIT - 20 * MIB).unwrap();
    assert!(lease(&a) <= 20 * MIB && store.batch().await.leased <= LIMIT as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_spill_waits_for_what_another_query_of_the_node_returns() {
    let pool = waiting(&Line::new(60_000).await, "a").await;
    let [one, other] = ["q1", "q2"].map(|name| query(&pool, name));
    let [first, second] = [&one, &other].map(|query| fixed(&query.pool(), "Join[0]"));
    first.try_grow(LIMIT - MIB).unwrap();
    let before = pool.group().max_events();
    let waits = tokio::spawn(async move { second.try_grow(10 * MIB).map(|()| second) });
    until(async || pool.group().max_events() > before).await;
    drop(first);
    waits.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_does_not_fit_in_the_limit_itself_does_not_wait() {
    let pool = waiting(&Line::new(600_000).await, "a").await;
    let query = query(&pool, "q");
    let [first, second] = [0, 1].map(|at| fixed(&query.pool(), &format!("Join[{at}]")));
    first.try_grow(LIMIT / 2).unwrap();
    // Otherwise this waits for a minute.
    assert!(second.try_grow(LIMIT).is_err());
}

#[tokio::test]
async fn in_a_runtime_of_one_thread_nobody_blocks_and_the_store_is_asked_meanwhile() {
    let pool = waiting(&Line::new(60_000).await, "a").await;
    let query = query(&pool, "q");
    let join = fixed(&query.pool(), "Join[0]");
    let text = join.try_grow(50 * MIB).unwrap_err().to_string();
    assert!(text.contains("of /acme/batch; the store is asked for more"), "{text}");
    until(async || lease(&pool) >= 50 * MIB).await;
    join.try_grow(50 * MIB).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_outside_of_any_runtime_waits_too() {
    let pool = waiting(&Line::new(60_000).await, "a").await;
    let query = query(&pool, "q");
    let join = fixed(&query.pool(), "Join[0]");
    let (join, grown) = thread::spawn(move || {
        let grown = join.try_grow(50 * MIB);
        (join, grown)
    })
    .join()
    .unwrap();
    grown.unwrap();
    drop(join);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_is_waited_for_no_longer_than_was_asked() {
    let store = Line::new(60_000).await;
    let short = Duration::from_millis(50);
    let pool = LedgerPool::builder(budget(&store, "a").await).wait_for_lease(short).build();
    let query = query(&pool, "q");
    store.cut(true);
    for join in [fixed(&query.pool(), "Join[0]"), spiller(&query.pool(), "Sort[0]")] {
        let text = join.try_grow(50 * MIB).unwrap_err().to_string();
        assert!(text.contains("the store is asked for more"), "{text}");
    }
    store.cut(false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_lowered_has_spillers_spill_when_they_come_for_more() {
    // A turn comes every two seconds.
    let store = Line::new(6_000).await;
    let pool = waiting(&store, "a").await;
    let query = query(&pool, "q");
    let sort = spiller(&query.pool(), "Sort[0]");
    assert_eq!(fill(&sort, MIB, 150 * MIB), 150 * MIB);
    store.limit(PATH, 100 * MIB).await;
    // Idle units go at once, and only the held ones are left.
    until(async || lease(&pool) < 155 * MIB).await;
    let text = sort.try_grow(MIB).unwrap_err().to_string();
    assert!(text.contains("more is leased than its limit allows, so it grants nothing"), "{text}");
    spill(&sort);
    until(async || store.batch().await.leased <= 100 << 20).await;
    until(async || fill(&sort, MIB, 70 * MIB) == 70 * MIB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_of_its_leases_a_node_refuses_until_the_store_is_back() {
    let store = Line::new(300).await;
    let pool = hasty(&store, "a").await;
    let query = query(&pool, "q");
    let sort = spiller(&query.pool(), "Sort[0]");
    sort.try_grow(MIB / 4).unwrap();
    store.cut(true);
    until(async || lease(&pool) == 0).await;
    let text = sort.try_grow(1).unwrap_err().to_string();
    assert!(text.contains("this node's leases ended before it reached the store again"), "{text}");
    spill(&sort);
    store.cut(false);
    until(async || sort.try_grow(MIB / 4).is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_of_its_leases_a_node_goes_on_if_it_was_told_to() {
    let store = Line::new(200).await;
    let fleet =
        Fleet::join(store.clone(), "a").at_end(AtEnd::GoOn).reserve(20 << 20).start().unwrap();
    let mut events = fleet.events();
    let pool = LedgerPool::builder(fleet.budget(PATH).await.unwrap()).build();
    let query = query(&pool, "q");
    let sort = spiller(&query.pool(), "Sort[0]");
    store.cut(true);
    while events.recv().await.unwrap() != ledgerline_fleet::node::Event::Ended {}
    sort.try_grow(10 * MIB).unwrap();
    store.cut(false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_a_tenants_own_is_none_of_the_fleets() {
    let store = Line::new(60_000).await;
    let pool = waiting(&store, "a").await;
    let tenant = pool.tenant("small").unwrap();
    tenant.group().set_max(Limit::units(10 << 20)).unwrap();
    let query = query(&tenant, "q");
    let join = fixed(&query.pool(), "Join[0]");
    join.try_grow(5 * MIB).unwrap();
    let text = join.try_grow(50 * MIB).unwrap_err().to_string();
    assert!(text.contains("/acme/batch/small is full, 5.0 MB of max 10.0 MB in use"), "{text}");
    assert!(!text.contains("Fleet:"), "{text}");
    assert!(lease(&pool) < 50 * MIB, "more of the fleet would not help");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_goes_back_with_the_last_query() {
    let store = Line::new(60_000).await;
    let pool = waiting(&store, "a").await;
    let query = query(&pool, "q");
    drop(pool);
    let join = fixed(&query.pool(), "Join[0]");
    join.try_grow(50 * MIB).unwrap();
    drop(query);
    assert!(store.batch().await.leased >= 50 << 20);
    drop(join);
    until(async || store.batch().await.leased == 0).await;
}

/// Three nodes with more to do than the limit allows.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_together_lease_no_more_than_the_limit_and_use_no_more_than_their_leases() {
    let store = Line::new(60_000).await;
    let (mut pools, mut tasks) = (Vec::new(), Vec::new());
    for node in ["a", "b", "c"] {
        let patience = Duration::from_millis(20);
        let pool = LedgerPool::builder(budget(&store, node).await).wait_for_lease(patience).build();
        for at in 0..2 {
            let query = query(&pool, &format!("q{at}"));
            let store = store.clone();
            tasks.push(tokio::spawn(async move {
                let [sort, join] =
                    [spiller(&query.pool(), "Sort[0]"), fixed(&query.pool(), "Join[0]")];
                for turn in 0..150 {
                    if sort.try_grow(3 * MIB).is_err() {
                        spill(&sort);
                    }
                    if join.try_grow(2 * MIB).is_err() || turn % 40 == 39 {
                        join.free();
                    }
                    let leased = store.batch().await.leased;
                    assert!(leased <= LIMIT as u64, "{leased}");
                    tokio::task::yield_now().await;
                }
                drop((sort, join));
                query.end().unwrap()
            }));
        }
        pools.push(pool);
    }
    let mut asked = 0;
    for task in tasks {
        let report = task.await.unwrap();
        assert_eq!((report.overrun, report.leftover), (0, 0), "{report}");
        asked += report.asked_to_spill;
    }
    assert!(asked > 0, "the limit was not met");
    for pool in pools {
        let peak = pool.group().peak();
        assert!(peak.value - peak.bound <= LIMIT as u64, "{peak}");
    }
    until(async || store.batch().await.leased == 0).await;
}
