//! The page: each budget and its holders, reloaded by the browser itself. It has no script.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ledgerline::size;
use ledgerline_fleet::book::{HoldView, NodeView, View};

use crate::fleet::read::{Book, Damaged};
use crate::fleet::watch::Seen;
use crate::fleet::words::{
    NONE, age, count, ends, happened, holder, of_budget, of_hold, refused, terms, title, used,
};

/// The style, which the page only names: nothing inline is allowed on it.
pub(super) const STYLE: &str = include_str!("page.css");

/// The most rows for budgets of an organisation, and for nodes of a budget.
const BUDGETS: usize = 500;
const NODES: usize = 20;

const TITLES: [&str; 8] = ["max", "leased", "used", "idle", "unmet", "over", "nodes", "refused"];
/// The columns that should be empty.
const AMISS: [&str; 2] = ["unmet", "over"];

pub(super) fn of(seen: &Seen, now: Instant, interval: Duration) -> String {
    let refresh = interval.as_secs().max(1);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Fleet</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"refresh\" content=\"{refresh}\"><link rel=\"stylesheet\" href=\"/page.css\">\n\
         <link rel=\"icon\" href=\"/icon.svg\">\n\
         </head><body>\n<header><h1>Fleet</h1>\n"
    );
    let old = super::age(seen, now).map(|seconds| age((seconds * 1000.0) as u64));
    let (lost, state) = match (&seen.trouble, old) {
        (Some(trouble), Some(old)) => {
            (true, format!("<strong>Lost: this is {old} old.</strong> {}", escaped(trouble)))
        }
        (Some(trouble), None) => (true, format!("<strong>Lost.</strong> {}", escaped(trouble))),
        (None, Some(old)) => (false, format!("Read {old} ago.")),
        (None, None) => (false, "Reading.".to_owned()),
    };
    let class = if lost { "state lost" } else { "state" };
    let _ = writeln!(page, "<p class=\"{class}\">{state}</p>");
    page.push_str("<p class=\"legend\">");
    for name in ["used", "leased", "free"] {
        let shape = format!(
            "<svg aria-hidden=\"true\"><rect class=\"{name}\" width=\"22\" height=\"10\"/></svg>"
        );
        let _ = write!(page, "<span>{shape}{name}</span>");
    }
    page.push_str("</p>\n</header>\n<main>\n");
    if let Some((books, _)) = &seen.books {
        if books.books.is_empty() && books.damaged.is_empty() {
            page.push_str(
                "<p>There are no budgets: `ledgerline fleet set /NAME max=SIZE` makes one.</p>\n",
            );
        }
        for Damaged { organisation, why } in &books.damaged {
            let _ = writeln!(
                page,
                "<p class=\"state lost\"><strong>{}: damaged, no figure is known.</strong> {}</p>",
                escaped(organisation),
                escaped(why)
            );
        }
        for book in &books.books {
            of_book(&mut page, book);
        }
        if books.more > 0 {
            let _ = writeln!(page, "<p>{} organisations more are not read.</p>", books.more);
        }
    }
    page + "</main></body></html>\n"
}

fn of_book(page: &mut String, Book { organisation, view }: &Book) {
    let (name, terms) = (escaped(organisation), terms(view));
    let _ = writeln!(page, "<section><h2>{name}</h2>\n<p class=\"quiet\">{terms}</p>");
    if view.budgets.is_empty() {
        page.push_str("<p class=\"quiet\">It has no budgets.</p>\n");
    } else {
        budgets(page, view);
    }
    list(page, "Nodes", view.nodes.iter().filter_map(|node| Some((None, amiss(node, view)?))));
    let ago = |at: u64| Some(age(view.at.saturating_sub(at)));
    list(
        page,
        "Who was refused",
        view.refusals.iter().rev().map(|one| (ago(one.at), refused(one))),
    );
    list(page, "What happened", view.events.iter().rev().map(|one| (ago(one.at), happened(one))));
    page.push_str("</section>\n");
}

/// Writes a row for each budget, and below it one for each node that holds a part of it.
fn budgets(page: &mut String, view: &View) {
    page.push_str("<div class=\"wide\"><table><thead><tr><th>budget</th><td class=\"share\"></td>");
    for title in TITLES {
        let _ = write!(page, "<th>{title}</th>");
    }
    page.push_str("</tr></thead><tbody>\n");
    for budget in view.budgets.iter().take(BUDGETS) {
        let of = [budget.limit, budget.leased, used(budget)];
        let [max, leased, used, idle, unmet, over, refused] = of_budget(budget);
        let nodes = count(budget.holds.len() as u64);
        row(page, "", &title(budget), of, &[max, leased, used, idle, unmet, over, nodes, refused]);
        let mut holds: Vec<&HoldView> = budget.holds.iter().collect();
        holds.sort_by_key(|hold| (std::cmp::Reverse(hold.lease), &hold.node));
        for hold in holds.iter().take(NODES) {
            let [lease, used, idle, unmet, excess, refused] = of_hold(hold);
            let (none, of) = (String::new(), [budget.limit, hold.lease, hold.used]);
            let cells = [none.clone(), lease, used, idle, unmet, excess, none, refused];
            row(page, "node", &holder(hold, &view.nodes), of, &cells);
        }
        if let Some(more @ 1..) = holds.len().checked_sub(NODES) {
            let rest: u64 = holds[NODES..].iter().map(|hold| hold.lease).sum();
            let _ = writeln!(
                page,
                "<tr class=\"node\"><th colspan=\"{}\">{more} nodes more have {}</th></tr>",
                TITLES.len() + 2,
                size::format(rest)
            );
        }
    }
    page.push_str("</tbody></table></div>\n");
    if let Some(more @ 1..) = view.budgets.len().checked_sub(BUDGETS) {
        let _ = writeln!(
            page,
            "<p class=\"quiet\">{more} budgets more: `ledgerline fleet show` has all.</p>"
        );
    }
}

/// Writes a row: its name, a bar, and figures. Some figures are marked as problems.
fn row(page: &mut String, class: &str, name: &str, of: [u64; 3], cells: &[String; TITLES.len()]) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = write!(page, "<tr{class}><th scope=\"row\">{}</th>", escaped(name));
    bar(page, of);
    for (cell, title) in cells.iter().zip(TITLES) {
        let class = if AMISS.contains(&title) && cell != NONE { " class=\"amiss\"" } else { "" };
        let _ = write!(page, "<td{class}>{}</td>", escaped(cell));
    }
    page.push_str("</tr>\n");
}

/// Writes the leased and used parts of a limit. Units beyond the limit have no room in the bar, but are in the figures.
fn bar(page: &mut String, [limit, leased, used]: [u64; 3]) {
    let part = |units: u64| (units as f64 / limit.max(1) as f64 * 1000.0).min(1000.0).round();
    page.push_str("<td class=\"share\"><svg viewBox=\"0 0 1000 1\" preserveAspectRatio=\"none\" aria-hidden=\"true\">");
    for (class, width) in [("free", 1000.0), ("leased", part(leased)), ("used", part(used))] {
        let _ = write!(page, "<rect class=\"{class}\" width=\"{width}\" height=\"1\"/>");
    }
    page.push_str("</svg></td>");
}

/// Returns a node's problems; `None` if it reports and gets all units that it asks for.
fn amiss(node: &NodeView, view: &View) -> Option<String> {
    let mut said = Vec::new();
    if node.draining {
        let gone = if node.incarnations.is_empty() { ", and is not here" } else { "" };
        said.push(format!("drained: it gets no more{gone}"));
    }
    for start in &node.incarnations {
        if start.fenced || start.ends <= view.at {
            said.push(ends(start, view.at));
        }
    }
    (!said.is_empty()).then(|| format!("{}: {}", node.name, said.join("; ")))
}

/// Writes a list with a heading, unless it is empty.
fn list(page: &mut String, heading: &str, items: impl Iterator<Item = (Option<String>, String)>) {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return;
    }
    let _ = writeln!(page, "<h3>{heading}</h3>\n<ul>");
    for (ago, item) in items {
        let ago = ago.map_or(String::new(), |ago| format!("<time>{ago} ago</time> "));
        let _ = writeln!(page, "<li>{ago}{}</li>", escaped(&item));
    }
    page.push_str("</ul>\n");
}

/// Escapes a foreign name, so that it stays text.
fn escaped(text: &str) -> String {
    let text = crate::terminal::output::printable(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
