//! An etcd of three members as in production, with users: the loss of one member, of two, and of a token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ledgerline_fleet::book::Change;
use ledgerline_fleet::fleet::{Fleet, FleetError};
use ledgerline_fleet::message::{Nudge, Sync};
use ledgerline_fleet::store::{self, Access, Kind, Store};

use crate::support::said::{self, lease};
use crate::support::server::{self, Server};

fn open(members: &[Server], user: &str, timeout: &str) -> Arc<dyn Store> {
    let hosts: Vec<String> =
        members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
    let address = format!("etcd://{user}{}?prefix=test&timeout={timeout}", hosts.join(","));
    store::open(&address, &Access::default()).expect("an address")
}

/// Waits for the first answer. Calls that fail for now are repeated.
async fn ready(store: &dyn Store) {
    while let Err(error) = store.view("a").await {
        assert!(error.passes(), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn set(limit: u64) -> Change {
    Change::Set { path: "/a".to_owned(), limit: Some(limit), minimum: None }
}

fn sync(sequence: u64, lease: u64, want: u64) -> Sync {
    Sync { taken: sequence - 1, until: 1 << 53, ..said::sync("node", "/a", sequence, lease, want) }
}

#[tokio::test]
async fn two_of_three_members_serve_and_one_does_not() {
    let Some(members) = server::etcds() else { return };
    ready(&*open(&members, "", "20s")).await;
    members[0].enable_users();
    let store = open(&members, "node:secret@", "3s");
    ready(&*store).await;
    store.administer("a", &set(100)).await.unwrap();
    assert_eq!(lease(&store.sync("a", &sync(1, 0, 40)).await.unwrap()), 40);

    // Whether or not this member is the leader: another one is elected if it is.
    members[0].signal("-STOP");
    ready(&*store).await;
    let mut nudges = store.nudges("a").await.unwrap();
    let mut sequence = 2;
    while store.sync("a", &sync(sequence, 40, 60)).await.is_err() {
        sequence += 1;
    }
    assert_eq!(store.view("a").await.unwrap().budgets[0].leased, 60);
    let other = Sync { node: "other".to_owned(), incarnation: 8, ..sync(1, 0, 60) };
    assert_eq!(lease(&store.sync("a", &other).await.unwrap()), 40);
    assert_eq!(nudges.next().await, Some(Nudge::Sync("/a".to_owned())));

    // Stopped members cost time once: then the member that answered is asked first.
    let started = Instant::now();
    for _ in 0..3 {
        store.view("a").await.unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());

    members[1].signal("-STOP");
    let left = loop {
        if let Err(error) = store.view("a").await {
            break error;
        }
    };
    assert!(matches!(left.kind, Kind::Slow | Kind::NotReady), "{left}");
    assert!(left.to_string().contains("etcd at 127.0.0.1"), "{left}");
    members.iter().take(2).for_each(|member| member.signal("-CONT"));
    ready(&*store).await;
    assert_eq!(store.view("a").await.unwrap().budgets[0].leased, 100);
}

/// Returns a token of the user root, and the step of etcd's log that made it.
fn authenticated(server: &Server) -> (String, u64) {
    let reply = server.post("/v3/auth/authenticate", r#"{"name":"root","password":"root"}"#);
    let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
    let token = reply["token"].as_str().unwrap();
    let (_, step) = token.rsplit_once('.').unwrap();
    (token.to_owned(), step.parse().unwrap())
}

#[tokio::test]
async fn a_token_that_has_expired_is_renewed() {
    let Some(server) = server::etcd(&["--auth-token-ttl", "1"]) else { return };
    let members = [server];
    ready(&*open(&members, "", "20s")).await;
    members[0].enable_users();
    let store = open(&members, "node:secret@", "20s");
    store.administer("a", &set(100)).await.unwrap();
    // A view is no step of etcd's log, but a password is. Besides root's own step there is one more as soon as the token has
    // expired.
    let mut idle = Duration::from_secs(1);
    loop {
        let (_, before) = authenticated(&members[0]);
        tokio::time::sleep(idle).await;
        assert_eq!(store.view("a").await.unwrap().budgets[0].limit, 100);
        match authenticated(&members[0]).1 - before {
            1 => idle *= 2,
            steps => break assert_eq!(steps, 2),
        }
    }
}

#[tokio::test]
async fn a_token_is_used_until_etcd_forgets_it_and_then_renewed() {
    let Some(server) = server::etcd(&[]) else { return };
    let members = [server];
    ready(&*open(&members, "", "20s")).await;
    members[0].enable_users();
    let store = open(&members, "node:secret@", "20s");
    store.administer("a", &set(100)).await.unwrap();
    let before = authenticated(&members[0]).1;
    for sequence in 1..=5 {
        let leased = if sequence == 1 { 0 } else { 40 };
        assert_eq!(lease(&store.sync("a", &sync(sequence, leased, 40)).await.unwrap()), 40);
    }
    // A token ends with the number of the step that made it. Five messages wrote at most five times, and asked for no token.
    let steps = authenticated(&members[0]).1 - before;
    assert!(steps <= 6, "{steps} steps for five messages");

    // Setting a password, even to its old value, makes etcd forget the user's tokens.
    let (root, _) = authenticated(&members[0]);
    let changed = r#"{"name":"node","password":"secret"}"#;
    members[0].post_as(&root, "/v3/auth/user/changepw", changed);
    assert_eq!(lease(&store.sync("a", &sync(6, 40, 60)).await.unwrap()), 60);
    let changed = r#"{"name":"node","password":"other"}"#;
    members[0].post_as(&root, "/v3/auth/user/changepw", changed);
    let denied = store.sync("a", &sync(7, 60, 60)).await.unwrap_err();
    assert!(denied.kind == Kind::Denied && !denied.to_string().contains("secret"), "{denied}");
}

#[tokio::test]
async fn leases_of_an_etcd_that_stands_still_go_on_and_none_grows() {
    let Some(server) = server::etcd(&[]) else { return };
    let members = [server];
    let store = open(&members, "", "1s");
    ready(&*store).await;
    store.administer("a", &set(100)).await.unwrap();
    let fleet = Fleet::join(store, "node").start().unwrap();
    let budget = fleet.budget("/a").await.unwrap();
    drop(budget.charge(60).await.unwrap());
    let leased = budget.lease();
    assert!(leased >= 60);

    members[0].signal("-STOP");
    // Charges within the lease succeed as before; beyond it, the error names the store.
    let kept = budget.try_charge(leased).expect("what is leased");
    match budget.charge(1).await {
        Err(FleetError::Store(error)) => assert_eq!(error.kind, Kind::Slow, "{error}"),
        other => panic!("{other:?}"),
    }
    members[0].signal("-CONT");
    drop(kept);
    while let Err(error) = budget.charge(100).await.map(drop) {
        eprintln!("{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
