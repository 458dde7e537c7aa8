//! Nodes of a fleet in one process, on books in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ledgerline::{Ledger, OwnedCharge};
use ledgerline_fleet::book::{Change, Terms, View};
use ledgerline_fleet::fleet::{Fleet, FleetError, Standing};
use ledgerline_fleet::message::{MAX_LEVELS, MAX_LINES, Reply, Sync};
use ledgerline_fleet::node::AtEnd;
use ledgerline_fleet::store::{Answer, Kind, Memory, Nudges, Store, StoreError};

/// Books in memory that can be cut off or fail, and count messages.
struct Line {
    memory: Memory,
    cut: AtomicBool,
    fails: AtomicBool,
    syncs: AtomicU64,
    /// How long an answer takes, in milliseconds.
    takes: AtomicU64,
}

impl Line {
    async fn new(ttl: u64, budgets: &[(&str, u64)]) -> Arc<Self> {
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

    async fn leased(&self, path: &str) -> u64 {
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

/// What the store's calls end with while it fails.
fn torn() -> StoreError {
    let [store, detail] = ["a line", "torn"].map(str::to_owned);
    StoreError { store, kind: Kind::Unreachable, detail }
}

fn join(store: &Arc<Line>, name: &str) -> Fleet {
    Fleet::join(store.clone(), name).reserve(10).start().unwrap()
}

/// Waits until something is so; a test that waits in vain fails by its runner's limit.
async fn until(mut is: impl AsyncFnMut() -> bool) {
    while !is().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

const LONG: Duration = Duration::from_secs(60);
const BUDGETS: &[(&str, u64)] = &[("/acme", 1_000), ("/acme/batch", 500)];

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_beyond_the_lease_takes_one_round_trip() {
    let store = Line::new(60_000, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("acme/batch").await.unwrap();
    assert!(batch.lease() < 300, "the first lease is a reserve");
    let before = store.syncs.load(Ordering::Relaxed);
    let charge = batch.charge(300).await.unwrap();
    assert_eq!(store.syncs.load(Ordering::Relaxed), before + 1);
    assert_eq!(charge.units(), 300);
    assert!((300..=500).contains(&batch.lease()));
}

/// One message was under way when they came, at most; the next has what all of them need.
#[tokio::test(flavor = "multi_thread")]
async fn of_charges_that_need_the_store_at_once_each_waits_for_two_answers_at_most() {
    let names: Vec<String> = (0..20).map(|number| format!("/acme/t{number}")).collect();
    let mut budgets = vec![("/acme", 100_000)];
    budgets.extend(names.iter().map(|name| (name.as_str(), 1_000)));
    let store = Line::new(600_000, &budgets).await;
    let fleet = join(&store, "a");
    let mut opened = Vec::new();
    for name in &names {
        opened.push(Arc::new(fleet.budget(name).await.unwrap()));
    }
    for fails in [false, true] {
        // (The task has nothing to say: its turn is in minutes.)
        until(async || {
            let before = store.syncs.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(300)).await;
            before == store.syncs.load(Ordering::Relaxed)
        })
        .await;
        store.takes.store(200, Ordering::Relaxed);
        store.fails.store(fails, Ordering::Relaxed);
        let before = store.syncs.load(Ordering::Relaxed);
        let charges = (0..200).map(|number| {
            let budget = opened[number % opened.len()].clone();
            tokio::spawn(async move { budget.charge(if fails { 600 } else { 50 }).await })
        });
        let charges: Vec<_> = charges.collect();
        let mut held = Vec::new();
        for charge in charges {
            match charge.await.unwrap() {
                Ok(charge) => held.push(charge),
                Err(error) => assert_eq!(error, FleetError::Store(torn())),
            }
        }
        assert_eq!(held.len(), if fails { 0 } else { 200 });
        // The first had its own need alone, the second that of all others; one is the task's. (They do not all come at once.)
        let messages = store.syncs.load(Ordering::Relaxed) - before;
        assert!(messages <= 12, "{messages} messages for 200 charges of 20 budgets");
        store.takes.store(0, Ordering::Relaxed);
        store.fails.store(false, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_that_are_opened_at_once_share_messages_and_each_hears_whether_it_is_there() {
    let names: Vec<String> = (0..50).map(|number| format!("/acme/t{number}")).collect();
    let mut budgets = vec![("/acme", 1_000)];
    budgets.extend(names.iter().map(|name| (name.as_str(), 1_000)));
    let store = Line::new(600_000, &budgets).await;
    let fleet = join(&store, "a");
    store.takes.store(100, Ordering::Relaxed);
    let opened: Vec<_> = (0..100)
        .map(|number| {
            let fleet = fleet.clone();
            tokio::spawn(async move { fleet.budget(&format!("/acme/t{number}")).await })
        })
        .collect();
    for (number, opened) in opened.into_iter().enumerate() {
        let told = opened.await.unwrap().map(|budget| budget.path().to_owned());
        let path = format!("/acme/t{number}");
        assert_eq!(told, if number < 50 { Ok(path) } else { Err(FleetError::Unknown(path)) });
    }
    let messages = store.syncs.load(Ordering::Relaxed);
    assert!(messages <= 10, "{messages} messages for 100 budgets");
}

/// As many as a message names. One more would have made each later message one that no store takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_opens_no_more_budgets_than_a_message_names_and_keeps_those_it_has() {
    // Each has fourteen levels of its own below two that all share.
    const OWN: usize = MAX_LEVELS - 2;
    const FIT: usize = (MAX_LINES - 2) / OWN;
    let mut paths = Vec::new();
    let mut budgets = vec![("/acme".to_owned(), 1_000_000), ("/acme/x".to_owned(), 1_000_000)];
    for number in 0..=FIT {
        let mut path = "/acme/x".to_owned();
        for level in 0..OWN {
            path = format!("{path}/{number}-{level}");
            budgets.push((path.clone(), 1_000));
        }
        paths.push(path);
    }
    let budgets: Vec<_> = budgets.iter().map(|(path, limit)| (path.as_str(), *limit)).collect();
    let store = Line::new(600_000, &budgets).await;
    let fleet = join(&store, "a");
    let opens = paths.iter().map(|path| fleet.budget(path));
    let mut opened = futures_util::future::join_all(opens).await;
    let refused = opened.pop().unwrap().unwrap_err();
    assert_eq!(refused, FleetError::TooMany(paths[FIT].clone()));
    let opened: Vec<_> = opened.into_iter().map(|budget| budget.unwrap()).collect();
    assert_eq!(opened[FIT - 1].charge(20).await.unwrap().units(), 20);
    // All of them fit into one message.
    opened[0].ask(500).await.unwrap();
    assert!(opened[0].lease() >= 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_asks_before_it_needs_has_its_lease_in_one_round_trip_and_nothing_charged() {
    let store = Line::new(60_000, BUDGETS).await;
    let batch = join(&store, "a").budget("/acme/batch").await.unwrap();
    let before = store.syncs.load(Ordering::Relaxed);
    batch.ask(300).await.unwrap();
    assert_eq!(store.syncs.load(Ordering::Relaxed), before + 1);
    assert!(batch.lease() >= 300 && batch.group().precise() == 0, "{batch:?}");
    batch.ask(300).await.unwrap();
    assert_eq!(store.syncs.load(Ordering::Relaxed), before + 1, "it has room enough");
    let _at_once = batch.try_charge(300).unwrap();
    let totals = batch.totals().await.unwrap();
    let told = totals.iter().map(|budget| (budget.path.as_str(), budget.limit)).collect::<Vec<_>>();
    assert_eq!(told, BUDGETS);
    assert!(totals.iter().all(|budget| budget.leased >= 300 && budget.holds.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_says_why_its_lease_does_not_grow() {
    let store = Line::new(600, BUDGETS).await;
    let batch = join(&store, "a").budget("/acme/batch").await.unwrap();
    let _charge = batch.charge(200).await.unwrap();
    assert_eq!(batch.standing(), Standing::Open);
    let lower = Change::Set { path: "/acme/batch".to_owned(), limit: Some(150), minimum: None };
    store.administer("acme", &lower).await.unwrap();
    until(async || matches!(batch.standing(), Standing::Over { by: 1.. })).await;
    store.cut.store(true, Ordering::Relaxed);
    until(async || batch.standing() == Standing::Ended).await;
    store.cut.store(false, Ordering::Relaxed);
    let delete = Change::Delete { path: "/acme/batch".to_owned() };
    until(async || batch.standing() != Standing::Ended).await;
    store.administer("acme", &delete).await.unwrap();
    until(async || batch.standing() == Standing::Closing).await;
    let second = join(&store, "a").budget("/acme").await.unwrap();
    until(async || batch.standing() == Standing::Fenced).await;
    assert_eq!(second.standing(), Standing::Open);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_together_charge_no_more_than_the_limit() {
    let store = Line::new(60_000, BUDGETS).await;
    let mut budgets = Vec::new();
    for name in ["a", "b", "c"] {
        budgets.push(join(&store, name).budget("/acme/batch").await.unwrap());
    }
    let mut held: Vec<OwnedCharge> = Vec::new();
    for turn in 0..300 {
        if let Ok(charge) = budgets[turn % 3].charge(7).await {
            held.push(charge);
        }
    }
    let sum: u64 = held.iter().map(OwnedCharge::units).sum();
    assert!(sum <= 500, "{sum} are charged");
    assert!(sum > 400, "{sum} are charged, and the rest lies idle");
    assert!(store.leased("/acme/batch").await <= 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_that_waits_gets_what_another_node_holds_idle() {
    let store = Line::new(60_000, BUDGETS).await;
    let (a, b) = (join(&store, "a"), join(&store, "b"));
    let at_a = a.budget("/acme/batch").await.unwrap();
    let at_b = b.budget("/acme/batch").await.unwrap();
    drop(at_a.charge(450).await.unwrap());
    let charge = at_b.charge_within(400, LONG).await.unwrap();
    assert_eq!(charge.units(), 400);
    assert!(at_a.lease() <= 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_frees_is_told_at_once_where_another_waits() {
    // Turns are 20 seconds apart: without being looked for, what is freed would come that much later.
    let store = Line::new(60_000, BUDGETS).await;
    let at_a = join(&store, "a").budget("/acme/batch").await.unwrap();
    let at_b = join(&store, "b").budget("/acme/batch").await.unwrap();
    let all = at_a.charge(490).await.unwrap();
    let waits = tokio::spawn(async move {
        let began = Instant::now();
        let charge = at_b.charge_within(400, LONG).await;
        (charge.map(|charge| charge.units()), began.elapsed())
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waits.is_finished());
    drop(all);
    let (charged, took) = waits.await.unwrap();
    assert_eq!(charged, Ok(400));
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_charge_waits_nobody_keeps_a_reserve_and_the_last_unit_is_had() {
    let store = Line::new(60_000, BUDGETS).await;
    let mut held = Vec::new();
    for name in ["a", "b"] {
        let batch = join(&store, name).budget("/acme/batch").await.unwrap();
        let charge = batch.charge(200).await.unwrap();
        assert!(batch.lease() > 200, "it likes to have some idle");
        held.push((batch, charge));
    }
    let last = join(&store, "c").budget("/acme/batch").await.unwrap();
    assert_eq!(last.charge_within(100, LONG).await.unwrap().units(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_charges_that_wait_for_what_lies_split_among_their_nodes_one_is_served() {
    let store = Line::new(60_000, BUDGETS).await;
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        let batch = join(&store, name).budget("/acme/batch").await.unwrap();
        // Idle, as after a charge that was returned.
        drop(batch.charge_within(100, LONG).await.unwrap());
        nodes.push(batch);
    }
    let mut waiting = tokio::task::JoinSet::new();
    for batch in nodes {
        waiting.spawn(async move { (batch.charge_within(400, LONG).await, batch) });
    }
    let (first, _batch) = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(first.unwrap().units(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_budget_refuses_is_not_held_back_from_others_above_it() {
    let store =
        Line::new(60_000, &[("/acme", 1_000), ("/acme/batch", 500), ("/acme/web", 500)]).await;
    let at_a = join(&store, "a").budget("/acme/batch").await.unwrap();
    let _all = at_a.charge(490).await.unwrap();
    // It wants more and more, which no budget of its own has.
    assert!(at_a.charge(400).await.is_err());
    let waits = tokio::spawn(async move { at_a.charge_within(450, LONG).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(store.leased("/acme").await, store.leased("/acme/batch").await);
    let web = join(&store, "b").budget("/acme/web").await.unwrap();
    // In one round trip: nobody has to be asked.
    let _web = web.charge(490).await.unwrap();
    waits.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_hears_whose_lease_is_full_and_why_it_does_not_grow() {
    let store = Line::new(60_000, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let charge = batch.charge(300).await.unwrap();
    let said = async || batch.charge(400).await.unwrap_err().to_string();
    let granted = "400 of /acme/batch requested, and this node uses 300 of the 500 it has leased; \
                   the store granted no more of the budget";
    assert_eq!(said().await, granted);
    let drain = |on| Change::Drain { node: "a".to_owned(), on };
    store.administer("acme", &drain(true)).await.unwrap();
    until(async || batch.standing() == Standing::Drained).await;
    let drained = said().await;
    assert!(
        drained.ends_with("; an operator drains this node, so it is granted nothing"),
        "{drained}"
    );
    store.administer("acme", &drain(false)).await.unwrap();
    // A group below that is no budget's says what it says in any ledger.
    let query = batch.owned().create("q42").unwrap();
    query.group().set_max(ledgerline::Limit::units(5)).unwrap();
    let error = FleetError::from(query.try_charge(6).unwrap_err());
    let FleetError::Refused(no_room) = &error else { panic!("{error}") };
    assert_eq!((no_room.standing(), error.to_string()), (None, no_room.refused().to_string()));
    store.administer("acme", &Change::Delete { path: "/acme/batch".to_owned() }).await.unwrap();
    until(async || batch.standing() == Standing::Closing).await;
    assert!(said().await.ends_with("; the budget is deleted, so it grants nothing"));
    drop(charge);
    // With the last lease it is gone.
    until(async || store.leased("/acme/batch").await == 0).await;
    let gone = batch.charge(400).await.unwrap_err();
    assert_eq!(gone, FleetError::Unknown("/acme/batch".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_store_does_not_answer_a_charge_says_so_and_not_that_the_budget_is_full() {
    let store = Line::new(60_000, BUDGETS).await;
    let batch = join(&store, "a").budget("/acme/batch").await.unwrap();
    store.fails.store(true, Ordering::Relaxed);
    let torn = FleetError::Store(torn());
    assert_eq!(batch.charge(300).await.unwrap_err(), torn);
    let goes_on = "(torn); leases go on until they end, and none grows";
    assert!(torn.to_string().ends_with(goes_on), "{torn}");
    let waited = batch.charge_within(300, Duration::from_millis(300)).await;
    assert_eq!(waited.unwrap_err(), torn);
    let waits = tokio::spawn(async move { batch.charge_within(300, LONG).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    store.fails.store(false, Ordering::Relaxed);
    assert_eq!(
        waits.await.unwrap().unwrap().units(),
        300,
        "it answers again while the charge waits"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_asked_runs_its_reclaimers_once_the_budget_is_over() {
    let store = Line::new(60_000, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let pages: Arc<Mutex<Vec<OwnedCharge>>> = Arc::default();
    for _ in 0..40 {
        let page = batch.charge(10).await.unwrap();
        pages.lock().unwrap().push(page);
    }
    let evict = pages.clone();
    let _reclaimer = batch.owned().add_reclaimer(0, move |need| {
        let mut freed = 0;
        while freed < need {
            let Some(page) = evict.lock().unwrap().pop() else { break };
            freed += page.units();
        }
        freed
    });
    let lower = Change::Set { path: "/acme/batch".to_owned(), limit: Some(200), minimum: None };
    store.administer("acme", &lower).await.unwrap();
    until(async || store.leased("/acme/batch").await <= 200).await;
    assert!(batch.group().precise() <= 200);
    assert!(batch.lease() <= 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_gives_all_back_and_one_that_is_dropped_does_so_too() {
    let store = Line::new(60_000, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let charge = batch.charge(200).await.unwrap();
    let refused = fleet.clone().leave(Duration::ZERO).await;
    assert_eq!(refused, Err(FleetError::Charged(200)));
    assert!(batch.try_charge(1).is_err());
    drop(charge);
    fleet.leave(LONG).await.unwrap();
    assert_eq!(store.leased("/acme/batch").await, 0);

    let other = join(&store, "b").budget("/acme/batch").await.unwrap();
    assert!(store.leased("/acme/batch").await > 0);
    drop(other);
    until(async || store.leased("/acme/batch").await == 0).await;
}

/// Each organisation has its own book, and its own end of what is charged there.
#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_several_organisations_waits_no_longer_than_for_one() {
    let store = Line::new(60_000, BUDGETS).await;
    let names = ["acme", "b", "c", "d", "e"];
    for name in &names[1..] {
        let terms = Change::from(Terms { ttl: 60_000, grace: 60_000 });
        store.memory.administer(name, &terms).await.unwrap();
        let change = Change::Set { path: format!("/{name}"), limit: Some(100), minimum: None };
        store.memory.administer(name, &change).await.unwrap();
    }
    let fleet = join(&store, "a");
    let mut charges = Vec::new();
    for name in names {
        let budget = fleet.budget(&format!("/{name}")).await.unwrap();
        charges.push(budget.charge(70).await.unwrap());
    }
    // What is charged ends in all but the last, when patience is nearly over.
    let _kept = charges.pop();
    let patience = Duration::from_secs(20);
    tokio::spawn(async move {
        tokio::time::sleep(patience * 9 / 10).await;
        drop(charges);
    });
    let start = tokio::time::Instant::now();
    assert_eq!(fleet.leave(patience).await, Err(FleetError::Charged(70)));
    assert!(start.elapsed() < patience * 11 / 10, "{:?}", start.elapsed());
    for name in &names[..4] {
        let view = store.memory.view(name).await.unwrap();
        assert_eq!(view.budgets[0].leased, 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_shrinks_at_the_end_of_its_leases_and_comes_back() {
    let store = Line::new(300, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let charge = batch.charge(100).await.unwrap();
    store.cut.store(true, Ordering::Relaxed);
    until(async || batch.lease() == 0).await;
    drop(charge);
    assert!(batch.try_charge(1).is_err());
    store.cut.store(false, Ordering::Relaxed);
    until(async || batch.try_charge(1).is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_told_to_goes_on_when_its_leases_end() {
    let store = Line::new(200, BUDGETS).await;
    let fleet = Fleet::join(store.clone(), "a").reserve(10).at_end(AtEnd::GoOn).start().unwrap();
    let mut events = fleet.events();
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let _charge = batch.charge(100).await.unwrap();
    let lease = batch.lease();
    store.cut.store(true, Ordering::Relaxed);
    while events.recv().await.unwrap() != ledgerline_fleet::node::Event::Ended {}
    assert_eq!(batch.lease(), lease);
    let _more = batch.try_charge(1).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_nobody_set_is_unknown_and_a_second_process_of_a_name_fences_the_first() {
    let store = Line::new(400, BUDGETS).await;
    let fleet = join(&store, "a");
    let unknown = fleet.budget("/acme/none").await.unwrap_err();
    assert_eq!(unknown, FleetError::Unknown("/acme/none".to_owned()));
    let first = fleet.budget("/acme/batch").await.unwrap();
    let second = join(&store, "a").budget("/acme/batch").await.unwrap();
    assert_eq!(first.charge(400).await.unwrap_err(), FleetError::Fenced);
    until(async || first.lease() == 0).await;
    assert!(second.charge(400).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_below_a_budget_charge_it_and_a_programs_own_ledger_has_them() {
    let store = Line::new(60_000, BUDGETS).await;
    let ledger = Arc::new(Ledger::new().unwrap());
    let fleet = Fleet::join(store.clone(), "a").reserve(10).ledger(&ledger).start().unwrap();
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let query = batch.owned().create("q42").unwrap();
    let _charge = query.try_charge(5).unwrap();
    assert_eq!(ledger.find("/acme/batch").unwrap().precise(), 5);
    assert!(query.try_charge(501).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_hears_who_was_refused_and_nothing_of_charges_that_asking_made_room_for() {
    let store = Line::new(6_000, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let granted = batch.charge(300).await.unwrap();
    let query = batch.owned().create("q42").unwrap();
    assert!(query.try_charge(400).is_err());
    // The query's own limit is no business of the fleet's.
    query.group().set_max(ledgerline::Limit::units(5)).unwrap();
    assert!(query.try_charge(6).is_err());
    query.group().destroy().unwrap();
    assert!(batch.charge(450).await.is_err());
    let refusals = async || store.memory.view("acme").await.unwrap().refusals;
    until(async || refusals().await.len() == 2).await;
    let refusals = refusals().await;
    let told = |one: &ledgerline_fleet::book::Refused| {
        (one.node.clone(), one.budget.clone(), one.group.clone(), one.units, one.count)
    };
    let [a, budget, group] = ["a", "/acme/batch", "/acme/batch/q42"].map(str::to_owned);
    let expected =
        [(a.clone(), budget.clone(), group, 400, 1), (a, budget.clone(), budget, 450, 1)];
    assert_eq!(refusals.iter().map(told).collect::<Vec<_>>(), expected);
    assert_eq!(refusals[1].full, ledgerline_fleet::book::Full::Limit);
    drop(granted);
}
