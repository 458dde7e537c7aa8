//! Makes a [`Profile`] from counts: threads become roles, operations become phases.
//!
//! Threads that touch the same fields in the same ways play one role. Accesses in less than a thousandth of a thread's
//! operations are ignored for that. Operations that touched the same fields are a phase. If no function was named, each
//! access is an operation and each field a phase of its own, because it is not known which accesses belong together.

use crate::profile::{self, Access, Instances, Kind, Phase, Profile, Role, TypeProfile, WorkBasis};
use crate::recording::plan::Plan;
use crate::recording::read::{Measured, Recording, Row, RowKind, Thread, Used, add};
use ledgerline_record::format::{KINDS, MANY, PAIR};
use std::collections::{BTreeMap, BTreeSet};

/// The share of operations below which accesses do not separate a thread from others.
const RARE: f64 = 1e-3;
/// Without named operations, a thread with a smaller share of the busiest one's accesses is left out: it only
/// initialized the objects.
const IDLE: f64 = 0.01;
/// The most phases of a role. The rarest are merged.
const MOST_PHASES: usize = 8;
/// Objects lie in a row if at least one in this many is beside one of another thread.
const MANY_BESIDE: u64 = 4;
/// Most objects of a row that are used to find its begin. Offsets in a pair repeat after at most 128 objects.
const ROW_LOOKED_AT: u64 = 1 << 10;
/// The least number of operations for a time of one.
const TIMED: u64 = 16;

/// A profile, and the data behind it.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The profile.
    pub profile: Profile,
    /// The basis of each of the profile's types, in the same order.
    pub types: Vec<Basis>,
}

/// The data behind a type's profile.
#[derive(Clone, Debug, Default)]
pub struct Basis {
    /// The number of the type in the plan.
    pub ty: usize,
    /// Threads that play a role.
    pub threads: usize,
    /// Threads that touched the type and play no role, and the number of their accesses.
    pub left_out: (usize, u64),
    /// The data behind each role, in the order of the profile's roles.
    pub roles: Vec<RoleBasis>,
    /// By field, the number of threads that touch it.
    pub users: BTreeMap<String, usize>,
    /// Objects that one thread used, and objects that several threads used.
    pub objects: (u64, u64),
    /// How often an object of one thread was on a pair of lines with the next one, of another thread.
    pub neighbours: u64,
}

/// The data behind a role.
#[derive(Clone, Debug, Default)]
pub struct RoleBasis {
    /// Threads that play it.
    pub threads: usize,
    /// The number of operations of all of them.
    pub operations: u64,
    /// Measured CPU time of an operation, recording included, in nanoseconds; `None` if there were too few operations.
    pub measured_ns: Option<f64>,
}

/// Makes a profile of recordings.
#[must_use]
pub fn profile(plan: &Plan, recordings: &[Recording]) -> Recorded {
    let mut recorded = Recorded::default();
    let mut most = 0;
    for ty in 0..plan.types.len() {
        let Some((profile, basis)) = of_type(plan, recordings, ty) else { continue };
        most = most.max(basis.threads);
        recorded.profile.types.push(profile);
        recorded.types.push(basis);
    }
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    recorded.profile.cpus = (most > 0).then_some(most.min(at_once));
    recorded
}

/// A thread's accesses to a type.
struct Part<'r> {
    recording: &'r Recording,
    thread: &'r Thread,
    rows: &'r [Row],
}

type Counts = [u64; KINDS];
/// Counts of fields, in the order of their first access.
type Fields = Vec<(String, Counts)>;

fn of_type(plan: &Plan, recordings: &[Recording], ty: usize) -> Option<(TypeProfile, Basis)> {
    let named = !plan.operations.is_empty();
    let mut parts = Vec::new();
    for recording in recordings {
        for thread in &recording.threads {
            for table in thread.tables.iter().filter(|table| table.ty == ty) {
                parts.push(Part { recording, thread, rows: &table.rows });
            }
        }
    }
    let busiest = parts.iter().map(|part| accesses(part.rows)).max()?;
    let mut basis = Basis { ty, ..Basis::default() };
    let (parts, idle): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| {
        if named {
            part.rows.iter().any(|row| row.operations > 0)
        } else {
            accesses(part.rows) as f64 >= busiest as f64 * IDLE && busiest > 0
        }
    });
    basis.left_out = (idle.len(), sum(idle.iter().map(|part| accesses(part.rows))));
    if parts.is_empty() {
        return None;
    }
    basis.threads = parts.len();
    let mut groups: BTreeMap<BTreeSet<(String, usize)>, Vec<Part<'_>>> = BTreeMap::new();
    for part in parts {
        let fields = fields(plan, ty, counted_rows(part.rows, named));
        let usual = fields.into_iter().flat_map(|(path, counts)| {
            *basis.users.entry(path.clone()).or_default() += 1;
            let often = |kind: &usize| counts[*kind] as f64 >= part.thread.operations as f64 * RARE;
            let kinds: Vec<usize> =
                (0..KINDS).filter(|kind| counts[*kind] > 0 && often(kind)).collect();
            kinds.into_iter().map(move |kind| (path.clone(), kind))
        });
        groups.entry(usual.collect()).or_default().push(part);
    }
    let mut groups: Vec<Vec<Part<'_>>> = groups.into_values().collect();
    groups.sort_by_key(|group| (std::cmp::Reverse(group.len()), first(group)));
    let size = plan.types[ty].size as u64;
    let instances = instances(recordings, (ty, size), &groups, &mut basis);
    let roles = groups.iter().map(|group| role(plan, ty, group, basis.threads, named));
    let (mut roles, rests): (Vec<_>, Vec<_>) = roles.unzip();
    basis.roles = rests;
    distinct(&mut roles);
    let name = plan.types[ty].name.clone();
    Some((TypeProfile { name, instances, roles }, basis))
}

fn first(group: &[Part<'_>]) -> (u64, usize) {
    group.first().map_or((0, 0), |part| (part.recording.process, part.thread.number))
}

/// Roles are named after their threads. A number distinguishes equal names.
fn distinct(roles: &mut [Role]) {
    for index in 1..roles.len() {
        let (before, role) = roles.split_at_mut(index);
        let name = role[0].name.clone();
        let mut number = 2;
        while before.iter().any(|other| other.name == role[0].name) {
            role[0].name = format!("{name} {number}");
            number += 1;
        }
    }
}

/// Returns the rows of operations, or all rows if no operation was named.
fn counted_rows(rows: &[Row], named: bool) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |row| (row.kind == RowKind::Outside) != named)
}

/// Returns a saturating sum: a program may have overwritten its own recording.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

fn accesses(rows: &[Row]) -> u64 {
    sum(rows.iter().flat_map(|row| row.counts.iter().flatten().copied()))
}

/// Returns the fields that rows touch, in the order of the first row that has an order.
fn fields<'r>(plan: &Plan, ty: usize, rows: impl Iterator<Item = &'r Row>) -> Fields {
    let paths = &plan.types[ty].cells.paths;
    let mut fields: Fields = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        let ordered: &[u16] = if let RowKind::Together(cells) = &row.kind { cells } else { &[] };
        let rest = (0..paths.len()).filter(|&cell| row.counts[cell].iter().any(|&count| count > 0));
        for cell in ordered.iter().map(|&cell| usize::from(cell)).chain(rest) {
            let path = &*paths[cell];
            places.entry(path).or_insert_with(|| {
                fields.push((path.to_owned(), [0; KINDS]));
                fields.len() - 1
            });
        }
        for (cell, counts) in row.counts.iter().enumerate() {
            if let Some(&place) = places.get(&*paths[cell]) {
                fields[place].1.iter_mut().zip(counts).for_each(|(sum, &count)| add(sum, count));
            }
        }
    }
    fields
}

fn role(
    plan: &Plan,
    ty: usize,
    group: &[Part<'_>],
    threads: usize,
    named: bool,
) -> (Role, RoleBasis) {
    let operations = sum(group.iter().map(|part| part.thread.operations));
    let phases = if named {
        phases(plan, ty, group, operations)
    } else {
        let rows = group.iter().flat_map(|part| counted_rows(part.rows, named));
        single_fields(fields(plan, ty, rows), operations)
    };
    let (work_ns, measured_ns) = work(group);
    let name = group.first().map_or("", |part| &*part.thread.name);
    let role = Role {
        name: if name.is_empty() { "thread".to_owned() } else { name.to_owned() },
        share: group.len() as f64 / threads as f64,
        work_ns,
        // The time includes the waits of the recorded program. The work is the rest after their simulation.
        basis: match measured_ns {
            Some(ns) if ns > work_ns => WorkBasis::Takes { ns, recording_ns: tenths(ns - work_ns) },
            _ => WorkBasis::Stated,
        },
        phases,
    };
    (role, RoleBasis { threads: group.len(), operations, measured_ns })
}

/// Rounds to tenths of a nanosecond, the precision of the measurement.
fn tenths(nanoseconds: f64) -> f64 {
    (nanoseconds * 10.0).round() / 10.0
}

/// Returns the time of an operation in nanoseconds, without and with the cost of recording.
fn work(group: &[Part<'_>]) -> (f64, Option<f64>) {
    let (mut all, mut own, mut operations) = (0.0, 0.0, 0u64);
    for Part { recording, thread, .. } in group {
        let Measured { nanoseconds, operations: done, probes, counted } = thread.measured;
        let cost = recording.cost;
        let recording =
            probes as f64 * cost.probe + counted as f64 * cost.count + done as f64 * cost.operation;
        all += nanoseconds as f64;
        own += (nanoseconds as f64 - recording).max(0.0);
        add(&mut operations, done);
    }
    if operations < TIMED {
        return (0.0, None);
    }
    let each = |sum: f64| tenths(sum / operations as f64);
    (each(own), Some(each(all)))
}

/// Returns the phases: operations that touched the same fields, the most frequent first.
fn phases(plan: &Plan, ty: usize, group: &[Part<'_>], operations: u64) -> Vec<Phase> {
    let mut rows: BTreeMap<Vec<u16>, Vec<&Row>> = BTreeMap::new();
    for row in group.iter().flat_map(|part| part.rows).filter(|row| row.operations > 0) {
        let mut key = match &row.kind {
            RowKind::Together(cells) => cells.clone(),
            _ => Vec::new(),
        };
        key.sort_unstable();
        rows.entry(key).or_default().push(row);
    }
    let times = |rows: &[&Row]| sum(rows.iter().map(|row| row.operations));
    // Operations without a key are merged with the rarest phases at the end.
    let rest = rows.remove(&Vec::new()).unwrap_or_default();
    let mut sorted: Vec<Vec<&Row>> = rows.into_values().collect();
    sorted.sort_by_key(|rows| std::cmp::Reverse(times(rows)));
    let all = sorted.len() + usize::from(!rest.is_empty());
    let room = if all > MOST_PHASES { MOST_PHASES - 1 } else { sorted.len() };
    let rest: Vec<&Row> = sorted.drain(room..).flatten().chain(rest).collect();
    let mut phases: Vec<Phase> = Vec::new();
    for rows in &sorted {
        let name = format!("phase {}", phases.len() + 1);
        phases.push(phase(name, times(rows), operations, fields(plan, ty, rows.iter().copied())));
    }
    if !rest.is_empty() {
        let fields = fields(plan, ty, rest.iter().copied());
        phases.push(phase("rest".to_owned(), times(&rest), operations, fields));
    }
    phases
}

fn phase(name: String, times: u64, operations: u64, fields: Fields) -> Phase {
    let accesses = fields.into_iter().flat_map(|(path, counts)| accesses_of(path, counts, times));
    Phase { name, times: times as f64 / operations.max(1) as f64, accesses: accesses.collect() }
}

/// Makes a phase of each field.
fn single_fields(fields: Fields, operations: u64) -> Vec<Phase> {
    let single = |field: (String, Counts)| {
        phase(field.0.clone(), sum(field.1.into_iter()), operations, vec![field])
    };
    fields.into_iter().map(single).collect()
}

fn accesses_of(path: String, counts: Counts, times: u64) -> Vec<Access> {
    [Kind::Load, Kind::Store, Kind::Atomic]
        .into_iter()
        .zip(counts)
        .filter(|&(_, count)| count > 0)
        .map(|(kind, count)| {
            let times = count as f64 / times.max(1) as f64;
            Access { field: path.clone(), kind, times }
        })
        .collect()
}

/// Returns how the threads that play a role share objects.
///
/// One object that several threads use is shared. If each object has one user, each CPU has its own; if many of them
/// are on a pair of lines with an object of another thread, they lie in a row, with the most frequent distance. If
/// several objects have several users each, the threads are taken to form groups with an object each: as many groups as
/// there are threads for each user of an object. If each object has only one other user, a thread with less than a
/// hundredth of the busiest one's operations, like one that sums up now and then, is ignored. A single thread shares
/// nothing, so its objects count as dealt out.
fn instances(
    recordings: &[Recording],
    of: (usize, u64),
    groups: &[Vec<Part<'_>>],
    basis: &mut Basis,
) -> Instances {
    let all = used_by(recordings, of, groups, 0.0, basis);
    if basis.objects.1 > 0 {
        let mut busy = basis.clone();
        let without = used_by(recordings, of, groups, IDLE, &mut busy);
        if let (2.., 0) = busy.objects {
            *basis = busy;
            return without;
        }
    }
    all
}

/// Does the same for threads with at least `least` of the busiest one's operations.
fn used_by(
    recordings: &[Recording],
    (ty, size): (usize, u64),
    groups: &[Vec<Part<'_>>],
    least: f64,
    basis: &mut Basis,
) -> Instances {
    basis.objects = (0, 0);
    let (mut most, mut shared_users, mut untold) = (0, 0u64, 0u64);
    let busiest = groups.iter().flatten().map(|part| part.thread.operations).max().unwrap_or(0);
    let mut rows: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for recording in recordings {
        let threads = groups.iter().flatten().filter(|part| {
            std::ptr::eq(part.recording, recording)
                && part.thread.operations as f64 >= busiest as f64 * least
        });
        let numbers: Vec<usize> = threads.map(|part| part.thread.number).collect();
        let mask = numbers.iter().fold(0u64, |mask, &number| mask | 1 << number.min(MANY));
        most = most.max(numbers.len());
        let beside = recording.neighbours.iter().filter(|beside| beside.ty == ty);
        for beside in beside.filter(|beside| beside.differ & mask != 0) {
            let places = rows.entry(beside.stride).or_default();
            add(places.entry(beside.begins).or_default(), beside.pairs);
        }
        for &Used { users, objects, .. } in recording.objects.iter().filter(|used| used.ty == ty) {
            let several = u64::from(users & mask & 1 << MANY != 0);
            match u64::from((users & mask).count_ones()) + several {
                0 => {}
                // The user is one or several of the threads that share the last bit.
                _ if users & mask == 1 << MANY => add(&mut untold, objects),
                1 => add(&mut basis.objects.0, objects),
                many => {
                    add(&mut basis.objects.1, objects);
                    add(&mut shared_users, many.saturating_mul(objects));
                }
            }
        }
    }
    // Only objects of these threads are known: they are taken to be shared.
    if basis.objects == (0, 0) {
        basis.objects.1 = untold;
        shared_users = untold.saturating_mul(2);
    }
    basis.neighbours = sum(rows.values().flat_map(BTreeMap::values).copied());
    let (own, shared) = basis.objects;
    if shared > 0 {
        let each = shared_users as f64 / shared as f64;
        match (most as f64 / each).round() as usize {
            0 | 1 => Instances::Shared,
            groups => Instances::Dealt(groups),
        }
    } else if most > 1 || basis.threads > 1 {
        let row = rows.into_iter().max_by_key(|(_, places)| sum(places.values().copied()));
        match row.filter(|_| basis.neighbours.saturating_mul(MANY_BESIDE) >= own) {
            Some((stride, places)) => {
                let begins = first_of(&places, stride, (size, own));
                Instances::Row(profile::Row { stride, begins })
            }
            None => Instances::PerCpu,
        }
    } else {
        match own {
            0 | 1 => Instances::Shared,
            many => Instances::Dealt(many as usize),
        }
    }
}

/// Returns where in a pair of lines a row of `objects` objects of `size` bytes begins. `places` holds how many objects
/// that share a pair with the next one begin at each offset. The begin that fits these best wins, and among equals the
/// one with more objects.
fn first_of(places: &BTreeMap<u64, u64>, stride: u64, (size, objects): (u64, u64)) -> Option<u64> {
    let pair = PAIR as u64;
    let misses = |begins: u64| {
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        for index in 0..objects.saturating_sub(1).min(ROW_LOOKED_AT) {
            let start = begins + index * stride;
            if (start + size.max(1) - 1) / pair == (start + stride) / pair {
                *expected.entry(start % pair).or_default() += 1;
            }
        }
        let of = |map: &BTreeMap<u64, u64>, place: u64| map.get(&place).copied().unwrap_or(0);
        (0..pair).map(|place| of(&expected, place).abs_diff(of(places, place))).sum::<u64>()
    };
    // The first object may be alone on its pair.
    let before = |begins: u64| (begins + pair - stride % pair) % pair;
    let candidates = places.keys().flat_map(|&begins| [begins, before(begins)]);
    candidates.min_by_key(|&begins| {
        (misses(begins), std::cmp::Reverse(places.get(&begins).copied()), begins)
    })
}

#[cfg(test)]
mod tests;
