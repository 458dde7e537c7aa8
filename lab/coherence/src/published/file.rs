//! Reads cases: TOML, strictly, with an error of one line for each mistake.
//!
//! ```toml
//! title = "a limit leaves the line of the counter"
//! source = "commit and subject, or an address"
//! says = "the figure in the source's words"
//! unit = "operations a second"
//! operations = 1                      # in one such unit a second; only where `work` is fitted
//! machine = "skylake-sp-8180"         # a built-in machine or a machine file
//! why_machine = "the source names it"
//! topology = { sockets = 1, complexes_per_socket = 1, cores_per_complex = 20, threads_per_core = 1 }  # if another
//! published = [{ cpus = 20, before = 5e6, after = 7e6 }]  # or { cpus = 20, change = 40, within = 10 } in per cent
//! work = { low = 200, best = 400, high = 800, source = "why" }  # nanoseconds; or { fitted = "from what" }
//! assumes = ["what is taken for granted"]
//!
//! [ranges]                            # of the machine, where the case believes otherwise
//! latency_scale = { low = 0.85, best = 1.1, high = 1.5, source = "why" }
//!
//! [unknown]                           # numbers that steps name
//! walks = { low = 1, best = 2, high = 4, source = "why" }
//!
//! [fields]                            # offsets in bytes; with strides each CPU has an element of its own
//! usage = { before = 0, after = 128 }
//! max = { before = 8, after = 0 }
//! slot = { before = 256, after = 256, strides = [8, 128] }
//!
//! [[roles]]                           # what CPUs repeat; several have a `share` each
//! name = "charge"
//! steps = [
//!     { work = 1.0 },                 # this share of the work
//!     { glance = "max" },             # a load that other work overlaps; `load` is waited for
//!     { times = "walks", atomic = "usage" },  # a number, also below one, or an unknown
//!     { times = 0.1, steps = [{ store = "slot" }, { load_all = "slot" }] },  # together; every CPU's element
//! ]                                   # also nanoseconds; acquire and release (a queue); lock and unlock (spins)
//! ```

use super::{BUILT_IN, Case, Doing, Field, Quantity, Role, Row, What, Work};
use crate::machine::{Entry, Machine, Range, Topology};
use crate::text_file::{BadFile, Complaint, Sort, complain};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// Files of cases.
pub(super) const FILES: Sort = Sort { what: "case", called: "a case", built_in: &BUILT_IN };

/// The largest time, rate or offset of a case.
const LARGEST: f64 = 1e7;
/// The most repetitions of a step.
const MOST_TIMES: f64 = 1000.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    title: String,
    source: Spanned<String>,
    says: String,
    unit: String,
    operations: Option<Spanned<f64>>,
    machine: Spanned<String>,
    why_machine: String,
    topology: Option<Spanned<Topology>>,
    #[serde(default)]
    ranges: BTreeMap<Spanned<String>, Range>,
    published: Spanned<Vec<RowText>>,
    work: Spanned<WorkText>,
    #[serde(default)]
    unknown: BTreeMap<Spanned<String>, Range>,
    fields: BTreeMap<Spanned<String>, Places>,
    roles: Spanned<Vec<RoleText>>,
    assumes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowText {
    cpus: usize,
    before: Option<f64>,
    after: Option<f64>,
    change: Option<f64>,
    #[serde(default)]
    within: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WorkText {
    Unknown(Range),
    Fitted(Fitted),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fitted {
    fitted: String,
}

/// The place of a field, or of the first CPU's element of an array with the distance between elements.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Places {
    before: u64,
    after: u64,
    strides: Option<[u64; 2]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleText {
    name: String,
    share: Option<f64>,
    steps: Vec<Spanned<StepText>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StepText {
    times: Option<Amount>,
    work: Option<f64>,
    nanoseconds: Option<Amount>,
    load: Option<String>,
    glance: Option<String>,
    load_all: Option<String>,
    store: Option<String>,
    atomic: Option<String>,
    acquire: Option<String>,
    release: Option<String>,
    lock: Option<String>,
    unlock: Option<String>,
    steps: Option<Vec<Spanned<StepText>>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(f64),
    Unknown(String),
}

pub(super) fn parse(name: &str, text: &str) -> Result<Case, BadFile> {
    let short = name.rsplit('/').next().unwrap_or(name).trim_end_matches(".toml");
    FILES.parse(name, text, |parsed| case(short, parsed))
}

fn case(name: &str, text: Text) -> Result<Case, Complaint> {
    if text.source.get_ref().trim().is_empty() {
        return complain(text.source.span().start, "`source` is empty; say where it was published");
    }
    let machine_name = text.machine.get_ref().clone();
    let machine = machine(&text)?;
    let unknowns = ranges(text.unknown)?;
    let fields = in_order(text.fields)
        .map(|(name, Places { before, after, strides })| {
            let (at, name, offsets) = (name.span().start, name.into_inner(), [before, after]);
            let least = strides.unwrap_or([1; 2]);
            if least.contains(&0) || least.iter().chain(&offsets).any(|&n| n as f64 > LARGEST) {
                let reason = format!("`{name}`: offsets are 0 to {LARGEST:e}, strides from 1");
                return complain(at, reason);
            }
            Ok(Field { name, offsets, strides })
        })
        .collect::<Result<Vec<Field>, Complaint>>()?;
    let known = Known { fields: &fields, unknowns: &unknowns };
    let at = text.roles.span().start;
    let roles = text.roles.into_inner().into_iter().map(|role| {
        let steps = steps(role.steps, &known)?;
        Ok(Role { name: role.name, share: role.share.unwrap_or(1.0), steps })
    });
    let roles = roles.collect::<Result<Vec<Role>, Complaint>>()?;
    check_roles(at, &roles)?;
    let rows = rows(text.published, text.operations, machine.topology)?;
    let at = text.work.span().start;
    let work = match text.work.into_inner() {
        WorkText::Unknown(range) => {
            ordered(at, "work", &range)?;
            Work::Unknown(range)
        }
        WorkText::Fitted(_) if rows[0].before_ns.is_none() => {
            let reason = "`work` is fitted on the first row; it needs `before`, and `operations` a \
                          second in a unit of it";
            return complain(at, reason);
        }
        WorkText::Fitted(Fitted { fitted }) => Work::Fitted(fitted),
    };
    Ok(Case {
        name: name.to_owned(),
        title: text.title,
        source: text.source.into_inner(),
        says: text.says,
        machine,
        machine_name,
        why_machine: text.why_machine,
        unit: text.unit,
        rows,
        work,
        unknowns,
        assumes: text.assumes,
        fields,
        roles,
    })
}

fn machine(text: &Text) -> Result<Machine, Complaint> {
    let at = text.machine.span().start;
    let mut machine =
        Machine::open(text.machine.get_ref()).map_err(|error| (at, error.to_string()))?;
    if let Some(topology) = &text.topology {
        // The links between sockets stay those of the machine.
        let other = Topology { hops: machine.topology.hops, ..*topology.get_ref() };
        machine.topology = other.checked().map_err(|reason| (topology.span().start, reason))?;
    }
    for (name, range) in &text.ranges {
        let at = name.span().start;
        ordered(at, name.get_ref(), range)?;
        let mut ranges = machine.nuisance.ranges_mut();
        let known: Vec<&str> = ranges.iter().map(|entry| entry.name).collect();
        let Some(index) = known.iter().position(|known| known == name.get_ref()) else {
            let (name, known) = (name.get_ref(), known.join(", "));
            return complain(at, format!("no machine has a range `{name}`: {known}"));
        };
        let Entry { name, value, within: (least, most), .. } = &mut ranges[index];
        if range.low < *least || range.high > *most {
            return complain(at, format!("`{name}` lies within {least} and {most}"));
        }
        value.clone_from(range);
    }
    Ok(machine)
}

fn rows(
    text: Spanned<Vec<RowText>>,
    operations: Option<Spanned<f64>>,
    topology: Topology,
) -> Result<Vec<Row>, Complaint> {
    let at = text.span().start;
    let each = operations.map(Spanned::into_inner);
    let rows = text.into_inner().into_iter().map(|row| {
        if !(1..=topology.cpus()).contains(&row.cpus) {
            let most = topology.cpus();
            return complain(at, format!("{} CPUs; this machine has 1 to {most}", row.cpus));
        }
        let throughput = row.before.zip(row.after).map(|(before, after)| [before, after]);
        let change = match (throughput, row.change) {
            (Some([before, after]), None) => 100.0 * (after / before - 1.0),
            (None, Some(change)) => change,
            _ => return complain(at, "a row has `before` and `after`, or `change` in per cent"),
        };
        if !change.is_finite() || change == 0.0 || change.abs() > LARGEST {
            return complain(at, format!("a row changes by {change} %; that tests nothing"));
        }
        if !(0.0..=LARGEST).contains(&row.within) {
            return complain(at, format!("`within` is {}; it is per cent", row.within));
        }
        let before_ns = throughput
            .zip(each)
            .map(|([before, _], each)| row.cpus as f64 * 1e9 / (before * each))
            .filter(|ns| (1.0..=LARGEST).contains(ns));
        Ok(Row { cpus: row.cpus, throughput, change, within: row.within, before_ns })
    });
    let rows = rows.collect::<Result<Vec<Row>, Complaint>>()?;
    if rows.is_empty() { complain(at, "nothing was published") } else { Ok(rows) }
}

fn check_roles(at: usize, roles: &[Role]) -> Result<(), Complaint> {
    let sum: f64 = roles.iter().map(|role| role.share).sum();
    if (sum - 1.0).abs() > 1e-6 || roles.iter().any(|role| role.share <= 0.0) {
        return complain(
            at,
            format!("the shares of the roles add up to {sum}; they are parts of 1"),
        );
    }
    let work = |role: &Role| -> f64 {
        let shares = role.steps.iter().map(|doing| match (&doing.what, &doing.times) {
            (What::Work(share), Quantity::Number(times)) => share * times,
            _ => 0.0,
        });
        shares.sum()
    };
    for role in roles {
        let (name, sum) = (&role.name, work(role));
        if (sum - 1.0).abs() > 1e-6 {
            return complain(
                at,
                format!("the work of `{name}` adds up to {sum}; its parts add up to 1"),
            );
        }
    }
    Ok(())
}

struct Known<'a> {
    fields: &'a [Field],
    unknowns: &'a [(String, Range)],
}

impl Known<'_> {
    fn field(&self, at: usize, name: &str) -> Result<usize, Complaint> {
        let found = self.fields.iter().position(|field| field.name == name);
        found.map_or_else(|| complain(at, format!("no field is called `{name}`")), Ok)
    }
}

fn steps(text: Vec<Spanned<StepText>>, known: &Known<'_>) -> Result<Vec<Doing>, Complaint> {
    text.into_iter().map(|step| doing(step, known)).collect()
}

fn doing(step: Spanned<StepText>, known: &Known<'_>) -> Result<Doing, Complaint> {
    let at = step.span().start;
    let step = step.into_inner();
    let times =
        quantity(at, "times", step.times.unwrap_or(Amount::Number(1.0)), MOST_TIMES, known)?;
    let share = |share: f64| match (0.0..=1.0).contains(&share) {
        true => Ok(What::Work(share)),
        false => complain(at, format!("`work` is {share}; it is a part of 1")),
    };
    let field = |name: String| known.field(at, &name);
    let load = |name, overlapping, of_all| {
        Ok::<What, Complaint>(What::Load { field: field(name)?, overlapping, of_all })
    };
    let mut found = Vec::new();
    found.extend(step.work.map(share));
    found.extend(
        step.nanoseconds
            .map(|ns| quantity(at, "nanoseconds", ns, LARGEST, known).map(What::Nanoseconds)),
    );
    found.extend(step.load.map(|name| load(name, false, false)));
    found.extend(step.glance.map(|name| load(name, true, false)));
    found.extend(step.load_all.map(|name| load(name, false, true)));
    found.extend(step.store.map(|name| field(name).map(What::Store)));
    found.extend(step.atomic.map(|name| field(name).map(What::Atomic)));
    found.extend(step.acquire.map(|name| field(name).map(What::Acquire)));
    found.extend(step.release.map(|name| field(name).map(What::Release)));
    found.extend(step.lock.map(|name| field(name).map(What::Lock)));
    found.extend(step.unlock.map(|name| field(name).map(What::Unlock)));
    found.extend(step.steps.map(|nested| steps(nested, known).map(What::Together)));
    match (found.pop(), found.is_empty()) {
        (Some(what), true) => Ok(Doing { times, what: what? }),
        _ => complain(
            at,
            "a step is one of work, nanoseconds, load, glance, load_all, store, atomic, \
             acquire, release, lock, unlock, steps",
        ),
    }
}

/// Returns a number, or an unknown by its name, that is not larger than `most`.
fn quantity(
    at: usize,
    what: &str,
    amount: Amount,
    most: f64,
    known: &Known<'_>,
) -> Result<Quantity, Complaint> {
    match amount {
        Amount::Number(number) if (0.0..=most).contains(&number) => Ok(Quantity::Number(number)),
        Amount::Number(number) => {
            complain(at, format!("`{what}` is {number}; it lies between 0 and {most}"))
        }
        Amount::Unknown(name) => {
            match known.unknowns.iter().position(|(unknown, _)| *unknown == name) {
                Some(which) if known.unknowns[which].1.high <= most => Ok(Quantity::Unknown(which)),
                Some(_) => complain(at, format!("`{name}` reaches over {most}")),
                None => complain(at, format!("`{name}` is not in [unknown]")),
            }
        }
    }
}

fn ranges(text: BTreeMap<Spanned<String>, Range>) -> Result<Vec<(String, Range)>, Complaint> {
    let ranges = in_order(text).map(|(name, range)| {
        ordered(name.span().start, name.get_ref(), &range)?;
        Ok((name.into_inner(), range))
    });
    ranges.collect()
}

/// Checks that a range rises, is not below zero, and states a reason.
fn ordered(at: usize, name: &str, range: &Range) -> Result<(), Complaint> {
    let Range { low, best, high, source } = range;
    if !(0.0 <= *low && low <= best && best <= high && *high <= LARGEST) {
        let reason =
            format!("`{name}` is {low}, {best}, {high}; it rises from low to best to high");
        return complain(at, reason);
    }
    if source.trim().is_empty() {
        return complain(at, format!("`{name}` has no source; say why it is believed"));
    }
    Ok(())
}

/// Returns a table's entries in the order of the file.
fn in_order<T>(table: BTreeMap<Spanned<String>, T>) -> impl Iterator<Item = (Spanned<String>, T)> {
    let mut entries: Vec<(Spanned<String>, T)> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries.into_iter()
}
