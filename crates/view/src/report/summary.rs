//! The peaks and refusals of a recording, as text or JSON.

use crate::report::words::{date, length, times};
use crate::report::{Group, Recording};
use crate::terminal::output::{one_line, printable};
use crate::terminal::text::aligned;
use crate::watch::Point;
use ledgerline::size;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// The default number of rows in the text.
const ROWS: usize = 30;

/// Returns the main facts of a recording for a terminal: the largest groups with their peaks and the times of these,
/// their lives, charges and refusals.
pub fn text(recording: &Recording) -> String {
    let mut text = String::new();
    let root = recording.root();
    let since = |time: Duration| length(time.saturating_sub(recording.start));
    let title = one_line(&recording.title);
    // Writing to a string does not fail.
    let _ = writeln!(text, "{title}");
    let how =
        recording.how.as_deref().map_or("not ended when it was written last".into(), printable);
    let _ = writeln!(
        text,
        "recorded {} from {}, every {}; {how}",
        length(recording.length()),
        date(recording.at),
        length(recording.every),
    );
    let at = root.peak_at.map(|at| format!(" at {}", since(at))).unwrap_or_default();
    let max = root.max.map(|max| format!(" of max {}", size::format(max))).unwrap_or_default();
    let refused = times(root.refused, "charge refused", "charges refused");
    let _ = writeln!(text, "peak {}{max}{at}; {refused}", size::format(root.peak));
    if root.reclaimed > 0 {
        let _ = writeln!(text, "caches gave back {}", size::format(root.reclaimed));
    }

    let mut places: Vec<usize> = (0..recording.groups.len()).collect();
    places.sort_by_key(|&place| (place > 0, std::cmp::Reverse(recording.groups[place].peak)));
    let head = ["peak", "at", "born", "lived", "at end", "charges", "refused"];
    let mut lines: Vec<([String; 7], String)> = vec![(head.map(str::to_owned), "group".to_owned())];
    for &place in places.iter().take(ROWS) {
        let group = &recording.groups[place];
        let cells = [
            size::format(group.peak),
            group.peak_at.map_or_else(|| "-".to_owned(), since),
            since(group.born),
            length(group.lived(recording)),
            size::format(group.current),
            group.charges.to_string(),
            group.refused.to_string(),
        ];
        lines.push((cells, printable(&group.path)));
    }
    text.push('\n');
    let aligned = aligned(lines.iter().map(|(cells, _)| &cells[..]), false);
    for (line, (_, path)) in aligned.iter().zip(&lines) {
        let _ = writeln!(text, "{line}  {path}");
    }

    let more = recording.groups.len().saturating_sub(ROWS);
    let mut notes = Vec::new();
    if more > 0 {
        notes.push(format!(
            "{} with smaller peaks; --json has them.",
            times(more as u64, "more group", "more groups")
        ));
    }
    notes.extend(self::notes(recording));
    if !notes.is_empty() {
        let _ = writeln!(text, "\n{}", notes.join("\n"));
    }
    text
}

/// Returns notes on the completeness of a recording.
pub(crate) fn notes(recording: &Recording) -> Vec<String> {
    let mut notes = Vec::new();
    if recording.left_out > 0 {
        let groups = times(recording.left_out, "group was", "groups were");
        notes.push(format!("{groups} left out for space; `run --record-size` gives more."));
    }
    if recording.torn > 0 {
        let bytes = times(recording.torn, "byte", "bytes");
        notes.push(format!("The recording breaks off: its last {bytes} cannot be read."));
    }
    if recording.how.is_none() {
        notes.push(
            "It does not say how the program ended: who recorded it goes on, or ended first."
                .to_owned(),
        );
    }
    notes
}

#[derive(Serialize)]
struct Document<'r> {
    schema: &'static str,
    title: &'r str,
    unit: &'r str,
    /// Seconds since 1970.
    started: f64,
    seconds: f64,
    every_seconds: f64,
    ended: Option<&'r str>,
    left_out: u64,
    torn_bytes: u64,
    groups: Vec<Entry<'r>>,
}

#[derive(Serialize)]
struct Entry<'r> {
    #[serde(flatten)]
    facts: Facts<'r>,
    /// `[seconds, seconds of length, least, most, last, refused, reclaimed]` each.
    points: Vec<(f64, f64, u64, u64, u64, u64, u64)>,
}

/// The facts about a group in documents. Times are seconds from the recording's start.
#[derive(Serialize)]
pub(crate) struct Facts<'r> {
    path: Cow<'r, str>,
    program: &'r str,
    pid: u32,
    depth: u32,
    born: f64,
    ended: Option<f64>,
    current: u64,
    peak: u64,
    peak_at: Option<f64>,
    charges: u64,
    refused: u64,
    reclaimed: u64,
    max: Option<u64>,
}

impl<'r> Facts<'r> {
    pub(crate) fn of(
        group: &'r Group,
        path: impl Into<Cow<'r, str>>,
        recording: &Recording,
    ) -> Facts<'r> {
        let since = |time| since(time, recording);
        Facts {
            path: path.into(),
            program: &group.program,
            pid: group.pid,
            depth: group.depth,
            born: since(group.born),
            ended: group.ended.map(since),
            current: group.current,
            peak: group.peak,
            peak_at: group.peak_at.map(since),
            charges: group.charges,
            refused: group.refused,
            reclaimed: group.reclaimed,
            max: group.max,
        }
    }
}

fn since(time: Duration, recording: &Recording) -> f64 {
    time.saturating_sub(recording.start).as_secs_f64()
}

/// Returns everything in a recording as JSON.
///
/// # Errors
/// None in practice: the type is that of writing JSON.
pub fn json(recording: &Recording) -> Result<String, serde_json::Error> {
    let point = |point: &Point| {
        let length = point.length.as_secs_f64();
        let start = since(point.start, recording);
        (start, length, point.least, point.most, point.last, point.refused, point.reclaimed)
    };
    let groups = recording.groups.iter().map(|group| Entry {
        facts: Facts::of(group, &group.path, recording),
        points: group.points.iter().map(point).collect(),
    });
    let document = Document {
        schema: "ledgerline/report.v1",
        title: &recording.title,
        unit: &recording.unit,
        started: recording.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        seconds: recording.length().as_secs_f64(),
        every_seconds: recording.every.as_secs_f64(),
        ended: recording.how.as_deref(),
        left_out: recording.left_out,
        torn_bytes: recording.torn,
        groups: groups.collect(),
    };
    serde_json::to_string(&document).map(|text| text + "\n")
}
