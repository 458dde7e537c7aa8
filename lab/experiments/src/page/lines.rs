//! Lines with bands over a logarithmic axis: thresholds, and numbers of CPUs.

use super::super::scale::Scale;
use super::svg::{Shape, WIDTH, area, drawing, line, mark, round, text};
use ledgerline_coherence::experiments::Interval;
use std::fmt::Write as _;

const LEFT: f64 = 66.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 300.0;
const HEIGHT: f64 = 352.0;
/// The largest width of a letter of a label, and the space between two labels.
const LETTER: f64 = 6.9;
const APART: f64 = 6.0;

/// A place on a line.
pub(super) struct Place {
    pub(super) x: f64,
    pub(super) cost: Interval,
}

/// A line with its band.
pub(super) struct Series {
    /// The class of the page's style.
    pub(super) class: &'static str,
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) places: Vec<Place>,
    /// The places that mean nothing by themselves and are drawn without colour; empty if there are none.
    pub(super) grey: Vec<bool>,
}

/// The labels around the lines.
pub(super) struct Around<'a> {
    /// The title of the horizontal axis.
    pub(super) across: &'a str,
    /// The title above the plot.
    pub(super) up: &'a str,
    pub(super) says: &'a str,
    /// A place with a name.
    pub(super) at: Option<(f64, String)>,
    /// The place from which on the plot has another meaning, and that meaning.
    pub(super) ground: Option<(f64, &'a str)>,
}

/// Draws the plot.
pub(super) fn plot(series: &[Series], around: &Around<'_>) -> String {
    let places = || series.iter().flat_map(|series| &series.places);
    let mut numbers: Vec<f64> = places().map(|place| place.x).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else {
        return String::new();
    };
    let across = Scale::logarithmic(first, last, LEFT + 14.0, RIGHT - 14.0);
    let values = places().flat_map(|&Place { cost, .. }| [cost.median, cost.low, cost.high]);
    let up = Scale::over(values, BOTTOM, TOP);
    let mut out = String::new();
    if let Some((from, says)) = around.ground.filter(|(from, _)| *from < last) {
        let from = across.at(from.max(first)).max(LEFT);
        area(&mut out, from, TOP, (RIGHT - from, BOTTOM - TOP), "grown");
        text(&mut out, from + 6.0, TOP + 14.0, "start", "tick", says);
    }
    for tick in up.ticks() {
        let y = up.at(tick);
        line(&mut out, (LEFT, y), (RIGHT, y), "grid");
        line(&mut out, (LEFT - 4.0, y), (LEFT, y), "axis");
        text(&mut out, LEFT - 7.0, y + 4.0, "end", "tick", &round(tick));
    }
    line(&mut out, (LEFT, TOP), (LEFT, BOTTOM), "axis");
    text(&mut out, 4.0, TOP - 10.0, "start", "title", &up.title(around.up));
    let mut free = 0.0;
    for number in numbers {
        let x = across.at(number);
        line(&mut out, (x, BOTTOM), (x, BOTTOM + 4.0), "axis");
        let label = round(number);
        let half = LETTER * label.chars().count() as f64 / 2.0;
        if x - half >= free {
            text(&mut out, x, BOTTOM + 18.0, "middle", "tick", &label);
            free = x + half + APART;
        }
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    text(&mut out, middle, BOTTOM + 38.0, "middle", "title", &across.title(around.across));
    line(&mut out, (LEFT, BOTTOM), (RIGHT, BOTTOM), "axis");
    if let Some((place, name)) = &around.at
        && (first..=last).contains(place)
    {
        let x = across.at(*place);
        line(&mut out, (x, TOP), (x, BOTTOM), "here");
        text(&mut out, x - 4.0, TOP + 14.0, "end", "tick", name);
    }
    for series in series {
        let x = |place: &Place| across.at(place.x);
        let upper = series.places.iter().map(|place| (x(place), up.at(place.cost.high)));
        let lower = series.places.iter().rev().map(|place| (x(place), up.at(place.cost.low)));
        let _ = write!(out, "<polygon class=\"band {}\" points=\"", series.class);
        points(&mut out, upper.chain(lower));
        let _ = write!(out, "\"/><polyline class=\"curve {}\" points=\"", series.class);
        points(&mut out, series.places.iter().map(|place| (x(place), up.at(place.cost.median))));
        out.push_str("\"/>");
        for (number, place) in series.places.iter().enumerate() {
            let grey = series.grey.get(number) == Some(&true);
            let class = if grey { "fitted" } else { series.class };
            let Interval { median, low, high } = place.cost;
            let [value, low, high] = [median, low, high].map(round);
            let says =
                format!("{}, {} at {}: {value} ({low} .. {high})", series.name, around.up, place.x);
            mark(&mut out, x(place), up.at(median), series.shape, class, &says);
        }
    }
    drawing(HEIGHT, around.says, &out)
}

fn points(out: &mut String, points: impl Iterator<Item = (f64, f64)>) {
    for (x, y) in points {
        let _ = write!(out, "{x:.1},{y:.1} ");
    }
}
