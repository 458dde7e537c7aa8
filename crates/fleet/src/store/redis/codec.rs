//! Encodes messages for the functions, and decodes their replies. Decoding is strict, so that an invalid reply is an error.

use std::collections::BTreeMap;
use std::fmt;

use redis::{Cmd, Value};

use crate::book::{
    BudgetView, Change, Event, Full, HoldView, IncarnationView, Moved, NodeView, Refused, Rejected,
    View, What,
};
use crate::message::{Granted, Line, MAX_UNITS, Refusal, Reply, State, Sync};
use crate::store::error::shortened;

/// The revision of the functions that this client expects.
pub(super) const REVISION: u64 = 4;

/// The channel of a book's nudges, which is also the last of its keys.
pub(super) const CHANNEL: &str = "nudges";

/// The key of a book's budgets.
pub(super) const BUDGETS: &str = "budgets";

/// The keys of a book.
pub(super) const KEYS: [&str; 10] = [
    "settings",
    BUDGETS,
    "nodes",
    "incarnations",
    "holds",
    "index",
    "ends",
    "events",
    "refusals",
    CHANNEL,
];

/// The decoded value, or a description of why a reply is invalid.
pub(super) type Read<T> = Result<T, String>;

pub(super) fn nonsense<T>(what: &str, value: &impl fmt::Debug) -> Read<T> {
    let shown = shortened(&format_args!("{value:?}"), 200);
    Err(format!("{what} expected, and got {shown}"))
}

/// Adds the key and the field to an error.
fn in_field<T>(key: &str, field: &str, read: Read<T>) -> Read<T> {
    read.map_err(|what| {
        let field = shortened(&field.replace('\0', " "), 200);
        format!("key {key}, field {field:?}: {what}")
    })
}

pub(super) fn write_sync(command: &mut Cmd, message: &Sync) {
    let flag = if message.bye {
        "bye"
    } else if message.ended {
        "ended"
    } else {
        ""
    };
    command.arg(&message.node).arg(format!("{:016x}", message.incarnation));
    command.arg(message.sequence).arg(message.taken).arg(message.until).arg(message.left).arg(flag);
    command.arg(message.lines.len());
    for line in &message.lines {
        let Line { path, lease, used, want, least, urgent, next, waited, refused } = line;
        command.arg(path).arg(lease).arg(used).arg(want).arg(least);
        command.arg(urgent).arg(next).arg(waited).arg(refused);
    }
    for Refusal { number, budget, group, units, count, age } in &message.refusals {
        command.arg(number).arg(budget).arg(group).arg(units).arg(count).arg(age);
    }
}

pub(super) fn write_change(command: &mut Cmd, change: &Change) {
    let or_empty = |units: &Option<u64>| units.map(|units| units.to_string()).unwrap_or_default();
    match change {
        Change::By { who, change } => {
            command.arg("by").arg(who);
            write_change(command, change);
            command
        }
        Change::Repair => command.arg("repair"),
        Change::Set { path, limit, minimum } => {
            command.arg("set").arg(path).arg(or_empty(limit)).arg(or_empty(minimum))
        }
        Change::Delete { path } => command.arg("delete").arg(path),
        Change::Terms { ttl, grace } => {
            command.arg("terms").arg(or_empty(ttl)).arg(or_empty(grace))
        }
        Change::Drain { node, on } => command.arg("drain").arg(node).arg(u8::from(*on)),
    };
}

pub(super) fn read_reply(reply: &Value, message: &Sync) -> Read<Reply> {
    let numbers = array(reply)?.iter().map(number).collect::<Result<Vec<u64>, _>>()?;
    match numbers.as_slice() {
        [0, sequence, at, ttl, grace, lines @ ..]
            if *sequence == message.sequence && lines.len() == 8 * message.lines.len() =>
        {
            let lines = lines.chunks_exact(8).map(read_granted).collect::<Result<_, _>>()?;
            Ok(Reply::Synced { sequence: *sequence, at: *at, ttl: *ttl, grace: *grace, lines })
        }
        [1, sequence] if *sequence > message.sequence => Ok(Reply::Late { sequence: *sequence }),
        [2] => Ok(Reply::Fenced),
        _ => nonsense("a reply to the message", reply),
    }
}

fn read_granted(numbers: &[u64]) -> Read<Granted> {
    let [lease, asked, wanted, due, limit, leased, state, by] = *numbers else {
        return nonsense("a lease", &numbers);
    };
    let state = match (state, by) {
        (0, 0) => State::Open,
        (1, 1..) => State::Over { by },
        (2, _) => State::Closing,
        (3, 0) if lease == 0 => State::Unknown,
        (4, _) => State::Drained,
        (5, 0) => State::Learning,
        _ => return nonsense("the state of a budget", &numbers),
    };
    if [asked, wanted, due].iter().any(|part| *part > lease) {
        nonsense("at most the lease asked", &numbers)
    } else {
        Ok(Granted { lease, asked, wanted, due, limit, leased, state })
    }
}

pub(super) fn read_done(reply: &Value) -> Read<Result<(), Rejected>> {
    let words = array(reply)?.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let rejected = match words.as_slice() {
        [word] if word == "done" => return Ok(Ok(())),
        [word, path] if word == "no-budget" => Rejected::NoBudget(path.clone()),
        [word, path] if word == "no-limit" => Rejected::NoLimit(path.clone()),
        [word, path] if word == "below" => Rejected::HasBudgetsBelow(path.clone()),
        [word, path] if word == "closing" => Rejected::Closing(path.clone()),
        _ => return nonsense("the outcome of a change", reply),
    };
    Ok(Err(rejected))
}

pub(super) fn read_view(reply: &Value) -> Read<View> {
    let [at, time, ttl, grace, learning, budgets, nodes, incarnations, holds, events, refusals] =
        array(reply)?
    else {
        return nonsense("a book of eleven parts", reply);
    };
    // Leases end by the book's time, but operators see the store's clock.
    let (at, time) = (number(at)?, number(time)?);
    let shown = |when: u64| (when + at).saturating_sub(time);
    let mut budgets = read_budgets(budgets)?;
    for (path, hold) in read_holds(holds)? {
        let none = || BudgetView { path: path.clone(), lost: true, ..BudgetView::default() };
        budgets.entry(path.clone()).or_insert_with(none).holds.push(hold);
    }
    budgets.values_mut().for_each(recount);
    budgets.values_mut().for_each(|budget| budget.holds.sort());
    Ok(View {
        at,
        ttl: number(ttl)?,
        grace: number(grace)?,
        learning: number(learning)?,
        budgets: budgets.into_values().collect(),
        nodes: read_nodes(nodes, incarnations, shown)?,
        events: read_events(events)?,
        refusals: read_refusals(refusals)?,
    })
}

/// Recomputes a budget's sums from its holds. The stored sums may be wrong if the store lost keys.
fn recount(budget: &mut BudgetView) {
    let sum = |part: fn(&HoldView) -> u64| {
        budget.holds.iter().fold(0, |all: u64, hold| all.saturating_add(part(hold)))
    };
    budget.leased = sum(|hold| hold.lease);
    budget.excess = sum(|hold| hold.excess);
    budget.unmet = sum(|hold| hold.unmet);
    budget.waiting = sum(|hold| hold.waiting);
    budget.idle = sum(|hold| hold.lease.saturating_sub(hold.used));
    budget.lacking = sum(|hold| hold.lacking);
    budget.over = budget.leased.saturating_add(budget.excess).saturating_sub(budget.limit);
}

fn read_budgets(rows: &Value) -> Read<BTreeMap<String, BudgetView>> {
    let read = |row: &[Value]| {
        let path = text(&row[0])?;
        let row = in_field(BUDGETS, &path, numbers(&row[1..]))?;
        Ok((path.clone(), budget(path, row)))
    };
    chunks(rows, 19)?.map(read).collect()
}

/// Makes a budget from its row. The fourth number is the number of holds.
fn budget(path: String, row: [u64; 18]) -> BudgetView {
    let [limit, minimum, closing, _, leased, excess, unmet, idle, lacking, refused, waiting, ..] =
        row;
    BudgetView {
        path,
        limit,
        minimum,
        closing: closing != 0,
        leased,
        excess,
        over: (leased + excess).saturating_sub(limit),
        unmet,
        waiting,
        idle,
        lacking,
        refused,
        lost: false,
        holds: Vec::new(),
    }
}

/// Decodes rows in the stored form: eighteen doubles, little-endian.
pub(super) fn read_totals(reply: &Value, paths: &[String]) -> Read<Vec<Option<BudgetView>>> {
    let rows = array(reply)?;
    if rows.len() != paths.len() {
        return nonsense("a row for each path", &rows.len());
    }
    let read = |(row, path): (&Value, &String)| match row {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => match <&[u8; 144]>::try_from(bytes.as_slice()) {
            Ok(bytes) => Ok(Some(budget(path.clone(), doubles(bytes)?))),
            Err(_) => nonsense("eighteen numbers", row),
        },
        _ => nonsense("a stored row", row),
    };
    rows.iter().zip(paths).map(read).collect()
}

fn doubles(bytes: &[u8; 144]) -> Read<[u64; 18]> {
    let mut numbers = [0; 18];
    for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks().0) {
        let double = f64::from_le_bytes(*bytes);
        if !(0.0..=MAX_UNITS as f64).contains(&double) || double.fract() != 0.0 {
            return nonsense("a number of units", &double);
        }
        // A whole number up to 2^53.
        *number = double as u64;
    }
    Ok(numbers)
}

fn read_holds(rows: &Value) -> Read<Vec<(String, HoldView)>> {
    let read = |row: &[Value]| {
        let field = text(&row[0])?;
        let [node, incarnation, path] = field.split('\0').collect::<Vec<_>>()[..] else {
            return nonsense("node, incarnation and path", &field);
        };
        let row = digits(incarnation).and_then(|digits| Ok((digits, numbers(&row[1..])?)));
        let (incarnation, row) = in_field("holds", &field, row)?;
        Ok((path.to_owned(), hold(node.to_owned(), incarnation, row)))
    };
    chunks(rows, 13)?.map(read).collect()
}

/// Makes a hold from its row. The fifth number is that of the last message.
fn hold(node: String, incarnation: u64, row: [u64; 12]) -> HoldView {
    let [lease, used, want, refused, _, excess, unmet, lacking, waiting, ..] = row;
    HoldView { node, incarnation, lease, used, want, excess, unmet, waiting, lacking, refused }
}

fn read_nodes(
    nodes: &Value,
    incarnations: &Value,
    shown: impl Fn(u64) -> u64,
) -> Read<Vec<NodeView>> {
    let mut read: BTreeMap<String, (u64, NodeView)> = BTreeMap::new();
    for row in chunks(nodes, 2)? {
        let (name, words) = (text(&row[0])?, text(&row[1])?);
        let [current, draining @ ("0" | "1"), ..] = words.split(' ').collect::<Vec<_>>()[..] else {
            return in_field("nodes", &name, nonsense("a node", &words));
        };
        let current = in_field("nodes", &name, digits(current))?;
        let node = NodeView { name, draining: draining == "1", incarnations: Vec::new() };
        read.insert(node.name.clone(), (current, node));
    }
    for row in chunks(incarnations, 8)? {
        let who = text(&row[0])?;
        let Some((name, incarnation)) = who.split_once('\0') else {
            return nonsense("node and incarnation", &who);
        };
        let row = digits(incarnation).and_then(|digits| Ok((digits, numbers(&row[1..])?)));
        let (incarnation, row) = in_field("incarnations", &who, row)?;
        let [sequence, _, _, ends, freed, _, left] = row;
        // The store may have lost the node's row.
        let node = || NodeView { name: name.to_owned(), ..NodeView::default() };
        let (current, node) = read.entry(name.to_owned()).or_insert_with(|| (incarnation, node()));
        if left == 0 {
            let fenced = incarnation != *current;
            let (ends, freed) = (shown(ends), shown(freed));
            node.incarnations.push(IncarnationView { incarnation, fenced, sequence, ends, freed });
        }
    }
    read.values_mut().for_each(|(_, node)| node.incarnations.sort());
    Ok(read.into_values().map(|(_, node)| node).filter(NodeView::is_here).collect())
}

fn read_events(list: &Value) -> Read<Vec<Event>> {
    let events = array(list)?.iter().zip(0..);
    events.map(|(event, at)| in_field("events", &i64::to_string(&at), read_event(event))).collect()
}

fn read_event(value: &Value) -> Read<Event> {
    let words = text(value)?;
    let (at, node, what) = match words.split('\0').collect::<Vec<_>>()[..] {
        [at, node, "adopted", path, adopted, over] => {
            let (path, adopted) = (path.to_owned(), units(adopted)?);
            (at, node, What::Adopted { path, units: adopted, over: units(over)? })
        }
        [at, node, "fenced", start] => (at, node, What::Fenced { incarnation: digits(start)? }),
        [at, node, "ended", start] => (at, node, What::Ended { incarnation: digits(start)? }),
        [at, who, "set", path, max, to_max, min, to_min] => {
            let (limit, minimum) = (moved(max, to_max)?, moved(min, to_min)?);
            (at, who, What::Set { path: path.to_owned(), limit, minimum })
        }
        [at, who, "deleted", path] => (at, who, What::Deleted { path: path.to_owned() }),
        [at, who, "terms", ttl, to_ttl, grace, to_grace] => {
            let (ttl, grace) = (moved(ttl, to_ttl)?, moved(grace, to_grace)?);
            (at, who, What::Terms { ttl, grace })
        }
        [at, who, "drained", node, on @ ("0" | "1")] => {
            (at, who, What::Drained { node: node.to_owned(), on: on == "1" })
        }
        [at, who, "repaired", budgets] => (at, who, What::Repaired { budgets: units(budgets)? }),
        [at, who, "damaged", budgets] => (at, who, What::Damaged { budgets: units(budgets)? }),
        _ => return nonsense("an event", &words),
    };
    Ok(Event { at: units(at)?, node: node.to_owned(), what })
}

fn moved(from: &str, to: &str) -> Read<Moved> {
    let from = (!from.is_empty()).then(|| units(from)).transpose()?;
    Ok(Moved { from, to: units(to)? })
}

/// Decodes refusals, sorted by their fields, which number them in the order in which they were noted.
fn read_refusals(rows: &Value) -> Read<Vec<Refused>> {
    let read = |row: &[Value]| -> Read<(u64, Refused)> {
        let field = text(&row[0])?;
        let place = in_field("refusals", &field, units(&field))?;
        Ok((place, in_field("refusals", &field, read_refusal(&text(&row[1])?))?))
    };
    let read: BTreeMap<u64, Refused> = chunks(rows, 2)?.map(read).collect::<Result<_, _>>()?;
    Ok(read.into_values().collect())
}

fn read_refusal(words: &str) -> Read<Refused> {
    let [_, since, at, full, largest, count, node, incarnation, budget, group] =
        words.split('\0').collect::<Vec<_>>()[..]
    else {
        return nonsense("a refusal", &words);
    };
    let full = match full {
        "0" => Full::Limit,
        "1" => Full::Lease,
        "2" => Full::Deleted,
        "3" => Full::Drained,
        _ => return nonsense("what stands in the way", &full),
    };
    let (since, at) = (units(since)?, units(at)?);
    let [node, budget, group] = [node, budget, group].map(str::to_owned);
    let (units, count, incarnation) = (units(largest)?, units(count)?, digits(incarnation)?);
    Ok(Refused { since, at, node, incarnation, budget, group, full, units, count })
}

fn units(word: &str) -> Read<u64> {
    match word.parse::<u64>() {
        Ok(units) if units <= MAX_UNITS => Ok(units),
        _ => nonsense("a number of units", &word),
    }
}

fn array(value: &Value) -> Read<&[Value]> {
    match value {
        Value::Array(values) => Ok(values),
        _ => nonsense("an array", value),
    }
}

fn chunks(value: &Value, size: usize) -> Read<std::slice::ChunksExact<'_, Value>> {
    match array(value)? {
        values if values.len() % size == 0 => Ok(values.chunks_exact(size)),
        values => nonsense("whole rows", &values.len()),
    }
}

fn number(value: &Value) -> Read<u64> {
    match value {
        Value::Int(number) if (0..=MAX_UNITS as i64).contains(number) => Ok(*number as u64),
        _ => nonsense("a number of units", value),
    }
}

fn numbers<const N: usize>(values: &[Value]) -> Read<[u64; N]> {
    let numbers = values.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    numbers.try_into().or_else(|numbers| nonsense("a row", &numbers))
}

fn text(value: &Value) -> Read<String> {
    let text = match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    };
    text.map_or_else(|| nonsense("text", value), Ok)
}

fn digits(text: &str) -> Read<u64> {
    match u64::from_str_radix(text, 16) {
        Ok(incarnation) if text.len() == 16 => Ok(incarnation),
        _ => nonsense("an incarnation", &text),
    }
}
