//! The list of ledgers, from which one is opened.

use super::pen::Pen;
use crate::top::keys::Help;
use crate::top::list::List;
use crate::top::theme::Theme;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// The last line.
const LINE: [Help; 3] = [("q", "quit"), ("up down", "choose"), ("Enter", "open")];
/// The columns for a number and for the state of the program.
const NUMBER: u16 = 8;

/// Draws the list.
pub fn screen(frame: &mut Frame<'_>, list: &mut List, theme: &Theme) {
    let area = frame.area();
    let Some(last) = area.height.checked_sub(1) else { return };
    let buffer = frame.buffer_mut();
    super::line_of_keys(Rect { y: area.y + last, height: 1, ..area }, buffer, &LINE, theme);
    if last == 0 {
        return;
    }
    let mut title = Pen::new(buffer, area.y, theme.unicode);
    title.left(
        area.x,
        area.width,
        "ledgerline top: ledgers that run, or were left",
        theme.strong(),
    );
    let mut y = area.y + 1;
    let end = area.y + last;
    let mut said = |y: u16, text: &str, style: Style| {
        if y < end {
            Pen::new(buffer, y, theme.unicode).left(
                area.x + 2,
                area.width.saturating_sub(2),
                text,
                style,
            );
        }
    };
    if let Some(trouble) = &list.trouble {
        said(y, trouble, theme.alarming());
        y += 1;
    }
    if list.found.is_empty() {
        said(y, "There are none. Start a program under `ledgerline run -- PROGRAM`,", Style::new());
        said(y + 1, "or have one announce its ledger (LedgerBuilder::announce).", Style::new());
        return;
    }
    let names = area.width.saturating_sub(2 + 2 * (NUMBER + 1));
    let mut titles = Pen::new(buffer, y, theme.unicode);
    if y < end {
        titles.left(area.x + 2, names, "ledger", theme.faint());
        titles.right(area.x + 2 + names, NUMBER, "groups", theme.faint());
    }
    y += 1;
    let window = list.window(end.saturating_sub(y).into());
    for (y, line) in (y..end).zip(window) {
        let found = &list.found[line];
        let style = if found.running { Style::new() } else { theme.faint() };
        let mut pen = Pen::new(buffer, y, theme.unicode);
        pen.left(area.x + 2, names, &found.title, style);
        pen.right(area.x + 2 + names, NUMBER, &found.groups.to_string(), style);
        let became = if found.running { "" } else { "ended" };
        pen.right(area.x + 3 + names + NUMBER, NUMBER, became, style);
        if list.chosen().is_some_and(|chosen| std::ptr::eq(chosen, found)) {
            pen.over(area.x, area.width, theme.chosen());
        }
    }
}
