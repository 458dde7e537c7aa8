//! Books for a person: a table of budgets with what each node has of them, then nodes, then what happened.

use std::fmt::Write as _;

use ledgerline::size;
use ledgerline_fleet::book::{BudgetView, Event, View, What};
use ledgerline_terminal::output::printable;
use ledgerline_terminal::style::{Paint, Style};

/// What is said of a budget, or of what a node has of it.
const COLUMNS: [&str; 8] = ["budget", "max", "leased", "used", "idle", "unmet", "over", "refused"];

/// A row, and how it is shown.
struct Row {
    cells: [String; COLUMNS.len()],
    paint: Option<Paint>,
}

/// All books, one after the other.
pub(super) fn text(books: &[(&str, View)], style: &Style) -> String {
    books
        .iter()
        .map(|(organisation, view)| book(organisation, view, style))
        .collect::<Vec<_>>()
        .join("\n")
}

fn book(organisation: &str, view: &View, style: &Style) -> String {
    let mut text = String::new();
    let nodes = view.nodes.iter().filter(|node| !node.incarnations.is_empty()).count();
    let heading = format!(
        "{}: {nodes} node{}; leases hold {}, then {} of grace\n",
        printable(organisation),
        if nodes == 1 { "" } else { "s" },
        seconds(view.ttl),
        seconds(view.grace)
    );
    text += &style.paint(Paint::Strong, &heading);
    let mut rows = vec![Row { cells: COLUMNS.map(str::to_owned), paint: Some(Paint::Faint) }];
    for budget in &view.budgets {
        rows.extend(of_budget(budget));
    }
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(|at| {
        rows.iter().map(|row| row.cells[at].chars().count()).max().unwrap_or(0)
    });
    for row in rows {
        let mut line = format!("{:<width$}", row.cells[0], width = widths[0]);
        for (cell, width) in row.cells.iter().zip(widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        line.push('\n');
        text += &row.paint.map_or_else(|| line.clone(), |paint| style.paint(paint, &line));
    }
    for node in &view.nodes {
        let mut said: Vec<String> = Vec::new();
        if node.draining {
            said.push("drained: it gets no more".to_owned());
        }
        if node.incarnations.is_empty() {
            said.push("not here".to_owned());
        }
        for start in &node.incarnations {
            let ends = seconds(start.ends.saturating_sub(view.at));
            said.push(match start.fenced {
                true => format!("an older process of this name has leases, which end in {ends}"),
                false => format!("its leases end in {ends} unless it speaks"),
            });
        }
        let _ = writeln!(text, "{}: {}", printable(&node.name), said.join("; "));
    }
    for event in &view.events {
        let line = format!("{} ago: {}\n", age(view.at.saturating_sub(event.at)), happened(event));
        text += &style.paint(Paint::Faint, &line);
    }
    text
}

/// A budget's row, and one for each node that has some.
fn of_budget(budget: &BudgetView) -> impl Iterator<Item = Row> {
    let used: u64 = budget.holds.iter().map(|hold| hold.used).sum();
    let path = printable(&budget.path);
    let minimum = if budget.minimum > 0 {
        format!(" (min {})", size::format(budget.minimum))
    } else {
        String::new()
    };
    let closing = if budget.closing { " (deleted)" } else { "" };
    let first = Row {
        cells: [
            format!("{path}{minimum}{closing}"),
            size::format(budget.limit),
            some(budget.leased),
            some(used),
            some(budget.idle),
            some(budget.unmet),
            some(budget.over),
            count(budget.refused),
        ],
        paint: (budget.over > 0).then_some(Paint::Bad),
    };
    let last = budget.holds.len().saturating_sub(1);
    let holds = budget.holds.iter().enumerate().map(move |(at, hold)| Row {
        cells: [
            format!("{} {}", if at == last { "`-" } else { "|-" }, printable(&hold.node)),
            "-".to_owned(),
            some(hold.lease),
            some(hold.used),
            some(hold.lease.saturating_sub(hold.used)),
            some(hold.unmet),
            some(hold.excess),
            count(hold.refused),
        ],
        paint: None,
    });
    std::iter::once(first).chain(holds.collect::<Vec<_>>())
}

fn some(units: u64) -> String {
    if units == 0 { "-".to_owned() } else { size::format(units) }
}

fn count(number: u64) -> String {
    if number == 0 { "-".to_owned() } else { number.to_string() }
}

fn seconds(milliseconds: u64) -> String {
    format!("{:.1} s", milliseconds as f64 / 1000.0)
}

/// A time that has passed, in its largest unit.
fn age(milliseconds: u64) -> String {
    match milliseconds / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn happened(event: &Event) -> String {
    let node = printable(&event.node);
    match &event.what {
        What::Adopted { path, units, over } => format!(
            "the store had lost writes: {node} holds {} of {} that it did not know of{}",
            size::format(*units),
            printable(path),
            if *over > 0 {
                format!(", {} more than there is", size::format(*over))
            } else {
                String::new()
            }
        ),
        What::Fenced { .. } => format!("another process took the name {node}"),
        What::Ended { .. } => format!("{node} did not speak in time; its units went to others"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline_fleet::book::{HoldView, IncarnationView, NodeView};

    #[test]
    fn times_that_passed_have_their_largest_unit() {
        for (milliseconds, told) in [
            (0, "0 s"),
            (119_999, "119 s"),
            (120_000, "2 min"),
            (7_200_000, "2 h"),
            (172_800_000, "2 days"),
        ] {
            assert_eq!(age(milliseconds), told);
        }
    }

    #[test]
    fn a_book_says_who_has_what_who_lacks_some_and_what_happened() {
        let hold =
            |node: &str, lease: u64, used: u64, unmet: u64, excess: u64, refused: u64| HoldView {
                node: node.to_owned(),
                incarnation: 7,
                lease,
                used,
                want: lease + unmet,
                excess,
                unmet,
                lacking: 0,
                refused,
            };
        let start = |fenced, ends| IncarnationView { incarnation: 7, fenced, sequence: 3, ends };
        let node = |name: &str, draining, incarnations| NodeView {
            name: name.to_owned(),
            draining,
            incarnations,
        };
        let event = |at, what| Event { at, node: "b".to_owned(), what };
        let view = View {
            at: 1_000_000,
            ttl: 10_000,
            grace: 1500,
            budgets: vec![
                BudgetView {
                    path: "/acme".to_owned(),
                    limit: 10 << 30,
                    leased: 9 << 30,
                    idle: 1 << 30,
                    ..BudgetView::default()
                },
                BudgetView {
                    path: "/acme/batch".to_owned(),
                    limit: 1 << 30,
                    minimum: 64 << 20,
                    closing: true,
                    leased: 3 << 29,
                    excess: 1 << 20,
                    over: (1 << 29) + (1 << 20),
                    unmet: 100,
                    refused: 12,
                    holds: vec![
                        hold("a", 1 << 30, 1 << 30, 100, 0, 12),
                        hold("b\u{1b}", 1 << 29, 5 << 20, 0, 1 << 20, 0),
                    ],
                    ..BudgetView::default()
                },
            ],
            nodes: vec![
                node("a", false, vec![start(false, 1_004_200)]),
                node("b\u{1b}", true, vec![start(true, 1_001_000), start(false, 1_009_000)]),
                node("gone", true, Vec::new()),
            ],
            events: vec![
                event(400_000, What::Fenced { incarnation: 6 }),
                event(
                    940_000,
                    What::Adopted { path: "/acme/batch".to_owned(), units: 1 << 29, over: 5 },
                ),
                event(999_000, What::Ended { incarnation: 6 }),
            ],
        };
        let told = text(&[("acme", view)], &Style::plain());
        let expected = "\
acme: 2 nodes; leases hold 10.0 s, then 1.5 s of grace
budget                               max  leased  used    idle  unmet    over  refused
/acme                              10.0G    9.0G     -    1.0G      -       -        -
/acme/batch (min 64.0M) (deleted)   1.0G    1.5G  1.0G       -    100  513.0M       12
|- a                                   -    1.0G  1.0G       -    100       -       12
`- b\\u{1b}                             -  512.0M  5.0M  507.0M      -    1.0M        -
a: its leases end in 4.2 s unless it speaks
b\\u{1b}: drained: it gets no more; an older process of this name has leases, which end in 1.0 s; its leases end in 9.0 s unless it speaks
gone: drained: it gets no more; not here
10 min ago: another process took the name b
60 s ago: the store had lost writes: b holds 512.0M of /acme/batch that it did not know of, 5 more than there is
1 s ago: b did not speak in time; its units went to others
";
        assert_eq!(told, expected);
    }
}
