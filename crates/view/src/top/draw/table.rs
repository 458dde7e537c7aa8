//! The rows: the columns that fit, their titles, and a line for each group that fits on the screen.

use super::pen::Pen;
use crate::top::column::Column;
use crate::top::entry::Entry;
use crate::top::history::LOOKS;
use crate::top::state::State;
use crate::top::text;
use crate::top::theme::Theme;
use crate::watch::State as RowState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// The share of max from which a group is marked.
pub const NEAR_MAX: f64 = 0.9;
/// The width of names below which other columns are dropped.
const NAMES: u16 = 16;
/// The deepest level with an indentation of its own.
const DEEPEST: u32 = 200;
/// Columns before the name: the mark, and a space.
const MARK: u16 = 2;
/// Columns of the bar and of the share in percent.
const SHARE: u16 = text::BAR as u16 + 6;

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Of(Column),
    /// This number of the last looks.
    History(u16),
}

impl Kind {
    fn width(self) -> u16 {
        match self {
            Kind::Of(Column::Share) => SHARE,
            Kind::Of(Column::Current | Column::Peak) => 8,
            Kind::Of(column) => column.title().len() as u16,
            Kind::History(looks) => looks,
        }
    }
}

/// Returns the width that is left for names, and the columns that fit.
fn layout(width: u16) -> (u16, Vec<Kind>) {
    const ALL: u16 = LOOKS as u16;
    let numbers = Column::ALL.into_iter().filter(|&column| column != Column::Name).map(Kind::Of);
    let mut kinds: Vec<Kind> = numbers.chain([Kind::History(ALL)]).collect();
    // The columns in the order in which they are dropped if space is short.
    let mut steps = [
        (Kind::Of(Column::Charges), None),
        (Kind::History(ALL), Some(Kind::History(ALL / 2))),
        (Kind::Of(Column::Limits), None),
        (Kind::Of(Column::Refused), None),
        (Kind::Of(Column::Peak), None),
        (Kind::History(ALL / 2), None),
        (Kind::Of(Column::Growth), None),
        (Kind::Of(Column::Share), None),
        (Kind::Of(Column::Current), None),
    ]
    .into_iter();
    loop {
        let taken: u16 = MARK + kinds.iter().map(|kind| kind.width() + 1).sum::<u16>();
        if taken + NAMES <= width || kinds.is_empty() {
            return (width.saturating_sub(taken), kinds);
        }
        if let Some((kind, instead)) = steps.next()
            && let Some(place) = kinds.iter().position(|&it| it == kind)
        {
            kinds.splice(place..=place, instead);
        }
    }
}

/// The titles of the columns.
pub fn titles(area: Rect, buffer: &mut Buffer, state: &State, theme: &Theme) {
    let (names, kinds) = layout(area.width);
    let mut pen = Pen::new(buffer, area.y, theme.unicode);
    let sorted = |column| {
        let underlined = Style::new().underlined().bold();
        if state.choice.sort == column { underlined } else { Style::new() }
    };
    let title = if state.choice.merge { "program" } else { Column::Name.title() };
    pen.left(area.x + MARK, names, title, sorted(Column::Name));
    let mut x = area.x + MARK + names;
    for kind in kinds {
        match kind {
            Kind::Of(column) => pen.right(x + 1, kind.width(), column.title(), sorted(column)),
            Kind::History(looks) => {
                pen.left(x + 1, looks, "history", Style::new());
            }
        }
        x += kind.width() + 1;
    }
}

/// Draws the rows that fit.
pub fn rows(area: Rect, buffer: &mut Buffer, state: &mut State, theme: &Theme) {
    let layout = layout(area.width);
    let window = state.window(area.height.into());
    for (y, line) in (area.y..).zip(window) {
        let entry = state.line(line);
        let place = Rect { y, height: 1, ..area };
        row(place, buffer, &layout, entry, state, theme);
        if state.chosen() == Some(line) {
            Pen::new(buffer, y, theme.unicode).over(area.x, area.width, theme.chosen());
        }
    }
}

fn row(
    area: Rect,
    buffer: &mut Buffer,
    (names, kinds): &(u16, Vec<Kind>),
    entry: &Entry,
    state: &State,
    theme: &Theme,
) {
    let look = state.look();
    let figures = &entry.figures;
    let life = look.rows[entry.row].state;
    let near = figures.share.is_some_and(|share| share >= NEAR_MAX);
    let alarming = theme.alarming();
    let (mark, style) = match life {
        RowState::Damaged => ("?", theme.faint()),
        _ if near || figures.limits > 0.0 => ("!", alarming),
        RowState::Exited if entry.members.len() <= 1 => ("x", theme.faint()),
        _ => (" ", Style::new()),
    };
    let mut pen = Pen::new(buffer, area.y, theme.unicode);
    pen.left(area.x, 1, mark, style);
    let start = area.x + MARK;
    let indent =
        if state.choice.flat { 0 } else { (2 * entry.depth.min(DEEPEST) as u16).min(names / 2) };
    let fold =
        match (entry.has_children && !state.choice.flat, state.is_folded(entry), theme.unicode) {
            (false, ..) => " ",
            (_, true, true) => "▸",
            (_, true, false) => "+",
            (_, false, true) => "▾",
            (_, false, false) => "-",
        };
    let after = pen.left(start + indent, names.saturating_sub(indent), fold, theme.faint());
    let end = start + names;
    let path = state.choice.flat && entry.members.is_empty();
    let name = entry.label(look, state.choice.flat);
    let room = end.saturating_sub(after + 1);
    if path {
        pen.tail(after + 1, room, &name, style);
    } else {
        pen.left(after + 1, room, &name, style);
    }
    if life == RowState::Damaged && entry.members.len() <= 1 {
        pen.left(end + 1, area.right().saturating_sub(end + 1), "damaged", style);
        return;
    }
    let mut x = end;
    for &kind in kinds {
        let (x0, width) = (x + 1, kind.width());
        match kind {
            Kind::Of(Column::Share) => share(&mut pen, x0, figures.share, theme),
            Kind::Of(column) => {
                let alarmed = |times: f64| if times > 0.0 { alarming } else { theme.faint() };
                let style = match column {
                    Column::Growth => quiet(figures.growth, theme),
                    Column::Charges => quiet(figures.charges, theme),
                    Column::Limits => alarmed(figures.limits),
                    Column::Refused => alarmed(figures.refused),
                    _ => Style::new(),
                };
                pen.right(x0, width, &text::figure(figures, column), style);
            }
            Kind::History(looks) => {
                let history = text::sparkline(&state.history(entry), theme.unicode);
                let skipped = history.chars().count().saturating_sub(looks.into());
                let history: String = history.chars().skip(skipped).collect();
                pen.left(x0, looks, &history, theme.used());
            }
        }
        x += width + 1;
    }
}

/// Makes zeros faint, so that changing values stand out.
fn quiet(rate: f64, theme: &Theme) -> Style {
    if rate.abs() > 0.0 { Style::new() } else { theme.faint() }
}

fn share(pen: &mut Pen, x: u16, share: Option<f64>, theme: &Theme) {
    let Some(share) = share else {
        pen.right(x, SHARE, "-", theme.faint());
        return;
    };
    let near = share >= NEAR_MAX;
    let bar = text::bar(share, theme.unicode);
    pen.left(x, text::BAR as u16, &bar, if near { theme.alarming() } else { theme.used() });
    let style = if near { theme.alarming() } else { Style::new() };
    pen.right(x + text::BAR as u16, 6, &text::percent(share), style);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_has_columns_that_fit_and_names_keep_their_room() {
        for width in 0..400 {
            let (names, kinds) = layout(width);
            let taken: u16 = kinds.iter().map(|kind| kind.width() + 1).sum();
            assert!(names + taken <= width, "{width}");
            assert!(kinds.is_empty() || names >= NAMES, "{width}: {names}");
        }
        assert_eq!(layout(120).1.len(), 8, "a wide screen has all");
        let narrow = layout(80).1;
        assert!(narrow.contains(&Kind::History(8)) && narrow.contains(&Kind::Of(Column::Refused)));
        assert_eq!(layout(30).1, [Kind::Of(Column::Current)]);
    }
}
