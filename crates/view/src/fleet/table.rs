//! Books for a person: a table of budgets with each node's part, then nodes, then events and refusals.

use std::fmt::Write as _;

use crate::terminal::output::printable;
use crate::terminal::style::{Paint, Style};
use crate::terminal::text::{aligned, counted};
use ledgerline_fleet::book::{BudgetView, NodeView, View};

use crate::fleet::read::{Book, Books, Damaged};
use crate::fleet::words::{
    NONE, age, ends, happened, holder, of_budget, of_hold, refused, terms, title,
};

/// The columns for a budget, or for a node's part of it.
const COLUMNS: [&str; 8] = ["budget", "max", "leased", "used", "idle", "unmet", "over", "refused"];

/// A row, and its style.
struct Row {
    cells: [String; COLUMNS.len()],
    paint: Option<Paint>,
}

/// The most refusals of each book: the last ones.
const REFUSALS: usize = 10;

/// Returns all books, one after the other.
#[must_use]
pub fn text(books: &Books, style: &Style) -> String {
    let told = |Book { organisation, view }: &Book| book(organisation, view, style);
    let mut text = books.books.iter().map(told).collect::<Vec<_>>().join("\n");
    for Damaged { organisation, why } in &books.damaged {
        let told = format!(
            "{}: damaged, no figure is known: {}\n",
            printable(organisation),
            printable(why)
        );
        text += &style.paint(Paint::Bad, &told);
    }
    if books.more > 0 {
        let more = counted(books.more, "organisation");
        let _ = write!(text, "\n{more} more: name those to see\n");
    }
    text
}

fn book(organisation: &str, view: &View, style: &Style) -> String {
    let mut text = String::new();
    let heading = format!("{}: {}\n", printable(organisation), terms(view));
    text += &style.paint(Paint::Strong, &heading);
    let mut rows = vec![Row { cells: COLUMNS.map(str::to_owned), paint: Some(Paint::Faint) }];
    for budget in &view.budgets {
        rows.extend(rows_of(budget, &view.nodes));
    }
    for (line, row) in aligned(rows.iter().map(|row| &row.cells[..]), true).iter().zip(&rows) {
        text += &row.paint.map_or_else(|| line.clone(), |paint| style.paint(paint, line));
        text.push('\n');
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
            said.push(ends(start, view.at));
        }
        let _ = writeln!(text, "{}: {}", printable(&node.name), said.join("; "));
    }
    let mut faint = |line: &str| text += &style.paint(Paint::Faint, line);
    let ago = |at: u64| age(view.at.saturating_sub(at));
    for event in &view.events {
        faint(&format!("{} ago: {}\n", ago(event.at), happened(event)));
    }
    let before = view.refusals.len().saturating_sub(REFUSALS);
    if before > 0 {
        faint(&format!("{before} refusals before these: --json has them\n"));
    }
    for one in &view.refusals[before..] {
        faint(&format!("{} ago: {}\n", ago(one.at), refused(one)));
    }
    text
}

/// Returns a budget's row, and one for each node that holds a part.
fn rows_of(budget: &BudgetView, nodes: &[NodeView]) -> impl Iterator<Item = Row> {
    let [max, leased, used, idle, unmet, over, refused] = of_budget(budget);
    let first = Row {
        cells: [printable(&title(budget)), max, leased, used, idle, unmet, over, refused],
        paint: (budget.over > 0).then_some(Paint::Bad),
    };
    let last = budget.holds.len().saturating_sub(1);
    let holds = budget.holds.iter().enumerate().map(move |(at, hold)| {
        let branch = if at == last { "`-" } else { "|-" };
        let name = format!("{branch} {}", printable(&holder(hold, nodes)));
        let [lease, used, idle, unmet, excess, refused] = of_hold(hold);
        let cells = [name, NONE.to_owned(), lease, used, idle, unmet, excess, refused];
        Row { cells, paint: None }
    });
    std::iter::once(first).chain(holds.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::sample;

    #[test]
    fn a_book_says_who_has_what_who_lacks_some_and_what_happened() {
        let book = Book { organisation: "acme".to_owned(), view: sample::view() };
        let told = text(&Books { books: vec![book], more: 2, ..Books::default() }, &Style::plain());
        let expected = "\
acme: 2 nodes; leases hold 10.0 s, then 1.5 s of grace
budget                               max  leased  used    idle  unmet    over  refused
/acme                              10.0G    9.0G     -    1.0G      -       -        -
/acme/batch (min 64.0M) (deleted)   1.0G    1.5G  1.0G       -    100  513.0M       12
|- a                                   -    1.0G  1.0G       -    100       -       12
`- b\\u{1b} (older)                     -  512.0M  5.0M  507.0M      -    1.0M        -
a: its leases end in 4.2 s unless it speaks
b\\u{1b}: drained: it gets no more; an older process of this name has leases, which end in 1.0 s; its leases end in 9.0 s unless it speaks
gone: drained: it gets no more; not here
10 min ago: another process took the name b
60 s ago: the store had lost writes: b holds 512.0M of /acme/batch that it did not know of, 5 more than there is
1 s ago: b did not speak in time; its units are free again
4 min ago: a refused /acme/batch/q42\\u{1b} 11 times in 30 s, at most 400.0M: /acme/batch is full
2 s ago: a refused /acme/batch 5.0M: its lease of /acme/batch was too small

2 organisations more: name those to see
";
        assert_eq!(told, expected);
    }

    #[test]
    fn of_many_refusals_the_last_are_told() {
        let mut view = sample::view();
        let one = view.refusals[1].clone();
        view.refusals = vec![one; 20];
        let book = Book { organisation: "acme".to_owned(), view };
        let told = text(&Books { books: vec![book], ..Books::default() }, &Style::plain());
        assert!(told.contains("10 refusals before these: --json has them\n"), "{told}");
        assert_eq!(told.matches("a refused /acme/batch 5.0M").count(), REFUSALS);
    }
}
