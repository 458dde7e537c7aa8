//! `ledgerline serve` as a user starts it.

use crate::support::user::User;
use crate::support::{ledgerline, python, started, stderr};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The address of a server, with the token.
#[derive(Clone, Debug)]
struct At {
    host: String,
    token: String,
}

/// Starts a server, and returns its address.
fn serve(arguments: &[&str]) -> (Child, At) {
    let mut child = ledgerline()
        .arg("serve")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    let rest = line.trim_end().strip_prefix("http://").and_then(|rest| rest.split_once('/'));
    let (host, query) = rest.unwrap_or_else(|| panic!("the first line is the address: {line:?}"));
    let token = query.strip_prefix("?token=").unwrap_or_default().to_owned();
    (child, At { host: host.to_owned(), token })
}

/// Returns a response from its status line on.
fn get(at: &At, path: &str) -> String {
    let mut stream = ask(at, path);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

fn ask(At { host, token }: &At, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(host).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let token = match &**token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

fn signal(child: &Child, signal: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().expect("kill").success());
}

#[test]
fn a_run_is_served_by_its_pid_and_the_server_ends_at_either_signal_while_events_are_read() {
    let Some(python) = python() else { return };
    let program =
        "import sys; held = bytearray(8 << 20); print('ready', flush=True); sys.stdin.read()";
    let (mut run, ..) = started(&[python, "-c", program]);
    for name in ["-INT", "-TERM"] {
        let (mut server, host) = serve(&[&run.id().to_string()]);
        assert!(host.host.starts_with("127.0.0.1:") && host.token.len() == 32, "{host:?}");
        let groups = get(&host, "/api/ledgers/1/groups");
        assert!(groups.starts_with("HTTP/1.1 200") && groups.contains("\"pid\":"), "{groups}");
        assert!(get(&host, "/metrics").contains("ledgerline_current_bytes{"));
        let mut events = BufReader::new(ask(&host, "/api/ledgers/1/events"));
        let mut line = String::new();
        while !line.starts_with("event: look") {
            line.clear();
            assert!(events.read_line(&mut line).expect("events") > 0, "the stream ended");
        }
        signal(&server, name);
        assert_eq!(server.wait().expect("it ends").code(), Some(0), "{name}");
        events.read_to_end(&mut Vec::new()).expect("the stream ends");
    }
    // An ended process has no series, the root holds nothing, and all are reported as ended.
    let (mut server, host) = serve(&["--interval", "100ms", &run.id().to_string()]);
    drop(run.stdin.take());
    run.wait().expect("it ends");
    let end = Instant::now() + Duration::from_secs(60);
    while get(&host, "/metrics").contains("group=\"/python") {
        assert!(Instant::now() < end, "{}", get(&host, "/metrics"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let metrics = get(&host, "/metrics");
    assert!(metrics.contains("group=\"/\"} 0\n"), "{metrics}");
    let groups = get(&host, "/api/ledgers/1/groups");
    assert!(groups.contains("\"state\":\"exited\""), "{groups}");
    assert!(!groups.contains("\"state\":\"live\""), "{groups}");
    signal(&server, "-TERM");
    server.wait().expect("it ends");
}

/// Every user of the machine reaches the loopback.
#[test]
fn another_user_of_the_machine_reads_nothing_of_a_run_by_the_server() {
    let (mut run, ..) = started(&["sh", "-c", "echo ready; read line"]);
    let (server, at) = serve(&[&run.id().to_string()]);
    let own = get(&at, "/api/ledgers");
    assert!(own.starts_with("HTTP/1.1 200") && own.contains("(run "), "{own}");
    if let Some(user) = User::new()
        && let Some(python) = python()
    {
        let script = format!(
            "import http.client
for path in ('/metrics', '/api/ledgers', '/api/ledgers/1/groups', '/api/ledgers/1/history', '/'):
    ask = http.client.HTTPConnection('{}', timeout=60)
    ask.request('GET', path)
    answer = ask.getresponse()
    print(path, answer.status, b'(run ' in answer.read())",
            at.host
        );
        let output = user.command(python).args(["-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            said,
            "/metrics 401 False\n/api/ledgers 401 False\n/api/ledgers/1/groups 401 False\n\
             /api/ledgers/1/history 401 False\n/ 200 False\n",
            "{}",
            stderr(&output)
        );
    }
    let nobody = get(&At { token: String::new(), ..at.clone() }, "/metrics");
    assert!(nobody.starts_with("HTTP/1.1 401"), "{nobody}");
    end(server);
    // This needs an explicit option, and the user is warned.
    let (mut server, at) = serve(&["--open", &run.id().to_string()]);
    assert!(at.token.is_empty() && get(&at, "/metrics").starts_with("HTTP/1.1 200"));
    signal(&server, "-TERM");
    let mut said = String::new();
    server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("every user of this machine does"), "{said}");
    server.wait().unwrap();
    drop(run.stdin.take());
    run.wait().unwrap();
}

fn end(mut server: Child) {
    signal(&server, "-TERM");
    assert_eq!(server.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_file_keeps_the_token_from_one_server_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let options = ["--token-file", file.to_str().unwrap()];
    let (server, first) = serve(&options);
    end(server);
    let (server, second) = serve(&options);
    assert_eq!((first.token.len(), &first.token), (32, &second.token));
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), first.token);
    assert!(get(&second, "/metrics").starts_with("HTTP/1.1 200"));
    end(server);
}

#[test]
fn names_that_no_browser_sends_are_refused() {
    for host in ["build.example:80", "http://build.example", "m\u{fc}nchen.de", "", "a..b"] {
        let output = ledgerline().args(["serve", "--host", host]).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{host}: {error}");
        assert!(error.contains("give the name alone"), "{host}: {error}");
    }
}

#[test]
fn without_arguments_a_run_comes_and_goes_by_itself() {
    let Some(python) = python() else { return };
    let (mut server, host) = serve(&[]);
    let program = "import sys; print('ready', flush=True); sys.stdin.read()";
    let (mut run, ..) = started(&[python, "-c", program]);
    // Other ledgers may exist on this machine: the run is identified by its id.
    let own = format!("(run {})", run.id());
    let until = |there: bool| {
        let end = Instant::now() + Duration::from_secs(60);
        while get(&host, "/api/ledgers").contains(&own) != there {
            assert!(
                Instant::now() < end,
                "{own} is there: {there}, after a minute: {}",
                get(&host, "/api/ledgers")
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    until(true);
    drop(run.stdin.take());
    run.wait().expect("it ends");
    until(false);
    signal(&server, "-TERM");
    assert_eq!(server.wait().expect("it ends").code(), Some(0));
}

#[test]
fn what_cannot_be_served_is_one_sentence_and_no_address() {
    for arguments in [&["/nowhere/at/all"][..], &["--listen", "127.0.0.1:0", "999999999"]] {
        let output = ledgerline().arg("serve").args(arguments).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(output.stdout.is_empty() && error.starts_with("ledgerline: serve: "), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("it has one").to_string();
    let output = ledgerline().args(["serve", "--listen", &address]).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains(&address), "{error}");
}
