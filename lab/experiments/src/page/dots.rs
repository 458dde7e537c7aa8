//! Rows of dots with whiskers: what was published against what was predicted, and the like.

use super::super::scale::Scale;
use super::svg::{Shape, WIDTH, area, drawing, line, mark, round, text};

/// What a letter of a name takes at most, on average.
const LETTER: f64 = 6.9;
const RIGHT: f64 = WIDTH - 24.0;
/// Of a row.
const HEIGHT: f64 = 30.0;
/// Below the rows: ticks and the unit.
const FOOT: f64 = 44.0;

/// A value with its interval.
pub(super) struct Dot {
    /// How it is drawn: a class of the page's style.
    pub(super) class: &'static str,
    pub(super) shape: Shape,
    /// Above the middle of the row (-1) to below it (1).
    pub(super) lane: f64,
    pub(super) value: f64,
    pub(super) whisker: Option<(f64, f64)>,
    /// What a pointer that rests on it is told.
    pub(super) says: String,
}

/// A named row.
pub(super) struct Row {
    pub(super) name: String,
    /// Drawn on another ground: it predicts nothing.
    pub(super) shaded: bool,
    pub(super) dots: Vec<Dot>,
}

/// The plot.
pub(super) fn plot(rows: &[Row], unit: &str, says: &str) -> String {
    let dots = || rows.iter().flat_map(|row| &row.dots);
    let values = dots().flat_map(|dot| {
        let (low, high) = dot.whisker.unwrap_or((dot.value, dot.value));
        [dot.value, low, high]
    });
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    // Where the axis begins: left of it stand names.
    let left = (LETTER * longest as f64 + 16.0).clamp(90.0, 0.6 * WIDTH);
    let scale = Scale::over(values, left + 8.0, RIGHT);
    let bottom = HEIGHT * rows.len() as f64 + 4.0;
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        let top = HEIGHT * number as f64 + 4.0;
        if row.shaded {
            area(&mut out, 0.0, top, (WIDTH, HEIGHT), "calibrated");
        }
    }
    for tick in scale.ticks() {
        let x = scale.at(tick);
        line(&mut out, (x, 0.0), (x, bottom), "grid");
        text(&mut out, x, bottom + 16.0, "middle", "tick", &round(tick));
    }
    text(&mut out, RIGHT, bottom + 34.0, "end", "tick", unit);
    for (number, row) in rows.iter().enumerate() {
        let middle = HEIGHT * (number as f64 + 0.5) + 4.0;
        text(&mut out, left - 6.0, middle + 4.0, "end", "label", &row.name);
        for dot in &row.dots {
            let y = middle + 7.0 * dot.lane;
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
