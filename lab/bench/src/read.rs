//! The suite `read`: what readers pay, by the number of CPUs, and by how much has changed.

use super::options::Options;
use super::rounds;
use super::row::{Row, Rows, thousandths};
use super::suite::Suite;
use ledgerline::stat::tree::{Shape, Sum};
use ledgerline::stat::{Counters, Places};
use ledgerline::{Group, Ledger};
use ledgerline_measure::harness::{self, Body, Case, Measured, Plan};
use ledgerline_terminal::progress::Progress;
use std::error::Error;
use std::hint::black_box;

pub(super) static READ: Suite = Suite { name: "read", cases: &ALL, measure, remark };

const CPUS: [u32; 6] = [1, 2, 8, 64, 256, 1024];

/// Cases as the harness knows them: a case of the suite, and its number of simulated CPUs.
const SIMULATED: [(&str, &str); 2] =
    [("precise_read", "precise_read_"), ("snapshot_read", "snapshot_read_")];

/// The one whose table has a column for each CPU of this machine.
const PRECISE_HERE: &str = "precise_read_here";

const ALL: [&str; 9] = [
    "precise_read",
    PRECISE_HERE,
    "snapshot_read",
    "approximate_read",
    "tree_approximate",
    "tree_precise",
    "group_stat_unchanged",
    "group_stat_changed1",
    "group_stat_changed_all",
];

pub(super) const HELP: &str = "\
Cases (figures are nanoseconds a reading):
  precise_read            one item of a table of counters, exactly: for tables of
                          1 to 1024 simulated CPUs, and ns for each of them
  precise_read_here       the same of a table for this machine's CPUs, updated by
                          sections where they work
  snapshot_read           the same, clamped at zero, as printers show it
  approximate_read        within its bound: two loads (differences of 8 bits)
  tree_approximate        a sum over 256 CPUs within its bound: one load
  tree_precise            the same, exactly
  group_stat_unchanged    memory.stat of a group with 10 000 below it, of which
                          none changed since the last reading
  group_stat_changed1     ... of which one charged and counted something (in the
                          figure) since then
  group_stat_changed_all  ... of which all did; for each of the 10 000

Readers are measured on one thread.

Examples:
  ledgerline bench read
  ledgerline bench read --mode rseq --cases precise_read --json";

/// Groups below the one that is read.
const GROUPS: usize = 10_000;

ledgerline::items! {
    /// What is read: one of several, as in a real table.
    enum Item {
        /// The one that is read.
        Read = "read",
        /// Those beside it.
        Other = "other",
    }
}

fn measure(options: &Options, progress: &Progress) -> Result<Vec<Row>, String> {
    let mut names: Vec<&'static str> = Vec::new();
    for &case in &options.cases {
        match SIMULATED.iter().find(|(name, _)| *name == case) {
            Some((_, prefix)) => {
                names.extend(CPUS.iter().map(|cpus| &*format!("{prefix}{cpus}").leak()));
            }
            None => names.push(case),
        }
    }
    let options = Options { threads: vec![1], ..options.clone() };
    let mut rows = rounds::measure(READ.name, &names, &options, progress, &timed)?;
    for row in &mut rows {
        let simulated = SIMULATED.iter().find_map(|(case, prefix)| {
            row.case.strip_prefix(prefix).and_then(|cpus| cpus.parse().ok()).map(|n| (*case, n))
        });
        if row.case == PRECISE_HERE {
            let cpus = here()?.cpus();
            row.cpus = Some(cpus);
            row.ns_per_cpu = Some(thousandths(row.ns_per_op / f64::from(cpus)));
        }
        if let Some((case, cpus)) = simulated {
            row.case = case.to_owned();
            row.cpus = Some(cpus);
            row.ns_per_cpu = Some(thousandths(row.ns_per_op / f64::from(cpus)));
        }
    }
    Ok(rows)
}

fn timed(
    names: &[&'static str],
    plan: &Plan,
    progress: &(dyn Fn(harness::Step) + Sync),
) -> Result<Vec<Measured>, Box<dyn Error>> {
    let cases = names.iter().map(|&name| case(name)).collect::<Result<Vec<_>, _>>()?;
    Ok(harness::measure(&cases, plan, progress))
}

fn case(name: &'static str) -> Result<Case<'static>, Box<dyn Error>> {
    let places = Places::single("machine")?;
    let root = places.root();
    let cpus = |prefix| name.strip_prefix(prefix).and_then(|cpus: &str| cpus.parse::<u32>().ok());
    let (granule, body): (u64, Body<'static>) = if let Some(cpus) = cpus(SIMULATED[0].1) {
        let counters = filled(&places, cpus)?;
        (1, Box::new(move |_, n| repeat(n, || counters.precise(root, Item::Read))))
    } else if let Some(cpus) = cpus(SIMULATED[1].1) {
        let counters = filled(&places, cpus)?;
        (1, Box::new(move |_, n| repeat(n, || counters.snapshot(root, Item::Read))))
    } else {
        match name {
            PRECISE_HERE => {
                let counters = here()?;
                let root = counters.places().root();
                counters.inc(root, Item::Read);
                (1, Box::new(move |_, n| repeat(n, || counters.precise(root, Item::Read))))
            }
            "approximate_read" => {
                let counters = Counters::<Item, i8>::new(&places)?;
                counters.inc(root, Item::Read);
                (1, Box::new(move |_, n| repeat(n, || counters.approximate(root, Item::Read))))
            }
            "tree_approximate" | "tree_precise" => {
                let sum = Sum::with_shape(Shape::new(256, 32)?);
                for cpu in 0..256 {
                    sum.add_on(cpu, 17 + i64::from(cpu));
                }
                if name == "tree_precise" {
                    (1, Box::new(move |_, n| repeat(n, || sum.precise())))
                } else {
                    (1, Box::new(move |_, n| repeat(n, || sum.approximate())))
                }
            }
            "group_stat_unchanged" => groups(0, 1)?,
            "group_stat_changed1" => groups(1, 1)?,
            "group_stat_changed_all" => groups(GROUPS, GROUPS as u64)?,
            _ => unreachable!("{name} is in the table of cases"),
        }
    };
    Ok(Case { name, granule, body })
}

/// A table for the CPUs of this machine.
fn here() -> Result<Counters<Item, i64>, String> {
    let made = Places::single("machine").map(|places| Counters::new(&places));
    made.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// A table of simulated CPUs, each of which has counted something.
fn filled(places: &Places, cpus: u32) -> Result<Counters<Item, i64>, Box<dyn Error>> {
    let counters = Counters::builder(places).cpus(cpus).anonymous()?;
    for cpu in 0..cpus {
        counters.on(cpu).add(places.root(), Item::Read, 1 + i64::from(cpu));
        counters.on(cpu).inc(places.root(), Item::Other);
    }
    Ok(counters)
}

#[inline(always)]
fn repeat<T>(n: u64, read: impl Fn() -> T) {
    for _ in 0..n {
        black_box(read());
    }
}

/// Reads a group with many below it, of which so many change before each reading; a reading counts
/// as `operations`.
fn groups(changed: usize, operations: u64) -> Result<(u64, Body<'static>), Box<dyn Error>> {
    let ledger = Ledger::builder().items(&["rows"]).anonymous()?;
    let tenant = ledger.root().create("tenant")?.id();
    let mut below = Vec::new();
    for number in 0..GROUPS {
        let group = ledger.group(tenant).create(&number.to_string())?;
        touch(group);
        below.push(group.id());
    }
    let body = move |_, n: u64| {
        for _ in 0..n / operations {
            for &id in &below[..changed] {
                touch(ledger.group(id));
            }
            black_box(ledger.group(tenant).stat());
        }
    };
    Ok((operations, Box::new(body)))
}

fn touch(group: Group<'_>) {
    group.charge_units(64).expect("no limit is set");
    group.uncharge_units(64);
    let item = group.ledger().items().next().expect("the ledger is made with one");
    group.add_stat(item, 1);
}

/// What there is to say of a reading.
fn remark(row: &Row, rows: Rows<'_>) -> String {
    match (row.ns_per_cpu, row.cpus) {
        (Some(each), Some(cpus)) => format!("{cpus} CPUs, {each:.2} ns each"),
        _ if row.case == "group_stat_changed1" => rows
            .beside(row, "group_stat_changed_all")
            .map(|each| {
                let all = each * GROUPS as f64;
                format!("{:.0}x cheaper than when all changed", all / row.ns_per_op)
            })
            .unwrap_or_default(),
        _ if row.case == "group_stat_changed_all" => {
            format!("{:.1} ms a reading", row.ns_per_op * GROUPS as f64 / 1e6)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_explains_every_case() {
        for name in ALL {
            assert!(HELP.contains(&format!("\n  {name} ")), "{name}");
        }
    }

    #[test]
    fn what_is_read_is_what_all_cpus_counted() {
        let places = Places::single("machine").unwrap();
        let counters = filled(&places, 64).unwrap();
        assert_eq!(counters.precise(places.root(), Item::Read), 64 * 65 / 2);
        assert_eq!(counters.precise(places.root(), Item::Other), 64);
    }
}
