//! What operators change: each function says what was and what is.

use std::fmt::Write as _;

use ledgerline::size;
use ledgerline_fleet::book::{BudgetView, Change, View};
use ledgerline_fleet::message::MAX_UNITS;

use super::Opened;

/// A budget's number that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Max(u64),
    Min(u64),
}

/// Reads `max=200G`.
pub(super) fn size_of(text: &str) -> Result<Size, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("a size is written like max=200G: max or min, with its new value")?;
    let units = size::parse(value).map_err(|error| error.to_string())?;
    match (name, units) {
        (_, Some(units)) if units > MAX_UNITS => {
            Err(format!("{value} is more than a store counts (2^53)"))
        }
        ("max", Some(units)) => Ok(Size::Max(units)),
        ("min", Some(units)) => Ok(Size::Min(units)),
        ("max" | "min", None) => {
            Err("a budget has a limit: there is none without (`delete` takes the budget away)"
                .to_owned())
        }
        _ => Err(format!("there is no {name:?} of a budget; there are max and min")),
    }
}

/// Reads `10s` or `1500ms`.
pub(super) fn milliseconds(text: &str) -> Result<u64, String> {
    let wrong = || "a time is written like 10s or 1500ms".to_owned();
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 1000),
        (None, None) => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(wrong)
}

/// The first name of a path.
fn organisation(path: &str) -> Result<&str, String> {
    let first = path.strip_prefix('/').and_then(|rest| rest.split('/').next()).unwrap_or_default();
    if first.is_empty() {
        return Err(format!(
            "{path:?} is no path of a budget: those are like /acme or /acme/batch"
        ));
    }
    Ok(first)
}

fn budget<'v>(view: &'v View, path: &str) -> Option<&'v BudgetView> {
    view.budgets.iter().find(|budget| budget.path == path)
}

/// Makes a budget, or changes it.
pub(super) fn set(opened: &Opened, path: &str, sizes: &[Size]) -> Result<String, String> {
    let organisation = organisation(path)?;
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
    opened.call(opened.store.administer(organisation, &change))?;
    let after = opened.view(organisation)?;
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
    let organisation = organisation(path)?;
    opened
        .call(opened.store.administer(organisation, &Change::Delete { path: path.to_owned() }))?;
    let view = opened.view(organisation)?;
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

/// Changes how long leases hold: what is given alone, whatever somebody else changes at the same time.
pub(super) fn terms(
    opened: &Opened,
    organisation: &str,
    lease: Option<u64>,
    grace: Option<u64>,
) -> Result<String, String> {
    let before = opened.view(organisation)?;
    let change = Change::Terms { ttl: lease, grace };
    opened.call(opened.store.administer(organisation, &change))?;
    let after = opened.view(organisation)?;
    let seconds = |milliseconds: u64| format!("{} s", milliseconds as f64 / 1000.0);
    Ok(format!(
        "{organisation}: leases hold {}, then {} of grace (was {} and {}).\n",
        seconds(after.ttl),
        seconds(after.grace),
        seconds(before.ttl),
        seconds(before.grace)
    ))
}

/// Asks a node for its leases, or ends that.
pub(super) fn drain(
    opened: &Opened,
    organisation: &str,
    node: &str,
    on: bool,
) -> Result<String, String> {
    if on && opened.view(organisation)?.budgets.is_empty() {
        return Err(super::unknown(organisation));
    }
    opened.call(
        opened.store.administer(organisation, &Change::Drain { node: node.to_owned(), on }),
    )?;
    let view = opened.view(organisation)?;
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

/// Makes the store ready.
pub(super) fn load(opened: &Opened) -> Result<String, String> {
    opened.call(opened.store.prepare())?;
    Ok("The store is ready to have books.\n".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_paths_are_read_and_what_is_wrong_is_said() {
        assert_eq!(size_of("max=200G"), Ok(Size::Max(200 << 30)));
        assert_eq!(size_of("min=0"), Ok(Size::Min(0)));
        for wrong in ["max", "max=max", "high=1G", "max=16P", "max=x", "=1"] {
            assert!(size_of(wrong).is_err(), "{wrong}");
        }
        assert_eq!((milliseconds("10s"), milliseconds("1500ms")), (Ok(10_000), Ok(1500)));
        for wrong in ["10", "s", "ms", "-1s", "1.5s", "99999999999999999999s"] {
            assert!(milliseconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(organisation("/acme/batch"), Ok("acme"));
        assert!(
            organisation("acme").is_err()
                && organisation("/").is_err()
                && organisation("").is_err()
        );
    }
}
