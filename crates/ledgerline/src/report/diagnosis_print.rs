//! Prints a diagnosis as a table.

use crate::control::watchdog::HungReclaimer;
use crate::report::diagnosis::{ChainLevel, Consumer, Diagnosis};
use crate::size::{Limit, format};
use std::fmt;

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.headline(f)?;
        writeln!(f)?;
        self.print_chain(f)?;
        let full = self.full();
        let groups = if self.groups == 1 { "group" } else { "groups" };
        let (current, idle) = (format(full.current), format(self.idle));
        writeln!(f, "\nIn {}: {current} in {} {groups}, {idle} idle", full.path, self.groups)?;
        if full.reserved > 0 {
            let reserved = format(full.reserved);
            writeln!(
                f,
                "{reserved} more are reserved by charges under way, or by processes that were killed in one"
            )?;
        }
        for HungReclaimer { group, waiting, running } in &self.hung {
            let seconds = running.as_secs();
            writeln!(
                f,
                "The reclaimer of {group} has run for {seconds} s, and {waiting} waits for it"
            )?;
        }
        let others = self.groups - self.holders.len();
        print_consumers(f, "held by themselves", &self.holders, others)?;
        if self.subtrees.iter().any(|consumer| !self.holders.contains(consumer)) {
            print_consumers(f, "held with all below", &self.subtrees, 0)?;
        }
        self.print_remainder(f)?;
        if !self.steady {
            writeln!(f, "\nUnits were being moved between groups; some may be counted twice.")?;
        }
        Ok(())
    }
}

impl Diagnosis {
    fn headline(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (charged, full) = (&self.chain[0], self.full());
        if let Some(requested) = self.requested {
            write!(f, "{} requested in {}; ", format(requested), charged.path)?;
        }
        match (full.room(), full.max) {
            (Some(room), max) => {
                let (room, max) = (format(room), of_limit(max));
                writeln!(f, "{} has {room} left of {max}", full.path)
            }
            (None, _) => writeln!(f, "{} has no limit", full.path),
        }
    }

    fn print_chain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = "group, up to the root";
        let names = self.chain.iter().map(|level| name_width(&level.path));
        let name = names.chain([title.len()]).max().unwrap_or(0);
        let figures = |level: &ChainLevel| FIGURES.map(|(_, figure)| figure(level));
        let rows: Vec<_> = self.chain.iter().map(figures).collect();
        let widths: [usize; FIGURES.len()] = std::array::from_fn(|at| {
            rows.iter().map(|row| row[at].len()).chain([FIGURES[at].0.len()]).max().unwrap_or(0)
        });
        write!(f, "{title:name$}")?;
        for ((head, _), width) in FIGURES.iter().zip(widths) {
            write!(f, "  {head:>width$}")?;
        }
        writeln!(f)?;
        for (at, (level, row)) in self.chain.iter().zip(&rows).enumerate() {
            write!(f, "{:name$}", level.path)?;
            for (figure, width) in row.iter().zip(widths) {
                write!(f, "  {figure:>width$}")?;
            }
            writeln!(f, "{}", if at == self.full && level.room().is_some() { "  <" } else { "" })?;
        }
        Ok(())
    }

    fn print_remainder(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(resident), Some(uncharged)) = (self.resident, self.uncharged()) else {
            return Ok(());
        };
        writeln!(
            f,
            "\nThis process has {} in memory and {} charged. If units are bytes, {} of it is charged to \
             nobody.",
            format(resident),
            format(self.charged),
            format(uncharged)
        )
    }
}

/// A column title, and the function that prints a level's figure.
type Figure = (&'static str, fn(&ChainLevel) -> String);

/// The figures of each level, in this order.
const FIGURES: [Figure; 9] = [
    ("charged", |level| format(level.current)),
    ("idle up to", |level| format(level.idle_bound)),
    ("max", |level| of_limit(level.max)),
    ("high", |level| of_limit(level.high)),
    ("low", |level| of_limit(level.low)),
    ("min", |level| of_limit(level.min)),
    ("low holds", |level| format(level.protection.low)),
    ("min holds", |level| format(level.protection.min)),
    ("max events", |level| level.max_events.to_string()),
];

fn of_limit(limit: Limit) -> String {
    limit.get().map_or("max".into(), format)
}

fn name_width(name: &str) -> usize {
    name.chars().count()
}

fn print_consumers(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    consumers: &[Consumer],
    others: usize,
) -> fmt::Result {
    if consumers.is_empty() {
        return Ok(());
    }
    let names = consumers.iter().map(|consumer| name_width(&consumer.path));
    let name = names.chain([title.len()]).max().unwrap_or(0);
    writeln!(f, "\n{title:name$}  {:>8}  {:>6}", "units", "share")?;
    for Consumer { path, units, permille, destroyed, .. } in consumers {
        let share = format!("{}.{}%", permille / 10, permille % 10);
        let note = if *destroyed { "  destroyed" } else { "" };
        writeln!(f, "{path:name$}  {:>8}  {share:>6}{note}", format(*units))?;
    }
    if others > 0 {
        let groups = if others == 1 { "group" } else { "groups" };
        writeln!(f, "and {others} {groups} more")?;
    }
    Ok(())
}
