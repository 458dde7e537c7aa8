//! A hostile name passes through every output that shows it.

use crate::support::{ledgerline, scratch, stderr};
use ledgerline::Ledger;
use ledgerline_view::terminal::output::is_plain;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// The name colours a terminal, changes the direction of writing, ends a label, and opens a tag.
const HOSTILE: &str = "a\u{1b}[31m\u{202e}\u{9b}\"}<b>\\\n\u{7}.ledger";

/// Fails if a text has a control character for terminals, except the ends of lines, or a tag from the name.
#[track_caller]
fn check(what: &str, text: &str, has_name: bool) {
    let steers = text.chars().find(|&letter| letter != '\n' && letter != '\t' && !is_plain(letter));
    assert!(steers.is_none(), "{what} has {steers:?}: {text:?}");
    assert!(!has_name || text.contains("ledger"), "{what} does not show the name: {text:?}");
}

fn output(what: &str, command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    check(what, &text, false);
    check(what, &stderr(&output), false);
    text
}

#[test]
fn a_hostile_name_steers_nothing_in_any_output() {
    let folder = scratch("names");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join(HOSTILE);
    let options = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
    let ledger = Ledger::builder().create_in(&options.unwrap()).unwrap();
    let _charge = ledger.root().create("group").unwrap().try_charge(4096).unwrap();
    for words in [
        &["show"][..],
        &["show", "--json"],
        &["top", "--once"],
        &["top", "--once", "--json"],
        &["set", "--json"],
    ] {
        let mut command = ledgerline();
        output(&format!("{words:?}"), command.args(words).arg(&path));
    }
    // Files that cannot be opened are named, too.
    for words in ["show", "top", "report", "serve"] {
        let mut command = ledgerline();
        output(words, command.arg(words).arg(folder.join(format!("none-{HOSTILE}"))));
    }
    let recording = folder.join("recording");
    let mut record = ledgerline();
    record.arg("record").arg(&path).args(["--for", "100ms", "--every", "10ms", "-o"]);
    output("record", record.arg(&recording));
    for words in [&["report"][..], &["report", "--json"], &["report", "--svg"]] {
        let mut command = ledgerline();
        let text = output(&format!("{words:?}"), command.args(words).arg(&recording));
        assert!(!text.contains("<b>") || !words.contains(&"--svg"), "{words:?}: {text}");
    }
    let page = folder.join("page.html");
    let mut report = ledgerline();
    output("report -o", report.arg("report").arg("-o").arg(&page).arg(&recording));
    let html = std::fs::read_to_string(&page).unwrap();
    check("the report's page", &html, true);
    assert!(!html.contains("<b>"), "the name opens no tag");
    served(&path);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Returns the responses of a server about the ledger.
fn served(path: &Path) {
    let mut command = ledgerline();
    command.args(["serve", "--open"]).arg(path).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let host = line.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let answers = ["/metrics", "/api/ledgers", "/api/ledgers/1/groups", "/api/ledgers/1/history"]
        .map(|path| {
            let mut stream = TcpStream::connect(&host).unwrap();
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            (path, answer)
        });
    server.kill().unwrap();
    server.wait().unwrap();
    for (path, answer) in answers {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        check(path, body, path == "/metrics");
    }
}
