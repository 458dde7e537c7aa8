//! The account as a tree of text.

mod sentences;
mod words;

use std::fmt::Write as _;
use std::io::Write as _;

use ledgerline::size;

use crate::account::Status;
use crate::account::model::{Account, Row, State};
use crate::account::tree::{Line, Tree};
use ledgerline_view::terminal::output::printable;
use ledgerline_view::terminal::style::{Paint, Style};
use sentences::{beyond, refused, summary};
use words::{bar, count, processes, quoted, shortened, times, width};

/// The most lines; more are left to `--all` and the JSON document.
const LINES: usize = 18;
/// The least width to which group names are cut, on any terminal.
const NARROWEST: usize = 16;
/// The width to which they are cut without a terminal.
const LONGEST: usize = 48;
/// The length to which a command is cut without a terminal; the JSON document has all of it.
const COMMAND: usize = 60;

/// The printed part of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Some twenty lines: processes of one program share one, and small processes another.
    #[default]
    Folded,
    /// Each row, with all of its data.
    All,
}

/// Prints the account on standard error, in a form that fits the terminal.
pub fn to_stderr(account: &Account, extent: Extent) {
    let text = text(account, extent, &Style::of_stderr());
    // If standard error is closed, there is no other place for the error.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// A printed line, before the columns' widths are known.
struct Printed {
    /// The connecting lines in front of the name.
    stem: String,
    name: (Paint, String),
    /// The count behind the name, which is never cut.
    times: String,
    cells: Vec<String>,
    note: Option<(Paint, String)>,
}

/// Returns the whole text, with a newline at its end.
pub fn text(account: &Account, extent: Extent, style: &Style) -> String {
    let mut out = String::new();
    header(&mut out, account, style);
    if account.saw_any() || account.damaged {
        table(&mut out, account, extent, "at end", style);
    } else {
        nothing_seen(&mut out, account, style);
    }
    below(&mut out, account, extent, style);
    out
}

/// Returns the groups of a running program's ledger, and the line about the ledger itself.
pub fn groups(account: &Account, extent: Extent, style: &Style) -> String {
    let mut out = String::new();
    table(&mut out, account, extent, "current", style);
    below(&mut out, account, extent, style);
    out
}

/// Appends the lines below the table.
fn below(out: &mut String, account: &Account, extent: Extent, style: &Style) {
    refused(out, account);
    beyond(out, account, style);
    if let Some(container) = &account.container {
        let _ = writeln!(out, "{}", printable(&container.told()));
    }
    not_accounted(out, account, style);
    footer(out, account, extent, style);
}

/// Appends the summary line: the exit status, the peak, the limit, refusals, and the largest holder.
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
    let seconds = format!(" after {:.3} s", account.wall.as_secs_f64());
    let rest = summary(account).map_or(String::new(), |summary| format!("; {summary}"));
    // "ledgerline: " and ": " enclose the command.
    let around = 12 + 2 + [&ending, &seconds, &rest].map(|part| width(part)).iter().sum::<usize>();
    let most = style.width.map_or(COMMAND, |width| width.saturating_sub(around).max(NARROWEST));
    let command = shortened(&command, most, style);
    let _ = writeln!(
        out,
        "{} {}: {}{seconds}{rest}",
        style.paint(Paint::Faint, "ledgerline:"),
        style.paint(Paint::Strong, &command),
        style.paint(paint, &ending),
    );
}

/// A column: its title, whether this account has it, and its content for a line.
type Column<'a> = (&'a str, bool, Box<dyn Fn(&Line) -> String + 'a>);

fn columns<'a>(
    account: &Account,
    extent: Extent,
    held: &'a str,
    style: &'a Style,
) -> Vec<Column<'a>> {
    fn column<'a>(title: &'a str, has: bool, cell: impl Fn(&Line) -> String + 'a) -> Column<'a> {
        (title, has, Box::new(cell))
    }
    let all = extent == Extent::All;
    let any = |has: fn(&Row) -> bool| account.rows.iter().any(has);
    let some = |bytes: u64| if bytes == 0 { "-".to_owned() } else { size::format(bytes) };
    let number = |number: u64| if number == 0 { "-".to_owned() } else { count(number) };
    let id = |id: u64| if id == 0 { "-".to_owned() } else { id.to_string() };
    let root_peak = account.root_peak();
    let has_processes = any(|row| row.depth == 1 && row.pid != 0);
    let is_renamed = any(|row| !row.program.is_empty() && row.called != row.program);
    vec![
        column("pid", has_processes, move |line| id(line.row.pid_if_process().into())),
        column("parent", all && has_processes, move |line| id(line.row.counted.origin.parent)),
        column("program", is_renamed || (all && has_processes), |line| match &*line.row.program {
            "" => "-".to_owned(),
            program => printable(program),
        }),
        // Its sum is no bound on what is resident.
        column(if account.resident.is_some() { "charged" } else { "peak" }, true, |line| {
            size::format(line.row.peak)
        }),
        column("share", account.resident.is_none(), move |line| {
            share(line.row.peak, root_peak, style)
        }),
        column("resident", any(|row| row.resident.is_some()), move |line| {
            some(line.row.resident.unwrap_or(0))
        }),
        // Several processes did not hold their sums at one time.
        column(held, true, |line| match line.processes {
            0 | 1 => size::format(line.row.current.max(line.row.at_exit)),
            _ => "-".to_owned(),
        }),
        column("mapped", all && any(|row| row.counted.mapped.private > 0), move |line| {
            some(line.row.counted.mapped.private)
        }),
        column("charges", all, |line| count(line.row.charges)),
        column("refused", any(|row| row.counted.refused > 0), move |line| {
            number(line.row.counted.refused)
        }),
    ]
}

fn table(out: &mut String, account: &Account, extent: Extent, held: &str, style: &Style) {
    let tree = match extent {
        Extent::Folded => Tree::folded(account, LINES),
        Extent::All => Tree::whole(account),
    };
    let Some(root) = &tree.root else { return };
    let columns = columns(account, extent, held, style);
    let columns: Vec<Column<'_>> = columns.into_iter().filter(|(_, has, _)| *has).collect();
    let mut lines = Vec::new();
    add_lines(&mut lines, root, &mut Vec::new(), &columns, style);

    let widest = |(at, (title, _, _)): (usize, &Column<'_>)| {
        let cells = lines.iter().map(|line| width(&line.cells[at]));
        cells.fold(title.len(), usize::max)
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(widest).collect();
    let numbers: usize = widths.iter().map(|width| width + 2).sum();
    let named =
        lines.iter().map(|line| width(&line.stem) + width(&line.name.1) + width(&line.times));
    // The width of "group".
    let wanted = named.fold(5, usize::max);
    let notes =
        lines.iter().filter_map(|line| line.note.as_ref()).map(|note| width(&note.1) + 2).max();
    let room = style.width.map(|width| width.saturating_sub(numbers + notes.unwrap_or(0)));
    let most = room.map_or(LONGEST, |room| room.max(NARROWEST));
    let names = if extent == Extent::All && room.is_none() { wanted } else { wanted.min(most) };

    let mut title = format!("{:<names$}", "group");
    for ((text, _, _), width) in columns.iter().zip(&widths) {
        let _ = write!(title, "  {text:>width$}");
    }
    if notes.is_some() {
        title.push_str("  note");
    }
    let _ = writeln!(out, "{}", style.paint(Paint::Faint, &title));
    for line in &lines {
        print_line(out, line, names, &widths, style);
    }
    if tree.hidden > 0 {
        let dots = if style.unicode { "…" } else { "..." };
        let hidden = count(tree.hidden as u64);
        let more = format!(
            "{dots} {hidden} more with smaller peaks; --all prints them, --json FILE has all"
        );
        let _ = writeln!(out, "{}", style.paint(Paint::Faint, &more));
    }
}

fn print_line(out: &mut String, line: &Printed, names: usize, widths: &[usize], style: &Style) {
    let stem = width(&line.stem);
    let (paint, name) = &line.name;
    let times = width(&line.times);
    let name = shortened(name, names.saturating_sub(stem + times).max(1), style) + &line.times;
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

/// Appends a line and those below; `follows` has for each level above whether more lines follow there.
fn add_lines(
    lines: &mut Vec<Printed>,
    line: &Line,
    follows: &mut Vec<bool>,
    columns: &[Column<'_>],
    style: &Style,
) {
    let mut stem = String::new();
    if let Some((&last, above)) = follows.split_last() {
        for &more in above {
            stem.push_str(match (more, style.unicode) {
                (true, true) => "│  ",
                (true, false) => "|  ",
                (false, _) => "   ",
            });
        }
        stem.push_str(match (last, style.unicode) {
            (true, true) => "├─ ",
            (false, true) => "└─ ",
            (true, false) => "|- ",
            (false, false) => "`- ",
        });
    }
    lines.push(printed(line, stem, columns, style));
    for (at, one) in line.below.iter().enumerate() {
        follows.push(at + 1 < line.below.len());
        add_lines(lines, one, follows, columns, style);
        follows.pop();
    }
}

fn printed(line: &Line, stem: String, columns: &[Column<'_>], style: &Style) -> Printed {
    let row = &line.row;
    let damaged = row.state == State::Damaged;
    let paint = match row.state {
        _ if went_over(row) || damaged => Paint::Bad,
        State::Exited => Paint::Faint,
        _ => Paint::Strong,
    };
    let cell = |(_, _, cell): &Column<'_>| if damaged { "-".to_owned() } else { cell(line) };
    let cells = columns.iter().map(cell).collect();
    let (name, times) = name(line, style);
    Printed { stem, name: (paint, name), times, cells, note: note(line, style) }
}

/// Returns the name of a line and its number of processes, `cc` and ` ×30`; or the names of processes too small for
/// lines of their own.
fn name(line: &Line, style: &Style) -> (String, String) {
    let sign = if style.unicode { "×" } else { "x" };
    let times = |times: u64| match times {
        0 | 1 => String::new(),
        times => format!(" {sign}{}", count(times)),
    };
    if line.row.depth == 0 {
        return ("/".to_owned(), String::new());
    }
    if line.small.is_empty() {
        return (printable(&line.row.called), times(line.processes));
    }
    let name = |(name, often): &(String, u64)| printable(name) + &times(*often);
    (line.small.iter().map(name).collect::<Vec<_>>().join(", "), String::new())
}

/// Returns whether a limit of the row's own refused something, or was exceeded.
fn went_over(row: &Row) -> bool {
    row.max_events > 0 || (row.counted.max_heap.is_some() && row.counted.refused_heap > 0)
}

/// Returns the effects of the row's own limits, the programs that the process executed before, and whether it is still
/// running.
fn note(line: &Line, style: &Style) -> Option<(Paint, String)> {
    let row = &line.row;
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
    // Of these events only refusals reached the program. The other charges exceeded the limit.
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
    if !line.before.is_empty() {
        let before: Vec<_> = line.before.iter().map(|name| printable(name)).collect();
        let arrow = if style.unicode { " → " } else { " -> " };
        notes.push(format!("was {}", before.join(arrow)));
    }
    if !line.small.is_empty() {
        notes.push("each below 1 % of the peak".to_owned());
    }
    if counted.folded {
        notes.push("further names counted here".to_owned());
    }
    if counted.forgotten > 0 {
        notes.push(format!("{} mapped and not charged", size::format(counted.forgotten)));
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
    let root = Tree::whole(account).root;
    if let Some((_, note)) = root.as_ref().and_then(|root| note(root, style)) {
        let _ = writeln!(out, "The limit was not applied: {note}");
    }
}

/// Lists the processes that were not accounted, with the reasons.
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

fn footer(out: &mut String, account: &Account, extent: Extent, style: &Style) {
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
    if extent == Extent::All && !account.mode.is_empty() {
        let _ = write!(text, " Cells were updated by {}.", account.mode);
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
