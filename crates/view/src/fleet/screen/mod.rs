//! The screen of `ledgerline fleet top`: its state, made of books and keys.

mod draw;
mod keys;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::top::other::{Answer, Command, Shown, Theme, Window, command, stepped};
use ledgerline_fleet::book::{BudgetView, View};
use ratatui::Frame;
use ratatui::crossterm::event::KeyEvent;

use crate::fleet::read::Books;
use crate::fleet::watch::{Seen, Watch};

pub use keys::HELP;

/// Times between readings that the keys choose from, in milliseconds.
const INTERVALS: [u64; 8] = [200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];

/// A screen of the books that a [`Watch`] reads.
pub struct Screen {
    watch: Watch,
    state: State,
}

/// The shown state.
#[derive(Debug, Default)]
struct State {
    books: Arc<Books>,
    /// The time at which the books were read.
    read: Option<Instant>,
    trouble: Option<String>,
    interval: Duration,
    paused: bool,
    /// The rows: all budgets, or only those that need attention.
    rows: Vec<Place>,
    /// The chosen budget's path: it stays chosen whatever rows come and go around it.
    chosen: String,
    window: Window,
    amiss_alone: bool,
    pane_hidden: bool,
    help: bool,
}

/// A budget: its book, and its place in the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    book: usize,
    budget: usize,
}

impl Screen {
    /// Makes a screen of the books that are read.
    #[must_use]
    pub fn new(watch: Watch) -> Self {
        let state = State { interval: watch.interval(), ..State::default() };
        Self { watch, state }
    }
}

impl Shown for Screen {
    fn draw(&mut self, frame: &mut Frame<'_>, theme: &Theme) {
        draw::screen(frame, &mut self.state, theme, Instant::now());
    }

    fn key(&mut self, key: KeyEvent) -> Answer {
        match command(key) {
            Some(Command::Terminal(answer)) => return answer,
            Some(command) => self.state.obey(command),
            None => {}
        }
        self.watch.set_interval(self.state.interval);
        self.watch.pause(self.state.paused);
        Answer::Show
    }

    fn refresh(&mut self) {
        self.state.see(self.watch.seen());
    }

    fn every(&self) -> Duration {
        Duration::from_millis(200)
    }
}

impl State {
    /// Takes the result of the last reading.
    fn see(&mut self, seen: Seen) {
        self.trouble = seen.trouble;
        if let Some((books, at)) = seen.books
            && self.read != Some(at)
        {
            let line = self.place();
            self.books = books;
            self.read = Some(at);
            self.arrange(line);
        }
    }

    /// Rebuilds the rows. If the chosen budget is gone, the one on its line is chosen.
    fn arrange(&mut self, line: usize) {
        self.rows.clear();
        for (book, one) in self.books.books.iter().enumerate() {
            let budgets = &one.view.budgets;
            let mut places: Vec<usize> = (0..budgets.len()).collect();
            places.sort_by(|one, two| by_levels(&budgets[*one].path, &budgets[*two].path));
            let shown =
                places.into_iter().filter(|at| !self.amiss_alone || is_amiss(&budgets[*at]));
            self.rows.extend(shown.map(|budget| Place { book, budget }));
        }
        if !self.rows.iter().any(|place| self.budget(*place).path == self.chosen) {
            self.choose(line);
        }
    }

    fn budget(&self, place: Place) -> &BudgetView {
        &self.view(place).budgets[place.budget]
    }

    fn view(&self, place: Place) -> &View {
        &self.books.books[place.book].view
    }

    /// Returns the line of the chosen budget.
    fn place(&self) -> usize {
        let is_chosen = |place: &Place| self.budget(*place).path == self.chosen;
        self.rows.iter().position(is_chosen).unwrap_or(0)
    }

    fn chosen(&self) -> Option<Place> {
        self.rows.get(self.place()).copied()
    }

    fn choose(&mut self, line: usize) {
        let last = self.rows.len().saturating_sub(1);
        let path = self.rows.get(line.min(last)).map(|place| self.budget(*place).path.clone());
        self.chosen = path.unwrap_or_default();
    }

    /// Returns the lines that the screen has room for, the chosen one among them.
    fn window(&mut self, room: usize) -> std::ops::Range<usize> {
        let place = self.place();
        self.window.around(place, self.rows.len(), room)
    }

    fn obey(&mut self, command: Command) {
        let place = self.place();
        match command {
            Command::Move(by) => self.choose(place.saturating_add_signed(by)),
            Command::Page(by) => {
                let by = by.saturating_mul(self.window.height().max(1) as isize);
                self.choose(place.saturating_add_signed(by));
            }
            Command::First => self.choose(0),
            Command::Last => self.choose(usize::MAX),
            Command::Amiss => {
                self.amiss_alone = !self.amiss_alone;
                self.arrange(place);
            }
            Command::Pane => self.pane_hidden = !self.pane_hidden,
            Command::Pause => self.paused = !self.paused,
            Command::Interval(by) => self.interval = stepped(self.interval, &INTERVALS, by),
            Command::Help => self.help = !self.help,
            Command::Close if self.help => self.help = false,
            Command::Close if self.amiss_alone => {
                self.amiss_alone = false;
                self.arrange(place);
            }
            Command::Close => self.pane_hidden = true,
            // Commands that concern only a ledger or the terminal.
            _ => {}
        }
    }
}

/// Orders a budget after the one above it, and before the next beside it.
fn by_levels(one: &str, two: &str) -> Ordering {
    one.split('/').cmp(two.split('/'))
}

/// Returns whether a budget needs attention: it is over its limit, nodes lack units, or it is being deleted.
fn is_amiss(budget: &BudgetView) -> bool {
    budget.over > 0 || budget.unmet > 0 || budget.closing
}
