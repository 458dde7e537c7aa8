//! Errors of a redis that cannot serve, by kind, and the permissions of a node's user.

use std::sync::Arc;
use std::time::Duration;

use ledgerline_fleet::book::{Change, Event, What};
use ledgerline_fleet::fleet::{Fleet, FleetError};
use ledgerline_fleet::message::{Granted, Nudge, Reply, State, Sync};
use ledgerline_fleet::store::redis::Address;
use ledgerline_fleet::store::{Kind, Options, Redis, Store, StoreError};

use crate::support::said;
use crate::support::server::{self, Server};

fn store(server: &Server, user: &str) -> Redis {
    let address = Address::Server(format!("redis://{user}127.0.0.1:{}", server.port));
    // Long enough for a machine under load: only a stopped server is slow.
    let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
    Redis::new(address, options).expect("an address")
}

fn raw(server: &Server) -> redis::Connection {
    redis::Client::open(("127.0.0.1", server.port)).unwrap().get_connection().unwrap()
}

fn do_raw(server: &Server, words: &[&str]) {
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut raw(server)).unwrap();
}

fn set(limit: u64) -> Change {
    Change::Set { path: "/a".to_owned(), limit: Some(limit), minimum: None }
}

fn sync(sequence: u64, lease: u64, want: u64) -> Sync {
    said::sync("node", "/a", sequence, lease, want)
}

/// Sets up a store with its library and a budget `/a` of 100 units.
async fn founded(server: &Server) -> Redis {
    let store = store(server, "");
    store.load().await.unwrap();
    store.administer("a", &set(100)).await.unwrap();
    store
}

fn leases(reply: Reply) -> Vec<u64> {
    match reply {
        Reply::Synced { lines, .. } => lines.iter().map(|granted| granted.lease).collect(),
        other => panic!("{other:?}"),
    }
}

/// Asserts that the error is of this kind, names the server, and does not show the password.
fn expect<T: std::fmt::Debug>(result: Result<T, StoreError>, kind: Kind, server: &Server) {
    let error = result.expect_err("the server cannot serve");
    assert_eq!(error.kind, kind, "{error}");
    let shown = error.to_string();
    assert!(
        shown.contains(&format!("127.0.0.1:{}", server.port)) && !shown.contains("secret"),
        "{shown}"
    );
}

#[tokio::test]
async fn without_its_library_or_with_another_the_error_says_so() {
    let Some(server) = server::redis(&[]) else { return };
    let store = store(&server, "");
    expect(store.sync("a", &sync(1, 0, 10)).await, Kind::NoLibrary, &server);
    let other = Redis::LIBRARY.replace("REVISION = '4'", "REVISION = '1'");
    do_raw(&server, &["FUNCTION", "LOAD", &other]);
    expect(store.sync("a", &sync(1, 0, 10)).await, Kind::OtherVersion, &server);
    store.load().await.unwrap();
    let reply = store.sync("a", &sync(1, 0, 10)).await.unwrap();
    let Reply::Synced { lines, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(
        lines,
        [Granted {
            lease: 0,
            asked: 0,
            wanted: 0,
            due: 0,
            limit: 0,
            leased: 0,
            state: State::Unknown
        }]
    );
}

#[test]
fn an_address_that_makes_no_sense_is_refused_without_telling_its_password() {
    for address in ["nowhere", "http://user:secret@host", "redis://:secret@host:no-port"] {
        let refused =
            Redis::new(Address::Server(address.to_owned()), Options::default()).unwrap_err();
        assert!(
            refused.kind == Kind::Address && !refused.to_string().contains("secret"),
            "{refused}"
        );
    }
    let address = Address::Server("redis://:secret@127.0.0.1".to_owned());
    assert!(!format!("{address:?}").contains("secret"), "{address:?}");
    let prefix = Options { prefix: "{a".to_owned(), ..Options::default() };
    assert_eq!(Redis::new(address, prefix).unwrap_err().kind, Kind::Address);
}

#[tokio::test]
async fn a_server_without_functions_is_too_old() {
    let Some(server) = server::redis(&["--rename-command", "FCALL", ""]) else { return };
    expect(store(&server, "").sync("a", &sync(1, 0, 10)).await, Kind::TooOld, &server);
}

#[tokio::test]
async fn rows_of_another_format_and_replies_that_make_no_sense_are_errors() {
    let Some(server) = server::redis(&[]) else { return };
    let store = founded(&server).await;
    do_raw(&server, &["HSET", "{ledgerline:v1:a}:budgets", "/a", "junk"]);
    expect(store.sync("a", &sync(1, 0, 10)).await, Kind::OtherVersion, &server);
    let junk = [
        "'hello'",
        "{}",
        "{ 0, 1 }",
        "{ 0, 2, 5, 5, 5, 0, 0, 0, 0, 0, 0, 0, 0 }",
        "{ 0, 1, 5, 5, 5, -1, 0, 0, 0, 0, 0, 0, 0 }",
        "{ 0, 1, 5, 5, 5, 10, 11, 0, 0, 0, 0, 0, 0 }",
        "{ 0, 1, 5, 5, 5, 10, 0, 0, 11, 0, 0, 0, 0 }",
        "{ 0, 1, 5, 5, 5, 10, 0, 0, 0, 0, 0, 9, 0 }",
        "{ 0, 1, 5, 5, 5, 10, 0, 0, 0, 0, 0, 0 }",
        "{ 1, 1 }",
    ];
    for answer in junk {
        let library = format!(
            "#!lua name=ledgerline_fleet_v1\nredis.register_function('ledgerline_fleet_v1_sync', function() return {answer} end)"
        );
        do_raw(&server, &["FUNCTION", "LOAD", "REPLACE", &library]);
        expect(store.sync("a", &sync(1, 0, 10)).await, Kind::Nonsense, &server);
    }
}

#[tokio::test]
async fn a_full_server_says_so_and_serves_again_when_it_has_room() {
    let Some(server) = server::redis(&[]) else { return };
    let store = founded(&server).await;
    do_raw(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    expect(store.sync("a", &sync(1, 0, 10)).await, Kind::Full, &server);
    do_raw(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(leases(store.sync("a", &sync(2, 0, 10)).await.unwrap()), [10]);
}

#[tokio::test]
async fn leases_of_a_full_server_go_on_and_none_grows() {
    let Some(server) = server::redis(&[]) else { return };
    founded(&server).await.administer("a", &set(1 << 40)).await.unwrap();
    let fleet = Fleet::join(Arc::new(store(&server, "")), "node").start().unwrap();
    let budget = fleet.budget("/a").await.unwrap();
    drop(budget.charge(40).await.unwrap());
    do_raw(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    let leased = budget.lease();
    assert!((40..1 << 40).contains(&leased), "{leased}");
    let kept = budget.try_charge(leased).expect("what is leased");
    match budget.charge(1).await {
        Err(FleetError::Store(error)) => expect(Err::<(), _>(error), Kind::Full, &server),
        other => panic!("{other:?}"),
    }
    do_raw(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    drop((kept, budget.charge(1).await.unwrap()));
}

#[tokio::test]
async fn a_replica_is_read_only() {
    let Some(primary) = server::redis(&[]) else { return };
    founded(&primary).await;
    let port = primary.port.to_string();
    let Some(replica) = server::redis(&["--replicaof", "127.0.0.1", &port]) else { return };
    while !redis::cmd("INFO")
        .query::<String>(&mut raw(&replica))
        .unwrap()
        .contains("master_link_status:up")
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let store = store(&replica, "");
    expect(store.sync("a", &sync(1, 0, 10)).await, Kind::ReadOnly, &replica);
    do_raw(&replica, &["REPLICAOF", "NO", "ONE"]);
    assert_eq!(leases(store.sync("a", &sync(2, 0, 10)).await.unwrap()), [10]);
}

#[tokio::test]
async fn a_server_that_stands_still_is_slow_and_one_that_is_gone_unreachable() {
    let Some(server) = server::redis(&[]) else { return };
    founded(&server).await;
    let address = Address::Server(format!("redis://127.0.0.1:{}", server.port));
    let store =
        Redis::new(address, Options { timeout: Duration::from_millis(300), ..Options::default() })
            .unwrap();
    server.signal("-STOP");
    let slow = failure(&store).await;
    server.signal("-CONT");
    expect(Err::<(), _>(slow), Kind::Slow, &server);
    let patient = self::store(&server, "");
    assert_eq!(leases(patient.sync("a", &sync(2, 0, 10)).await.unwrap()), [10]);
    server.signal("-KILL");
    let gone = failure(&patient).await;
    expect(Err::<(), _>(gone), Kind::Unreachable, &server);
}

#[tokio::test]
async fn a_nodes_user_needs_the_rights_that_are_listed_and_may_do_no_more() {
    let Some(server) = server::redis(&[]) else { return };
    let operator = founded(&server).await;
    let user = |name: &str, more: &str| {
        let words = format!("ACL SETUSER {name} on >secret {} {more}", Redis::RIGHTS);
        do_raw(&server, &words.split_whitespace().collect::<Vec<_>>());
        store(&server, &format!("{name}:secret@"))
    };
    let node = user("node", "");
    let mut nudges = node.nudges("a").await.unwrap();
    assert_eq!(leases(node.sync("a", &sync(1, 0, 60)).await.unwrap()), [60]);
    // A node's user has no permission for operators' calls: neither to view everything nor to change anything.
    expect(node.view("a").await, Kind::Denied, &server);
    expect(node.administer("a", &set(500)).await, Kind::Denied, &server);
    assert_eq!(operator.view("a").await.unwrap().budgets[0].limit, 100);
    let totals = node.totals("a", &["/a".to_owned()]).await.unwrap();
    assert_eq!(totals[0].as_ref().map(|budget| budget.leased), Some(60));
    let other = Sync { node: "other".to_owned(), incarnation: 8, ..sync(1, 0, 60) };
    assert_eq!(leases(node.sync("a", &other).await.unwrap()), [40]);
    assert_eq!(nudges.next().await, Some(Nudge::Sync("/a".to_owned())));
    expect(node.load().await, Kind::Denied, &server);

    let elsewhere = Options { prefix: "others".to_owned(), ..Options::default() };
    let address = Address::Server(format!("redis://node:secret@127.0.0.1:{}", server.port));
    let elsewhere = Redis::new(address, elsewhere).unwrap();
    expect(elsewhere.sync("a", &sync(1, 0, 10)).await, Kind::Denied, &server);

    // Without any one of these permissions, the call fails and the book stays as it was.
    for right in ["time", "hget", "hmget", "hset", "zadd", "zrangebyscore", "publish"] {
        let poor = user("poor", &format!("-{right}"));
        let before = operator.view("a").await.unwrap();
        let fourth = Sync { node: "poor".to_owned(), incarnation: 9, ..sync(1, 0, 60) };
        expect(poor.sync("a", &fourth).await, Kind::Denied, &server);
        let after = operator.view("a").await.unwrap();
        assert_eq!((before.budgets, before.nodes), (after.budgets, after.nodes), "without {right}");
    }
    // Only operators may list organisations.
    expect(node.organisations().await, Kind::Denied, &server);
    let keys: Vec<String> = (0..2_500).map(|key| format!("other {key}")).collect();
    for key in &keys {
        do_raw(&server, &["SET", key, ""]);
    }
    let operator = user("operator", Redis::OPERATORS_RIGHTS);
    operator.load().await.unwrap();
    operator
        .administer("b", &Change::Set { path: "/b".to_owned(), limit: Some(1), minimum: None })
        .await
        .unwrap();
    assert_eq!(operator.organisations().await.unwrap(), ["a", "b"]);
    let wrong = store(&server, "node:wrong@");
    expect(wrong.sync("a", &sync(3, 0, 10)).await, Kind::Denied, &server);
}

#[test]
fn the_readme_has_an_operator_type_the_rights_that_are_listed() {
    let readme = include_str!("../../README.md");
    for (user, rights) in [
        ("node", format!("on >password {}", Redis::RIGHTS)),
        ("operator", format!("on >password {} {}", Redis::RIGHTS, Redis::OPERATORS_RIGHTS)),
    ] {
        let typed = format!("ACL SETUSER {user} ");
        let lines = readme.lines().filter_map(|line| line.strip_prefix(&typed));
        let typed: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        assert_eq!(typed, rights.split_whitespace().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn units_that_a_double_would_round_are_refused_and_those_that_it_holds_are_exact() {
    let Some(server) = server::redis(&[]) else { return };
    let store = founded(&server).await;
    let most = 1_u64 << 53;
    expect(store.administer("a", &set(most + 1)).await, Kind::Malformed, &server);
    expect(store.sync("a", &sync(1, 0, most + 1)).await, Kind::Malformed, &server);
    for limit in [most, most - 1] {
        store.administer("a", &set(limit)).await.unwrap();
        assert_eq!(
            leases(store.sync("a", &sync(most - limit + 1, 0, limit)).await.unwrap()),
            [limit]
        );
        assert_eq!(store.view("a").await.unwrap().budgets[0].leased, limit);
    }
}

#[tokio::test]
async fn leases_end_by_the_servers_clock() {
    let Some(server) = server::redis(&[]) else { return };
    let store = founded(&server).await;
    let terms = ledgerline_fleet::book::Terms { ttl: 1, grace: 1 };
    store.administer("a", &Change::from(terms)).await.unwrap();
    store.sync("a", &sync(1, 0, 10)).await.unwrap();
    while store.view("a").await.unwrap().budgets[0].leased > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns the first error after a signal, which may take a moment to arrive.
async fn failure(store: &Redis) -> StoreError {
    loop {
        match store.view("a").await {
            Err(error) => return error,
            Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// The rows of one kind are missing: evicted, or deleted by hand.
#[tokio::test]
async fn a_book_that_loses_one_of_its_keys_counts_anew_grants_nothing_for_a_while_and_leaks_nothing()
 {
    let Some(server) = server::redis(&[]) else { return };
    for key in ["holds", "index", "ends", "incarnations", "nodes", "budgets", "settings"] {
        do_raw(&server, &["FLUSHALL"]);
        let store = founded(&server).await;
        let (mut one, mut two) = (Holder::new("one"), Holder::new("two"));
        assert_eq!(one.sync(&store, 4).await, (4, State::Open));
        assert_eq!(two.sync(&store, 3).await, (3, State::Open));
        do_raw(&server, &["DEL", &format!("{{ledgerline:v1:a}}:{key}")]);
        // An operator sees the leases of nodes, and no sums of leases that do not exist.
        let seen = store.view("a").await.unwrap();
        let held: u64 =
            seen.budgets.iter().flat_map(|budget| &budget.holds).map(|hold| hold.lease).sum();
        assert_eq!(seen.budgets.iter().map(|budget| budget.leased).sum::<u64>(), held, "{key}");
        if key == "budgets" {
            assert!(seen.budgets.iter().all(|budget| budget.lost), "{seen:?}");
            store.administer("a", &set(10)).await.unwrap();
        }
        let (lease, state) = one.sync(&store, 10).await;
        assert_eq!((lease, state), (4, State::Learning), "{key}");
        assert_eq!(two.sync(&store, 3).await, (3, State::Learning), "{key}");
        let mut new = Holder::new("new");
        assert_eq!(new.sync(&store, 10).await, (0, State::Learning), "{key}");
        let view = store.view("a").await.unwrap();
        assert_eq!((view.budgets[0].leased, view.budgets[0].lost), (7, false), "{key}");
        assert!(view.learning > 0);
        let damaged = |event: &&Event| matches!(event.what, What::Damaged { .. });
        assert_eq!(view.events.iter().filter(damaged).count(), 1, "{key}: {:?}", view.events);
        store.administer("a", &Change::Repair).await.unwrap();
        let repaired = store.view("a").await.unwrap();
        let last = &repaired.events.last().unwrap().what;
        assert_eq!(*last, What::Repaired { budgets: 0 }, "{key}: it had been mended");
    }
}

/// A node that reports its leases.
struct Holder {
    said: Sync,
}

impl Holder {
    fn new(node: &str) -> Self {
        let said = Sync { sequence: 0, ..sync(0, 0, 0) };
        Self { said: Sync { node: node.to_owned(), ..said } }
    }

    async fn sync(&mut self, store: &Redis, want: u64) -> (u64, State) {
        self.said.sequence += 1;
        let line = &mut self.said.lines[0];
        (line.want, line.least) = (want, want);
        let reply = store.sync("a", &self.said).await.unwrap();
        let Reply::Synced { sequence, at, ttl, grace, lines } = reply else { panic!("{reply:?}") };
        (self.said.taken, self.said.until, self.said.left) =
            (sequence, at + ttl + grace, ttl + grace);
        self.said.lines[0].lease = lines[0].lease;
        (lines[0].lease, lines[0].state)
    }
}
