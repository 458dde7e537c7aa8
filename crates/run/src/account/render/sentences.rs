//! Sentences of an account: the effect of the limit, the largest holder, the refusals.

use std::fmt::Write as _;

use ledgerline::size;

use super::words::{shortened, times};
use crate::account::model::{Account, Refusals, Row, State};
use crate::account::tree::Tree;
use ledgerline_view::terminal::output::printable;
use ledgerline_view::terminal::style::{Paint, Style};

/// Returns the peak, the effect of the limit, and the largest holder.
pub(super) fn summary(account: &Account) -> Option<String> {
    let root = account.rows.first().filter(|root| root.state != State::Damaged)?;
    if !account.saw_any() {
        return None;
    }
    let mut text = match &account.resident {
        Some(resident) => format!("peak {} resident", size::format(resident.peak)),
        None => format!("peak {}", size::format(root.peak)),
    };
    match (root.max, root.counted.refused) {
        (Some(max), 0) => {
            let _ = write!(text, " of {}, nothing refused", size::format(max));
        }
        (Some(max), refused) => {
            let _ = write!(text, " of {}, refused {}", size::format(max), times(refused));
        }
        (None, 0) => text.push_str(", no limit"),
        (None, refused) => {
            let _ = write!(text, ", refused {}", times(refused));
        }
    }
    let tree = Tree::whole(account);
    let of_resident = account.resident.is_some();
    if let Some(most) = tree.root.as_ref().and_then(|root| root.largest_process(of_resident)) {
        let held = if of_resident { most.row.resident.unwrap_or(0) } else { most.row.peak };
        let _ = write!(text, "; {} held most: {}", who(&most.row), size::format(held));
    }
    Some(text)
}

/// Returns a process as sentences name it.
fn who(row: &Row) -> String {
    // A title may be a whole command line.
    let called = shortened(&printable(&row.called), TITLE, &Style::plain());
    match row.pid {
        0 => called,
        pid => format!("{called} ({pid})"),
    }
}

/// The longest title in a sentence.
const TITLE: usize = 40;

/// Names the first request that was refused: its size, its process, its time and the limit; and the largest one.
pub(super) fn refused(out: &mut String, account: &Account) {
    let rows = || {
        let rows = account.rows.iter().enumerate();
        rows.filter_map(|(at, row)| Some((at, row, row.counted.most_refused?)))
    };
    // A refusal without a time comes last.
    let earliest = rows().min_by_key(|(_, _, refused)| refused.time.wrapping_sub(1));
    let Some((at, row, first)) = earliest else { return };
    let parents = account.parents();
    // A thread's row lies below its process's.
    let process = |at: usize| {
        let of = if account.rows[at].depth > 1 { parents[at] } else { at };
        &account.rows[of]
    };
    let name = |at: usize, row: &Row| match process(at) {
        process if process.called == row.called => who(process),
        process => format!("{} in {}", who(process), printable(&row.called)),
    };
    let time = account.since_start(first.time).map(|time| format!(" at {time:.3} s"));
    let _ = write!(
        out,
        "First refused: {} asked for {}{}",
        name(at, row),
        mib(first.first),
        time.unwrap_or_default(),
    );
    let root = account.rows.first();
    let limit = match row.counted.refused_heap > 0 {
        true => root.and_then(|root| root.counted.max_heap),
        false => root.and_then(|root| root.max),
    };
    let is_resident = account.resident.is_some() && row.counted.refused_heap == 0;
    let resident = account.resident.as_ref().filter(|_| is_resident);
    let usage = resident.map_or(first.usage, |resident| resident.at(first.time).unwrap_or(0));
    let first = Refusals { usage, ..first };
    let used = if is_resident { "resident" } else { "in use" };
    match limit {
        Some(limit) if first.usage > 0 && first.usage < LEAST_MIB => {
            let _ = write!(out, "; {} of {} were {used}.", mib(first.usage), mib(limit));
        }
        Some(limit) if first.usage > 0 => {
            let usage = first.usage as f64 / MIB;
            let _ = write!(out, "; {usage:.1} of {} were {used}.", mib(limit));
        }
        _ if first.usage > 0 => {
            let _ = write!(out, "; {} were {used}.", mib(first.usage));
        }
        _ => out.push('.'),
    }
    if let Some((at, row, most)) = rows().max_by_key(|(_, _, refused)| refused.largest)
        && most.largest > first.first
    {
        let _ = write!(
            out,
            " The largest request that was refused: {}, by {}.",
            mib(most.largest),
            name(at, row)
        );
    }
    out.push('\n');
}

/// Smaller sizes are printed in kibibytes.
const LEAST_MIB: u64 = 104_858;
const MIB: f64 = (1_u64 << 20) as f64;

/// Returns a size for a sentence.
fn mib(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..LEAST_MIB => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / MIB),
    }
}

/// Reports that more memory was resident than the limit says, or much less than what was refused for.
pub(super) fn beyond(out: &mut String, account: &Account, style: &Style) {
    let max = account.rows.first().and_then(|root| root.max);
    if let Some(resident) = &account.resident {
        if let Some(limit) = resident.limit
            && resident.peak > limit
        {
            let text = format!(
                "Resident went {} above the limit: it is looked at 10 to 200 times a second, and what is granted may be touched later.",
                mib(resident.peak - limit)
            );
            let _ = writeln!(out, "{}", style.paint(Paint::Faint, &text));
        }
        return;
    }
    if let Some((max, resident)) = max.zip(account.most_resident())
        && account.rows[0].counted.refused > 0
        && resident < max / 4 * 3
    {
        let _ = writeln!(
            out,
            "At most {} were resident: the limit counts what is asked for, touched or not. --count resident counts what is touched.",
            mib(resident)
        );
    }
    if let Some((max, resident)) = max.zip(account.max_resident)
        && resident > max
    {
        let more = mib(resident - max);
        let text = format!(
            "Resident went {more} above the limit, which counts what is charged: code, files, stacks and shared memory are not."
        );
        let _ = writeln!(out, "{}", style.paint(Paint::Bad, &text));
    }
}
