//! Prints a priced difference as text and as JSON.

use ledgerline_coherence::experiments::Interval;
use ledgerline_layout::diff::{self, Difference};
use serde_json::{Value, json};

use super::{Culprit, Near, Priced, Share};
use crate::cost::Question;

/// Most pairs of a change that the text names; JSON has all.
const MOST: usize = 3;
/// The least share of its change that makes a pair worth naming.
const WORTH: f64 = 0.1;

/// Appends a difference: the record, its cost, the causes, and the changes, dearest first.
pub fn text(difference: &Difference, priced: &Priced, question: &Question<'_>, out: &mut String) {
    let Priced { before, after, difference: change, .. } = priced;
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(difference.head());
    let unsure = if change.is_sure() { "" } else { "; the sign is not sure" };
    line(format!(
        "  predicted: {} -> {} ns an operation, {} ns; throughput {} %{unsure}",
        number(before.median),
        number(after.median),
        signed(&change.change),
        signed(&change.throughput),
    ));
    line(format!(
        "    (medians and ranges of {} machines within what is known of {}, {} CPUs; changes machine by machine)",
        question.points, question.machine.name, question.cpus
    ));
    for (names, build) in [(&priced.not_before, "before"), (&priced.not_after, "after")] {
        if !names.is_empty() {
            let names = names.join(", ");
            line(format!("    without fields that the build {build} does not have: `{names}`"));
        }
    }
    for cause in &difference.causes {
        line(format!("  cause: {cause}"));
    }
    for (index, share) in ranked(priced) {
        let each = &difference.changes[index];
        if share.culprits.is_empty() {
            line(format!("  {each}"));
            continue;
        }
        line(format!("  {} ns: {each}", signed(&share.change)));
        culprits(share, &mut line);
    }
    if difference.changes.is_empty() {
        line("  every field shares lines with the same fields as before".to_owned());
    }
    if !priced.rest.culprits.is_empty() {
        line(format!(
            "  {} ns between fields that share lines with the same fields as before",
            signed(&priced.rest.change)
        ));
        culprits(&priced.rest, &mut line);
    }
}

fn culprits(share: &Share, line: &mut impl FnMut(String)) {
    let largest = share.culprits.first().map_or(0.0, |first| first.change.median.abs());
    let worth = |culprit: &&Culprit| culprit.change.median.abs() >= WORTH * largest;
    for culprit in share.culprits.iter().filter(worth).take(MOST) {
        let Culprit { writer, victim, near, change } = culprit;
        let how = match near {
            Near::Itself => format!("`{writer}`, written by others, makes itself"),
            Near::Line => format!("`{writer}`, written on its line, makes `{victim}`"),
            Near::Neighbour => {
                format!("`{writer}`, written on the neighbour line, makes `{victim}`")
            }
            Near::Beside => {
                format!("`{writer}`, written in the object beside it, makes `{victim}`")
            }
        };
        line(format!("    {how} wait {} ns", signed(change)));
    }
}

/// Returns the changes with their cost: losses, the largest first; then gains, the largest first; then the others.
fn ranked(priced: &Priced) -> Vec<(usize, &Share)> {
    let mut order: Vec<(usize, &Share)> = priced.changes.iter().enumerate().collect();
    order.sort_by(|(_, a), (_, b)| rank(a).cmp(&rank(b)).then(size(b).total_cmp(&size(a))));
    order
}

fn size(share: &Share) -> f64 {
    share.change.median.abs()
}

fn rank(share: &Share) -> u8 {
    match share.change.median {
        _ if share.culprits.is_empty() => 2,
        change if change > 0.0 => 0,
        _ => 1,
    }
}

/// Formats a number with three significant digits.
fn number(value: f64) -> String {
    let digits =
        if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i64).clamp(0, 3) };
    format!("{value:.0$}", digits as usize)
}

/// Formats a range like `+12.3 (+4.5 .. +20.1)`.
fn signed(range: &Interval) -> String {
    let sign = |value: f64| {
        let text = number(value);
        // A value that rounds to zero has no sign.
        let nothing = text.bytes().all(|byte| matches!(byte, b'0' | b'.' | b'-'));
        match (nothing, value > 0.0) {
            (true, _) => "0".to_owned(),
            (false, true) => format!("+{text}"),
            (false, false) => text,
        }
    };
    format!("{} ({} .. {})", sign(range.median), sign(range.low), sign(range.high))
}

/// Returns a priced difference as a JSON value: that of [`diff::json`], with `predicted` in it and in each change, and
/// the changes dearest first.
#[must_use]
pub fn json(difference: &Difference, priced: &Priced, question: &Question<'_>) -> Value {
    let mut value = diff::json(difference);
    let change = &priced.difference;
    value["predicted"] = json!({
        "machine": question.machine.name, "cpus": question.cpus, "points": question.points,
        "unit": "nanoseconds an operation",
        "before": priced.before, "after": priced.after,
        "change": change.change, "percent": change.percent,
        "throughput_percent": change.throughput, "sure": change.is_sure(),
        "rest": priced.rest,
        "not_before": priced.not_before, "not_after": priced.not_after,
    });
    let changes = std::mem::take(&mut value["changes"]);
    let changes = ranked(priced).into_iter().map(|(index, share)| {
        let mut each = changes[index].clone();
        each["predicted"] = json!(share);
        each
    });
    value["changes"] = changes.collect();
    value
}
