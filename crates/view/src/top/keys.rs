//! The meanings of keys, on each screen that supports them.

use crate::top::shown::Answer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Duration;

/// The command of a key, outside of the line in which a filter is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Choose the row that many lines below.
    Move(isize),
    /// Choose the row that many pages below.
    Page(isize),
    /// Choose the first row.
    First,
    /// Choose the last row.
    Last,
    /// Fold the chosen group, or unfold it.
    Turn,
    /// Unfold the chosen group.
    Unfold,
    /// Fold the chosen group; if it hides nothing, choose its parent.
    Fold,
    /// Show that many levels; `None` is all.
    Depth(Option<u32>),
    /// Sort by the column that many places to the right.
    Sort(isize),
    /// Reverse the order.
    Reverse,
    /// Show a tree, or all rows in one list.
    Flat,
    /// Show the groups of one program as one row, or not.
    Merge,
    /// Type a filter.
    Filter,
    /// Show or hide the details of the chosen group.
    Pane,
    /// Stop looking, or resume.
    Pause,
    /// Look more often (-1) or less often (1).
    Interval(i8),
    /// Show or hide the help.
    Help,
    /// Close the help, else the pane, else the filter; else go back to the list of ledgers.
    Close,
    /// For budgets: show all, or only those that are over, lack units or are deleted.
    Amiss,
    /// A command for the terminal, not for the screen.
    Terminal(Answer),
}

/// A line of the help: keys, and their meaning.
pub type Help = (&'static str, &'static str);

/// All keys, as the help and `--help` show them.
pub const HELP: [Help; 16] = [
    ("up down k j", "choose a group; PgUp PgDn by pages, Home End (g G) the first and the last"),
    ("space", "fold the chosen group, or unfold it"),
    ("right l", "unfold the chosen group"),
    ("left h", "fold the chosen group; choose its parent where nothing is to be folded"),
    ("+ -", "unfold all groups; fold all below the root's children"),
    ("1 ... 9", "show so many levels of groups"),
    ("< >", "sort by the column to the left, to the right (also , .)"),
    ("r", "sort the other way round"),
    ("t", "a tree, in which siblings are sorted, or all rows side by side"),
    ("m", "one row for all groups of a program: sums, and the largest peak and share"),
    ("/", "type a filter on paths; Enter keeps it, Esc ends it"),
    ("Enter", "limits, protection, events and stat of the chosen group"),
    ("p", "stop looking, and go on"),
    ("[ ]", "look more often, less often"),
    ("?", "this help; Esc closes it, the pane, the filter, and goes back to the list of ledgers"),
    ("q Ctrl-C", "end; Ctrl-Z stops, Ctrl-L draws everything anew"),
];

/// The last line of the screen, the most needed first.
pub const LINE: [Help; 12] = [
    ("q", "quit"),
    ("?", "help"),
    ("/", "filter"),
    ("<>", "sort"),
    ("r", "reverse"),
    ("space", "fold"),
    ("+-", "all"),
    ("t", "flat"),
    ("m", "merge"),
    ("Enter", "limits"),
    ("p", "pause"),
    ("[]", "interval"),
];

/// Returns the command of a key.
pub fn command(key: KeyEvent) -> Option<Command> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Command::Terminal(Answer::Quit)),
            KeyCode::Char('z') => Some(Command::Terminal(Answer::Suspend)),
            KeyCode::Char('l') => Some(Command::Terminal(Answer::Redraw)),
            KeyCode::Char('f') => Some(Command::Page(1)),
            KeyCode::Char('b') => Some(Command::Page(-1)),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Up | KeyCode::Char('k') => Command::Move(-1),
        KeyCode::Down | KeyCode::Char('j') => Command::Move(1),
        KeyCode::PageUp => Command::Page(-1),
        KeyCode::PageDown => Command::Page(1),
        KeyCode::Home | KeyCode::Char('g') => Command::First,
        KeyCode::End | KeyCode::Char('G') => Command::Last,
        KeyCode::Char(' ') => Command::Turn,
        KeyCode::Right | KeyCode::Char('l') => Command::Unfold,
        KeyCode::Left | KeyCode::Char('h') => Command::Fold,
        KeyCode::Char('+' | '=') => Command::Depth(None),
        KeyCode::Char('-' | '_') => Command::Depth(Some(1)),
        KeyCode::Char(digit @ '1'..='9') => Command::Depth(digit.to_digit(10)),
        KeyCode::Char('<' | ',') => Command::Sort(-1),
        KeyCode::Char('>' | '.') => Command::Sort(1),
        KeyCode::Char('r') => Command::Reverse,
        KeyCode::Char('t') => Command::Flat,
        KeyCode::Char('m') => Command::Merge,
        KeyCode::Char('/') => Command::Filter,
        KeyCode::Enter => Command::Pane,
        KeyCode::Char('p') => Command::Pause,
        KeyCode::Char('[') => Command::Interval(-1),
        KeyCode::Char(']') => Command::Interval(1),
        KeyCode::Char('?') => Command::Help,
        KeyCode::Esc => Command::Close,
        KeyCode::Char('a') => Command::Amiss,
        KeyCode::Char('q') => Command::Terminal(Answer::Quit),
        _ => return None,
    })
}

/// Returns the next longer one of these times in milliseconds, or the next shorter one. Without one, the time is
/// unchanged.
pub fn stepped(time: Duration, times: &[u64], step: i8) -> Duration {
    let now = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let next = if step > 0 {
        times.iter().find(|&&other| other > now)
    } else {
        times.iter().rev().find(|&&other| other < now)
    };
    next.map_or(time, |&next| Duration::from_millis(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(word: &str) -> Option<Command> {
        let (code, modifiers) = match word {
            "up" => (KeyCode::Up, KeyModifiers::NONE),
            "down" => (KeyCode::Down, KeyModifiers::NONE),
            "left" => (KeyCode::Left, KeyModifiers::NONE),
            "right" => (KeyCode::Right, KeyModifiers::NONE),
            "space" => (KeyCode::Char(' '), KeyModifiers::NONE),
            "Enter" => (KeyCode::Enter, KeyModifiers::NONE),
            "Ctrl-C" => (KeyCode::Char('c'), KeyModifiers::CONTROL),
            key => (KeyCode::Char(key.chars().next()?), KeyModifiers::NONE),
        };
        command(KeyEvent::new(code, modifiers))
    }

    #[test]
    fn every_key_that_the_help_shows_does_something() {
        for (keys, _) in HELP {
            for key in keys.split(' ').filter(|&key| key != "...") {
                assert!(pressed(key).is_some(), "{key}");
            }
        }
        for (keys, _) in LINE {
            let keys: Vec<String> = if keys.len() == 2 {
                keys.chars().map(String::from).collect()
            } else {
                vec![keys.to_owned()]
            };
            for key in keys {
                assert!(pressed(&key).is_some(), "{key}");
            }
        }
    }

    #[test]
    fn no_letter_with_ctrl_does_what_it_does_alone() {
        for letter in 'a'..='z' {
            let event = |modifiers| command(KeyEvent::new(KeyCode::Char(letter), modifiers));
            let alone = event(KeyModifiers::NONE);
            assert!(alone.is_none() || alone != event(KeyModifiers::CONTROL), "{letter}");
        }
    }
}
