//! The ledgers that there are, of which the reader opens one.

use crate::keys::{self, Command};
use ratatui::crossterm::event::KeyEvent;
use std::path::PathBuf;

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// What is shown may have changed.
    Show,
    /// Open the chosen ledger.
    Open,
    /// The whole screen is to be drawn anew.
    Redraw,
    /// Stop, as a shell's job.
    Suspend,
    /// End.
    Quit,
}

/// A ledger that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What to call it.
    pub title: String,
    /// Where it can be opened.
    pub path: PathBuf,
    /// The process that has it.
    pub pid: u32,
    /// Whether that still runs.
    pub running: bool,
    /// How many groups it may have.
    pub groups: u32,
}

/// The list, and which of it is chosen.
#[derive(Debug, Default)]
pub struct List {
    /// The ledgers.
    pub found: Vec<Listed>,
    /// Why the last one that was chosen could not be opened.
    pub trouble: Option<String>,
    at: usize,
    first: usize,
}

impl List {
    /// Takes in what there is now. The chosen line stays on its ledger.
    pub fn update(&mut self, found: Vec<Listed>) {
        if let Some(chosen) = self.chosen()
            && let Some(at) =
                found.iter().position(|it| it.pid == chosen.pid && it.path == chosen.path)
        {
            self.at = at;
        }
        self.found = found;
        self.at = self.at.min(self.found.len().saturating_sub(1));
    }

    /// The chosen ledger.
    pub fn chosen(&self) -> Option<&Listed> {
        self.found.get(self.at)
    }

    /// The lines that a screen of this height shows; the chosen one is among them.
    pub fn window(&mut self, height: usize) -> std::ops::Range<usize> {
        let height = height.max(1);
        self.first = self.first.clamp((self.at + 1).saturating_sub(height), self.at);
        self.first..(self.first + height).min(self.found.len())
    }

    /// Does what a key asks for.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        self.trouble = None;
        let last = self.found.len().saturating_sub(1);
        let mut go = |lines: isize| self.at = self.at.saturating_add_signed(lines).min(last);
        match keys::command(key) {
            Some(Command::Move(lines)) => go(lines),
            Some(Command::Page(pages)) => go(10 * pages),
            Some(Command::First) => go(isize::MIN),
            Some(Command::Last) => go(isize::MAX),
            Some(Command::Pane | Command::Unfold) if !self.found.is_empty() => return Action::Open,
            Some(Command::Redraw) => return Action::Redraw,
            Some(Command::Suspend) => return Action::Suspend,
            Some(Command::Quit) => return Action::Quit,
            _ => (),
        }
        Action::Show
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::{KeyCode, KeyModifiers};

    fn listed(pid: u32) -> Listed {
        let (title, path) = (format!("server ({pid})"), format!("/proc/{pid}/fd/3").into());
        Listed { title, path, pid, running: true, groups: 7 }
    }

    fn press(list: &mut List, code: KeyCode) -> Action {
        list.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn the_chosen_ledger_stays_chosen_when_others_come_and_go() {
        let mut list = List::default();
        assert_eq!(press(&mut list, KeyCode::Enter), Action::Show, "nothing can be opened");
        list.update(vec![listed(1), listed(2), listed(3)]);
        press(&mut list, KeyCode::Down);
        assert_eq!(list.chosen(), Some(&listed(2)));
        list.update(vec![listed(0), listed(1), listed(2)]);
        assert_eq!(list.chosen(), Some(&listed(2)));
        assert_eq!(press(&mut list, KeyCode::Enter), Action::Open);
        list.update(vec![listed(1)]);
        assert_eq!(list.chosen(), Some(&listed(1)));
        list.update(Vec::new());
        assert_eq!(list.chosen(), None);
        assert_eq!(list.window(5), 0..0);
    }

    #[test]
    fn the_window_has_the_chosen_line() {
        let mut list = List::default();
        list.update((0..20).map(listed).collect());
        assert_eq!(list.window(5), 0..5);
        press(&mut list, KeyCode::End);
        assert_eq!(list.window(5), 15..20);
        press(&mut list, KeyCode::Up);
        assert_eq!(list.window(5), 15..20);
        press(&mut list, KeyCode::Home);
        assert_eq!(list.window(0), 0..1);
    }
}
