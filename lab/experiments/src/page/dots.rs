//! Rows of dots with whiskers, for example published against predicted values.

use super::super::scale::Scale;
use super::svg::{Shape, WIDTH, area, drawing, line, mark, round, text};

/// The largest average width of a letter.
const LETTER: f64 = 6.9;
const RIGHT: f64 = WIDTH - 24.0;
/// The height of a lane: a diamond and a dot in neighbouring lanes do not touch.
const LANE: f64 = 10.0;
/// Space above a row's first lane and below its last, together.
const ROOM: f64 = 10.0;
/// Space below the rows for ticks and the unit.
const FOOT: f64 = 44.0;

/// A value with its interval.
pub(super) struct Dot {
    /// The class of the page's style.
    pub(super) class: &'static str,
    pub(super) shape: Shape,
    /// Lanes count from the top of the row, from zero. Each mark of a row has a lane of its own.
    pub(super) lane: usize,
    pub(super) value: f64,
    pub(super) whisker: Option<(f64, f64)>,
    /// The tooltip.
    pub(super) says: String,
}

/// A named row.
pub(super) struct Row {
    pub(super) name: String,
    /// Whether the row is drawn on another ground, because it predicts nothing.
    pub(super) shaded: bool,
    pub(super) dots: Vec<Dot>,
}

/// Draws the plot.
pub(super) fn plot(rows: &[Row], unit: &str, says: &str) -> String {
    let dots = || rows.iter().flat_map(|row| &row.dots);
    let values = dots().flat_map(|dot| {
        let (low, high) = dot.whisker.unwrap_or((dot.value, dot.value));
        [dot.value, low, high]
    });
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    // The begin of the axis. The names are left of it.
    let left = (LETTER * longest as f64 + 16.0).clamp(90.0, 0.6 * WIDTH);
    let scale = Scale::over(values, left + 8.0, RIGHT);
    let lanes = dots().map(|dot| dot.lane + 1).max().unwrap_or(1);
    let height = LANE * lanes as f64 + ROOM;
    let bottom = height * rows.len() as f64 + 4.0;
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        let top = height * number as f64 + 4.0;
        if row.shaded {
            area(&mut out, 0.0, top, (WIDTH, height), "calibrated");
        }
    }
    for tick in scale.ticks() {
        let x = scale.at(tick);
        line(&mut out, (x, 0.0), (x, bottom), "grid");
        line(&mut out, (x, bottom), (x, bottom + 4.0), "axis");
        text(&mut out, x, bottom + 17.0, "middle", "tick", &round(tick));
    }
    let middle = f64::midpoint(left, RIGHT);
    text(&mut out, middle, bottom + 36.0, "middle", "title", &scale.title(unit));
    for (number, row) in rows.iter().enumerate() {
        let top = height * number as f64 + 4.0;
        let middle = top + height / 2.0;
        text(&mut out, left - 6.0, middle + 4.0, "end", "label", &row.name);
        for dot in &row.dots {
            let y = top + ROOM / 2.0 + LANE * (dot.lane as f64 + 0.5);
            if let Some((low, high)) = dot.whisker {
                let (low, high) = (scale.at(low), scale.at(high));
                let class = format!("whisker {}", dot.class);
                line(&mut out, (low, y), (high, y), &class);
                for end in [low, high] {
                    line(&mut out, (end, y - 3.5), (end, y + 3.5), &class);
                }
            }
            mark(&mut out, scale.at(dot.value), y, dot.shape, dot.class, &dot.says);
        }
    }
    line(&mut out, (left, bottom), (WIDTH, bottom), "axis");
    drawing(bottom + FOOT, says, &out)
}
