//! A recording as one HTML file that needs no server and loads nothing.
//!
//! The page contains its data as JSON, in an element that is no script. Names in it are untrusted: every `<`, `>` and
//! `&` is written as an escape of JSON, so no name can end that element; and the page's script writes names as text,
//! never as markup. A policy in the page's head forbids it to load anything.

use crate::report::picture::{COLOURS, svg, told};
use crate::report::summary::{Facts, notes};
use crate::report::timeline::Grid;
use crate::report::words::{date, length};
use crate::report::{Group, Recording};
use crate::terminal::output::{is_plain, json_with, one_line, printable};
use html_escape::encode_safe;
use serde::Serialize;
use std::collections::HashMap;

/// The most groups on the page: those with the largest peaks, and the path from each to the root.
const GROUPS: usize = 500;
/// The most values of all groups together. They limit the resolution in time.
const VALUES: usize = 600_000;

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/page.js");

#[derive(Serialize)]
struct Data<'r> {
    unit: &'r str,
    seconds: f64,
    columns: usize,
    colours: [&'static str; 8],
    groups: Vec<Entry<'r>>,
}

#[derive(Serialize)]
struct Entry<'r> {
    #[serde(flatten)]
    facts: Facts<'r>,
    name: String,
    /// The index of its parent; the root's is its own.
    parent: usize,
    /// The column of the first value, and the units that were held at the end of each column from there on.
    first: usize,
    last: Vec<u64>,
    /// The maximum in each column; empty if it equals `last`.
    most: Vec<u64>,
    /// Columns with refused charges, and columns in which caches gave units back, with the numbers.
    refusals: Vec<(usize, u64)>,
    reclaims: Vec<(usize, u64)>,
}

/// Returns the page.
///
/// # Errors
/// None in practice: the type is that of writing JSON.
pub fn html(recording: &Recording) -> Result<String, serde_json::Error> {
    let json = safe(&serde_json::to_string(&data(recording))?);
    let title = encode_safe(&one_line(&recording.title)).into_owned();
    let how = recording.how.as_deref().map(printable).unwrap_or_default();
    let when = format!("{} · {} · {how}", date(recording.at), length(recording.length()));
    let when = encode_safe(when.trim_end_matches(" · ")).into_owned();
    let notes: String = notes(recording)
        .iter()
        .map(|note| format!("<p class=\"note\">{}</p>\n", encode_safe(note)))
        .collect();
    let told = told(recording);
    let told = encode_safe(&told);
    let svg = svg(recording);
    Ok(format!(
        r##"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}: who held what when</title>
<style>
{STYLE}</style>
</head>
<body>
<a class="skip" href="#groups">To the table</a>
<header>
<h1>{title}</h1>
<p class="quiet">{when}</p>
<p>{told}</p>
{notes}</header>
<main>
<noscript>
{svg}</noscript>
<section id="over-time" aria-labelledby="over-time-title" hidden>
<h2 id="over-time-title">Held over time</h2>
<div class="controls" role="group" aria-label="What the chart shows">
<label>Below <select id="below"></select></label>
<button type="button" id="in">Zoom in <kbd>+</kbd></button>
<button type="button" id="out">Zoom out <kbd>−</kbd></button>
<button type="button" id="all">All <kbd>0</kbd></button>
<span class="quiet">Drag over the chart to zoom; the arrow keys move along it.</span>
</div>
<div class="chart">
<svg id="areas" tabindex="0" role="application" aria-roledescription="chart" aria-label="Areas of the largest groups over time. Arrow keys move, plus and minus zoom, zero shows all." aria-describedby="said"></svg>
<ul id="legend" aria-label="Areas, from the top"></ul>
</div>
<p id="said" role="status" aria-live="polite"></p>
<h2>Lives</h2>
<svg id="lives" role="img" aria-label="When the largest groups lived; the table below has the same as text."></svg>
</section>
<section aria-labelledby="groups-title">
<h2 id="groups-title">Groups</h2>
<p class="controls"><label>Filter <input id="filter" type="search" autocomplete="off"></label> <span id="many" class="quiet" role="status"></span></p>
<div class="scroll" tabindex="0" role="region" aria-labelledby="groups-title"><table id="groups">
<thead><tr></tr></thead>
<tbody></tbody>
</table></div>
</section>
</main>
<script type="application/json" id="data">{json}</script>
<script>
{SCRIPT}</script>
</body>
</html>
"##
    ))
}

/// Returns JSON that cannot end or begin an element, without control characters.
fn safe(json: &str) -> String {
    json_with(json, |letter| {
        let steers = !(' '..='~').contains(&letter) && !is_plain(letter);
        !steers && !matches!(letter, '<' | '>' | '&')
    })
}

fn data(recording: &Recording) -> Data<'_> {
    let parents = parents(recording);
    let mut by_peak: Vec<usize> = (0..recording.groups.len()).collect();
    by_peak.sort_by_key(|&place| (place > 0, std::cmp::Reverse(recording.groups[place].peak)));
    let mut shown = vec![false; recording.groups.len()];
    let mut many = 0;
    for mut place in by_peak {
        while many < GROUPS && !shown[place] {
            shown[place] = true;
            many += 1;
            place = parents[place];
        }
    }
    // The path to the root may have met the bound: then the unconnected groups are not shown.
    let places: Vec<usize> =
        (0..shown.len()).filter(|&place| shown[place] && shown[parents[place]]).collect();
    let new: HashMap<usize, usize> =
        places.iter().enumerate().map(|(new, &place)| (place, new)).collect();
    let columns = (VALUES / places.len().max(1)).clamp(200, 2000);
    let grid = Grid::new(recording, columns);
    let entry = |&place: &usize| {
        let group: &Group = &recording.groups[place];
        let track = grid.track(group);
        let is_same = track.most == track.last;
        Entry {
            facts: Facts::of(group, printable(&group.path), recording),
            name: printable(group.name()),
            parent: new.get(&parents[place]).copied().unwrap_or(0),
            first: track.first,
            last: track.last,
            most: if is_same { Vec::new() } else { track.most },
            refusals: track.refused,
            reclaims: track.reclaimed,
        }
    };
    Data {
        unit: &recording.unit,
        seconds: recording.length().as_secs_f64(),
        columns,
        colours: COLOURS,
        groups: places.iter().map(entry).collect(),
    }
}

/// Returns the index of each group's parent: the last one before it with its parent's path, or the root.
fn parents(recording: &Recording) -> Vec<usize> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut parents = Vec::with_capacity(recording.groups.len());
    for (place, group) in recording.groups.iter().enumerate() {
        let above = group.path.rfind('/').map_or("", |end| &group.path[..end]);
        parents.push(places.get(above).copied().filter(|_| place > 0).unwrap_or(0));
        places.insert(&group.path, place);
    }
    parents
}

#[cfg(test)]
mod tests;
