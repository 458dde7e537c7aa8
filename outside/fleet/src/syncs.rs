//! Many nodes that sync with a real store, at their period or as fast as the store answers. Only groups are
//! simulated. Each node runs the protocol's own code, with a connection of its own.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ledgerline_fleet::book::Change;
use ledgerline_fleet::node::{Action, Node, Reading, Scope, Settings};
use ledgerline_fleet::store::{Access, Store, open};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::load::Random;
use crate::server::{Server, processor_time};

/// The tenants of a node's organisation. Each has a number of jobs. A message has a line for each of these groups.
const TENANTS: u64 = 5;
const JOBS: u64 = 2;
/// The number of lines in a message.
pub const LINES: u64 = 1 + TENANTS * (1 + JOBS);
/// The number of concurrent messages if the store sets the pace.
const UNDER_WAY: usize = 16;
/// The mean time between two syncs of a node without a reason for more: a third of the default lease, less up to an
/// eighth.
pub const PERIOD: Duration = Duration::from_micros(3_333_333 - 3_333_333 / 16);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The work of the store for a number of nodes.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub syncs_a_second: f64,
    /// The store's share of one processor.
    pub processor: f64,
    /// The processor time of a sync, in milliseconds.
    pub each_ms: f64,
    pub median_ms: f64,
    pub p99_ms: f64,
    pub errors: u64,
}

/// The phases: nodes join, then wait, or count their syncs.
const JOINING: u8 = 0;
const COUNTING: u8 = 1;
const DONE: u8 = 2;

struct Shared {
    phase: AtomicU8,
    errors: AtomicU64,
    /// Limits concurrent messages if the store sets the pace.
    under_way: Option<Semaphore>,
    start: Instant,
}

/// A busy machine is slow: no node may give up on its store within a second.
fn patient(server: &Server) -> Outcome<Arc<dyn Store>> {
    Ok(open(&format!("{}?timeout=10s", server.address), &Access::default())?)
}

/// Makes the books of a number of organisations.
pub async fn found(server: &Server, organisations: u64) -> Outcome<()> {
    let store = patient(server)?;
    store.prepare().await?;
    let set = |path: String| Change::Set { path, limit: Some(1 << 40), minimum: None };
    for organisation in (0..organisations).map(|number| format!("o{number}")) {
        store.administer(&organisation, &set(format!("/{organisation}"))).await?;
        for tenant in (0..TENANTS).map(|number| format!("/{organisation}/t{number}")) {
            store.administer(&organisation, &set(tenant.clone())).await?;
            for job in 0..JOBS {
                store.administer(&organisation, &set(format!("{tenant}/j{job}"))).await?;
            }
        }
    }
    Ok(())
}

/// Runs nodes that sync, `each` of them in an organisation: at their period, or as fast as the store answers.
pub async fn sync(
    server: &Server,
    nodes: u64,
    each: u64,
    paced: bool,
    time: Duration,
) -> Outcome<Figures> {
    let shared = Arc::new(Shared {
        phase: AtomicU8::new(JOINING),
        errors: AtomicU64::new(0),
        under_way: (!paced).then(|| Semaphore::new(UNDER_WAY)),
        start: Instant::now(),
    });
    let mut members = JoinSet::new();
    for number in 0..nodes {
        let store = patient(server)?;
        let member = Member::new(number, format!("o{}", number / each), paced);
        members.spawn(member.run(store, shared.clone()));
    }
    tokio::time::sleep(PERIOD * 2).await;
    let processor = processor_time(server.process()).unwrap_or(0.0);
    let start = Instant::now();
    shared.phase.store(COUNTING, Ordering::Relaxed);
    tokio::time::sleep(time).await;
    shared.phase.store(DONE, Ordering::Relaxed);
    let seconds = start.elapsed().as_secs_f64();
    let processor = processor_time(server.process()).unwrap_or(0.0) - processor;
    let mut times: Vec<f64> = members.join_all().await.into_iter().flatten().collect();
    times.sort_by(f64::total_cmp);
    let at =
        |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN);
    Ok(Figures {
        syncs_a_second: times.len() as f64 / seconds,
        processor: processor / seconds,
        each_ms: processor * 1e3 / times.len() as f64,
        median_ms: at(0.5),
        p99_ms: at(0.99),
        errors: shared.errors.load(Ordering::Relaxed),
    })
}

struct Member {
    node: Node,
    organisation: String,
    /// The limit of each group. Its usage is made up.
    max: BTreeMap<String, u64>,
    random: Random,
    paced: bool,
}

impl Member {
    fn new(number: u64, organisation: String, paced: bool) -> Self {
        let mut random = Random(number);
        let name = format!("n{number}");
        let mut node = Node::new(&name, random.below(1 << 52) | 1, Settings::default());
        for tenant in 0..TENANTS {
            for job in 0..JOBS {
                node.open(0, &format!("/{organisation}/t{tenant}/j{job}"));
            }
        }
        let max = node.budgets().map(|budget| (budget.path.to_owned(), 0)).collect();
        Self { node, organisation, max, random, paced }
    }

    /// Syncs until the time is over. Returns the duration of each sync that counts, in milliseconds.
    async fn run(mut self, store: Arc<dyn Store>, shared: Arc<Shared>) -> Vec<f64> {
        let mut times = Vec::new();
        // Spreads the starts over a period.
        tokio::time::sleep(PERIOD.mul_f64(self.random.below(1 << 20) as f64 / f64::from(1 << 20)))
            .await;
        while shared.phase.load(Ordering::Relaxed) != DONE {
            let now = shared.start.elapsed().as_millis() as u64;
            let due = self.node.due().unwrap_or(now);
            if self.paced && due > now {
                // Limits how far the sleep goes beyond the end.
                tokio::time::sleep(Duration::from_millis((due - now).min(200))).await;
                continue;
            }
            let _turn = match &shared.under_way {
                Some(under_way) => under_way.acquire().await.ok(),
                None => None,
            };
            if let Some(time) = self.turn(&*store, &shared).await
                && shared.phase.load(Ordering::Relaxed) == COUNTING
            {
                times.push(time);
            }
        }
        times
    }

    /// Sends one message and receives its reply. Returns `None` if the store did not answer.
    async fn turn(&mut self, store: &dyn Store, shared: &Shared) -> Option<f64> {
        let now = shared.start.elapsed().as_millis() as u64;
        let Self { node, organisation, max, random, .. } = self;
        let used = |path: &str| max.get(path).map_or(0, |max| max / 2);
        let part = random.below(4);
        let mut turn = node.begin(now, Scope::All, |path| Reading {
            used: used(path) + part * used(path) / 4,
            refused: 0,
        });
        for lower in turn.lowers() {
            lower.done(lower.to(), lower.to());
        }
        let message = node.say(now, turn);
        let sent = Instant::now();
        let reply = store.sync(organisation, &message).await;
        let took = sent.elapsed().as_secs_f64() * 1e3;
        let now = shared.start.elapsed().as_millis() as u64;
        let mut actions = node.end(now);
        let answered = reply.is_ok();
        match reply {
            Ok(reply) => actions.extend(node.take(now, message.sequence, reply)),
            Err(_) => {
                shared.errors.fetch_add(1, Ordering::Relaxed);
                node.failed(now, message.sequence);
            }
        }
        for action in actions {
            if let Action::Raise { path, max: to } | Action::Lower { path, max: to } = action {
                max.insert(path, to);
            }
        }
        answered.then_some(took)
    }
}
