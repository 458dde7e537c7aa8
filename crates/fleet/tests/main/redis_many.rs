//! Redis as in production: a primary with a replica and a sentinel, and a cluster.

use std::time::Duration;

use ledgerline_fleet::book::Change;
use ledgerline_fleet::message::{Nudge, Reply, Sync};
use ledgerline_fleet::store::redis::Address;
use ledgerline_fleet::store::{Options, Redis, Store, StoreError};

use crate::support::said::{self, lease};
use crate::support::server::{self, Server};

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port)
}

fn open(address: Address) -> Redis {
    // Long enough for a machine under load.
    Redis::new(address, Options { timeout: Duration::from_secs(20), ..Options::default() })
        .expect("an address")
}

fn do_raw(server: &Server, words: &[&str]) -> redis::RedisResult<()> {
    redis::cmd(words[0])
        .arg(&words[1..])
        .exec(&mut redis::Client::open(url(server))?.get_connection()?)
}

fn info(server: &Server, section: &[&str]) -> String {
    let mut connection = redis::Client::open(url(server)).unwrap().get_connection().unwrap();
    redis::cmd(section[0]).arg(&section[1..]).query(&mut connection).unwrap()
}

async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn set(organisation: &str) -> Change {
    Change::Set { path: format!("/{organisation}"), limit: Some(100), minimum: None }
}

/// Returns a message of a node that has taken every earlier reply, and whose leases go on.
fn sync(organisation: &str, sequence: u64, lease: u64, want: u64) -> Sync {
    let message = said::sync("node", &format!("/{organisation}"), sequence, lease, want);
    Sync { taken: sequence - 1, until: 1 << 53, ..message }
}

/// Waits for the first answer. Calls that fail for now are repeated.
async fn persistent(store: &Redis, mut message: Sync) -> (Sync, Reply) {
    loop {
        match store.sync("a", &message).await {
            Ok(reply) => return (message, reply),
            Err(StoreError { kind, detail, .. }) => eprintln!("{kind:?}: {detail}"),
        }
        message.sequence += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn after_a_failover_the_store_goes_on_at_the_primary_that_the_sentinel_names() {
    let Some(primary) = server::redis(&[]) else { return };
    let port = primary.port.to_string();
    let Some(replica) = server::redis(&["--replicaof", "127.0.0.1", &port]) else { return };
    let sentinel = Server::start("redis-sentinel", |own, folder| {
        let file = folder.join("sentinel.conf");
        let text = format!(
            "port {own}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 3000\n"
        );
        std::fs::write(&file, text).expect("a file in a folder of ours");
        vec![file.display().to_string()]
    });
    let Some(sentinel) = sentinel else { return };
    let sentinels = vec![url(&sentinel)];
    let store = open(Address::Sentinel { sentinels, primary: "main".to_owned(), user: None });
    store.load().await.unwrap();
    store.administer("a", &set("a")).await.unwrap();
    assert_eq!(lease(&store.sync("a", &sync("a", 1, 0, 60)).await.unwrap()), 60);
    until(|| info(&replica, &["INFO", "replication"]).contains("master_link_status:up")).await;
    until(|| info(&sentinel, &["INFO", "sentinel"]).contains("slaves=1")).await;
    // The replica has the last write before the primary dies.
    until(|| holds(&replica) == holds(&primary)).await;

    primary.signal("-KILL");
    let (message, reply) = persistent(&store, sync("a", 2, 60, 80)).await;
    assert_eq!(lease(&reply), 80);
    assert!(message.sequence > 2, "something failed before the failover");
    assert!(info(&replica, &["INFO", "replication"]).contains("role:master"));
}

/// Returns the contents of the book of `a`.
fn holds(server: &Server) -> Option<Vec<u8>> {
    let mut connection = redis::Client::open(url(server)).unwrap().get_connection().unwrap();
    redis::cmd("DUMP").arg("{ledgerline:v1:a}:holds").query(&mut connection).unwrap()
}

#[tokio::test]
async fn in_a_cluster_each_organisations_book_lies_on_one_node() {
    let clustered = ["--cluster-enabled", "yes", "--cluster-port"];
    let start = || {
        let bus = server::free_port().to_string();
        server::redis(&[clustered[0], clustered[1], clustered[2], &bus]).map(|server| (server, bus))
    };
    let (Some((one, _)), Some((two, bus))) = (start(), start()) else { return };
    do_raw(&one, &["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]).unwrap();
    do_raw(&two, &["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]).unwrap();
    do_raw(&one, &["CLUSTER", "MEET", "127.0.0.1", &two.port.to_string(), &bus]).unwrap();
    for server in [&one, &two] {
        until(|| {
            let state = info(server, &["CLUSTER", "INFO"]);
            state.contains("cluster_state:ok") && state.contains("cluster_known_nodes:2")
        })
        .await;
    }
    let store = open(Address::Cluster(vec![url(&one), url(&two)]));
    store.load().await.unwrap();
    let organisations = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for organisation in organisations {
        store.administer(organisation, &set(organisation)).await.unwrap();
        let reply = store.sync(organisation, &sync(organisation, 1, 0, 60)).await.unwrap();
        assert_eq!(lease(&reply), 60);
        assert_eq!(store.view(organisation).await.unwrap().budgets[0].leased, 60);
    }
    assert_eq!(store.organisations().await.unwrap(), organisations);
    for server in [&one, &two] {
        assert!(info(server, &["INFO", "keyspace"]).contains("keys="), "both have books");
    }
    let mut nudges = store.nudges("a").await.unwrap();
    let other = Sync { node: "other".to_owned(), incarnation: 8, ..sync("a", 1, 0, 60) };
    assert_eq!(lease(&store.sync("a", &other).await.unwrap()), 40);
    assert_eq!(nudges.next().await, Some(Nudge::Sync("/a".to_owned())));
}
