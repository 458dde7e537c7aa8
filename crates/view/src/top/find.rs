//! The ledgers of this machine: for the screen, as a table, and as JSON.

use crate::terminal::output::{plain_json, printable};
use crate::top::draw;
use crate::top::follow::Followed;
use crate::top::list::List;
use crate::top::order::Options;
use crate::top::shown::{Answer, Shown};
use crate::top::theme::Theme;
use crate::watch::Source;
use crate::watch::find::{Found, all};
use ratatui::Frame;
use ratatui::crossterm::event::KeyEvent;
use serde::Serialize;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// The time between looks for ledgers.
const FIND: Duration = Duration::from_secs(2);

/// Returns the ledgers as a table, with a newline at its end.
pub fn list() -> String {
    table(&all())
}

/// Returns the ledgers as one line of JSON, with a newline at its end.
pub fn list_json() -> String {
    document(&all())
}

fn table(listed: &[Found]) -> String {
    if listed.is_empty() {
        return "There is no ledger: start a program under `ledgerline run -- PROGRAM`, or have one \
                announce its ledger.\n"
            .to_owned();
    }
    let mut out = format!("{:>8}  {:>8}  ledger\n", "pid", "groups");
    for ledger in listed {
        let Found { pid, groups, .. } = ledger;
        let _ = writeln!(out, "{pid:>8}  {groups:>8}  {}", printable(&ledger.title));
    }
    out
}

fn document(listed: &[Found]) -> String {
    #[derive(Serialize)]
    struct Ledger<'a> {
        title: &'a str,
        pid: u32,
        running: bool,
        groups: u32,
        path: String,
    }
    #[derive(Serialize)]
    struct Ledgers<'a> {
        schema: &'static str,
        ledgers: Vec<Ledger<'a>>,
    }
    let ledgers = listed.iter().map(|listed| Ledger {
        title: &listed.title,
        pid: listed.pid,
        running: listed.running,
        groups: listed.groups,
        path: listed.path.to_string_lossy().into_owned(),
    });
    let document = Ledgers { schema: "ledgerline/ledgers.v1", ledgers: ledgers.collect() };
    let text = serde_json::to_string(&document)
        .expect("strings, numbers and lists of them always make a document");
    plain_json(&text) + "\n"
}

/// The list on the screen, until the reader opens one of its ledgers.
pub struct Choosing<'o> {
    list: List,
    options: &'o Options,
    /// The time when it was made; `None` if it is to be made anew.
    last: Option<Instant>,
}

impl<'o> Choosing<'o> {
    pub fn new(options: &'o Options) -> Choosing<'o> {
        Choosing { list: List::default(), options, last: None }
    }
}

impl Shown for Choosing<'_> {
    fn draw(&mut self, frame: &mut Frame<'_>, theme: &Theme) {
        draw::list::screen(frame, &mut self.list, theme);
    }

    fn key(&mut self, key: KeyEvent) -> Answer {
        self.list.key(key)
    }

    fn refresh(&mut self) {
        if self.last.is_none_or(|last| last.elapsed() >= FIND) {
            self.list.update(all());
            self.last = Some(Instant::now());
        }
    }

    fn every(&self) -> Duration {
        self.last.map_or(FIND, |last| FIND.saturating_sub(last.elapsed()))
    }

    fn open(&mut self) -> Option<Box<dyn Shown>> {
        let source = Source::found(self.list.chosen()?);
        match source.and_then(|source| Followed::new(source, self.options)) {
            Ok(followed) => {
                self.last = None;
                Some(Box::new(followed))
            }
            Err(trouble) => {
                self.list.trouble = Some(trouble);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::find::Kind;

    #[test]
    fn ledgers_are_listed_in_a_line_each_and_titles_steer_no_terminal() {
        let path = "/proc/7/fd/3".into();
        let title = "sort\x1b[2J (run 7)".to_owned();
        let (kind, program) = (Kind::Run, "sort".to_owned());
        let listed = [Found { title, path, kind, program, pid: 7, running: true, groups: 12 }];
        let expected = "     pid    groups  ledger\n       7        12  sort\\u{1b}[2J (run 7)\n";
        assert_eq!(table(&listed), expected);
        assert!(table(&[]).contains("ledgerline run"));
        let text = document(&listed);
        assert!(!text.contains('\x1b') && text.ends_with("}\n"), "{text:?}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({
            "title": "sort\x1b[2J (run 7)", "pid": 7, "running": true, "groups": 12,
            "path": "/proc/7/fd/3",
        });
        assert_eq!(read["ledgers"][0], expected);
    }
}
