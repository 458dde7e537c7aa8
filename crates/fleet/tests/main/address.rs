//! Opening stores by address: which addresses are valid, which are refused, and that no password is shown.

use ledgerline_fleet::book::Change;
use ledgerline_fleet::store::{self, Access, Kind, Redis, Tls};

use crate::support::said::{lease, sync};
use crate::support::server;

/// No server listens at these addresses: opening does not connect.
#[test]
fn every_form_is_opened() {
    for address in [
        "redis://host",
        "redis://host:7000/3",
        "redis://[::1]:7000",
        "redis://user:p%40ss@host",
        "redis+unix:///run/redis.sock",
        "redis-sentinel://one,two:7000/main",
        "redis-cluster://user:secret@one:7000,two,[::1]",
        "valkey://host",
        "etcd://one,two:7000",
        "etcd://user:secret@one?timeout=300ms&prefix=mine",
    ] {
        let access = Access { insecure: true, ..Access::default() };
        store::open(address, &access).unwrap_or_else(|error| panic!("{address}: {error}"));
    }
}

#[test]
fn a_password_goes_to_another_machine_by_tls_or_where_that_is_allowed() {
    let with = |password: &str| Access { password: Some(password.into()), ..Access::default() };
    let plain = Access::default();
    let sentinels = Some(("default".to_owned(), "secret".to_owned()));
    let sentinels = Access { sentinels, ..Access::default() };
    for (address, access) in [
        ("redis://user:secret@10.0.0.5", &plain),
        ("redis://127.0.0.1.example", &with("secret")),
        ("redis://[2001:db8::1]", &with("secret")),
        ("redis-cluster://user:secret@localhost,10.0.0.5:7000", &plain),
        ("redis-sentinel://10.0.0.5/main", &sentinels),
        ("etcd://user:secret@etcd.example", &plain),
    ] {
        let error = store::open(address, access).err().unwrap_or_else(|| panic!("{address}"));
        assert_eq!(error.kind, Kind::Address, "{address}: {error}");
        let said = error.to_string();
        assert!(said.contains("--insecure") && !said.contains("secret"), "{address}: {said}");
        let allowed = Access { insecure: true, ..access.clone() };
        assert!(store::open(address, &allowed).is_ok(), "{address}");
        assert!(store::open(&format!("{address}?insecure=1"), access).is_ok(), "{address}");
    }
    for address in [
        "redis://user:secret@localhost",
        "redis://user:secret@127.0.0.9:7000",
        "redis://user:secret@[::1]:7000",
        "redis+unix:///run/redis.sock",
        "etcd://user:secret@127.0.0.1",
    ] {
        assert!(store::open(address, &plain).is_ok(), "{address}");
    }
    assert!(store::open("redis://10.0.0.5", &plain).is_ok(), "there is no password");
}

#[test]
fn what_makes_no_sense_is_refused_and_no_password_is_shown() {
    for address in [
        "",
        "secret",
        "secret://host",
        "http://user:secret@host",
        "redis://user:secret",
        "redis://:secret",
        "redis://user:secret@",
        "redis://user:secret@host:no-port",
        "redis://user:secret@host:0",
        "redis://user:secret@host:70000",
        "redis://user:secret@one,two",
        "redis://user:secret@ho st",
        "redis://user:secret@[::1",
        "redis://user:secret@host/main",
        "redis://user:secret@host?secret=1",
        "redis://user:secret@host?secret",
        "redis://user:secret@host?timeout=secret",
        "redis://user:secret@host?timeout=0s",
        "redis://user:secret@host?password-file=/no/such/file",
        "redis://user:secret@host?prefix={secret",
        "redis://user:%ff@host",
        "redis://user@host",
        "redis+unix://secret/path",
        "redis+unix://",
        "redis-sentinel://user:secret@one,two",
        "redis-cluster://user:secret@one/main",
        "etcd://:secret@host",
        "etcd://user:secret@one/two",
        "etcd://user:secret@,",
    ] {
        let Err(refused) = store::open(address, &Access::default()) else { panic!("{address}") };
        assert_eq!(refused.kind, Kind::Address, "{address}: {refused}");
        let shown = format!("{refused} {refused:?}");
        assert!(!shown.contains("secret") || shown.contains("{secret"), "{address}: {shown}");
    }
}

#[test]
fn what_opens_a_store_is_shown_without_its_passwords() {
    let access = Access {
        user: Some("node".to_owned()),
        password: Some("secret".to_owned()),
        sentinels: Some(("watcher".to_owned(), "secret".to_owned())),
        tls: Tls { ca: Some("ca.pem".into()), ..Tls::default() },
        ..Access::default()
    };
    let shown = format!("{access:?}");
    assert!(!shown.contains("secret"), "{shown}");
    assert!(shown.contains("node") && shown.contains("watcher") && shown.contains("ca.pem"));
}

#[cfg(not(feature = "tls"))]
#[test]
fn without_its_feature_an_address_with_tls_is_refused() {
    for address in
        ["rediss://host", "rediss-sentinel://host/main", "rediss-cluster://host", "etcds://host"]
    {
        let Err(refused) = store::open(address, &Access::default()) else { panic!("{address}") };
        assert_eq!(refused.kind, Kind::Address);
        assert!(refused.to_string().contains("feature `tls`"), "{refused}");
    }
}

#[tokio::test]
async fn a_user_is_of_the_address_a_file_or_the_program() {
    let Some(server) = server::redis(&[]) else { return };
    let at = format!("127.0.0.1:{}", server.port);
    // Long enough for a machine under load.
    let more = "timeout=20s&prefix=mine";
    let operator = store::open(&format!("redis://{at}?{more}"), &Access::default()).unwrap();
    operator.prepare().await.unwrap();
    let limit = Change::Set { path: "/a".to_owned(), limit: Some(100), minimum: None };
    operator.administer("a", &limit).await.unwrap();

    let rights = Redis::RIGHTS.replace("ledgerline:", "mine:");
    let words = format!("SETUSER node on >p@ss:w%rd {rights}");
    let client = redis::Client::open(format!("redis://{at}")).unwrap();
    let mut raw = client.get_connection().unwrap();
    redis::cmd("ACL").arg(words.split_whitespace().collect::<Vec<_>>()).exec(&mut raw).unwrap();
    redis::cmd("ACL").arg(&["SETUSER", "default", "off"]).exec(&mut raw).unwrap();

    let file = server.folder.path().join("password");
    std::fs::write(&file, "p@ss:w%rd\n").unwrap();
    let in_address = format!("redis://node:p%40ss:w%25rd@{at}?{more}");
    let in_file = format!("redis://node@{at}?{more}&password-file={}", file.display());
    let (user, password) = (Some("node".to_owned()), Some("p@ss:w%rd".to_owned()));
    let of_program = Access { user, password, ..Access::default() };
    let wrong = Access { password: Some("secret".to_owned()), ..of_program.clone() };
    let of_nobody = format!("redis://{at}?{more}");
    for (number, (address, access)) in
        [(&in_address, &wrong), (&in_file, &wrong), (&of_nobody, &of_program)]
            .into_iter()
            .enumerate()
    {
        let store = store::open(address, access).unwrap();
        let message = sync(&format!("node {number}"), "/a", 1, 0, 10);
        assert_eq!(lease(&store.sync("a", &message).await.unwrap()), 10);
    }
    for access in [Access::default(), wrong] {
        let store = store::open(&of_nobody, &access).unwrap();
        let denied = store.view("a").await.unwrap_err();
        assert!(denied.kind == Kind::Denied && denied.to_string().contains(&at), "{denied}");
        assert!(!denied.to_string().contains("secret"), "{denied}");
    }
}

/// Changing the environment would affect other tests of this process, so each variable is set in a process of its own.
#[test]
fn a_user_is_of_the_environment() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret\n").unwrap();
    let child = |name: &str, value: &str| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "address::a_process_with_an_environment", "--ignored"]);
        command.env("LEDGERLINE_FLEET_USER", "node").env(name, value);
        command.env("LEDGERLINE_FLEET_CA", "ca.pem").env("LEDGERLINE_FLEET_PREFIX", "mine");
        command.output().unwrap()
    };
    let path = file.path().display().to_string();
    for (name, value) in
        [("LEDGERLINE_FLEET_PASSWORD", "secret"), ("LEDGERLINE_FLEET_PASSWORD_FILE", &path)]
    {
        let output = child(name, value);
        let said = String::from_utf8_lossy(&output.stdout);
        // A name that matches no test would run none and succeed.
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    assert!(!child("LEDGERLINE_FLEET_PASSWORD_FILE", "/no/such/file").status.success());
}

#[test]
#[ignore = "a part of another test, in a process of its own"]
fn a_process_with_an_environment() {
    let access = Access::from_environment().unwrap();
    assert_eq!(access.password.as_deref(), Some("secret"));
    assert_eq!((access.user.as_deref(), access.prefix.as_deref()), (Some("node"), Some("mine")));
    assert_eq!(access.tls.ca.as_deref(), Some(std::path::Path::new("ca.pem")));
}
