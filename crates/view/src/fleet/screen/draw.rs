//! Draws the screen: a title, the budgets, the nodes and refusals of the chosen one, and the keys in the last line.

use std::time::{Duration, Instant};

use crate::terminal::output::printable;
use crate::terminal::text::counted;
use crate::top::other::{Help, Pen, Theme, help, line_of_keys, rule, width_of};
use ledgerline::size;
use ledgerline_fleet::book::{BudgetView, Full, Refused, View};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::fleet::read::Damaged;
use crate::fleet::words::{NONE, age, count, here, holder, of_budget, some};

use super::keys::{HELP, LINE};
use super::{Place, State, is_amiss};

/// The columns of a budget, with their widths. `waits`: nodes that lack units.
const COLUMNS: [(&str, u16); 9] = [
    ("max", 8),
    ("leased", 8),
    ("used", 8),
    ("idle", 8),
    ("unmet", 8),
    ("over", 8),
    ("nodes", 5),
    ("waits", 5),
    ("refused", 8),
];

/// The columns of a node.
const NODE: [(&str, u16); 4] = [("lease", 8), ("used", 8), ("unmet", 8), ("ends", 8)];

/// The parts of the help that are not keys.
const WORDS: [Help; 4] = [
    ("unmet", "units that nodes want and lack; so many nodes wait for them"),
    ("over", "leased, or in use beyond leases, above max: nothing is granted"),
    ("refused", "charges, on all nodes that ever were"),
    ("! ? x", "it is over; nodes lack units; it is deleted, and goes with its last lease"),
];

pub(super) fn screen(frame: &mut Frame<'_>, state: &mut State, theme: &Theme, now: Instant) {
    let area = frame.area();
    let Some(last) = area.height.checked_sub(1) else { return };
    let buffer = frame.buffer_mut();
    let part = |from: u16, to: u16| Rect { y: area.y + from, height: to - from, ..area };
    line_of_keys(part(last, last + 1), buffer, &LINE, theme);
    // Lines for budgets are dropped last.
    let head = last.saturating_sub(1).min(3);
    if head > 0 {
        title(part(0, 1), buffer, state, theme, now);
    }
    if state.help {
        return help(part(head.min(1), last), buffer, &HELP, &WORDS, theme);
    }
    if head > 1 {
        summary(part(1, 2), buffer, state, theme);
    }
    if head > 2 {
        titles(part(2, 3), buffer, theme);
    }
    let pane = if state.pane_hidden { 0 } else { pane_height(state).min((last - head) / 2) };
    rows(part(head, last - pane), buffer, state, theme);
    if pane > 0 {
        self::pane(part(last - pane, last), buffer, state, theme, now);
    }
}

/// Draws the problems and the age of the data.
fn title(area: Rect, buffer: &mut Buffer, state: &State, theme: &Theme, now: Instant) {
    let mut pen = Pen::new(buffer, area.y, theme.unicode);
    let old = state.read.map(|read| now.saturating_duration_since(read));
    let told = match (&state.trouble, old) {
        (Some(trouble), Some(old)) => format!("LOST, this is {} old: {trouble}", whole(old)),
        (Some(trouble), None) => format!("LOST: {trouble}"),
        (None, None) => "reading".to_owned(),
        (None, Some(old)) if state.paused => format!("PAUSED, this is {} old", whole(old)),
        (None, Some(_)) => match state.books.damaged.first() {
            Some(Damaged { organisation, why }) => {
                format!("DAMAGED: {}: {}", printable(organisation), printable(why))
            }
            None => String::new(),
        },
    };
    let next = pen.left(area.x, area.width, "ledgerline fleet top", theme.strong()) + 2;
    let width = area.right().saturating_sub(next);
    if width_of(&told) > usize::from(width) {
        pen.left(next, width, &told, theme.alarming());
    } else {
        pen.right(next, width, &told, theme.alarming());
    }
}

fn whole(time: Duration) -> String {
    age(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn summary(area: Rect, buffer: &mut Buffer, state: &State, theme: &Theme) {
    let books = &state.books.books;
    let budgets: usize = books.iter().map(|book| book.view.budgets.len()).sum();
    let nodes: usize = books.iter().map(|book| here(&book.view)).sum();
    let shown = if state.rows.len() == budgets {
        budgets.to_string()
    } else {
        format!("{} of {budgets}", state.rows.len())
    };
    let more = match state.books.more {
        0 => String::new(),
        more => format!(" ({more} more: name them)"),
    };
    let text = format!(
        "{}{more}, {shown} {}, {}; every {} s",
        counted(books.len(), "organisation"),
        if budgets == 1 { "budget" } else { "budgets" },
        counted(nodes, "node"),
        state.interval.as_secs_f64()
    );
    Pen::new(buffer, area.y, theme.unicode).left(area.x, area.width, &text, Style::new());
}

/// Returns the number of columns that fit, and the start of the first.
fn columns(width: u16) -> (usize, u16) {
    const NAME: u16 = 20;
    let mut room = width.saturating_sub(NAME);
    let fits = |(_, wide): &&(&str, u16)| {
        let left = room.checked_sub(wide + 1);
        room = left.unwrap_or(0);
        left.is_some()
    };
    let shown = COLUMNS.iter().take_while(fits).count();
    let taken: u16 = COLUMNS[..shown].iter().map(|(_, wide)| wide + 1).sum();
    (shown, width - taken)
}

fn titles(area: Rect, buffer: &mut Buffer, theme: &Theme) {
    let (shown, mut x) = columns(area.width);
    let mut pen = Pen::new(buffer, area.y, theme.unicode);
    pen.left(area.x + 2, x.saturating_sub(2), "budget", theme.faint());
    for (name, wide) in &COLUMNS[..shown] {
        pen.right(area.x + x + 1, *wide, name, theme.faint());
        x += wide + 1;
    }
}

fn rows(area: Rect, buffer: &mut Buffer, state: &mut State, theme: &Theme) {
    if state.rows.is_empty() && state.read.is_some() {
        let text = match state.amiss_alone {
            true => "No budget is over, lacks units or is deleted; `a` shows all.",
            false => "There are no budgets: `ledgerline fleet set /NAME max=SIZE` makes one.",
        };
        Pen::new(buffer, area.y, theme.unicode).left(area.x + 2, area.width, text, Style::new());
    }
    let chosen = state.place();
    let window = state.window(area.height.into());
    for (y, line) in (area.y..area.bottom()).zip(window) {
        let budget = state.budget(state.rows[line]);
        row(Rect { y, height: 1, ..area }, buffer, budget, !state.amiss_alone, theme);
        if line == chosen {
            Pen::new(buffer, y, theme.unicode).over(area.x, area.width, theme.chosen());
        }
    }
}

fn row(area: Rect, buffer: &mut Buffer, budget: &BudgetView, is_tree: bool, theme: &Theme) {
    let (shown, mut x) = columns(area.width);
    let style = if budget.over > 0 { theme.alarming() } else { Style::new() };
    let mut pen = Pen::new(buffer, area.y, theme.unicode);
    let mark = match budget {
        _ if budget.over > 0 => "!",
        _ if budget.closing => "x",
        _ if is_amiss(budget) => "?",
        _ => " ",
    };
    pen.left(area.x, 1, mark, theme.alarming());
    // The first level is shown by its path, those below by their names; if some are left out, all by their paths.
    let names: Vec<&str> = budget.path.split('/').skip(1).collect();
    let (name, indent) = match names.len().saturating_sub(1).min(8) {
        below @ 1.. if is_tree => (names[names.len() - 1], 2 * below as u16),
        _ => (&*budget.path, 0),
    };
    pen.left(area.x + 2 + indent, x.saturating_sub(2 + indent), name, style);
    let waits = budget.holds.iter().filter(|hold| hold.unmet > 0).count();
    let [max, leased, used, idle, unmet, over, refused] = of_budget(budget);
    let (nodes, waits) = (count(budget.holds.len() as u64), count(waits as u64));
    let cells = [max, leased, used, idle, unmet, over, nodes, waits, refused];
    for (cell, (_, wide)) in cells.iter().zip(&COLUMNS[..shown]) {
        pen.right(area.x + x + 1, *wide, cell, style);
        x += wide + 1;
    }
}

/// Returns the refusals of the chosen budget, the last first.
fn refusals(state: &State, place: Place) -> Vec<&Refused> {
    let path = &state.budget(place).path;
    let view = state.view(place);
    view.refusals.iter().rev().filter(|refused| refused.budget == *path).collect()
}

/// Returns the lines that the pane needs: a heading, titles, and one per node or refusal.
fn pane_height(state: &State) -> u16 {
    let Some(place) = state.chosen() else { return 0 };
    let lines = state.budget(place).holds.len().max(refusals(state, place).len()).max(1);
    u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(2)
}

fn pane(area: Rect, buffer: &mut Buffer, state: &State, theme: &Theme, now: Instant) {
    let Some(place) = state.chosen() else { return };
    let (view, budget) = (state.view(place), state.budget(place));
    let minimum = match budget.minimum {
        0 => String::new(),
        minimum => format!(", min {} a node", size::format(minimum)),
    };
    let deleted = if budget.closing { ", deleted" } else { "" };
    let heading = format!("{}: max {}{minimum}{deleted}", budget.path, size::format(budget.limit));
    rule(area, buffer, &heading, theme);
    let old = state.read.map_or(Duration::ZERO, |read| now.saturating_duration_since(read));
    let at = view.at.saturating_add(u64::try_from(old.as_millis()).unwrap_or(u64::MAX));
    // The nodes to the left, in the width that they need; the refusals beside them, if there is room for both.
    let numbers: u16 = NODE.iter().map(|(_, wide)| wide + 1).sum();
    let names = 20;
    let left = (names + numbers).min(area.width);
    let body = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    holds(Rect { width: left, ..body }, buffer, (view, budget), at, theme);
    let x = area.x + left + 2;
    if area.right() > x + 30 {
        let right = Rect { x, width: area.right() - x, ..body };
        refused(right, buffer, &refusals(state, place), at, theme);
    }
}

fn holds(
    area: Rect,
    buffer: &mut Buffer,
    (view, budget): (&View, &BudgetView),
    at: u64,
    theme: &Theme,
) {
    let numbers: u16 = NODE.iter().map(|(_, wide)| wide + 1).sum();
    let names = area.width.saturating_sub(numbers);
    let mut line = |y: u16, name: &str, cells: [String; 4], style: Style| {
        let mut pen = Pen::new(buffer, y, theme.unicode);
        pen.left(area.x, names, name, style);
        let mut x = area.x + names;
        for (cell, (_, wide)) in cells.iter().zip(NODE) {
            pen.right(x + 1, wide.min(area.right().saturating_sub(x + 1)), cell, style);
            x += wide + 1;
        }
    };
    if area.height > 0 {
        line(area.y, "node", NODE.map(|(name, _)| name.to_owned()), theme.faint());
    }
    for (y, hold) in (area.y + 1..area.bottom()).zip(&budget.holds) {
        let node = view.nodes.iter().find(|node| node.name == hold.node);
        let start = node.and_then(|node| {
            node.incarnations.iter().find(|start| start.incarnation == hold.incarnation)
        });
        // A node that left holds nothing. A node whose time is over is kept for the grace period.
        let ends = match start.map(|start| start.ends.saturating_sub(at)) {
            None => NONE.to_owned(),
            Some(0) => "ended".to_owned(),
            Some(left) => format!("{:.1} s", left as f64 / 1000.0),
        };
        let mut name = holder(hold, &view.nodes);
        if name == hold.node && node.is_some_and(|node| node.draining) {
            name += " (drained)";
        }
        let cells = [some(hold.lease), some(hold.used), some(hold.unmet), ends];
        line(y, &name, cells, Style::new());
    }
}

fn refused(area: Rect, buffer: &mut Buffer, refusals: &[&Refused], at: u64, theme: &Theme) {
    if area.height > 0 {
        let mut pen = Pen::new(buffer, area.y, theme.unicode);
        let title = if refusals.is_empty() { "nobody was refused" } else { "refused" };
        pen.left(area.x, area.width, title, theme.faint());
    }
    for (y, refused) in (area.y + 1..area.bottom()).zip(refusals) {
        let mut pen = Pen::new(buffer, y, theme.unicode);
        let ago = format!("{} ago", age(at.saturating_sub(refused.at)));
        pen.right(area.x, 10, &ago, theme.faint());
        let times = if refused.count > 1 { format!(" x{}", refused.count) } else { String::new() };
        let full = match refused.full {
            Full::Limit => "",
            Full::Lease => ", its lease",
            Full::Deleted => ", deleted",
            Full::Drained => ", drained",
        };
        let text = format!(
            "{}{times} {} on {}{full}",
            size::format(refused.units),
            refused.group,
            refused.node
        );
        pen.left(area.x + 12, area.width.saturating_sub(12), &text, Style::new());
    }
}
