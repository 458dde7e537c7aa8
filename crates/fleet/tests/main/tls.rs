//! Stores over TLS: nodes join and charge, and each way in which the two sides may disagree has its own error.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ledgerline_fleet::book::Change;
use ledgerline_fleet::fleet::Fleet;
use ledgerline_fleet::store::{self, Access, Kind, Redis, Store, StoreError, Tls};

use crate::support::certificates::{Authority, expired};
use crate::support::server::{self, Server};

/// Long enough for a machine under load.
const PATIENT: Duration = Duration::from_secs(20);

fn authority() -> Authority {
    let authority = Authority::new();
    authority.signs("server", &["127.0.0.1", "localhost"]);
    authority.signs("client", &[]);
    authority
}

/// Starts a redis that requires clients' certificates. Returns it with its port for TLS; its other port is for the test.
fn redis(authority: &Authority, name: &str, more: &[&str]) -> Option<(Server, u16)> {
    let port = server::free_port();
    let mut words = vec!["--tls-port".to_owned(), port.to_string()];
    words.extend(files(authority, name));
    words.extend(more.iter().map(|word| (*word).to_owned()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    server::redis(&words).map(|server| (server, port))
}

fn files(authority: &Authority, name: &str) -> Vec<String> {
    [
        ("--tls-cert-file", format!("{name}.pem")),
        ("--tls-key-file", format!("{name}.key")),
        ("--tls-ca-cert-file", "ca.pem".to_owned()),
    ]
    .into_iter()
    .flat_map(|(option, file)| [option.to_owned(), authority.file(&file)])
    .collect()
}

/// Starts an etcd of one member that requires clients' certificates.
fn etcd(authority: &Authority, name: &str) -> Option<Server> {
    let file = |name: &str| authority.file(name);
    let (certificate, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
    let ca = file("ca.pem");
    let words = [
        "--cert-file",
        &certificate,
        "--key-file",
        &key,
        "--trusted-ca-file",
        &ca,
        "--client-cert-auth",
    ];
    server::etcd_at("https", &words)
}

fn do_raw(server: &Server, words: &[&str]) {
    let client = redis::Client::open(("127.0.0.1", server.port)).unwrap();
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut client.get_connection().unwrap()).unwrap();
}

fn open(address: &str, tls: Tls, timeout: Duration) -> Arc<dyn Store> {
    let access = Access { timeout: Some(timeout), tls, ..Access::default() };
    store::open(address, &access).unwrap_or_else(|error| panic!("{address}: {error}"))
}

/// Waits for the first answer of a server that has just started.
async fn ready(store: &dyn Store) {
    for _ in 0..600 {
        match store.view("a").await {
            Ok(_) | Err(StoreError { kind: Kind::NoLibrary, .. }) => return,
            Err(error) => assert!(error.passes(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the server never answers");
}

/// An operator creates a budget through one store. A node joins through the other, charges, and is refused beyond the limit.
async fn charges(operator: &dyn Store, node: Arc<dyn Store>) {
    ready(operator).await;
    operator.prepare().await.unwrap();
    let limit = Change::Set { path: "/a".to_owned(), limit: Some(100), minimum: None };
    operator.administer("a", &limit).await.unwrap();
    let fleet = Fleet::join(node, "node").start().unwrap();
    let budget = fleet.budget("/a").await.unwrap();
    let charged = budget.charge(60).await.unwrap();
    assert!(operator.view("a").await.unwrap().budgets[0].leased >= 60);
    assert!(budget.charge(50).await.is_err());
    drop(charged);
    fleet.leave(PATIENT).await.unwrap();
}

#[tokio::test]
async fn a_node_joins_by_rediss_as_a_user_with_the_rights_of_a_node_and_charges() {
    let authority = authority();
    let Some((server, port)) = redis(&authority, "server", &[]) else { return };
    let words = format!("ACL SETUSER node on >secret {}", Redis::RIGHTS);
    do_raw(&server, &words.split_whitespace().collect::<Vec<_>>());
    let operator = open(&format!("rediss://127.0.0.1:{port}"), authority.client("client"), PATIENT);
    // The options of the address suffice.
    let [ca, certificate, key] =
        ["ca.pem", "client.pem", "client.key"].map(|it| authority.file(it));
    let address = format!(
        "rediss://node:secret@127.0.0.1:{port}?timeout=20s&ca={ca}&certificate={certificate}&key={key}"
    );
    let node = store::open(&address, &Access::default()).unwrap();
    charges(&*operator, node).await;

    let wrong = address.replace("node:secret", "node:wrong");
    let wrong = store::open(&wrong, &Access::default()).unwrap();
    expect(&*wrong, Kind::Denied, port, "authentication failed").await;
}

#[tokio::test]
async fn a_node_joins_by_etcds_and_charges() {
    let authority = authority();
    let Some(server) = etcd(&authority, "server") else { return };
    // The first member is gone, the second answers.
    let gone = server::free_port();
    let address = format!("etcds://127.0.0.1:{gone},127.0.0.1:{}", server.port);
    let operator = open(&address, authority.client("client"), PATIENT);
    let node = open(&address, authority.client("client"), PATIENT);
    charges(&*operator, node).await;
}

#[tokio::test]
async fn the_primary_that_sentinels_name_is_spoken_to_by_tls() {
    let authority = authority();
    let more = ["--tls-replication", "yes"];
    let Some((_primary, port)) = redis(&authority, "server", &more) else { return };
    let sentinel =
        Server::start("redis-sentinel", |own, folder| sentinel(&authority, own, port, folder));
    let Some(sentinel) = sentinel else { return };
    let address = format!("rediss-sentinel://127.0.0.1:{}/main", sentinel.port);
    let operator = open(&address, authority.client("client"), PATIENT);
    charges(&*operator, open(&address, authority.client("client"), PATIENT)).await;
}

/// Returns the arguments of a sentinel that watches a primary.
fn sentinel(authority: &Authority, own: u16, primary: u16, folder: &Path) -> Vec<String> {
    let file = folder.join("sentinel.conf");
    let mut text = format!(
        "port 0\ntls-port {own}\ntls-replication yes\nbind 127.0.0.1\n\
         sentinel monitor main 127.0.0.1 {primary} 1\n"
    );
    for pair in files(authority, "server").chunks_exact(2) {
        text += &format!("{} {}\n", pair[0].trim_start_matches('-'), pair[1]);
    }
    std::fs::write(&file, text).expect("a file in a folder of ours");
    vec![file.display().to_string()]
}

#[tokio::test]
async fn the_nodes_of_a_cluster_are_spoken_to_by_tls() {
    let authority = authority();
    let bus = server::free_port().to_string();
    let more = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--tls-cluster", "yes"];
    let Some((server, port)) = redis(&authority, "server", &more) else { return };
    do_raw(&server, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let client = redis::Client::open(("127.0.0.1", server.port)).unwrap();
    let mut raw = client.get_connection().unwrap();
    let state = || redis::cmd("CLUSTER").arg("INFO").query::<String>(&mut raw).unwrap();
    let mut state = state;
    while !state().contains("cluster_state:ok") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let address = format!("rediss-cluster://127.0.0.1:{port}");
    let operator = open(&address, authority.client("client"), PATIENT);
    charges(&*operator, open(&address, authority.client("client"), PATIENT)).await;
}

/// Asserts that the error is of this kind, names the server, and contains `says`.
async fn expect(store: &dyn Store, kind: Kind, port: u16, says: &str) {
    let error = failure(store).await;
    let shown = error.to_string();
    assert_eq!(error.kind, kind, "{shown}");
    assert!(shown.contains(&format!("127.0.0.1:{port}")) && shown.contains(says), "{shown}");
}

/// Asserts that the server wants a client's certificate. It reports that and closes the connection at once, which may destroy the
/// report.
async fn refused(store: &dyn Store, port: u16) {
    let error = failure(store).await;
    let shown = error.to_string();
    assert!(shown.contains(&format!("127.0.0.1:{port}")), "{shown}");
    match error.kind {
        Kind::Tls => assert!(shown.contains("received fatal alert"), "{shown}"),
        kind => assert!(
            kind == Kind::Unreachable && shown.contains("a client's certificate"),
            "{shown}"
        ),
    }
}

async fn failure(store: &dyn Store) -> StoreError {
    store.view("a").await.expect_err("the two do not agree")
}

#[tokio::test]
async fn where_a_redis_and_a_node_do_not_agree_on_tls_the_error_says_why() {
    let (authority, other) = (authority(), authority());
    authority.signs_as("expired", &["127.0.0.1"], expired);
    authority.signs("elsewhere", &["elsewhere.test"]);
    let Some((server, port)) = redis(&authority, "server", &[]) else { return };
    let address = format!("rediss://127.0.0.1:{port}");
    let client = authority.client("client");

    let stranger = Tls { ca: other.client("client").ca, ..client.clone() };
    expect(&*open(&address, stranger, PATIENT), Kind::Tls, port, "invalid peer certificate").await;
    let nobody = Tls { certificate: None, key: None, ..client.clone() };
    refused(&*open(&address, nobody, PATIENT), port).await;
    let strangers = Tls { ca: client.ca.clone(), ..other.client("client") };
    refused(&*open(&address, strangers, PATIENT), port).await;
    for (name, says) in [("expired", "expired"), ("elsewhere", "not valid for name")] {
        let Some((_server, port)) = redis(&authority, name, &[]) else { return };
        let address = format!("rediss://127.0.0.1:{port}");
        expect(&*open(&address, client.clone(), PATIENT), Kind::Tls, port, says).await;
    }

    let plainly = open(&format!("redis://127.0.0.1:{port}"), Tls::default(), PATIENT);
    expect(&*plainly, Kind::Unreachable, port, "it may want TLS").await;
    let address = format!("rediss://127.0.0.1:{}", server.port);
    let hello = failure(&*open(&address, client, Duration::from_secs(1))).await;
    assert!(hello.to_string().contains("speak no TLS") || hello.kind == Kind::Tls, "{hello}");
}

#[tokio::test]
async fn where_an_etcd_and_a_node_do_not_agree_on_tls_the_error_says_why() {
    let (authority, other) = (authority(), authority());
    authority.signs_as("expired", &["127.0.0.1"], expired);
    authority.signs("elsewhere", &["elsewhere.test"]);
    let Some(server) = etcd(&authority, "server") else { return };
    let port = server.port;
    let address = format!("etcds://127.0.0.1:{port}");
    let client = authority.client("client");

    let stranger = Tls { ca: other.client("client").ca, ..client.clone() };
    expect(&*open(&address, stranger, PATIENT), Kind::Tls, port, "invalid peer certificate").await;
    let nobody = Tls { certificate: None, key: None, ..client.clone() };
    refused(&*open(&address, nobody, PATIENT), port).await;
    let Some(of_others) = etcd(&authority, "elsewhere") else { return };
    let there = format!("etcds://127.0.0.1:{}", of_others.port);
    expect(&*open(&there, client.clone(), PATIENT), Kind::Tls, of_others.port, "not valid").await;
    let named = Tls { server_name: Some("elsewhere.test".to_owned()), ..client.clone() };
    ready(&*open(&there, named, PATIENT)).await;
    let Some(late) = etcd(&authority, "expired") else { return };
    let there = format!("etcds://127.0.0.1:{}", late.port);
    expect(&*open(&there, client.clone(), PATIENT), Kind::Tls, late.port, "expired").await;

    let plainly = open(&format!("etcd://127.0.0.1:{port}"), Tls::default(), PATIENT);
    expect(&*plainly, Kind::Unreachable, port, "it may want TLS").await;
    let Some(plain) = server::etcd(&[]) else { return };
    let hello = open(&format!("etcds://127.0.0.1:{}", plain.port), client, PATIENT);
    expect(&*hello, Kind::Unreachable, plain.port, "it may speak no TLS").await;
}

/// A member that expects TLS and gets a request sends nothing that a client understands; nor does a member that expects a request
/// and gets a greeting. How the end of the connection shows depends on how much it had read.
#[tokio::test]
async fn a_member_that_hangs_up_without_a_word_may_want_tls_or_speak_none() {
    let authority = authority();
    for reads in [0, 16, 1 << 16] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let member = tokio::spawn(async move {
            while let Ok((mut caller, _)) = listener.accept().await {
                caller.readable().await.unwrap();
                // Unread bytes turn the end of the connection into a reset.
                let mut some = vec![0; reads];
                let _ = tokio::io::AsyncReadExt::read(&mut caller, &mut some).await;
            }
        });
        let plainly = open(&format!("etcd://127.0.0.1:{port}"), Tls::default(), PATIENT);
        expect(&*plainly, Kind::Unreachable, port, "it may want TLS").await;
        let greeting =
            open(&format!("etcds://127.0.0.1:{port}"), authority.client("client"), PATIENT);
        expect(&*greeting, Kind::Unreachable, port, "it may speak no TLS").await;
        member.abort();
    }
}

#[test]
fn files_that_hold_something_else_are_named() {
    let authority = authority();
    let client = authority.client("client");
    let (nowhere, ca) = (Some("/no/such/file".into()), client.ca.clone());
    let wrong = [
        ("/no/such/file", Tls { ca: nowhere.clone(), ..client.clone() }),
        ("/no/such/file", Tls { certificate: nowhere, ..client.clone() }),
        ("client.key", Tls { ca: client.key.clone(), ..client.clone() }),
        ("ca.pem", Tls { key: ca, ..client.clone() }),
        ("server.key", Tls { key: Some(authority.file("server.key").into()), ..client.clone() }),
        ("a certificate needs its key", Tls { key: None, ..client.clone() }),
    ];
    for (says, tls) in wrong {
        for address in [
            "rediss://host",
            "rediss-cluster://host",
            "rediss-sentinel://host/main",
            "etcds://host",
        ] {
            let access = Access { tls: tls.clone(), ..Access::default() };
            let Err(refused) = store::open(address, &access) else { panic!("{address}: {says}") };
            assert!(
                refused.kind == Kind::Address && refused.to_string().contains(says),
                "{refused}"
            );
        }
    }
    let named = Tls { server_name: Some("other".to_owned()), ..client };
    let access = Access { tls: named, ..Access::default() };
    assert!(store::open("rediss://host", &access).is_err());
    assert!(store::open("etcds://host", &access).is_ok());
    let without = store::open("redis://host?ca=ca.pem", &Access::default());
    assert!(without.is_err_and(|refused| refused.to_string().contains("does not ask for TLS")));
}
