//! Profiles that people write: TOML, read strictly.
//!
//! ```toml
//! machine = "haswell-ep-2699v3"   # a built-in machine or a machine file; may be left out
//! cpus = 72                        # how many took part; may be left out
//!
//! [types.page_counter]
//! instances = "shared"             # or "per cpu", or how many; "shared" if left out
//! # stride = 40                    # with "per cpu": they lie in a row, so many bytes from one to the next
//! # begins = 16                    # where in a pair of lines the row begins; if left out, wherever its alignment allows
//! work_ns = 300                    # the time of an operation besides these accesses; [200, 400] if it is
//!                                  # between; or, waits included, as it was timed on today's layout:
//! # takes_ns = 340
//! # recording_ns = 25              # the part of it that recording took; 0 if left out
//! # alone_ns = 310                 # what it took where its thread ran alone, with `takes_ns` or without
//!
//! [types.page_counter.fields]      # in every operation
//! max = { load = 1 }               # load, store, atomic: how many times
//!
//! [[types.page_counter.phases]]    # what happens together, `times` an operation
//! name = "walk"
//! times = 0.0156
//! fields = { usage = { atomic = 1 }, parent = { load = 1 } }
//!
//! # Several kinds of CPUs, instead of `fields` and `phases` of the type: shares add up to 1, and
//! # `work_ns`, `takes_ns` and `alone_ns` may stand in each.
//! # [[types.page_counter.roles]]
//! # name = "reader"
//! # share = 0.25
//! # fields = { usage = { load = 1 } }
//! ```

use std::collections::BTreeMap;

use ledgerline_layout::Error;
use serde::Deserialize;
use toml::Spanned;

use ledgerline_coherence::layout::PAIR;

use super::{
    ALWAYS, Access, EVERYONE, Instances, Kind, Phase, Profile, Role, Row, TypeProfile, WorkBasis,
};

/// The most bytes of a profile that a person or a recorder writes.
const LONGEST: usize = 16 << 20;
/// The largest rate or time.
const LARGEST: f64 = 1e9;
/// A machine with more CPUs is a typing mistake.
const MOST_CPUS: usize = 8192;
/// Sharing of lines does not matter between larger objects.
const LARGEST_STRIDE: u64 = 1 << 24;
/// The largest difference of the sum of shares from one: three times 0.33 is accepted.
const NEARLY: f64 = 0.011;

/// Keys with their places in the text. The map sorts them by name; [`in_order`] restores their order.
type Table<T> = BTreeMap<Spanned<String>, T>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    machine: Option<String>,
    cpus: Option<Spanned<usize>>,
    #[serde(default)]
    types: Table<OfType>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfType {
    instances: Option<Spanned<Number>>,
    stride: Option<Spanned<u64>>,
    begins: Option<Spanned<u64>>,
    work_ns: Option<Spanned<Work>>,
    takes_ns: Option<Spanned<f64>>,
    alone_ns: Option<Spanned<f64>>,
    recording_ns: Option<Spanned<f64>>,
    fields: Option<Spanned<Fields>>,
    phases: Option<Vec<OfPhase>>,
    roles: Option<Vec<OfRole>>,
}

/// "shared", "per cpu", 4.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Word(String),
    Count(i64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfRole {
    name: Spanned<String>,
    share: Spanned<f64>,
    work_ns: Option<Spanned<Work>>,
    takes_ns: Option<Spanned<f64>>,
    alone_ns: Option<Spanned<f64>>,
    recording_ns: Option<Spanned<f64>>,
    fields: Option<Spanned<Fields>>,
    phases: Option<Vec<OfPhase>>,
}

/// 300, or [200, 400].
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Work {
    One(f64),
    Between([f64; 2]),
}

/// A table's entries for an operation's time.
#[derive(Clone)]
struct Timed {
    work_ns: Option<Spanned<Work>>,
    takes_ns: Option<Spanned<f64>>,
    alone_ns: Option<Spanned<f64>>,
    recording_ns: Option<Spanned<f64>>,
}

impl Timed {
    fn is_empty(&self) -> bool {
        let Timed { work_ns, takes_ns, alone_ns, recording_ns } = self;
        work_ns.is_none() && [takes_ns, alone_ns, recording_ns].into_iter().all(Option::is_none)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfPhase {
    name: Spanned<String>,
    times: Spanned<f64>,
    fields: Spanned<Fields>,
}

type Fields = Table<Rates>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rates {
    load: Option<Spanned<f64>>,
    store: Option<Spanned<f64>>,
    atomic: Option<Spanned<f64>>,
}

/// An error with its advice, and its place in the text.
struct Complaint {
    at: usize,
    error: Error,
}

fn complain<T>(at: usize, what: impl Into<String>, advice: &str) -> Result<T, Complaint> {
    Err(Complaint { at, error: Error::new(what).advise(advice) })
}

/// Reads a profile that a person wrote. `source` becomes its name.
///
/// # Errors
/// If the text is no profile. The error has the line, the mistake and a correction.
pub(super) fn parse(text: &str, source: &str) -> Result<Profile, Error> {
    if text.len() > LONGEST {
        return Err(Error::new(format!("{} bytes are no profile in TOML", text.len()))
            .advise("nor are they a report of perf or a table of the kernel"));
    }
    let breaks: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line = |at: usize| 1 + breaks.partition_point(|&end| end < at);
    let file: File = toml::from_str(text).map_err(|error| Error::of_toml(text, &error))?;
    let mut lines = BTreeMap::new();
    for field in file.types.values().flat_map(named) {
        let line = line(field.span().start);
        let first = lines.entry(field.get_ref().clone()).or_insert(line);
        *first = line.min(*first);
    }
    profile(file, source)
        .map(|profile| Profile { lines, ..profile })
        .map_err(|complaint| complaint.error.on_line_of(text, complaint.at))
}

/// Returns the fields that a type's tables name, with their places.
fn named(of: &OfType) -> impl Iterator<Item = &Spanned<String>> {
    let roles = of.roles.iter().flatten();
    let always = roles.clone().map(|role| &role.fields).chain([&of.fields]);
    let phases = roles.map(|role| &role.phases).chain([&of.phases]);
    let phases = phases.flatten().flatten().map(|phase| &phase.fields);
    always.flatten().chain(phases).flat_map(|fields| fields.get_ref().keys())
}

fn profile(file: File, source: &str) -> Result<Profile, Complaint> {
    let cpus = file.cpus.map(|cpus| match *cpus.get_ref() {
        count @ 1..=MOST_CPUS => Ok(count),
        count => complain(
            cpus.span().start,
            format!("`cpus` is {count}"),
            &format!("a machine has 1 to {MOST_CPUS}"),
        ),
    });
    let cpus = cpus.transpose()?;
    if file.types.is_empty() {
        return complain(0, "it names no type", "add [types.NAME] with `work_ns` and `fields`");
    }
    let types = in_order(file.types)
        .map(|(name, of)| of_type(name, of))
        .collect::<Result<Vec<TypeProfile>, Complaint>>()?;
    let source = source.to_owned();
    Ok(Profile { source, machine: file.machine, cpus, types, ..Profile::default() })
}

/// Returns a table's entries in the order of the file.
fn in_order<T>(table: Table<T>) -> impl Iterator<Item = (Spanned<String>, T)> {
    let mut entries: Vec<(Spanned<String>, T)> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries.into_iter()
}

fn of_type(name: Spanned<String>, of: OfType) -> Result<TypeProfile, Complaint> {
    let at = name.span().start;
    let OfType { stride, begins, work_ns, takes_ns, alone_ns, recording_ns, .. } = of;
    let instances = of.instances.map_or(Ok(Instances::default()), instances)?;
    let instances = row(instances, stride, begins)?;
    let timed = Timed { work_ns, takes_ns, alone_ns, recording_ns };
    let roles = match of.roles {
        None => {
            let phases = phases((name.get_ref(), at), of.fields, of.phases)?;
            let (work_ns, basis) = work(at, name.get_ref(), timed)?;
            vec![Role { name: EVERYONE.to_owned(), share: 1.0, work_ns, basis, phases }]
        }
        Some(_) if of.fields.is_some() || of.phases.is_some() => {
            let what = format!("{} has both `roles` and accesses of its own", name.get_ref());
            return complain(at, what, "put `fields` and `phases` into the roles");
        }
        Some(roles) => {
            let roles = roles.into_iter().map(|role| of_role(role, timed.clone()));
            dealt(at, name.get_ref(), roles.collect::<Result<_, _>>()?)?
        }
    };
    Ok(TypeProfile { name: name.into_inner(), instances, roles })
}

fn instances(given: Spanned<Number>) -> Result<Instances, Complaint> {
    let at = given.span().start;
    let (instances, said) = match given.into_inner() {
        Number::Word(word) => match word.as_str() {
            "shared" => (Some(Instances::Shared), word),
            "per cpu" => (Some(Instances::PerCpu), word),
            _ => (None, format!("{word:?}")),
        },
        Number::Count(count) => (
            usize::try_from(count).ok().filter(|&n| n > 0).map(Instances::Dealt),
            count.to_string(),
        ),
    };
    let advice = "write \"shared\", \"per cpu\", or how many there are";
    instances.map_or_else(|| complain(at, format!("`instances` is {said}"), advice), Ok)
}

/// Returns the instances with their row, if they lie in one.
fn row(
    instances: Instances,
    stride: Option<Spanned<u64>>,
    begins: Option<Spanned<u64>>,
) -> Result<Instances, Complaint> {
    let within = |what: &str, given: Spanned<u64>, least: u64, most: u64| {
        let (at, given) = (given.span().start, given.into_inner());
        if (least..=most).contains(&given) {
            return Ok(given);
        }
        complain(at, format!("`{what}` is {given}"), &format!("write bytes, {least} to {most}"))
    };
    match (stride, begins) {
        (None, None) => Ok(instances),
        (None, Some(begins)) => complain(
            begins.span().start,
            "`begins` stands without `stride`",
            "it says where objects in a row begin; of others `--base` says it",
        ),
        (Some(stride), _) if instances != Instances::PerCpu => complain(
            stride.span().start,
            "`stride` stands without \"per cpu\"",
            "objects of different CPUs lie in a row: write instances = \"per cpu\"",
        ),
        (Some(stride), begins) => Ok(Instances::Row(Row {
            stride: within("stride", stride, 1, LARGEST_STRIDE)?,
            begins: begins.map(|begins| within("begins", begins, 0, PAIR - 1)).transpose()?,
        })),
    }
}

fn of_role(role: OfRole, of_type: Timed) -> Result<Role, Complaint> {
    let OfRole { work_ns, takes_ns, alone_ns, recording_ns, .. } = role;
    let (at, name) = (role.name.span().start, role.name.into_inner());
    let share = *role.share.get_ref();
    if !(share > 0.0 && share <= 1.0) {
        let what = format!("`share` of {name} is {share}");
        return complain(role.share.span().start, what, "write which part of the CPUs, 0.25 say");
    }
    let phases = phases((&name, at), role.fields, role.phases)?;
    let own = Timed { work_ns, takes_ns, alone_ns, recording_ns };
    let (work_ns, basis) = work(at, &name, if own.is_empty() { of_type } else { own })?;
    Ok(Role { name, share, work_ns, basis, phases })
}

/// Returns the roles with shares that add up to one. A difference of a hundredth is accepted.
fn dealt(at: usize, name: &str, mut roles: Vec<Role>) -> Result<Vec<Role>, Complaint> {
    let sum: f64 = roles.iter().map(|role| role.share).sum();
    if (sum - 1.0).abs() > NEARLY {
        let sum = (sum * 1e4).round() / 1e4;
        let what = format!("the shares of the roles of {name} add up to {sum}");
        return complain(at, what, "they are parts of all CPUs and add up to 1");
    }
    if (sum - 1.0).abs() > 1e-9 {
        roles.iter_mut().for_each(|role| role.share /= sum);
    }
    Ok(roles)
}

/// Returns the work, and how it is known. If only the whole was timed, the work is the most that it can be.
fn work(at: usize, name: &str, timed: Timed) -> Result<(f64, WorkBasis), Complaint> {
    let within = |what: &str, at: usize, ns: f64, least: f64| {
        if (least..=LARGEST).contains(&ns) {
            return Ok(ns);
        }
        let advice = format!("write nanoseconds, {least} to {LARGEST:e}");
        complain(at, format!("`{what}` is {ns}"), &advice)
    };
    let Timed { work_ns: work, takes_ns: takes, alone_ns: alone, recording_ns: recording } = timed;
    let starts = |given: &Option<Spanned<f64>>| given.as_ref().map(|given| given.span().start);
    let wrong = |at: Option<usize>, what: &str, advice| {
        complain(at.unwrap_or_default(), format!("{name} has {what}"), advice)
    };
    let timed =
        |what, given: &Spanned<f64>| within(what, given.span().start, *given.get_ref(), 0.1);
    match (work, takes, alone) {
        (Some(_), takes @ Some(_), _) => wrong(
            starts(&takes),
            "both `work_ns` and `takes_ns`",
            "`takes_ns` is the whole operation with its waits, `work_ns` what it does besides these accesses: keep one",
        ),
        (Some(_), None, alone @ Some(_)) => wrong(
            starts(&alone),
            "both `work_ns` and `alone_ns`",
            "`alone_ns` is the whole operation of a thread that runs alone, `work_ns` what it does besides these \
             accesses: keep one",
        ),
        (None, None, None) => wrong(
            Some(at),
            "no `work_ns`",
            "write how many nanoseconds an operation takes beside these accesses, or `takes_ns`, what it takes \
             as a whole",
        ),
        (Some(_), None, None) if recording.is_some() => wrong(
            starts(&recording),
            "`recording_ns` and no `takes_ns`",
            "recording is a part of what was timed as a whole",
        ),
        (None, _, Some(_)) if recording.is_some() => wrong(
            starts(&recording),
            "both `alone_ns` and `recording_ns`",
            "time both without recording: what others cost a thread that records is not what they cost without",
        ),
        (Some(work), None, None) => {
            let at = work.span().start;
            match *work.get_ref() {
                Work::One(ns) => Ok((within("work_ns", at, ns, 0.0)?, WorkBasis::Stated)),
                Work::Between([low, high]) => {
                    let low = within("work_ns", at, low, 0.0)?;
                    let high = within("work_ns", at, high, low)?;
                    Ok((f64::midpoint(low, high), WorkBasis::Within { low, high }))
                }
            }
        }
        (None, takes, Some(alone)) => {
            let ns = timed("alone_ns", &alone)?;
            let takes_ns = takes.map(|takes| timed("takes_ns", &takes)).transpose()?;
            Ok((ns, WorkBasis::Alone { ns, takes_ns }))
        }
        (None, Some(takes), None) => {
            let ns = timed("takes_ns", &takes)?;
            let recording_ns = match recording {
                None => 0.0,
                Some(given) => {
                    let (at, part) = (given.span().start, *given.get_ref());
                    let part = within("recording_ns", at, part, 0.0)?;
                    if part > ns {
                        let what =
                            format!("`recording_ns` is {part}, of {ns} that an operation takes");
                        return complain(at, what, "recording is a part of it, all at most");
                    }
                    part
                }
            };
            Ok((ns - recording_ns, WorkBasis::Takes { ns, recording_ns }))
        }
    }
}

/// Returns the phases. The fields that every operation touches are the first one.
fn phases(
    (name, at): (&str, usize),
    always: Option<Spanned<Fields>>,
    others: Option<Vec<OfPhase>>,
) -> Result<Vec<Phase>, Complaint> {
    let mut phases = Vec::new();
    if let Some(fields) = always {
        phases.push(Phase { name: ALWAYS.to_owned(), times: 1.0, accesses: accesses(fields)? });
    }
    for phase in others.unwrap_or_default() {
        let times = rate("times", &phase.times)?;
        let accesses = accesses(phase.fields)?;
        phases.push(Phase { name: phase.name.into_inner(), times, accesses });
    }
    if phases.is_empty() {
        return complain(
            at,
            format!("{name} touches no field"),
            "add `fields = { NAME = { load = 1 } }` or [[... .phases]]",
        );
    }
    Ok(phases)
}

fn accesses(fields: Spanned<Fields>) -> Result<Vec<Access>, Complaint> {
    let at = fields.span().start;
    let mut accesses = Vec::new();
    for (field, rates) in in_order(fields.into_inner()) {
        let before = accesses.len();
        let given =
            [(Kind::Load, rates.load), (Kind::Store, rates.store), (Kind::Atomic, rates.atomic)];
        for (kind, given) in given {
            let Some(given) = given else { continue };
            let times = rate(kind.word(), &given)?;
            accesses.push(Access { field: field.get_ref().clone(), kind, times });
        }
        if accesses.len() == before {
            let what = format!("`{}` is never touched", field.get_ref());
            return complain(field.span().start, what, "write { load = 1 }, store or atomic");
        }
    }
    if accesses.is_empty() {
        return complain(at, "`fields` names no field", "write { NAME = { load = 1 } }");
    }
    Ok(accesses)
}

fn rate(what: &str, given: &Spanned<f64>) -> Result<f64, Complaint> {
    let rate = *given.get_ref();
    if rate > 0.0 && rate <= LARGEST {
        return Ok(rate);
    }
    complain(
        given.span().start,
        format!("`{what}` is {rate}"),
        "write how many times, more than 0; leave out what never happens",
    )
}
