//! Nodes in separate processes, on a real redis: one is killed, one is stopped for longer than its lease.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ledgerline_fleet::book::{Change, Terms};
use ledgerline_fleet::fleet::{Budget, Fleet};
use ledgerline_fleet::store::redis::Address;
use ledgerline_fleet::store::{Options, Redis, Store};

use crate::support::server;

const ADDRESS: &str = "LEDGERLINE_TEST_REDIS";
const LIMIT: u64 = 1_000;
const LONG: Duration = Duration::from_secs(60);

async fn store(address: &str) -> Arc<Redis> {
    let options = Options { prefix: "processes".to_owned(), timeout: LONG };
    let store = Redis::new(Address::Server(address.to_owned()), options).unwrap();
    store.load().await.unwrap();
    Arc::new(store)
}

async fn join(address: &str, name: &str) -> Budget {
    let fleet = Fleet::join(store(address).await, name).reserve(10).start().unwrap();
    fleet.budget("/acme/batch").await.unwrap()
}

/// A node in another process. It charges on command, and reports its charges and its lease.
struct Other {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start(address: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "processes::other_process",
            "--ignored",
            "--nocapture",
            "--quiet",
        ]);
        command.env(ADDRESS, address).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    /// Makes it charge. Returns the units that it holds then, and its lease.
    fn charge(&mut self, units: u64) -> (u64, u64) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{units}").unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the other process ended");
            // The test harness writes to the same output.
            if let Some(answer) = line.trim().strip_prefix("held ") {
                let (held, lease) = answer.split_once(" of ").unwrap();
                return (held.parse().unwrap(), lease.parse().unwrap());
            }
        }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ended_before = self.child.kill();
        let _status = self.child.wait();
    }
}

#[test]
#[ignore = "the other process of the tests below, which start it"]
fn other_process() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let batch = join(&address, "other").await;
        let mut charges = Vec::new();
        for line in std::io::stdin().lock().lines() {
            charges.extend(batch.charge(line.unwrap().parse().unwrap()).await);
            println!("held {} of {}", batch.group().precise(), batch.lease());
        }
    });
}

async fn set_up(address: &str, terms: Terms) -> Arc<Redis> {
    let store = store(address).await;
    store.administer("acme", &Change::from(terms)).await.unwrap();
    for path in ["/acme", "/acme/batch"] {
        let change = Change::Set { path: path.to_owned(), limit: Some(LIMIT), minimum: None };
        store.administer("acme", &change).await.unwrap();
    }
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn the_units_of_a_process_that_is_killed_come_back() {
    let Some(server) = server::redis(&[]) else { return };
    let address = format!("redis://127.0.0.1:{}", server.port);
    let _store = set_up(&address, Terms { ttl: 1_000, grace: 500 }).await;
    let mut other = Other::start(&address);
    let (held, _) = other.charge(800);
    assert_eq!(held, 800);
    let here = join(&address, "here").await;
    assert!(here.charge(700).await.is_err());
    other.signal("-KILL");
    let _all = here.charge_within(LIMIT, LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_stopped_for_longer_than_its_lease_grows_no_more() {
    let Some(server) = server::redis(&[]) else { return };
    let address = format!("redis://127.0.0.1:{}", server.port);
    let store = set_up(&address, Terms { ttl: 1_000, grace: 500 }).await;
    let mut other = Other::start(&address);
    assert_eq!(other.charge(800).0, 800);
    let here = join(&address, "here").await;
    other.signal("-STOP");
    let charge = here.charge_within(900, LONG).await.unwrap();
    other.signal("-CONT");
    // It keeps its units, which are over the limit, and gets no more.
    let (held, _) = other.charge(100);
    assert_eq!(held, 800);
    let over = async || {
        let view = store.view("acme").await.unwrap();
        let batch = view.budgets.into_iter().find(|budget| budget.path == "/acme/batch");
        batch.map_or(0, |batch| batch.over)
    };
    while over().await < 700 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(other);
    while over().await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(charge);
    let _all = here.charge_within(LIMIT, LONG).await.unwrap();
}
