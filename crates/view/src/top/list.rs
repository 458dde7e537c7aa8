//! The list of ledgers, from which the reader opens one.

use crate::top::keys::{self, Command};
use crate::top::shown::Answer;
use crate::top::window::Window;
use crate::watch::find::Found;
use ratatui::crossterm::event::KeyEvent;

/// The list, with the chosen line.
#[derive(Debug, Default)]
pub struct List {
    /// The ledgers.
    pub found: Vec<Found>,
    /// The error of opening the last chosen ledger.
    pub trouble: Option<String>,
    at: usize,
    window: Window,
}

impl List {
    /// Takes a new list. The chosen line stays on its ledger.
    pub fn update(&mut self, found: Vec<Found>) {
        if let Some(chosen) = self.chosen()
            && let Some(at) =
                found.iter().position(|it| it.pid == chosen.pid && it.path == chosen.path)
        {
            self.at = at;
        }
        self.found = found;
        self.at = self.at.min(self.found.len().saturating_sub(1));
    }

    /// Returns the chosen ledger.
    pub fn chosen(&self) -> Option<&Found> {
        self.found.get(self.at)
    }

    /// Returns the lines that a screen of this height shows; the chosen one is among them.
    pub fn window(&mut self, height: usize) -> std::ops::Range<usize> {
        self.window.around(self.at, self.found.len(), height)
    }

    /// Executes the command of a key.
    pub fn key(&mut self, key: KeyEvent) -> Answer {
        self.trouble = None;
        let last = self.found.len().saturating_sub(1);
        let mut go = |lines: isize| self.at = self.at.saturating_add_signed(lines).min(last);
        match keys::command(key) {
            Some(Command::Move(lines)) => go(lines),
            Some(Command::Page(pages)) => go(10 * pages),
            Some(Command::First) => go(isize::MIN),
            Some(Command::Last) => go(isize::MAX),
            Some(Command::Pane | Command::Unfold) if !self.found.is_empty() => return Answer::Open,
            Some(Command::Terminal(answer)) => return answer,
            _ => (),
        }
        Answer::Show
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::find::Kind;
    use ratatui::crossterm::event::{KeyCode, KeyModifiers};

    fn listed(pid: u32) -> Found {
        let (title, path) = (format!("server ({pid})"), format!("/proc/{pid}/fd/3").into());
        let (kind, program) = (Kind::Run, "server".to_owned());
        Found { title, path, kind, program, pid, running: true, groups: 7 }
    }

    fn press(list: &mut List, code: KeyCode) -> Answer {
        list.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn the_chosen_ledger_stays_chosen_when_others_come_and_go() {
        let mut list = List::default();
        assert_eq!(press(&mut list, KeyCode::Enter), Answer::Show, "nothing can be opened");
        list.update(vec![listed(1), listed(2), listed(3)]);
        press(&mut list, KeyCode::Down);
        assert_eq!(list.chosen(), Some(&listed(2)));
        list.update(vec![listed(0), listed(1), listed(2)]);
        assert_eq!(list.chosen(), Some(&listed(2)));
        assert_eq!(press(&mut list, KeyCode::Enter), Answer::Open);
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
