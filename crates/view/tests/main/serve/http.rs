//! The responses to authorized and other clients.

use super::support::served;
use ledgerline_view::serve::Token;
use std::io::{Read, Write};

#[test]
fn the_page_and_its_files_come_sealed_and_whole() {
    let served = served(|_| ());
    let page = served.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("cross-origin-resource-policy"), Some("same-origin"));
    let files = page.body.split('"').filter(|text| text.starts_with('/') && text.contains('.'));
    let files: std::collections::BTreeSet<&str> = files.collect();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let answer = served.get(file);
        assert_eq!(answer.status, 200, "{file}");
        assert!(answer.header("content-security-policy").is_some(), "{file}");
    }
    // The modules that others import exist, too.
    for name in ["chart.js", "feed.js", "table.js", "treemap.js", "words.js"] {
        assert!(
            served.get("/app.js").body.contains(name)
                && served.get(&format!("/{name}")).status == 200
        );
    }
    assert_eq!(served.get("/etc/passwd").status, 404);
    assert_eq!(served.get("/../Cargo.toml").status, 404);
}

#[test]
fn a_foreign_host_is_refused_on_every_path() {
    let served = served(|_| ());
    for path in
        ["/", "/metrics", "/api/ledgers", "/api/ledgers/1/groups", "/api/ledgers/1/events", "/none"]
    {
        for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", ""] {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let answer = served.send(&request);
            assert_eq!(answer.status, 421, "{path} for {host:?}");
            assert!(!answer.body.contains("groups"), "{}", answer.body);
        }
    }
    let none = served.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!(none.status, 421);
    let two = served.send(
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    );
    assert!(two.status == 421 || two.status == 400, "{}", two.status);
    let line = served
        .send("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(line.status, 421);
    for host in [format!("127.0.0.1:{}", served.address.port()), "localhost".to_owned()] {
        let request =
            format!("GET /api/ledgers HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(served.send(&request).status, 200, "{host}");
    }
}

#[test]
fn a_foreign_origin_is_refused_and_its_own_is_not() {
    let served = served(|_| ());
    let own = format!("Origin: http://{}\r\n", served.address);
    assert_eq!(served.ask("/api/ledgers", &own).status, 200);
    for origin in [
        "http://evil.example".to_owned(),
        "null".to_owned(),
        "http://localhost:1".to_owned(),
        format!("https://{}", served.address),
        format!("http://{}.evil.example", served.address),
        "http://127.0.0.1".to_owned(),
    ] {
        let answer = served.ask("/api/ledgers", &format!("Origin: {origin}\r\n"));
        assert_eq!(answer.status, 403, "{origin}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let twice = format!("{own}Origin: http://evil.example\r\n");
    assert_eq!(served.ask("/api/ledgers", &twice).status, 403);
}

#[test]
fn another_site_may_link_to_the_page_and_read_nothing() {
    let served = served(|_| ());
    let cross = "Sec-Fetch-Site: cross-site\r\n";
    let link = format!("{cross}Sec-Fetch-Mode: navigate\r\n");
    assert_eq!(served.ask("/", &link).status, 200);
    assert_eq!(served.ask("/", cross).status, 403);
    for path in ["/api/ledgers", "/metrics", "/app.js"] {
        assert_eq!(served.ask(path, &link).status, 403, "{path}");
        assert_eq!(served.ask(path, "Sec-Fetch-Site: same-site\r\n").status, 403, "{path}");
        assert_eq!(served.ask(path, "Sec-Fetch-Site: same-origin\r\n").status, 200, "{path}");
    }
}

#[test]
fn nothing_but_get_and_head_is_answered_and_no_body_is_read() {
    let served = served(|_| ());
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"] {
        let target = if method == "CONNECT" { "127.0.0.1:1" } else { "/api/ledgers" };
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            served.address
        );
        let answer = served.send(&request);
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let body = "Content-Length: 5\r\n";
    assert_eq!(served.ask("/api/ledgers", body).status, 413);
    assert_eq!(served.ask("/api/ledgers", "Transfer-Encoding: chunked\r\n").status, 413);
    for path in ["/", "/metrics", "/api/ledgers", "/api/ledgers/1/events"] {
        let request = format!(
            "HEAD {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            served.address
        );
        assert_eq!(served.send(&request).status, 200, "{path}");
    }
}

#[test]
fn a_head_that_is_too_long_or_no_http_does_no_harm() {
    let served = served(|_| ());
    let long = "x".repeat(40 << 10);
    let answer = served.ask(&format!("/{long}"), "");
    assert!((400..500).contains(&answer.status), "{}", answer.status);
    for nonsense in [&b"\x16\x03\x01\x02\x00"[..], b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"\0\0\0\0\n\n"]
    {
        let mut stream = served.connect();
        stream.write_all(nonsense).expect("it listens");
        stream.shutdown(std::net::Shutdown::Write).expect("a socket");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(served.get("/api/ledgers").status, 200);
}

#[test]
fn connections_that_ask_for_nothing_keep_nobody_out_and_the_oldest_give_way() {
    let served = served(|_| ());
    let open: Vec<_> = (0..300).map(|_| served.connect()).collect();
    assert_eq!(served.get("/icon.svg").status, 200, "whoever asks is answered");
    assert_eq!(served.get("/api/ledgers").status, 200);
    let mut turned_away = 0;
    for mut stream in open {
        let request = format!(
            "GET /icon.svg HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            served.address
        );
        // A refused client may find the connection closed.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        turned_away += usize::from(!answer.starts_with(b"HTTP/1.1 200"));
    }
    assert!(turned_away >= 300 - 128, "{turned_away} of 300 were turned away");
    assert_eq!(served.get("/icon.svg").status, 200, "they are gone, so there is room");
}

#[test]
fn without_the_token_nothing_of_a_ledger_is_told_and_with_it_everything() {
    let token = Token::new().unwrap();
    let served = served(|settings| settings.token = Some(token.clone()));
    let paths = ["/metrics", "/api/ledgers", "/api/ledgers/1/groups", "/api/ledgers/1/history"];
    let bearer = format!("Authorization: Bearer {}\r\n", token.as_str());
    for path in paths.into_iter().chain(["/api/ledgers/1/events", "/nothing"]) {
        for wrong in ["", "Authorization: Bearer\r\n", "Authorization: Bearer 0\r\n"] {
            let answer = served.ask(path, wrong);
            assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")));
            assert!(
                !answer.body.contains(token.as_str()) && !answer.body.contains("tmp"),
                "{path}"
            );
        }
    }
    for path in paths {
        assert_eq!(served.ask(path, &bearer).status, 200, "{path}");
        assert_eq!(served.get(&format!("{path}?token={}", token.as_str())).status, 200, "{path}");
    }
    // The page itself has no data of a ledger; it sends the token of its address.
    for path in ["/", "/app.js", "/ask.js", "/page.css"] {
        assert_eq!(served.get(path).status, 200, "{path}");
    }
}

/// Connections that never proved that they may ask give way to one that may, in any state.
#[test]
fn connections_without_the_token_keep_nobody_out_who_has_it() {
    let token = Token::new().unwrap();
    let served = served(|settings| settings.token = Some(token.clone()));
    let bearer = format!("Authorization: Bearer {}\r\n", token.as_str());
    // Each asks for files again and again, and reads no response.
    let request = format!("GET /app.js HTTP/1.1\r\nHost: {}\r\n\r\n", served.address);
    let held: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = served.connect();
            stream.set_nonblocking(true).unwrap();
            for _ in 0..40 {
                let _ = stream.write(request.as_bytes());
            }
            stream
        })
        .collect();
    assert_eq!(served.ask("/api/ledgers", &bearer).status, 200);
    drop(held);
}

#[test]
fn it_ends_while_events_are_read() {
    let served = served(|_| ());
    let mut events = served.events();
    assert_eq!(events.next().map(|(kind, _)| kind).as_deref(), Some("look"));
    let waiting = served.connect();
    served.end().expect("it ends without an error");
    assert!(events.by_ref().all(|(kind, _)| kind == "change"), "the stream ends");
    drop(waiting);
}

#[test]
fn what_cannot_be_served_is_said_before_anybody_listens() {
    use ledgerline_view::serve::{Server, Settings};
    let bind = |name: &str| {
        Server::bind(Settings { named: Some(vec![name.to_owned()]), ..Settings::default() })
    };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let name = file.path().display().to_string();
    let error = bind(&name).expect_err("an empty file is no ledger");
    assert!(error.contains(&name), "{error}");
    let error = bind("/nowhere/at/all").expect_err("there is none");
    assert!(error.contains("/nowhere/at/all"), "{error}");
}
