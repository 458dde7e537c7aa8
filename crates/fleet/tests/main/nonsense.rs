//! A wrong server listens at a store's address, with answers that no store gives.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ledgerline_fleet::store::{self, Access, Kind, Store};
use proptest::prelude::*;

/// Listens on a port. On each connection it answers the first request with `answer`, and then repeats `more` as often as the
/// client reads it.
fn listens(answer: &'static str, more: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            std::thread::spawn(move || {
                let mut asked = [0; 4096];
                let _ = socket.read(&mut asked);
                let _ = socket.write_all(answer.as_bytes());
                while !more.is_empty() && socket.write_all(more).is_ok() {}
                // Reads until the other side hangs up.
                while socket.read(&mut asked).is_ok_and(|read| read > 0) {}
            });
        }
    });
    port
}

fn open(scheme: &str, port: u16) -> Arc<dyn Store> {
    // Long enough for a machine under load.
    let access = Access { timeout: Some(Duration::from_secs(20)), ..Access::default() };
    store::open(&format!("{scheme}://127.0.0.1:{port}"), &access).expect("an address")
}

async fn expect_nonsense(scheme: &str, port: u16, answer: &str) {
    let error = open(scheme, port).view("a").await.unwrap_err();
    assert_eq!(error.kind, Kind::Nonsense, "{answer:?}: {error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
}

#[tokio::test]
async fn what_no_redis_says_is_nonsense() {
    for answer in [
        "hello\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "+OK\r\n",
        ":7\r\n",
        "$2\r\nhi\r\n",
        "*1\r\n:7\r\n",
        "*8\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        "_\r\n",
    ] {
        expect_nonsense("redis", listens(answer, b""), answer).await;
    }
}

#[tokio::test]
async fn what_no_etcd_says_is_nonsense() {
    for answer in [
        "hello\r\n\r\n",
        "+OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nDate: yesterday\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 302 Found\r\nLocation: http://elsewhere\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}",
    ] {
        expect_nonsense("etcd", listens(answer, b""), answer).await;
    }
}

/// The client stops reading long before memory runs out.
#[tokio::test]
async fn a_reply_without_an_end_is_nonsense() {
    for (start, more) in [
        ("*1000000000\r\n", &b":1\r\n:1\r\n:1\r\n:1\r\n"[..]),
        ("$4000000000\r\n", &[b'x'; 65536]),
        ("-ERR ", &[b'x'; 65536]),
        ("*9\r\n*1000000000\r\n", b"$1\r\nx\r\n*0\r\n"),
    ] {
        // Larger pieces, because each is one call.
        let more: &'static [u8] = more.repeat(65536 / more.len()).leak();
        expect_nonsense("redis", listens(start, more), start).await;
    }
}

/// The client stops reading long before memory runs out.
#[tokio::test]
async fn an_answer_without_an_end_is_nonsense() {
    let endless = "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n";
    expect_nonsense("etcd", listens(endless, &[b' '; 65536]), "spaces").await;
}

/// Generates bytes in the form of replies, with arbitrary contents.
fn replies() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"*9\r\n".to_vec()),
        Just(b"*2\r\n".to_vec()),
        Just(b"*0\r\n".to_vec()),
        Just(b"$-1\r\n".to_vec()),
        any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
        "[ -~]{0,12}".prop_map(|text| format!("${}\r\n{text}\r\n", text.len()).into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn whatever_a_redis_answers_is_read_to_its_end(bytes in replies()) {
        ledgerline_fleet::store::redis::read_anything(&bytes);
    }

    #[test]
    fn whatever_an_etcd_answers_is_read_to_its_end(text in r#"(\{"header":\{\},"kvs":\[\{"mod_revision":"[0-9]{1,25}","value":"[A-Za-z0-9+/=]{0,40}"\}\]\}|[ -~]{0,60})"#) {
        ledgerline_fleet::store::etcd::read_anything(text.as_bytes());
    }
}
