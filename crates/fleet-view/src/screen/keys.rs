//! What keys do.

use ledgerline_top::other::{Answer, Help};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Choose the budget so many lines below.
    Move(isize),
    /// Choose the budget so many pages below.
    Page(isize),
    First,
    Last,
    /// Show all budgets, or those that are over, lack units or are deleted.
    Amiss,
    /// Show or hide the nodes and refusals of the chosen budget.
    Pane,
    /// Stop reading, or go on.
    Pause,
    /// Read more often (-1) or less often (1).
    Interval(i8),
    Help,
    /// Close the help, else show all budgets, else close the pane.
    Close,
    /// What the terminal does, and not the screen.
    Terminal(Answer),
}

/// All keys, as the help and `--help` show them.
pub const HELP: [Help; 7] = [
    ("up down k j", "choose a budget; PgUp PgDn by pages, Home End (g G) the first and the last"),
    ("a", "only budgets that are over, lack units or are deleted, or all"),
    ("Enter", "show or hide the nodes and the refusals of the chosen budget"),
    ("p", "stop reading, and go on"),
    ("[ ]", "read more often, less often: each time costs the store"),
    ("?", "this help; Esc closes it, shows all budgets, closes the pane"),
    ("q Ctrl-C", "end; Ctrl-Z stops, Ctrl-L draws everything anew"),
];

/// The last line of the screen, the most needed first.
pub(super) const LINE: [Help; 6] = [
    ("q", "quit"),
    ("?", "help"),
    ("a", "amiss"),
    ("Enter", "nodes"),
    ("p", "pause"),
    ("[]", "interval"),
];

/// What a key asks for.
pub(super) fn command(key: KeyEvent) -> Option<Command> {
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
        KeyCode::Char('a') => Command::Amiss,
        KeyCode::Enter => Command::Pane,
        KeyCode::Char('p') => Command::Pause,
        KeyCode::Char('[') => Command::Interval(-1),
        KeyCode::Char(']') => Command::Interval(1),
        KeyCode::Char('?') => Command::Help,
        KeyCode::Esc => Command::Close,
        KeyCode::Char('q') => Command::Terminal(Answer::Quit),
        _ => return None,
    })
}
