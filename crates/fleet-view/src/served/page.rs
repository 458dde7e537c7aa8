//! The page: tables, which a browser reads anew by itself. It has no script and no style of its own.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ledgerline::size;

use crate::read::Book;
use crate::watch::Seen;
use crate::words::{age, count, happened, refused, some};

pub(super) fn of(seen: &Seen, now: Instant, interval: Duration) -> String {
    let refresh = interval.as_secs().max(1);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Fleet</title>\
         <meta http-equiv=\"refresh\" content=\"{refresh}\"></head><body>\n<h1>Fleet</h1>\n"
    );
    let old = super::age(seen, now).map(|seconds| age((seconds * 1000.0) as u64));
    let _ = match (&seen.trouble, old) {
        (Some(trouble), Some(old)) => {
            writeln!(page, "<p><strong>Lost: this is {old} old.</strong> {}</p>", escaped(trouble))
        }
        (Some(trouble), None) => {
            writeln!(page, "<p><strong>Lost.</strong> {}</p>", escaped(trouble))
        }
        (None, Some(old)) => writeln!(page, "<p>Read {old} ago.</p>"),
        (None, None) => writeln!(page, "<p>Reading.</p>"),
    };
    if let Some((books, _)) = &seen.books {
        for book in &books.books {
            of_book(&mut page, book);
        }
        if books.more > 0 {
            let _ = writeln!(page, "<p>{} organisations more are not read.</p>", books.more);
        }
    }
    page + "</body></html>\n"
}

fn of_book(page: &mut String, Book { organisation, view }: &Book) {
    let _ = writeln!(page, "<h2>{}</h2>", escaped(organisation));
    table(
        page,
        &["budget", "max", "leased", "used", "idle", "unmet", "over", "nodes", "refused"],
        view.budgets.iter().map(|budget| {
            vec![
                budget.path.clone(),
                size::format(budget.limit),
                some(budget.leased),
                some(budget.holds.iter().map(|hold| hold.used).sum()),
                some(budget.idle),
                some(budget.unmet),
                some(budget.over),
                count(budget.holds.len() as u64),
                count(budget.refused),
            ]
        }),
    );
    let leases = view.budgets.iter().flat_map(|budget| {
        budget.holds.iter().map(|hold| {
            let node = view.nodes.iter().find(|node| node.name == hold.node);
            let drained = node.is_some_and(|node| node.draining);
            vec![
                format!("{}{}", hold.node, if drained { " (drained)" } else { "" }),
                budget.path.clone(),
                some(hold.lease),
                some(hold.used),
                some(hold.unmet),
                count(hold.refused),
            ]
        })
    });
    table(page, &["node", "budget", "lease", "used", "unmet", "refused"], leases);
    let ago = |at: u64| format!("{} ago", age(view.at.saturating_sub(at)));
    let told = view.refusals.iter().rev().map(|one| vec![ago(one.at), refused(one)]);
    table(page, &["when", "who was refused"], told);
    let told = view.events.iter().rev().map(|one| vec![ago(one.at), happened(one)]);
    table(page, &["when", "what happened"], told);
}

/// A table, unless it has no rows.
fn table(page: &mut String, titles: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    page.push_str("<table border=\"1\" cellpadding=\"4\"><tr>");
    for title in titles {
        let _ = write!(page, "<th>{title}</th>");
    }
    page.push_str("</tr>\n");
    for row in rows {
        page.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let align = if at == 0 { "" } else { " align=\"right\"" };
            let _ = write!(page, "<td{align}>{}</td>", escaped(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n<p></p>\n");
}

/// Names of others stay text.
fn escaped(text: &str) -> String {
    let text = ledgerline_terminal::output::printable(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
