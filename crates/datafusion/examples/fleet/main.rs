//! Three processes run real SQL on one budget of a fleet, and one of them is killed in the middle of a query.
//!
//! The budget lies in a real redis, which the example starts in a temporary folder. Each process leases its part and
//! runs queries on TPC-H tables of its own; the results are compared with a run without limits. Some twenty times a
//! second all processes are stopped, and the holdings of their ledgers are added up: at no such instant may the sum
//! exceed the limit. One process is killed while it holds three fifths of the limit. Its part returns when its lease
//! and the grace have ended, and a query that does not fit without it ends on another node. At the end no node holds
//! anything, and the books have no lease.
//!
//! ```console
//! $ cargo run --features fleet --example fleet -- --scale 0.05
//! ```

mod node;
mod processes;
#[path = "../tpch/mod.rs"]
mod tpch;

use ledgerline_fleet::book::{BudgetView, Change, Terms, View, What};
use ledgerline_fleet::store::{Access, Store, open};
use processes::{Nodes, Redis, Said};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The budget that the processes share, which is the organisation's whole.
const ORGANISATION: &str = "acme";
const BUDGET: &str = "/acme/batch";

/// Long enough for a busy machine to renew in time.
const TERMS: Terms = Terms { ttl: 6_000, grace: 2_000 };

/// A wait that is longer than this fails.
const LONG: Duration = Duration::from_secs(600);

/// The operator's view of the books.
struct Books {
    store: Arc<dyn Store>,
    runtime: tokio::runtime::Runtime,
}

impl Books {
    fn new(address: &str) -> Outcome<Books> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let store = open(address, &Access::default())?;
        runtime.block_on(store.prepare())?;
        runtime.block_on(store.administer(ORGANISATION, &Change::from(TERMS)))?;
        Ok(Books { store, runtime })
    }

    fn set_limit(&self, limit: u64) -> Outcome<()> {
        for path in [format!("/{ORGANISATION}"), BUDGET.to_owned()] {
            let change = Change::Set { path, limit: Some(limit), minimum: None };
            self.runtime.block_on(self.store.administer(ORGANISATION, &change))?;
        }
        Ok(())
    }

    fn view(&self) -> Outcome<View> {
        Ok(self.runtime.block_on(self.store.view(ORGANISATION))?)
    }
}

fn batch(view: &View) -> Outcome<&BudgetView> {
    let found = view.budgets.iter().find(|budget| budget.path == BUDGET);
    found.ok_or_else(|| "the book has no such budget".into())
}

/// Returns the units that a node has leased, and 0 when the book has forgotten it.
fn leased(view: &View, node: &str) -> Outcome<u64> {
    let holds = batch(view)?.holds.iter();
    Ok(holds.filter(|hold| hold.node == node).map(|hold| hold.lease).sum())
}

fn run(scale: &str) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let Some(redis) = Redis::start(folder.path())? else {
        println!("left out: redis-server is missing (Debian's package redis-server)");
        return Ok(());
    };
    let books = Books::new(&redis.address)?;
    books.set_limit(1 << 40)?;
    let mut nodes = Nodes::default();
    for name in ["a", "b", "c"] {
        nodes.start(name, &redis.address, folder.path(), scale)?;
    }
    // The peak of the large query without a limit. With less its partitions wait for each other, down to a half.
    let mut large = 0;
    for _ in 0..3 {
        match nodes.hear(LONG)? {
            (_, Said::Ready { large: taken }) => large = large.max(taken),
            (name, other) => return Err(format!("{name} said {other:?}").into()),
        }
    }
    let limit = large;
    books.set_limit(limit)?;
    println!("three nodes share {} MiB, as much as the large query takes", limit >> 20);

    for (name, work) in [("a", "mixed"), ("b", "mixed"), ("c", "large")] {
        nodes.tell(name, work)?;
    }
    let mut watch =
        Watch { limit, end: Instant::now() + LONG, instants: 0, most: 0, right: 0, waited: 0 };
    // The victim is at work on memory that it cannot spill.
    loop {
        let held = watch.look(&mut nodes, &books)?;
        if held.iter().any(|(name, units)| *name == "c" && *units > limit / 5 * 3) {
            break;
        }
        watch.hear(&mut nodes)?;
    }
    nodes.kill("c")?;
    let view = books.view()?;
    let lost = leased(&view, "c")?;
    let incarnations = view.nodes.iter().filter(|node| node.name == "c");
    let ends = incarnations.flat_map(|node| &node.incarnations).map(|one| one.ends).max();
    let ends = ends.ok_or("the book does not know the node that was killed")?;
    assert!(lost > limit / 5 * 3, "{lost} of {limit}");
    println!("c was killed in the middle of a query, with {} MiB leased", lost >> 20);

    // The others continue meanwhile; then one rests, so that the large query competes with the dead node alone.
    nodes.tell("b", "large")?;
    let before = watch.right;
    while watch.right < before + 2 {
        watch.look(&mut nodes, &books)?;
        watch.hear(&mut nodes)?;
    }
    nodes.tell("a", "rest")?;
    let peak = loop {
        watch.look(&mut nodes, &books)?;
        if let Some(peak) = watch.hear(&mut nodes)? {
            break peak;
        }
    };
    let view = books.view()?;
    assert_eq!(leased(&view, "c")?, 0, "the large query fits beside the dead node's lease");
    assert!(peak > limit - lost, "{peak} of {limit}, of which {lost} were lost");
    let ended = view
        .events
        .iter()
        .find(|event| event.node == "c" && matches!(event.what, What::Ended { .. }));
    let ended = ended.ok_or("the book does not say that c's lease ended")?;
    assert!(ended.at >= ends + TERMS.grace, "c's units went to others too early");
    println!(
        "they came back {} ms after its lease had ended; b's large query took {} MiB",
        ended.at - ends,
        peak >> 20
    );

    nodes.leave(LONG)?;
    let view = books.view()?;
    let left = (batch(&view)?.leased, view.nodes.iter().all(|node| node.incarnations.is_empty()));
    assert_eq!(left, (0, true), "everybody left: {view:?}");
    let Watch { instants, most, right, .. } = watch;
    println!(
        "at {instants} instants they held at most {} of {} MiB; {right} queries returned what they should",
        most >> 20,
        limit >> 20
    );
    println!("ok");
    Ok(())
}

/// Observes, and counts.
struct Watch {
    limit: u64,
    /// The time at which the example gives up.
    end: Instant,
    instants: usize,
    /// The largest sum of holdings at one instant.
    most: u64,
    /// The number of correct queries.
    right: usize,
    /// The number of queries that were cancelled, since their partitions waited for each other.
    waited: usize,
}

impl Watch {
    /// Returns the holding of each node at one instant. Checks that all together hold and lease no more than the limit.
    fn look(&mut self, nodes: &mut Nodes, books: &Books) -> Outcome<Vec<(&'static str, u64)>> {
        if Instant::now() > self.end {
            return Err("it takes too long".into());
        }
        let held = nodes.held(BUDGET)?;
        let sum = held.iter().map(|(_, units)| units).sum();
        assert!(sum <= self.limit, "{held:?} is more than {}", self.limit);
        let leased = batch(&books.view()?)?.leased;
        assert!(leased <= self.limit, "{leased} of {} are leased", self.limit);
        self.instants += 1;
        self.most = self.most.max(sum);
        Ok(held)
    }

    /// Handles the messages that nodes send within a moment. Returns the peak of a large query that ended well.
    fn hear(&mut self, nodes: &mut Nodes) -> Outcome<Option<u64>> {
        match nodes.hear(Duration::from_millis(50)) {
            Ok((_, Said::Right { query, peak })) => {
                self.right += 1;
                Ok((query == "large").then_some(peak))
            }
            Ok((name, Said::Refused { why })) => {
                assert!(why.contains("Fleet: this node has leased"), "{name}: {why}");
                Ok(None)
            }
            Ok((name, Said::Waited { query })) => {
                println!("{name}: {query} waited for itself, and was cancelled");
                self.waited += 1;
                assert!(self.waited < 3, "queries wait for good again and again");
                Ok(None)
            }
            Ok((name, other)) => Err(format!("{name} said {other:?}").into()),
            Err(processes::Silent) => Ok(None),
        }
    }
}

fn main() -> Outcome<()> {
    let words = std::env::args().skip(1).collect::<Vec<_>>();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run("0.05"),
        ["--scale", scale] => run(scale),
        ["node", store, name, ledger, scale] => node::run(store, name, ledger, scale.parse()?),
        _ => Err("usage: fleet [--scale 0.05]".into()),
    }
}
