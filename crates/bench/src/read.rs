//! The suite `read` measures the cost of reading, by the number of CPUs and by the number of changes.

use super::rounds::{Made, Run, Work, of};
use super::row::{Row, Rows, thousandths};
use super::suite::{Suite, names};
use ledgerline::stat::tree::{Shape, Sum};
use ledgerline::stat::{Counters, PlaceId, Places};
use ledgerline::{Group, Ledger};
use std::hint::black_box;

pub(super) static READ: Suite =
    Suite { name: "read", help: HELP, cases: &names(&CASES), measure, remark };

/// Numbers of simulated CPUs.
const CPUS: [u32; 6] = [1, 2, 8, 64, 256, 1024];

/// The way to make a case.
#[derive(Clone, Copy)]
enum Make {
    /// One for each number of simulated CPUs.
    Simulated(fn(Counters<Item, i64>, PlaceId) -> Work<'static>),
    /// One for a table with a column for each CPU of this machine.
    Here,
    Once(fn() -> Made<Work<'static>>),
}

const CASES: [(&str, Make); 9] = [
    ("precise_read", Make::Simulated(precise)),
    ("precise_read_here", Make::Here),
    (
        "snapshot_read",
        Make::Simulated(|counters, root| reading(move || counters.snapshot(root, Item::Read))),
    ),
    (
        "approximate_read",
        Make::Once(|| {
            let places = Places::single("machine")?;
            let (counters, root) = (Counters::<Item, i8>::new(&places)?, places.root());
            counters.inc(root, Item::Read);
            Ok(reading(move || counters.approximate(root, Item::Read)))
        }),
    ),
    ("tree_approximate", Make::Once(|| tree(Sum::approximate))),
    ("tree_precise", Make::Once(|| tree(Sum::precise))),
    ("group_stat_unchanged", Make::Once(|| groups(0, 1))),
    ("group_stat_changed1", Make::Once(|| groups(1, 1))),
    ("group_stat_changed_all", Make::Once(|| groups(GROUPS, GROUPS as u64))),
];

const HELP: &str = "\
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

/// The number of groups below the one that is read.
const GROUPS: usize = 10_000;

ledgerline::items! {
    /// The counted items: several, as in a real table.
    enum Item {
        /// The item that is read.
        Read = "read",
        /// The items beside it.
        Other = "other",
    }
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>, String> {
    // Each case, or each number of CPUs of a case.
    let mut each: Vec<(&'static str, Option<u32>)> = Vec::new();
    for &case in &run.options.cases {
        match of(&CASES, case) {
            Some(Make::Simulated(_)) => each.extend(CPUS.map(|cpus| (case, Some(cpus)))),
            _ => each.push((case, None)),
        }
    }
    let names: Vec<&'static str> = each.iter().map(|&(case, _)| case).collect();
    let mut rows =
        run.in_rounds(&[1], &names, |turn| turn.time(&CASES, |at, make| work(make, each[at].1)))?;
    for (row, (case, simulated)) in rows.iter_mut().zip(each) {
        row.cpus = match of(&CASES, case) {
            Some(Make::Here) => Some(here().map_err(|error| error.to_string())?.cpus()),
            _ => simulated,
        };
        row.ns_per_cpu = row.cpus.map(|cpus| thousandths(row.ns_per_op / f64::from(cpus)));
    }
    Ok(rows)
}

fn work(make: Make, cpus: Option<u32>) -> Made<Work<'static>> {
    match make {
        Make::Once(make) => make(),
        Make::Here => {
            let counters = here()?;
            let root = counters.places().root();
            counters.inc(root, Item::Read);
            Ok(precise(counters, root))
        }
        Make::Simulated(make) => {
            let places = Places::single("machine")?;
            let counters = filled(&places, cpus.expect("each number of CPUs is a case"))?;
            Ok(make(counters, places.root()))
        }
    }
}

fn precise(counters: Counters<Item, i64>, root: PlaceId) -> Work<'static> {
    reading(move || counters.precise(root, Item::Read))
}

/// Makes a reading of a sum over 256 CPUs.
fn tree<T>(read: impl Fn(&Sum) -> T + Sync + 'static) -> Made<Work<'static>> {
    let sum = Sum::with_shape(Shape::new(256, 32)?);
    for cpu in 0..256 {
        sum.add_on(cpu, 17 + i64::from(cpu));
    }
    Ok(reading(move || read(&sum)))
}

/// Makes a table for the CPUs of this machine.
fn here() -> Made<Counters<Item, i64>> {
    Ok(Counters::new(&Places::single("machine")?)?)
}

/// Makes a table of simulated CPUs, each with some counts.
fn filled(places: &Places, cpus: u32) -> Made<Counters<Item, i64>> {
    let counters = Counters::builder(places).cpus(cpus).anonymous()?;
    for cpu in 0..cpus {
        counters.on(cpu).add(places.root(), Item::Read, 1 + i64::from(cpu));
        counters.on(cpu).inc(places.root(), Item::Other);
    }
    Ok(counters)
}

/// Makes work that reads repeatedly.
fn reading<T>(read: impl Fn() -> T + Sync + 'static) -> Work<'static> {
    let body = move |_, n| {
        for _ in 0..n {
            black_box(read());
        }
    };
    (1, Box::new(body))
}

/// Makes readings of a group with many below it. `changed` of those change before each reading, and a reading counts as
/// `operations`.
fn groups(changed: usize, operations: u64) -> Made<Work<'static>> {
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

/// Returns the remark on a reading.
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
    fn what_is_read_is_what_all_cpus_counted() {
        let places = Places::single("machine").unwrap();
        let counters = filled(&places, 64).unwrap();
        assert_eq!(counters.precise(places.root(), Item::Read), 64 * 65 / 2);
        assert_eq!(counters.precise(places.root(), Item::Other), 64);
    }
}
