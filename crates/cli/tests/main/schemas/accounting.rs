//! The commands for ledgers: `run`, `show`, `set`, `top`, `report`, `serve`.

use crate::held::{held, held_as_it_says};
use crate::support::{Shared, account, ledgerline, scratch, started, stderr};
use ledgerline::stat::{Counters, Places};
use ledgerline::{Group, Ledger, Limit};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

/// A shell that holds a few MiB, and asks for more than the limit.
const GROWS: &str = "x=$(head -c 3000000 /dev/zero | tr '\\0' a); sleep 0.1; \
                     head -c 3000000 /dev/zero | sort -S 200M >/dev/null; sleep 0.1";

ledgerline::items! {
    enum Zone {
        /// Free pages.
        Free = "nr_free_pages",
    }
}

/// Returns the output of the command, which succeeds.
fn printed(arguments: &[&str]) -> String {
    let output = ledgerline().args(arguments).output().expect("the command runs");
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Makes a group with refusals, limits and counts.
fn busy(ledger: &Ledger) -> Group<'_> {
    let acme = ledger.root().create("acme").unwrap();
    acme.set_max(Limit::units(1 << 20)).unwrap();
    acme.set_high(Limit::units(1 << 19));
    let _units = acme.charge(4096).unwrap().into_units();
    assert!(acme.try_charge_units(2 << 20).is_err());
    acme
}

#[test]
fn the_account_of_a_run_that_was_refused_and_its_recording() {
    let file = scratch("schemas.rec");
    let options = ["--max", "64M", "--max-heap", "60M", "--record-every", "5ms", "--record"];
    let options = [&options[..], &[file.to_str().unwrap()]].concat();
    let (output, account) = account(&options, &["sh", "-c", GROWS]);
    assert!(output.status.success(), "{}", stderr(&output));
    held("account", &account);
    let refused = |group: &Value| group["first_refused"].is_object();
    assert!(account["groups"].as_array().unwrap().iter().any(refused), "{account:#}");
    let report = read(&printed(&["report", "--json", file.to_str().unwrap()]));
    held("report", &report);
    assert!(!report["groups"][0]["points"].as_array().unwrap().is_empty());
}

#[test]
fn the_account_of_a_run_that_follows_its_container_and_has_a_program_that_cannot_be_seen() {
    // Without a memory cgroup it follows the machine.
    let (output, account) = account(&["--container"], &["env", "-i", "/bin/sh", "-c", "true"]);
    assert!(output.status.success(), "{}", stderr(&output));
    held("account", &account);
    assert!(account["container"].is_object(), "{account:#}");
    assert!(!account["not_accounted"].as_array().unwrap().is_empty(), "{account:#}");
}

#[test]
fn a_ledger_its_groups_files_and_limits() {
    let file = Shared::new("schemas.ledger");
    let ledger = Ledger::builder().create_in(&file.1).unwrap();
    let _acme = busy(&ledger);
    held("groups", &read(&printed(&["show", "--json", file.path()])));
    held("group-files", &read(&printed(&["show", "--json", file.path(), "/acme", "memory.max"])));
    let all = read(&printed(&["show", "--json", file.path(), "/acme", "memory.stat"]));
    held("group-files", &all);
    let every: Vec<&str> =
        "current peak max high low min events events.local oom.group stat".split(' ').collect();
    let names: Vec<String> = every.iter().map(|name| format!("memory.{name}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let files = [&["show", "--json", file.path(), "/acme"][..], &names].concat();
    held("group-files", &read(&printed(&files)));
    let set =
        ["set", "--json", "--file", file.path(), "/acme", "max=max", "high=1K", "low=8", "min=4"];
    held("set", &read(&printed(&set)));
    held("top", &read(&printed(&["top", "--json", "--once", "--interval", "0.01", file.path()])));
    held(
        "top",
        &read(&printed(&["top", "--json", "--once", "--interval", "0", "--merge", file.path()])),
    );
}

#[test]
fn what_changes_in_a_ledger_that_is_watched() {
    let file = Shared::new("schemas-watched.ledger");
    let ledger = Ledger::builder().create_in(&file.1).unwrap();
    let mut watch = ledgerline()
        .args(["show", "--json", "--watch=0.01", file.path()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let output = BufReader::new(watch.stdout.take().expect("piped"));
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    // The time of the first look is not known: a group comes, counts and goes until each kind of line was printed.
    let mut missing = vec!["key", "file", "appeared", "gone"];
    for _ in 0..600 {
        let acme = busy(&ledger);
        std::thread::sleep(Duration::from_millis(50));
        acme.uncharge_units(4096);
        acme.destroy().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        for line in lines.try_iter().map(|line| read(&line)) {
            held("group-change", &line);
            missing.retain(|what| !line[*what].is_string() && line["event"] != *what);
        }
        if missing.is_empty() {
            break;
        }
    }
    assert_eq!(missing, [""; 0]);
    drop(file);
    assert!(watch.wait().unwrap().success());
}

#[test]
fn tables_of_counters() {
    let mut tree = Places::builder("machine");
    let node = tree.node("0").unwrap();
    let normal = tree.zone(node, "Normal").unwrap();
    let places = tree.build().unwrap();
    let file = Shared::new("schemas.counters");
    let zones = Counters::<Zone, i8>::builder(&places).threshold(10).create_in(&file.1).unwrap();
    zones.add(normal, Zone::Free, 3976);
    held("counters", &read(&printed(&["show", "--json", file.path()])));
}

/// A run that continues until it is told to end.
struct Running(Child);

impl Running {
    fn new() -> Running {
        Running(started(&["sh", "-c", "echo started; read line"]).0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_run_that_goes_on_and_the_list_of_those_that_do() {
    let run = Running::new();
    let pid = run.0.id().to_string();
    held("groups", &read(&printed(&["show", "--json", "--pid", &pid])));
    let list = read(&printed(&["top", "--json", "--once"]));
    held("ledgers", &list);
    assert!(!list["ledgers"].as_array().unwrap().is_empty());
}

/// A server of the ledger in a file, ended with the test.
struct Server(Child, String);

impl Server {
    fn of(file: &str) -> Server {
        let mut child = ledgerline()
            .args(["serve", "--open", "--interval", "100ms", file])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command starts");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.as_mut().expect("piped"));
        output.read_line(&mut line).expect("a line");
        let host = line.trim_end().strip_prefix("http://").and_then(|rest| rest.strip_suffix('/'));
        let host = host.unwrap_or_else(|| panic!("an address: {line}")).to_owned();
        Server(child, host)
    }

    fn ask(&self, path: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.1).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        let host = &self.1;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        BufReader::new(stream)
    }

    fn json(&self, path: &str) -> Value {
        let mut answer = String::new();
        self.ask(path).read_to_string(&mut answer).expect("text");
        read(answer.split_once("\r\n\r\n").expect("an answer").1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the documents of events, the first of which is a look.
fn events(stream: BufReader<TcpStream>) -> impl Iterator<Item = Value> {
    let lines = stream.lines().map(|line| line.expect("text"));
    lines.filter_map(|line| line.strip_prefix("data: ").map(read))
}

#[test]
fn what_a_server_answers() {
    let file = Shared::new("schemas-served.ledger");
    let ledger = Ledger::builder().create_in(&file.1).unwrap();
    let acme = busy(&ledger);
    let gone = acme.create("gone").unwrap();
    let server = Server::of(file.path());
    held("serve-ledgers", &server.json("/api/ledgers"));
    held("serve-groups", &server.json("/api/ledgers/1/groups"));
    let (by_group, by_field) =
        (server.ask("/api/ledgers/1/events"), server.ask("/api/ledgers/1/events?by=field"));
    let (mut by_group, mut by_field) = (events(by_group), events(by_field));
    for stream in [&mut by_group as &mut dyn Iterator<Item = Value>, &mut by_field] {
        held("serve-groups", &stream.next().expect("a look"));
    }
    let _held = acme.charge(8192).unwrap();
    let _ = acme.create("new").unwrap();
    gone.destroy().unwrap();
    // The changes may come in one look or in several.
    let told = |stream: &mut dyn Iterator<Item = Value>, fields: &str| {
        let mut missing = vec![fields, "new", "gone"];
        while !missing.is_empty() {
            let change = stream.next().expect("a change");
            held("serve-change", &change);
            missing.retain(|field| change.get(field).is_none());
        }
    };
    told(&mut by_group, "groups");
    told(&mut by_field, "fields");
    let history = server.json("/api/ledgers/1/history?group=/acme");
    held_as_it_says(&history);
    assert!(!history["points"].as_array().unwrap().is_empty());
}

#[test]
fn a_run_that_is_served_names_processes_and_programs() {
    let run = Running::new();
    let server = Server::of(&run.0.id().to_string());
    let groups = server.json("/api/ledgers/1/groups");
    held("serve-groups", &groups);
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["pid"].is_u64()));
}
