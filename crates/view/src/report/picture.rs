//! The holdings over time, as SVG: stacked areas, and below them the lives of the largest groups.
//!
//! The colours can be distinguished by colour-blind people (Okabe and Ito's), and each area is named beside the
//! picture, in the order of the areas.

use crate::report::timeline::{Grid, Track, stacked};
use crate::report::words::{date, length, times};
use crate::report::{Group, Recording};
use crate::terminal::output::{one_line, printable};
use html_escape::encode_safe;
use ledgerline::size;
use std::fmt::Write;
use std::time::Duration;

/// The picture, in its own units.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 44.0;
const HEIGHT: f64 = 240.0;
const ROW: f64 = 18.0;
/// One column for each unit between left and right.
const COLUMNS: usize = 626;
/// The most groups with an area and a row.
const AREAS: usize = 7;
const LIVES: usize = 12;

/// The colours of the areas; the last is for all other groups.
pub(crate) const COLOURS: [&str; AREAS + 1] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#a6921f", "#8a8f98"];

/// Draws a recording.
pub fn svg(recording: &Recording) -> String {
    let grid = Grid::new(recording, COLUMNS);
    let root = grid.track(recording.root());
    let (below, places) = stacked(recording);
    let parent = grid.track(&recording.groups[below]);
    let largest: Vec<(usize, Track)> = places
        .iter()
        .take(AREAS)
        .map(|&place| (place, grid.track(&recording.groups[place])))
        .collect();
    let lives: Vec<usize> = places.iter().copied().take(LIVES).collect();
    let lives_top = TOP + HEIGHT + 46.0;
    let height = lives_top + lives.len() as f64 * ROW + 16.0;

    let mut out = String::new();
    let title = words(&recording.title, 90);
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">"
    );
    let _ = writeln!(out, "<title>Who held what when: {title}</title>");
    let _ = writeln!(out, "<desc>{}</desc>", encode_safe(&told(recording)));
    out.push_str(STYLE);
    let _ = writeln!(out, "<rect class=\"ground\" width=\"100%\" height=\"100%\" rx=\"6\"/>");
    let _ = writeln!(out, "<text x=\"16\" y=\"22\" class=\"strong\">{title}</text>");
    let lines = format!("{} · {}", date(recording.at), length(recording.length()));
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"22\" text-anchor=\"end\" class=\"quiet\">{lines}</text>",
        WIDTH - 16.0
    );

    let max = recording.root().max.filter(|&max| max <= recording.root().peak.saturating_mul(2));
    let most = root.most.iter().copied().chain(max).max().unwrap_or(0).max(1);
    let step = nice(most);
    let y = |units: u64| TOP + HEIGHT - units as f64 / most as f64 * HEIGHT;
    let x = |column: usize| LEFT + column as f64;
    let steps = std::iter::successors(Some(0_u64), |units| units.checked_add(step));
    for units in steps.take_while(|&units| units <= most) {
        let at = y(units);
        let _ = writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>");
        ending(&mut out, LEFT - 6.0, at + 4.0, "quiet", &size::format(units));
    }
    times_below(&mut out, recording.length(), TOP + HEIGHT + 16.0);

    // From the bottom up: the largest first, all others last.
    let mut floor = vec![0_u64; COLUMNS];
    for (at, (_, track)) in largest.iter().enumerate() {
        let ceiling: Vec<u64> =
            (0..COLUMNS).map(|column| floor[column].saturating_add(track.at(column))).collect();
        area(&mut out, COLOURS[at], &floor, &ceiling, &x, &y);
        floor = ceiling;
    }
    let all: Vec<u64> = (0..COLUMNS).map(|column| parent.at(column).max(floor[column])).collect();
    area(&mut out, COLOURS[AREAS], &floor, &all, &x, &y);

    // The maximum in each column, if it exceeded the value at the column's end.
    let mut path = String::new();
    for (at, &most) in root.most.iter().enumerate() {
        point(&mut path, x(root.first + at), y(most));
    }
    let _ = writeln!(out, "<path class=\"most\" d=\"{path}\"/>");
    if let Some(max) = max {
        let at = y(max);
        let _ = writeln!(out, "<path class=\"max\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>");
        let max = format!("max {}", size::format(max));
        ending(&mut out, RIGHT - 4.0, at - 4.0, "warn", &max);
    }
    for &(column, many) in &root.refused {
        refusal(&mut out, x(column), TOP - 2.0, "l4.5 -8h-9z", many);
    }
    for &(column, units) in &root.reclaimed {
        let _ = writeln!(
            out,
            "<circle class=\"reclaimed\" cx=\"{}\" cy=\"{:.1}\" r=\"3\"><title>reclaimed {}</title></circle>",
            x(column),
            TOP + HEIGHT + 4.0,
            size::format(units)
        );
    }

    legend(&mut out, recording, &largest, places.len());
    rows(&mut out, recording, &grid, &lives, lives_top);
    out.push_str("</svg>\n");
    out
}

/// Returns a description of the picture in a sentence or two.
pub(crate) fn told(recording: &Recording) -> String {
    let root = recording.root();
    let at = root.peak_at.map(|at| at.saturating_sub(recording.start)).map(length);
    let at = at.map(|at| format!(" after {at}")).unwrap_or_default();
    let (_, places) = stacked(recording);
    let name = |&place: &usize| {
        let group: &Group = &recording.groups[place];
        format!("{} {}", printable(group.name()), size::format(group.peak))
    };
    let largest: Vec<String> = places.iter().take(5).map(name).collect();
    let mut told = format!(
        "In {} the peak was {}{at}; {}.",
        length(recording.length()),
        size::format(root.peak),
        times(root.refused, "charge was refused", "charges were refused"),
    );
    if !largest.is_empty() {
        let _ = write!(told, " The largest, with their peaks: {}.", largest.join(", "));
    }
    told
}

const STYLE: &str = "<style>\
.ground{fill:#f6f8fa}text{fill:#1f2328}.strong{font-weight:600}.quiet{fill:#59636e}.warn{fill:#9a4a00}\
.grid{stroke:#d1d9e0;fill:none}.most{stroke:#1f2328;fill:none;stroke-width:1}\
.max{stroke:#9a4a00;stroke-dasharray:6 4;fill:none}.refused{fill:#9a4a00}.reclaimed{fill:#0a7a50}\
@media(prefers-color-scheme:dark){.ground{fill:#161b22}text{fill:#e6edf3}.quiet{fill:#9198a1}.warn{fill:#ffa657}\
.grid{stroke:#3d444d}.most{stroke:#e6edf3}.max{stroke:#ffa657}.refused{fill:#ffa657}.reclaimed{fill:#3fb950}}\
</style>\n";

/// Returns an untrusted text, shortened and escaped.
fn words(text: &str, most: usize) -> String {
    let text = one_line(text);
    let text = match text.chars().count() > most {
        true => text.chars().take(most - 1).chain("…".chars()).collect(),
        false => text,
    };
    encode_safe(&text).into_owned()
}

/// Returns a step of one, two or four times a power of 1024 or a part of it, such that there are three to six steps.
fn nice(most: u64) -> u64 {
    let step = (most / 4).max(1);
    1 << (63 - step.leading_zeros())
}

/// Writes a text that ends at a place.
fn ending(out: &mut String, x: f64, y: f64, class: &str, text: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\" class=\"{class}\">{text}</text>"
    );
}

/// Writes a name, and a quieter remark behind it.
fn named(out: &mut String, x: f64, y: f64, name: &str, quiet: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"{y:.1}\">{name} <tspan class=\"quiet\">{quiet}</tspan></text>"
    );
}

/// Writes the mark of refusals: a path that starts at a place.
fn refusal(out: &mut String, x: f64, y: f64, path: &str, many: u64) {
    let _ = writeln!(
        out,
        "<path class=\"refused\" d=\"M{x} {y:.1}{path}\"><title>refused {many}</title></path>"
    );
}

/// Appends the next point of a path.
fn point(path: &mut String, x: f64, y: f64) {
    let letter = if path.is_empty() { 'M' } else { 'L' };
    let _ = write!(path, "{letter}{x} {y:.1}");
}

fn times_below(out: &mut String, length: Duration, y: f64) {
    let seconds = length.as_secs_f64().max(1e-3);
    let least = seconds / 8.0;
    let steps = [
        0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
        60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21_600.0, 86_400.0,
    ];
    let step = steps.into_iter().find(|&step| step >= least).unwrap_or(least);
    let mut at = 0.0;
    while at <= seconds {
        let x = LEFT + at / seconds * (RIGHT - LEFT);
        let name = match step {
            ..0.1 => format!("{:.0} ms", at * 1000.0),
            ..1.0 => format!("{at:.1} s"),
            ..60.0 => format!("{at:.0} s"),
            ..3600.0 => format!("{:.0} min", at / 60.0),
            _ => format!("{:.0} h", at / 3600.0),
        };
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\" class=\"quiet\">{name}</text>"
        );
        at += step;
    }
}

fn area(
    out: &mut String,
    colour: &str,
    floor: &[u64],
    ceiling: &[u64],
    x: &dyn Fn(usize) -> f64,
    y: &dyn Fn(u64) -> f64,
) {
    if floor == ceiling {
        return;
    }
    let mut path = String::new();
    // Only points at which the line bends are needed.
    let mut line = |values: &[u64], back: bool| {
        let many = values.len();
        for step in 0..many {
            let at = if back { many - 1 - step } else { step };
            let is_inner = at > 0 && at + 1 < many;
            if is_inner && values[at - 1] == values[at] && values[at] == values[at + 1] {
                continue;
            }
            point(&mut path, x(at), y(values[at]));
        }
    };
    line(ceiling, false);
    line(floor, true);
    let _ = writeln!(out, "<path fill=\"{colour}\" d=\"{path}Z\"/>");
}

fn legend(out: &mut String, recording: &Recording, largest: &[(usize, Track)], many: usize) {
    let x = RIGHT + 18.0;
    let mut y = TOP + 6.0;
    let mut entry = |mark: String, text: String, quiet: String| {
        let _ = writeln!(out, "{}", mark.replace("Y", &format!("{y:.1}")));
        named(out, x + 18.0, y + 9.0, &text, &quiet);
        y += ROW;
    };
    let square = |colour| {
        format!("<rect x=\"{x}\" y=\"Y\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{colour}\"/>")
    };
    // In the order of the areas: the topmost first.
    entry(
        square(COLOURS[AREAS]),
        "all others".to_owned(),
        match many.saturating_sub(largest.len()) {
            0 => String::new(),
            more => more.to_string(),
        },
    );
    for (at, (place, _)) in largest.iter().enumerate().rev() {
        let group = &recording.groups[*place];
        entry(square(COLOURS[at]), words(group.name(), 24), size::format(group.peak));
    }
    entry(
        format!("<path class=\"most\" d=\"M{x} YH{}\" transform=\"translate(0 6)\"/>", x + 11.0),
        "the most meanwhile".to_owned(),
        String::new(),
    );
    let (root, middle) = (recording.root(), x + 5.5);
    if root.refused > 0 {
        let mark = format!(
            "<path class=\"refused\" d=\"M{middle} Yl4.5 -8h-9z\" transform=\"translate(0 10)\"/>"
        );
        entry(mark, "refused".to_owned(), root.refused.to_string());
    }
    if root.reclaimed > 0 {
        let mark = format!(
            "<circle class=\"reclaimed\" cx=\"{middle}\" cy=\"Y\" r=\"3\" transform=\"translate(0 6)\"/>"
        );
        entry(mark, "reclaimed".to_owned(), size::format(root.reclaimed));
    }
}

/// Writes a row for each life.
fn rows(out: &mut String, recording: &Recording, grid: &Grid, lives: &[usize], top: f64) {
    for (row, &place) in lives.iter().enumerate() {
        let group = &recording.groups[place];
        let y = top + row as f64 * ROW;
        let x = |time| LEFT + grid.column(time) as f64;
        let (start, end) = (x(group.born), x(group.ended.unwrap_or(recording.end)));
        let colour = COLOURS[row.min(AREAS)];
        let _ = writeln!(
            out,
            "<rect x=\"{start}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"11\" rx=\"2\" fill=\"{colour}\"/>",
            (end - start).max(2.0)
        );
        let lived = length(group.lived(recording));
        named(out, RIGHT + 18.0, y + 9.0, &words(group.name(), 24), &lived);
        for (column, many) in grid.track(group).refused {
            refusal(out, LEFT + column as f64, y, "l4 -6h-8z", many);
        }
    }
}
