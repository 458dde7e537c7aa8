//! The account as a tree of text.

mod words;

use std::fmt::Write as _;
use std::io::Write as _;

use ledgerline::size;

use crate::account::Status;
use crate::account::model::{Account, Row, State};
use ledgerline_view::terminal::output::printable;
use ledgerline_view::terminal::style::{Paint, Style};
use words::{bar, count, processes, quoted, shortened, times, width};

/// More rows than this are left to the JSON document.
const ROWS: usize = 40;
/// Group names are not cut shorter than this, however narrow the terminal is.
const NARROWEST: usize = 16;
/// A command longer than this is cut where no terminal says how wide it is; the
/// JSON document has all of it.
const COMMAND: usize = 200;

/// Prints the account on standard error, as that can show it.
pub fn to_stderr(account: &Account) {
    let text = text(account, &Style::of_stderr());
    // Where standard error is closed there is nobody to tell.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// One printed line, before it is known how wide the columns are.
struct Line {
    /// The lines that lead to the name.
    stem: String,
    name: (Paint, String),
    cells: Vec<String>,
    note: Option<(Paint, String)>,
}

/// The whole text, with a newline at its end.
pub fn text(account: &Account, style: &Style) -> String {
    let mut out = String::new();
    header(&mut out, account, style);
    if account.saw_any() || account.damaged {
        table(&mut out, account, style);
    } else {
        nothing_seen(&mut out, account, style);
    }
    below(&mut out, account, style);
    out
}

/// The groups of a ledger whose program goes on, and the line about the ledger itself.
pub fn groups(account: &Account, style: &Style) -> String {
    let mut out = String::new();
    table(&mut out, account, style);
    below(&mut out, account, style);
    out
}

/// What is said below the table.
fn below(out: &mut String, account: &Account, style: &Style) {
    refused(out, account);
    if let Some(container) = &account.container {
        let _ = writeln!(out, "{}", printable(&container.told()));
    }
    not_accounted(out, account, style);
    footer(out, account, style);
}

fn header(out: &mut String, account: &Account, style: &Style) {
    let command: Vec<String> = account.command.iter().map(|word| quoted(word)).collect();
    let command = command.join(" ");
    let (paint, ending) = match (account.status, account.status.signal()) {
        (Status::Exited(0), _) => (Paint::Good, "exit 0".to_owned()),
        (Status::Exited(code), _) => (Paint::Bad, format!("exit {code}")),
        (Status::Killed(_), signal) => {
            (Paint::Bad, format!("killed by {}", signal.unwrap_or_default()))
        }
    };
    let rest = format!("{:.3} s, {}", account.wall.as_secs_f64(), account.mode);
    // "ledgerline: " and ": …, …" around the command.
    let around = 12 + 4 + ending.chars().count() + rest.chars().count();
    let most = style.width.map_or(COMMAND, |width| width.saturating_sub(around).max(NARROWEST));
    let command = shortened(&command, most, style);
    let _ = writeln!(
        out,
        "{} {}: {}, {rest}",
        style.paint(Paint::Faint, "ledgerline:"),
        style.paint(Paint::Strong, &command),
        style.paint(paint, &ending),
    );
}

fn table(out: &mut String, account: &Account, style: &Style) {
    let account = &Account { rows: account.distinct(), ..account.clone() };
    let shown = account.largest(ROWS);
    let any = |has: fn(&Row) -> bool| account.rows.iter().any(has);
    let some = |bytes: u64| if bytes == 0 { "-".to_owned() } else { size::format(bytes) };
    let root_peak = account.root_peak();
    // The columns: title, whether this account has it, what a row has in it.
    let columns: [(&str, bool, &Cell<'_>); 8] = [
        ("current", true, &|row| size::format(row.current)),
        ("mapped", any(|row| row.counted.mapped.private > 0), &|row| {
            some(row.counted.mapped.private)
        }),
        ("peak", true, &|row| size::format(row.peak)),
        ("resident", any(|row| row.resident.is_some()), &|row| some(row.resident.unwrap_or(0))),
        ("at exit", any(|row| row.at_exit > 0), &|row| some(row.at_exit)),
        ("peak share", true, &|row| share(row.peak, root_peak, style)),
        ("charges", true, &|row| count(row.charges)),
        ("refused", true, &|row| match row.counted.refused {
            0 => "-".to_owned(),
            refused => count(refused),
        }),
    ];
    let columns = columns.into_iter().filter(|(_, has, _)| *has);
    let (titles, cells): (Vec<&str>, Vec<&Cell<'_>>) =
        columns.map(|(title, _, cell)| (title, cell)).unzip();
    let lines = lines(account, &shown, &cells, style);

    let widest = |(column, title): (usize, &&str)| {
        let cells = lines.iter().map(|line| width(&line.cells[column]));
        cells.fold(title.len(), usize::max)
    };
    let widths: Vec<usize> = titles.iter().enumerate().map(widest).collect();
    let numbers: usize = widths.iter().map(|width| width + 2).sum();
    let named = lines.iter().map(|line| width(&line.stem) + width(&line.name.1));
    // ("group")
    let wanted = named.fold(5, usize::max);
    let notes =
        lines.iter().filter_map(|line| line.note.as_ref()).map(|note| width(&note.1) + 2).max();
    let room = style.width.map(|width| width.saturating_sub(numbers + notes.unwrap_or(0)));
    let names = room.map_or(wanted, |room| wanted.min(room.max(NARROWEST)));

    let mut title = format!("{:<names$}", "group");
    for (text, width) in titles.iter().zip(&widths) {
        let _ = write!(title, "  {text:>width$}");
    }
    if notes.is_some() {
        title.push_str("  limit");
    }
    let _ = writeln!(out, "{}", style.paint(Paint::Faint, &title));
    for line in &lines {
        print_line(out, line, names, &widths, style);
    }
    let hidden = account.rows.len() - shown.len();
    if hidden > 0 {
        let dots = if style.unicode { "…" } else { "..." };
        let more =
            format!("{dots} {} more with smaller peaks; --json FILE has all", count(hidden as u64));
        let _ = writeln!(out, "{}", style.paint(Paint::Faint, &more));
    }
}

fn print_line(out: &mut String, line: &Line, names: usize, widths: &[usize], style: &Style) {
    let stem = width(&line.stem);
    let (paint, name) = &line.name;
    let name = shortened(name, names.saturating_sub(stem).max(1), style);
    let padding = names.saturating_sub(stem + width(&name));
    let name = style.paint(*paint, &name);
    let mut text = format!("{}{name}{:padding$}", style.paint(Paint::Faint, &line.stem), "");
    for (cell, width) in line.cells.iter().zip(widths) {
        let _ = write!(text, "  {cell:>width$}");
    }
    if let Some((paint, note)) = &line.note {
        let _ = write!(text, "  {}", style.paint(*paint, note));
    }
    let _ = writeln!(out, "{}", text.trim_end());
}

/// What a row has in a column.
type Cell<'a> = dyn Fn(&Row) -> String + 'a;

fn lines(account: &Account, shown: &[usize], cells: &[&Cell<'_>], style: &Style) -> Vec<Line> {
    // For each level, whether more rows follow there; from the last row up,
    // because only what comes later decides.
    let mut more_follow: Vec<bool> = Vec::new();
    let mut lines: Vec<Line> = shown
        .iter()
        .rev()
        .map(|&index| {
            let row = &account.rows[index];
            let follows = more_follow.get(row.depth).copied().unwrap_or(false);
            let mut stem = String::new();
            for level in 1..row.depth {
                stem.push_str(
                    match (more_follow.get(level).copied().unwrap_or(false), style.unicode) {
                        (true, true) => "│  ",
                        (true, false) => "|  ",
                        (false, _) => "   ",
                    },
                );
            }
            if row.depth > 0 {
                stem.push_str(match (follows, style.unicode) {
                    (true, true) => "├─ ",
                    (false, true) => "└─ ",
                    (true, false) => "|- ",
                    (false, false) => "`- ",
                });
            }
            more_follow.truncate(row.depth);
            more_follow.resize(row.depth, false);
            more_follow.push(true);
            line(row, stem, cells)
        })
        .collect();
    lines.reverse();
    lines
}

fn line(row: &Row, stem: String, cells: &[&Cell<'_>]) -> Line {
    let damaged = row.state == State::Damaged;
    let cell = |cell: &&Cell<'_>| if damaged { "-".to_owned() } else { cell(row) };
    let name = if row.depth == 0 { "/".to_owned() } else { printable(&row.name) };
    let paint = match row.state {
        _ if went_over(row) || damaged => Paint::Bad,
        State::Exited => Paint::Faint,
        _ => Paint::Strong,
    };
    let cells = cells.iter().map(cell).collect();
    Line { stem, name: (paint, name), cells, note: note(row) }
}

/// Whether a limit of the row's own refused something, or was exceeded.
fn went_over(row: &Row) -> bool {
    row.max_events > 0 || (row.counted.max_heap.is_some() && row.counted.refused_heap > 0)
}

/// What the row's own limits did, and whether its process is still there.
fn note(row: &Row) -> Option<(Paint, String)> {
    if row.state == State::Damaged {
        return Some((Paint::Bad, "damaged".to_owned()));
    }
    let mut notes = Vec::new();
    let mut limit = |name: &str, units: Option<u64>, did: &str, often: u64| {
        let limit =
            units.map_or("max".to_owned(), |units| ledgerline::Limit::units(units).to_string());
        if often > 0 {
            notes.push(format!("{name} {limit} {did} {}", times(often)));
        } else if units.is_some() {
            notes.push(format!("{name} {limit}"));
        }
    };
    let counted = &row.counted;
    // The program felt only those events that were refusals. The other charges went over the limit.
    match row.max_events.min(counted.refused.saturating_sub(counted.refused_heap)) {
        0 => limit("max", row.max, "exceeded", row.max_events),
        refused => limit("max", row.max, "refused", refused),
    }
    if counted.max_heap.is_some() {
        limit("max-heap", counted.max_heap, "refused", counted.refused_heap);
    }
    limit("high", row.high, "exceeded", row.high_events);
    if row.state == State::Running && row.depth == 1 {
        notes.push("still running".to_owned());
    }
    if counted.folded {
        notes.push("further names counted here".to_owned());
    }
    if counted.forgotten > 0 {
        notes.push(format!("{} mapped and not charged", size::format(counted.forgotten)));
    }
    if counted.processes > 0 {
        notes.push(processes(counted.processes));
    }
    let paint = if went_over(row) { Paint::Bad } else { Paint::Faint };
    (!notes.is_empty()).then(|| (paint, notes.join(", ")))
}

fn nothing_seen(out: &mut String, account: &Account, style: &Style) {
    let reason = match account.not_accounted.first() {
        Some(one) => one.why.to_string(),
        None => {
            "no process loaded the library, or none could open the ledger through /proc".to_owned()
        }
    };
    let _ = writeln!(out, "{} {reason}", style.paint(Paint::Bad, "No allocation was seen:"));
    if let Some(root) = account.rows.first().and_then(note) {
        let _ = writeln!(out, "The limit was not applied: {}", root.1);
    }
}

/// Who was refused first, and when, and the largest request that was refused.
fn refused(out: &mut String, account: &Account) {
    let rows = || account.rows.iter().filter_map(|row| Some((row, row.counted.most_refused?)));
    // (Whoever was refused without a time comes last.)
    let earliest = rows().min_by_key(|(_, refused)| refused.time.wrapping_sub(1));
    let Some((row, first)) = earliest else { return };
    let name = |row: &Row| printable(&row.path);
    let time = account.since_start(first.time).map(|time| format!(" after {time:.3} s"));
    let (first, time) = (size::format(first.first), time.unwrap_or_default());
    let _ = write!(out, "First refused: {first} for {}{time}.", name(row));
    if let Some((row, most)) = rows().max_by_key(|(_, refused)| refused.largest) {
        let _ = write!(out, " Largest: {} for {}.", size::format(most.largest), name(row));
    }
    out.push('\n');
}

/// Which processes were not accounted, and why.
fn not_accounted(out: &mut String, account: &Account, style: &Style) {
    let all = &account.not_accounted;
    if all.is_empty() {
        return;
    }
    let told = all.iter().map(|one| {
        let program = one.program.as_deref().map_or("unknown".to_owned(), printable);
        let times = if one.processes > 1 {
            format!("{} times, ", count(one.processes))
        } else {
            String::new()
        };
        format!("{program} ({times}{})", one.why.name())
    });
    let told: Vec<String> = told.collect();
    let sum = all.iter().fold(0, |sum: u64, one| sum.saturating_add(one.processes));
    let title = format!("Not accounted: {}:", processes(sum));
    let _ = writeln!(out, "{} {}.", style.paint(Paint::Bad, &title), told.join(", "));
}

fn footer(out: &mut String, account: &Account, style: &Style) {
    if account.damaged {
        let rows = account.rows.iter().filter(|row| row.state == State::Damaged).count() as u64;
        let rows = match rows {
            0 => "Its header makes no sense, and its rows".to_owned(),
            1 => "One of its rows makes no sense, and the others".to_owned(),
            rows => format!("{} of its rows make no sense, and the others", count(rows)),
        };
        let text =
            format!("The ledger is damaged: a program wrote over it. {rows} may be wrong, too.");
        let _ = writeln!(out, "{}", style.paint(Paint::Bad, &text));
    }
    let mut text = format!("The ledger itself took {}.", size::format(account.ledger_bytes));
    if let Some(resident) = account.max_resident {
        let resident = size::format(resident);
        let _ = write!(text, " The kernel saw {resident} resident in one process at most.");
    }
    if let Some(peak) = account.heap_peak {
        let _ = write!(text, " Blocks of malloc took {} at most.", size::format(peak));
    }
    let mistakes = account.mistakes.unwrap_or_default();
    let mistakes = mistakes.underflows.saturating_add(mistakes.strays);
    if mistakes > 0 {
        let _ = write!(
            text,
            " {} frees or unmappings matched no charge and were ignored.",
            count(mistakes)
        );
    }
    let _ = writeln!(out, "{}", style.paint(Paint::Faint, &text));
}

fn share(part: u64, whole: u64, style: &Style) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let percent = format!("{:.1}%", part as f64 * 100.0 / whole as f64);
    if !style.unicode || style.width.is_some_and(|width| width < 80) {
        return percent;
    }
    format!("{} {percent:>6}", bar(part, whole))
}

#[cfg(test)]
mod tests;
