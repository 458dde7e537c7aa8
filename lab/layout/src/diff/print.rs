//! Prints a difference in words and as JSON.

use std::fmt;

use serde_json::json;

use super::{Cause, Change, Difference, Mates, What, Width};
use crate::spell::plural;

/// The longest list of names in text; JSON has all names.
const MOST: usize = 8;

fn names(names: &[String]) -> String {
    let mut text: Vec<String> = names.iter().take(MOST).cloned().collect();
    if names.len() > MOST {
        text.push(format!("{} more", names.len() - MOST));
    }
    format!("`{}`", text.join(", ")).replace('\n', " ")
}

fn groups(mates: &[Mates], between: &str) -> String {
    mates.iter().map(|mates| names(&mates.0)).collect::<Vec<_>>().join(between)
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Width { bits, bitfield } = *self;
        match bitfield {
            true => write!(f, "a bitfield of {bits} bit{}", plural(bits)),
            false => write!(f, "{} byte{}", bits / 8, plural(bits / 8)),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cause { field, ty, offset, what, moved } = self;
        match what {
            What::Inserted(bytes) => {
                write!(f, "`{field}` was inserted ({ty}, {bytes} bytes at {offset})")
            }
            What::Removed(bytes) => {
                write!(f, "`{field}` was removed ({ty}, {bytes} bytes at {offset})")
            }
            What::Resized(old, new) if old < new => {
                write!(f, "`{field}` grew from {old} to {new} bytes")
            }
            What::Resized(old, new) => write!(f, "`{field}` shrank from {old} to {new} bytes"),
            What::Rewidened(
                Width { bits: old, bitfield: true },
                Width { bits, bitfield: true },
            ) => {
                let grew = if old < bits { "grew" } else { "shrank" };
                write!(f, "`{field}` {grew} from {old} to {bits} bits")
            }
            What::Rewidened(old, new) => write!(f, "`{field}` is {new} now (was {old}), {ty}"),
            What::Padded(old, new) => {
                write!(f, "the record has {new} bytes of padding behind `{field}` (was {old})")
            }
            What::Renamed(new) => write!(f, "`{field}` is called `{new}` now"),
            What::Reordered(old, new) => {
                write!(f, "`{field}` was put elsewhere among the others (from {old} to {new})")
            }
            What::Aligned(bytes) => {
                let less = if *bytes > 0 { "more" } else { "less" };
                let bytes = bytes.unsigned_abs();
                write!(f, "`{field}` has {bytes} bytes {less} of padding before it")
            }
            What::Realigned(old, new) => write!(f, "the record is aligned to {new} (was {old})"),
        }?;
        match moved {
            0 => Ok(()),
            1 => f.write_str(", which moved 1 member after it"),
            _ => write!(f, ", which moved {moved} members after it"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&names(&self.fields))?;
        let shares = if self.fields.len() == 1 { "shares" } else { "share" };
        if !self.left.is_empty() {
            write!(f, " left the line of {}", groups(&self.left, " and of "))?;
        }
        if !self.joined.is_empty() {
            let and = if self.left.is_empty() { "" } else { " and" };
            let joined = groups(&self.joined, " and with ");
            write!(f, "{and} now {shares} one with {joined}")?;
        }
        match self.lines {
            (old, new) if old != new => write!(f, " (line {old} -> {new})"),
            _ => Ok(()),
        }
    }
}

impl Difference {
    /// Returns the first line: the record's name, and its size, lines and alignment before and after.
    pub fn head(&self) -> String {
        let (old, new) = self.extent;
        let arrow = |old: u64, new: u64| {
            if old == new { format!("{new}") } else { format!("{old} -> {new}") }
        };
        format!(
            "{}: {} bytes, {} line{}, aligned to {}",
            self.name,
            arrow(old.size, new.size),
            arrow(old.lines, new.lines),
            if (old.lines, new.lines) == (1, 1) { "" } else { "s" },
            arrow(old.align, new.align),
        )
    }
}

/// Appends a difference: the record, the causes, and the fields that left each line.
pub fn text(difference: &Difference, out: &mut String) {
    let Difference { causes, changes, .. } = difference;
    let mut lines = vec![difference.head()];
    lines.extend(causes.iter().map(|each| format!("  cause: {each}")));
    lines.extend(changes.iter().map(|each| format!("  {each}")));
    if changes.is_empty() {
        lines.push("  every field shares lines with the same fields as before".to_owned());
    }
    lines.iter().for_each(|line| out.extend([line, "\n"]));
}

/// Returns a difference as a JSON value.
pub fn json(difference: &Difference) -> serde_json::Value {
    let (old, new) = difference.extent;
    let cause = |each: &Cause| {
        let what = match &each.what {
            What::Inserted(_) => "inserted",
            What::Removed(_) => "removed",
            What::Resized(..) => "resized",
            What::Rewidened(..) => "rewidened",
            What::Padded(..) => "padded",
            What::Renamed(_) => "renamed",
            What::Reordered(..) => "reordered",
            What::Aligned(_) => "aligned",
            What::Realigned(..) => "record_aligned",
        };
        json!({
            "field": each.field, "type": each.ty, "offset": each.offset, "what": what,
            "moved": each.moved, "message": each.to_string(),
        })
    };
    let change = |each: &Change| {
        json!({
            "fields": each.fields, "left": each.left, "joined": each.joined,
            "line_before": each.lines.0, "line_after": each.lines.1, "message": each.to_string(),
        })
    };
    json!({
        "name": difference.name, "before": old, "after": new,
        "causes": difference.causes.iter().map(cause).collect::<Vec<_>>(),
        "changes": difference.changes.iter().map(change).collect::<Vec<_>>(),
    })
}
