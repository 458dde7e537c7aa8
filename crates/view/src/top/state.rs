//! The state of the screen, made of looks and of keys, without a terminal.

use crate::top::column::Column;
use crate::top::entry::{self, Entry, Key};
use crate::top::history::{Histories, LOOKS};
use crate::top::keys::{self, Command};
use crate::top::order::{self, Choice, Folds};
use crate::top::shown::Answer;
use crate::top::window::Window;
use crate::watch::{Look, Rates, Tempo};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::ops::Range;
use std::time::Duration;

/// The intervals between looks that keys choose from, in milliseconds.
const INTERVALS: [u64; 9] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
/// The longest filter, in letters.
const FILTER: usize = 200;

/// The state of the screen.
#[derive(Debug)]
pub struct State {
    /// The ledger's title, safe for a terminal.
    pub title: String,
    /// The reader's choices.
    pub choice: Choice,
    /// The time between looks.
    pub interval: Duration,
    /// Whether looks are paused.
    pub paused: bool,
    /// Whether the program ended, so that this is the last look.
    pub ended: bool,
    /// The error that prevents further looks.
    pub lost: Option<String>,
    /// Whether the help is shown.
    pub help: bool,
    /// Whether the pane of the chosen group is shown.
    pub pane: bool,
    /// Whether a filter is being typed.
    pub typing: bool,
    look: Look,
    rates: Vec<Rates>,
    tempo: Tempo,
    histories: Histories,
    entries: Vec<Entry>,
    lines: Vec<usize>,
    chosen: Key,
    /// The line of the chosen row.
    at: usize,
    window: Window,
}

impl State {
    /// Starts with a first look.
    pub fn new(title: &str, choice: Choice, interval: Duration, look: Look) -> State {
        let chosen = Key::Group(look.root().id);
        let mut state = State {
            title: crate::terminal::output::printable(title),
            choice,
            interval,
            paused: false,
            ended: false,
            lost: None,
            help: false,
            pane: false,
            typing: false,
            look: look.clone(),
            rates: Vec::new(),
            tempo: Tempo::new(),
            histories: Histories::default(),
            entries: Vec::new(),
            lines: Vec::new(),
            chosen,
            at: 0,
            window: Window::default(),
        };
        state.looked(look);
        state
    }

    /// Takes a look. The chosen row stays on its group, wherever that moves.
    pub fn looked(&mut self, look: Look) {
        self.rates = self.tempo.rates(&look);
        self.histories.add(&look);
        self.look = look;
        self.rebuild();
    }

    /// Returns whether no other look will come.
    pub fn is_over(&self) -> bool {
        self.ended || self.lost.is_some()
    }

    /// Returns the last look.
    pub fn look(&self) -> &Look {
        &self.look
    }

    /// Returns the rows, in the order of the screen.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.lines.iter().map(|&line| &self.entries[line])
    }

    /// Returns a row by its line.
    pub fn line(&self, line: usize) -> &Entry {
        &self.entries[self.lines[line]]
    }

    /// Returns the number of rows, shown or not.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Returns the line of the chosen row; `None` if no row is shown.
    pub fn chosen(&self) -> Option<usize> {
        (!self.lines.is_empty()).then_some(self.at)
    }

    /// Returns the holdings of a row in the last looks.
    pub fn history(&self, entry: &Entry) -> [Option<u64>; LOOKS] {
        self.histories.of(entry.rows().iter().map(|&row| self.look.rows[row].id))
    }

    /// Returns the rates of a row of the look.
    pub fn rates(&self, row: usize) -> Rates {
        self.rates[row]
    }

    /// Returns whether a row hides the rows below it.
    pub fn is_folded(&self, entry: &Entry) -> bool {
        let hides = !self.choice.flat && self.choice.filter.is_empty();
        hides && entry.has_children && self.choice.folds.is_folded(entry, &self.look)
    }

    /// Returns the lines that a screen of this height shows: the chosen row is always among them.
    pub fn window(&mut self, height: usize) -> Range<usize> {
        self.window.around(self.at, self.lines.len(), height)
    }

    /// Executes the command of a key.
    pub fn key(&mut self, key: KeyEvent) -> Answer {
        if self.typing && key.kind != KeyEventKind::Release && self.typed(key) {
            return Answer::Show;
        }
        let Some(command) = keys::command(key) else { return Answer::Show };
        // A help that covers the rows blocks commands that would change them unseen.
        if self.help && !matches!(command, Command::Terminal(_) | Command::Amiss) {
            self.help = false;
            return Answer::Show;
        }
        self.command(command)
    }

    /// Handles a key in the line of the filter; `false` if the key has no meaning there.
    fn typed(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('u') if control => self.choice.filter.clear(),
            KeyCode::Char(letter) if !control => {
                if self.choice.filter.chars().count() < FILTER && !letter.is_control() {
                    self.choice.filter.push(letter);
                }
            }
            KeyCode::Backspace => drop(self.choice.filter.pop()),
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.choice.filter.clear();
            }
            _ => return false,
        }
        self.rebuild();
        true
    }

    fn command(&mut self, command: Command) -> Answer {
        let page = self.window.height() as isize;
        match command {
            Command::Move(lines) => self.go(lines),
            Command::Page(pages) => self.go(pages * (page - 1).max(1)),
            Command::First => self.go(isize::MIN),
            Command::Last => self.go(isize::MAX),
            Command::Turn => self.turn(|_| true),
            Command::Unfold => self.turn(|folded| folded),
            Command::Fold => {
                let chosen = self.chosen().map(|line| self.line(line).clone());
                match chosen.filter(|_| !self.choice.flat) {
                    Some(entry) if !entry.has_children || self.is_folded(&entry) => {
                        self.chosen = self.entries[entry.parent].key(&self.look);
                        self.find();
                    }
                    _ => self.turn(|folded| !folded),
                }
            }
            Command::Depth(depth) => {
                self.choice.flat = false;
                self.choice.folds = Folds::to_depth(depth);
                self.rebuild();
            }
            Command::Sort(places) => {
                self.choice.sort = self.choice.sort.neighbour(places);
                self.choice.reverse = false;
                self.rebuild();
            }
            Command::Reverse => {
                self.choice.reverse = !self.choice.reverse;
                self.rebuild();
            }
            Command::Flat => {
                self.choice.flat = !self.choice.flat;
                self.rebuild();
            }
            Command::Merge => self.merge(),
            Command::Filter => self.typing = true,
            Command::Pane => self.pane = !self.pane,
            Command::Pause => {
                self.paused = !self.paused;
                return if self.paused { Answer::Show } else { Answer::Look };
            }
            Command::Interval(step) => {
                self.interval = keys::stepped(self.interval, &INTERVALS, step);
            }
            Command::Help => self.help = true,
            Command::Close if self.pane => self.pane = false,
            Command::Close if self.choice.filter.is_empty() => return Answer::Back,
            Command::Close => {
                self.choice.filter.clear();
                self.rebuild();
            }
            Command::Amiss => (),
            Command::Terminal(answer) => return answer,
        }
        Answer::Show
    }

    fn go(&mut self, lines: isize) {
        let last = self.lines.len().saturating_sub(1);
        self.at = self.at.saturating_add_signed(lines).min(last);
        if let Some(&line) = self.lines.get(self.at) {
            self.chosen = self.entries[line].key(&self.look);
        }
    }

    /// Folds or unfolds the chosen group if it has rows below it and is in that state.
    fn turn(&mut self, wanted: impl Fn(bool) -> bool) {
        let hides = !self.choice.flat && self.choice.filter.is_empty();
        let Some(&line) = self.lines.get(self.at).filter(|_| hides) else { return };
        let entry = &self.entries[line];
        if entry.has_children && wanted(self.choice.folds.is_folded(entry, &self.look)) {
            self.choice.folds.turn(entry, &self.look);
            self.rebuild();
        }
    }

    /// Merges programs, or separates them. A chosen group's program is chosen, and a chosen program's first group.
    fn merge(&mut self) {
        let chosen = self.chosen().map(|line| self.line(line).row);
        self.choice.merge = !self.choice.merge;
        if let Some(row) = chosen {
            let row = &self.look.rows[row];
            self.chosen = if self.choice.merge && row.id != self.look.root().id {
                Key::Program(row.program.clone())
            } else {
                Key::Group(row.id)
            };
        }
        self.rebuild();
    }

    fn rebuild(&mut self) {
        let make = if self.choice.merge { entry::programs } else { entry::groups };
        self.entries = make(&self.look, &self.rates);
        self.lines = order::lines(&self.entries, &self.look, &self.choice);
        self.find();
    }

    /// Finds the line of the chosen row. If it is hidden, that is the line of the nearest shown group above it; if it
    /// is gone, the line where it was.
    fn find(&mut self) {
        let key = &self.chosen;
        let chosen = self.entries.iter().position(|entry| entry.is(key, &self.look));
        let mut lines = vec![None; self.entries.len()];
        for (line, &place) in self.lines.iter().enumerate() {
            lines[place] = Some(line);
        }
        // The root has no group above it.
        let above = |&place: &usize| Some(self.entries[place].parent).filter(|&it| it != place);
        if let Some(line) = std::iter::successors(chosen, above).find_map(|place| lines[place]) {
            self.at = line;
        }
        self.at = self.at.min(self.lines.len().saturating_sub(1));
        // If a filter hides the row, it is chosen again when the filter is removed. If a fold hides it, or it is gone,
        // it is not.
        if self.choice.filter.is_empty()
            && let Some(&line) = self.lines.get(self.at)
        {
            self.chosen = self.entries[line].key(&self.look);
        }
    }

    /// Describes the order of the rows.
    pub fn sorted(&self) -> String {
        let Choice { sort, reverse, flat, merge, .. } = self.choice;
        let what = if merge { "programs" } else { "groups" };
        let order = match (sort, reverse) {
            (Column::Name, false) => "a to z",
            (Column::Name, true) => "z to a",
            (_, false) => "largest first",
            (_, true) => "smallest first",
        };
        let among = if flat || merge { "" } else { " among siblings" };
        format!("{what} by {}, {order}{among}", sort.word())
    }
}

#[cfg(test)]
mod tests;
