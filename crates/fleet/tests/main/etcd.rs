//! Books in a real etcd behave like other books, and errors name the problem of an etcd that cannot serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ledgerline_fleet::book::{Book, Change, Terms};
use ledgerline_fleet::message::{Nudge, Sync};
use ledgerline_fleet::store::{Etcd, Kind, Options, Store, StoreError};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::support::said::{self, lease};
use crate::support::server::{self, Server};
use crate::support::world::{Deed, ORGANISATION, Step, World, steps};

fn store(server: &Server, prefix: &str) -> Etcd {
    let address = format!("127.0.0.1:{}", server.port);
    // Long enough for a machine under load: only a stopped server is slow.
    let options = Options { prefix: prefix.to_owned(), timeout: Duration::from_secs(20) };
    Etcd::new(&[&address], options).expect("an address")
}

/// Waits for the first answer of a server that has just started.
async fn ready(store: &Etcd) {
    while let Err(error) = store.view("a").await {
        assert!(error.passes(), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn set(limit: u64) -> Change {
    Change::Set { path: "/a".to_owned(), limit: Some(limit), minimum: None }
}

fn sync(node: &str, sequence: u64, lease: u64, want: u64) -> Sync {
    said::sync(node, "/a", sequence, lease, want)
}

async fn run(server: &Server, prefix: &str, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = World::new(1);
    let clock = Arc::new(AtomicU64::new(world.now));
    let tells = Arc::clone(&clock);
    let store = store(server, prefix).with_clock(move |_| tells.load(Ordering::Relaxed));
    ready(&store).await;
    let mut book = Book::new();
    for change in world.founding() {
        book.administer(world.now, &change).unwrap();
        store.administer(ORGANISATION, &change).await.unwrap();
    }
    for step in steps {
        let mut deeds = Vec::new();
        world.step(step, |now, deed| match deed {
            Deed::Send(message) => {
                let expected = book.apply(now, message);
                deeds.push((deed.clone(), Some(expected.clone()), None));
                Some(expected)
            }
            Deed::Change(change) => {
                let done = book.administer(now, change).map_err(|rejected| rejected.to_string());
                deeds.push((deed.clone(), None, Some(done)));
                None
            }
            // An etcd loses no writes.
            Deed::Remember | Deed::Forget => None,
        });
        for (deed, reply, done) in deeds {
            match deed {
                Deed::Send(message) => {
                    prop_assert_eq!(Some(store.sync(ORGANISATION, &message).await.unwrap()), reply)
                }
                Deed::Change(change) => {
                    let got =
                        store.administer(ORGANISATION, &change).await.map_err(|error| error.detail);
                    prop_assert_eq!(Some(got), done);
                }
                Deed::Remember | Deed::Forget => {}
            }
        }
        clock.store(world.now, Ordering::Relaxed);
        // Viewing writes nothing into an etcd.
        prop_assert_eq!(store.view(ORGANISATION).await.unwrap(), book.clone().view(world.now));
    }
    Ok(())
}

#[test]
fn a_book_in_etcd_answers_as_the_book_does() {
    let Some(server) = server::etcd(&[]) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let runs = AtomicU64::new(0);
    let mut runner = TestRunner::new(crate::cases::few(file!(), 100));
    let run = |steps: Vec<Step>| {
        let prefix = format!("run {}", runs.fetch_add(1, Ordering::Relaxed));
        runtime.block_on(run(&server, &prefix, &steps))
    };
    runner.run(&steps(40), run).unwrap_or_else(|failed| panic!("{failed}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_write_at_the_same_time_never_lease_more_than_the_limit() {
    let Some(server) = server::etcd(&[]) else { return };
    let store = Arc::new(store(&server, "test"));
    ready(&store).await;
    store.administer("a", &set(100)).await.unwrap();
    let mut nodes = tokio::task::JoinSet::new();
    for node in 0..8 {
        let store = Arc::clone(&store);
        nodes.spawn(async move {
            let mut held = 0;
            for sequence in 1..=5 {
                held =
                    match store.sync("a", &sync(&format!("node {node}"), sequence, held, 30)).await
                    {
                        Ok(reply) => lease(&reply),
                        Err(error) => panic!("{error}"),
                    };
            }
            held
        });
    }
    let held: u64 = nodes.join_all().await.into_iter().sum();
    let budget = &store.view("a").await.unwrap().budgets[0];
    assert_eq!((budget.leased, budget.holds.len()), (held, 8));
    assert!(held <= 100 && held > 50, "{budget:?}");
}

/// Forwards bytes to a server. Returns its port, a count of connections, and a notification that cuts all connections.
async fn between(server: &Server) -> (u16, Arc<AtomicU64>, Arc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (own, behind) = (listener.local_addr().unwrap().port(), server.port);
    let (connected, cut) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let told = (Arc::clone(&connected), Arc::clone(&cut));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            connected.fetch_add(1, Ordering::Relaxed);
            let cut = Arc::clone(&cut);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", behind)).await.unwrap();
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => {}
                    () = cut.notified() => {}
                }
            });
        }
    });
    (own, told.0, told.1)
}

#[tokio::test]
async fn one_connection_serves_until_it_is_cut_and_then_another_does() {
    let Some(server) = server::etcd(&[]) else { return };
    ready(&store(&server, "test")).await;
    let (port, connected, cut) = between(&server).await;
    let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
    let store = Etcd::new(&[&format!("127.0.0.1:{port}")], options).unwrap();
    store.administer("a", &set(100)).await.unwrap();
    for sequence in 1..20 {
        let lease_before = if sequence == 1 { 0 } else { 10 };
        let reply = store.sync("a", &sync("node", sequence, lease_before, 10)).await.unwrap();
        assert_eq!(lease(&reply), 10);
    }
    assert_eq!(connected.load(Ordering::Relaxed), 1);
    for cuts in 1..10 {
        cut.notify_waiters();
        assert_eq!(store.view("a").await.unwrap().budgets[0].leased, 10);
        assert_eq!(connected.load(Ordering::Relaxed), 1 + cuts);
    }
}

#[tokio::test]
async fn nudges_are_heard_and_bad_days_are_named() {
    let Some(server) = server::etcd(&[]) else { return };
    let patient = store(&server, "test");
    ready(&patient).await;
    patient.administer("a", &set(100)).await.unwrap();
    let mut nudges = patient.nudges("a").await.unwrap();
    assert_eq!(lease(&patient.sync("a", &sync("one", 1, 0, 60)).await.unwrap()), 60);
    assert_eq!(lease(&patient.sync("a", &sync("two", 1, 0, 60)).await.unwrap()), 40);
    assert_eq!(nudges.next().await, Some(Nudge::Sync("/a".to_owned())));

    let address = format!("127.0.0.1:{}", server.port);
    let hasty = Options { timeout: Duration::from_millis(300), ..Options::default() };
    let hasty = Etcd::new(&[&address], hasty).unwrap();
    server.signal("-STOP");
    let slow = failure(&hasty).await;
    server.signal("-CONT");
    assert!(slow.kind == Kind::Slow && slow.to_string().contains(&address), "{slow}");

    server.signal("-KILL");
    let gone = failure(&patient).await;
    assert!(gone.kind == Kind::Unreachable && gone.to_string().contains(&address), "{gone}");
}

#[tokio::test]
async fn a_grace_that_etcds_dates_cannot_measure_is_rejected() {
    let Some(server) = server::etcd(&[]) else { return };
    let store = store(&server, "test");
    ready(&store).await;
    let terms = |grace| Change::from(Terms { ttl: 10_000, grace });
    assert_eq!(store.administer("a", &terms(1_000)).await.unwrap_err().kind, Kind::Rejected);
    store.administer("a", &terms(1_001)).await.unwrap();
    assert_eq!(store.view("a").await.unwrap().grace, 1_001);
}

#[tokio::test]
async fn organisations_are_listed_page_by_page_without_those_of_other_prefixes() {
    let Some(server) = server::etcd(&[]) else { return };
    let store = store(&server, "test");
    ready(&store).await;
    assert_eq!(store.organisations().await.unwrap(), [""; 0]);
    store.administer("a", &set(100)).await.unwrap();
    for other in ["tes", "test2", "test/v10"] {
        self::store(&server, &other.replace('/', "-")).administer("a", &set(1)).await.unwrap();
    }
    // More than one page. Only the names of keys are read, not their values.
    let names: Vec<String> = (0..1_500).map(|number| format!("o{number:04}")).collect();
    for name in &names {
        let key = base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            format!("test/v1/{name}/book"),
        );
        server.post("/v3/kv/put", &format!(r#"{{"key":"{key}","value":""}}"#));
    }
    let listed = store.organisations().await.unwrap();
    assert_eq!((&*listed[0], &listed[1..]), ("a", &names[..]));
    server.enable_users();
    assert_eq!(store.organisations().await.unwrap_err().kind, Kind::Denied);
}

#[tokio::test]
async fn an_etcd_that_is_full_says_so() {
    let Some(server) = server::etcd(&["--quota-backend-bytes", "200000"]) else { return };
    let store = store(&server, "test");
    ready(&store).await;
    let full = loop {
        // Each change is one more revision of the book, and etcd keeps all of them.
        match store.administer("a", &set(100)).await {
            Ok(()) => {
                let drain = Change::Drain {
                    node: format!("node {:?}", std::time::Instant::now()),
                    on: true,
                };
                if let Err(error) = store.administer("a", &drain).await {
                    break error;
                }
            }
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind, Kind::Full, "{full}");
    assert!(store.view("a").await.is_ok(), "it still tells what it has");
}

#[tokio::test]
async fn what_is_no_book_is_nonsense_and_a_later_format_is_another_version() {
    let Some(server) = server::etcd(&[]) else { return };
    let store = store(&server, "test");
    ready(&store).await;
    for (value, kind) in [("bm9uZQ==", Kind::Nonsense), ("eyJmb3JtYXQiOjF9", Kind::OtherVersion)] {
        let put = format!(r#"{{"key":"dGVzdC92MS9hL2Jvb2s=","value":"{value}"}}"#);
        server.post("/v3/kv/put", &put);
        let error = store.sync("a", &sync("one", 1, 0, 60)).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
    }
}

#[tokio::test]
async fn a_user_without_the_right_or_the_password_is_denied() {
    let Some(server) = server::etcd(&[]) else { return };
    ready(&store(&server, "test")).await;
    let nobody = store(&server, "ledgerline").with_user("node".to_owned(), "secret".to_owned());
    let told = nobody.view("a").await.unwrap_err();
    assert!(told.kind == Kind::Address && told.to_string().contains("so name none"), "{told}");
    server.enable_users();
    let user = |prefix: &str, password: &str| {
        store(&server, prefix).with_user("node".to_owned(), password.to_owned())
    };
    let node = user("test", "secret");
    node.administer("a", &set(100)).await.unwrap();
    assert_eq!(lease(&node.sync("a", &sync("one", 1, 0, 60)).await.unwrap()), 60);
    for denied in [user("test", "wrong"), user("others", "secret"), store(&server, "test")] {
        let error = denied.sync("a", &sync("one", 2, 60, 60)).await.unwrap_err();
        assert!(error.kind == Kind::Denied && !error.to_string().contains("secret"), "{error}");
    }
}

/// Returns the first error after a signal, which may take a moment to arrive.
async fn failure(store: &Etcd) -> StoreError {
    loop {
        match store.view("a").await {
            Err(error) => return error,
            Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
