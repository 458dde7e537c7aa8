//! The operators' changes: each function returns the old and the new state as text.

use std::fmt::Write as _;

use ledgerline::size;
use ledgerline_fleet::book::{BudgetView, Change, View, What};
use ledgerline_view::fleet::{Size, organisation_of, unknown};

use super::Opened;

fn budget<'v>(view: &'v View, path: &str) -> Option<&'v BudgetView> {
    view.budgets.iter().find(|budget| budget.path == path)
}

/// Makes a budget, or changes it.
pub(super) fn set(opened: &Opened, path: &str, sizes: &[Size]) -> Result<String, String> {
    let organisation = organisation_of(path)?;
    let (mut limit, mut minimum) = (None, None);
    for size in sizes {
        let (name, place, units) = match size {
            Size::Max(units) => ("max", &mut limit, *units),
            Size::Min(units) => ("min", &mut minimum, *units),
        };
        if place.replace(units).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    let before = opened.view(organisation)?;
    let was = budget(&before, path);
    let most = limit.or(was.map(|was| was.limit));
    if let Some((least, most)) = minimum.zip(most).filter(|(least, most)| least > most) {
        let (least, most) = (size::format(least), size::format(most));
        return Err(format!(
            "a min of {least} is more than the max of {most}: no node could have it"
        ));
    }
    let change = Change::Set { path: path.to_owned(), limit, minimum };
    let after = opened.administer(organisation, &change)?;
    let Some(is) = budget(&after, path) else {
        return Err(format!("{path} was deleted in that moment"));
    };
    let mut text = String::new();
    for (name, before, now) in [
        ("max", was.map(|was| was.limit), is.limit),
        ("min", was.map(|was| was.minimum), is.minimum),
    ] {
        let now = size::format(now);
        let _ = match before.map(size::format) {
            Some(before) if before != now => writeln!(text, "{path} {name} {before} -> {now}"),
            _ => writeln!(text, "{path} {name} {now}"),
        };
    }
    if was.is_some_and(|was| was.closing) {
        text.push_str("It had been deleted while it was leased, and is open again.\n");
    }
    if is.minimum > is.limit {
        text.push_str("The min is more than the max: no node can have it.\n");
    }
    if is.over > 0 {
        let _ = writeln!(
            text,
            "{} more than that is leased or in use: nothing is granted, and nodes are asked to give it back.",
            size::format(is.over)
        );
    }
    Ok(text)
}

/// Deletes a budget.
pub(super) fn delete(opened: &Opened, path: &str) -> Result<String, String> {
    let organisation = organisation_of(path)?;
    let view = opened.administer(organisation, &Change::Delete { path: path.to_owned() })?;
    Ok(match budget(&view, path) {
        None => format!("{path} is deleted.\n"),
        Some(left) => {
            let (leased, nodes) = (size::format(left.leased), left.holds.len());
            let nodes =
                if nodes == 1 { "1 node has".to_owned() } else { format!("{nodes} nodes have") };
            format!(
                "{path} grants no more; {nodes} {leased} of it, and it goes with the last lease.\n"
            )
        }
    })
}

/// Changes how long leases hold. Only the given times change, even if another operator changes others at the same time.
pub(super) fn terms(
    opened: &Opened,
    organisation: &str,
    lease: Option<u64>,
    grace: Option<u64>,
) -> Result<String, String> {
    let before = opened.view(organisation)?;
    if before.budgets.is_empty() {
        return Err(unknown(organisation));
    }
    let change = Change::Terms { ttl: lease, grace };
    let after = opened.administer(organisation, &change)?;
    let seconds = |milliseconds: u64| format!("{} s", milliseconds as f64 / 1000.0);
    Ok(format!(
        "{organisation}: leases hold {}, then {} of grace (was {} and {}).\n",
        seconds(after.ttl),
        seconds(after.grace),
        seconds(before.ttl),
        seconds(before.grace)
    ))
}

/// Asks a node for its leases, or ends that request.
pub(super) fn drain(
    opened: &Opened,
    organisation: &str,
    node: &str,
    on: bool,
) -> Result<String, String> {
    let before = opened.view(organisation)?;
    if on && before.budgets.is_empty() {
        return Err(unknown(organisation));
    }
    if !on && !before.nodes.iter().any(|one| one.name == node && one.draining) {
        return Err(format!("no {node} is drained in {organisation}"));
    }
    let view = opened.administer(organisation, &Change::Drain { node: node.to_owned(), on })?;
    let is_here = view.nodes.iter().any(|one| one.name == node && !one.incarnations.is_empty());
    let leased: u64 = view
        .budgets
        .iter()
        .filter(|budget| budget.path.matches('/').count() == 1)
        .flat_map(|budget| &budget.holds)
        .filter(|hold| hold.node == node)
        .map(|hold| hold.lease)
        .sum();
    Ok(match (on, is_here) {
        (true, true) => format!(
            "{node} gives back what it can spare, and gets no more; it has {} now.\n",
            size::format(leased)
        ),
        (true, false) => format!("{node} is not here; when it joins, it gets nothing.\n"),
        (false, _) => format!("{node} may lease again.\n"),
    })
}

/// Computes the sums of a book again from what its nodes hold.
pub(super) fn repair(opened: &Opened, organisation: &str) -> Result<String, String> {
    let before = opened.view(organisation)?;
    if before.budgets.is_empty() && before.nodes.is_empty() {
        return Err(unknown(organisation));
    }
    let after = opened.administer(organisation, &Change::Repair)?;
    let repaired = after.events.iter().rev().find_map(|event| match event.what {
        What::Repaired { budgets } => Some(budgets),
        _ => None,
    });
    let mut text = match repaired {
        Some(1) => "The sums of 1 budget were wrong, and are right.\n".to_owned(),
        Some(budgets @ 2..) => {
            format!("The sums of {budgets} budgets were wrong, and are right.\n")
        }
        _ => "All sums are right.\n".to_owned(),
    };
    let lost: Vec<&str> =
        before.budgets.iter().filter(|one| one.lost).map(|one| &*one.path).collect();
    if !lost.is_empty() {
        let _ = writeln!(
            text,
            "The store lost the max of {}: `ledgerline fleet set` makes them again, and nodes say what they hold.",
            lost.join(", ")
        );
    }
    Ok(text)
}

/// Prepares the store, and warns if it may lose books.
pub(super) fn load(opened: &Opened) -> Result<String, String> {
    opened.call(opened.store.prepare())?;
    let mut text = "The store is ready to have books.\n".to_owned();
    for warning in opened.call(opened.store.warnings())? {
        let _ = writeln!(text, "Warning: {warning}.");
    }
    Ok(text)
}
