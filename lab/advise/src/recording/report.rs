//! Prints the counts as text and as JSON.

use crate::profile::{Instances, Kind, Row, TypeProfile};
use crate::recording::plan::Plan;
use crate::recording::profile::{Basis, Recorded};
use crate::recording::read::{Losses, Recording, add};
use ledgerline_layout::show::without_zeros;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Most allocating functions that are named.
const MOST_SITES: usize = 4;
/// Longer names are printed without their generic arguments.
const LONGEST: usize = 40;

/// Returns a table for each type, with how often an operation reads and writes each field, and how many threads do.
/// Reasons to doubt the figures follow. `function_at` names the function at an address of the program's file.
#[must_use]
pub fn text(
    plan: &Plan,
    recordings: &[Recording],
    recorded: &Recorded,
    function_at: &dyn Fn(u64) -> Option<String>,
) -> String {
    let mut out = String::new();
    for (profile, basis) in recorded.profile.types.iter().zip(&recorded.types) {
        of_type(&mut out, plan, profile, basis);
        for rounded in [false, true] {
            heap(&mut out, plan, recordings, function_at, (basis.ty, rounded));
        }
        out.push('\n');
    }
    notes(&mut out, plan, recordings);
    out
}

// Writing to a string does not fail.
fn of_type(out: &mut String, plan: &Plan, profile: &TypeProfile, basis: &Basis) {
    let size = plan.types[basis.ty].size;
    let _ = writeln!(out, "{}, {size} bytes: {}", short(&profile.name), objects(profile, basis));
    let paths = plan.types[basis.ty].cells.paths.iter();
    let fields = distinct(paths.filter(|path| basis.users.contains_key(*path)));
    let shown: Vec<String> = fields.iter().map(|of| path(of)).collect();
    let wide = shown.iter().map(|path| path.chars().count()).max().unwrap_or(0).max(5);
    let per = if plan.operations.is_empty() { "of all accesses" } else { "an operation" };
    let _ = writeln!(
        out,
        "  {:wide$}  {:>10}  {:>10}  {:>10}  {:>7}    ({per})",
        "field", "reads", "writes", "atomics", "threads"
    );
    for (path, shown) in fields.into_iter().zip(&shown) {
        let times = |kind| rate(times(profile, basis, path, kind));
        let _ = writeln!(
            out,
            "  {:wide$}  {:>10}  {:>10}  {:>10}  {:>7}",
            shown,
            times(Kind::Load),
            times(Kind::Store),
            times(Kind::Atomic),
            basis.users[path]
        );
    }
    for (role, rests) in profile.roles.iter().zip(&basis.roles) {
        let what = if plan.operations.is_empty() { "accesses" } else { "operations" };
        let _ = write!(
            out,
            "  {}: {}, {} {what}",
            short(&role.name),
            many(rests.threads as u64, "thread"),
            rests.operations
        );
        let _ = match rests.measured_ns {
            // The rest is no larger than the error of the cost that was subtracted.
            Some(measured) if role.work_ns < measured / 10.0 => {
                writeln!(out, "; each took {measured} ns, nearly all of it for recording")
            }
            Some(measured) => {
                // Recording changes how long threads wait for each other.
                let unsure = role.work_ns < measured / 2.0;
                let better = if unsure { ": time it without, for `advise --takes`" } else { "" };
                writeln!(
                    out,
                    "; each takes about {} ns, waits included ({measured} ns as recorded){better}",
                    role.work_ns
                )
            }
            None => writeln!(out, "; too few to say how long one takes"),
        };
        if !plan.operations.is_empty() {
            for phase in &role.phases {
                let fields = distinct(phase.accesses.iter().map(|access| path(&access.field)));
                let _ =
                    writeln!(out, "    {:>6} %  {}", rate(phase.times * 100.0), fields.join(" "));
            }
        }
    }
    let (threads, accesses) = basis.left_out;
    if threads > 0 {
        let _ = writeln!(
            out,
            "  left out: {} with {}{}",
            many(threads as u64, "thread"),
            if accesses == 1 { "1 access".to_owned() } else { format!("{accesses} accesses") },
            if plan.operations.is_empty() { "" } else { " and no operation" }
        );
    }
}

/// Returns how often an operation touches a field in a way, averaged over all operations.
fn times(profile: &TypeProfile, basis: &Basis, path: &str, kind: Kind) -> f64 {
    let (mut touched, mut operations) = (0.0, 0.0);
    for (role, rests) in profile.roles.iter().zip(&basis.roles) {
        operations += rests.operations as f64;
        for phase in &role.phases {
            let here = phase.accesses.iter().filter(|of| of.field == path && of.kind == kind);
            let each: f64 = here.map(|access| access.times).sum();
            touched += rests.operations as f64 * phase.times * each;
        }
    }
    touched / f64::max(operations, 1.0)
}

/// Returns each item once, at its first place.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut list, item| {
        if !list.contains(&item) {
            list.push(item);
        }
        list
    })
}

fn objects(profile: &TypeProfile, basis: &Basis) -> String {
    let (own, shared) = basis.objects;
    let mut parts = Vec::new();
    for (count, how) in [(shared, "shared by several threads"), (own, "used by one thread each")] {
        if count > 0 {
            parts.push(format!("{} {how}", many(count, "object")));
        }
    }
    let instances = match profile.instances {
        Instances::Shared if shared > 1 => {
            "one for all CPUs, which is too much waiting where each operation takes any of them"
                .to_owned()
        }
        Instances::Shared => "one for all CPUs".to_owned(),
        Instances::PerCpu => "one a CPU".to_owned(),
        Instances::Row(Row { stride, .. }) => format!(
            "one a CPU, {stride} bytes apart: those of two threads lie on a line, or a pair"
        ),
        Instances::Dealt(count) => format!("{count} dealt out to the CPUs"),
    };
    let alone = if basis.threads == 1 { " (one thread says nothing of sharing)" } else { "" };
    format!("{}; taken as {instances}{alone}", parts.join(", "))
}

/// Prints which functions allocated the blocks that count as objects by their size, or by their rounded size.
fn heap(
    out: &mut String,
    plan: &Plan,
    recordings: &[Recording],
    function_at: &dyn Fn(u64) -> Option<String>,
    (ty, rounded): (usize, bool),
) {
    let mut sites: BTreeMap<String, u64> = BTreeMap::new();
    let all = recordings.iter().flat_map(|recording| &recording.sites);
    for site in all.filter(|site| (site.ty, site.rounded) == (ty, rounded)) {
        let name = match site.address {
            Some(address) => function_at(address).unwrap_or_else(|| format!("{address:#x}")),
            None => "other libraries".to_owned(),
        };
        add(sites.entry(name).or_default(), site.blocks);
    }
    if sites.is_empty() {
        return;
    }
    let (list, more) =
        most(sites, ", and others", |(name, blocks)| format!("{} ({blocks})", short(&name)));
    let of = &plan.types[ty];
    let (how, alike) = if rounded {
        (" rounded up to their alignment", &of.alike_rounded)
    } else {
        ("", &of.alike)
    };
    let _ = write!(out, "  by their size{how}, blocks from {list}{more}");
    if !alike.is_empty() {
        let alike: Vec<String> = alike.iter().map(|name| short(name)).collect();
        let _ = write!(
            out,
            "; {} {} as large{}: --site FUNCTION says who allocates this one",
            alike.join(", "),
            if alike.len() == 1 { "is" } else { "are" },
            if rounded { " when rounded up" } else { "" }
        );
    }
    out.push('\n');
}

/// Formats the largest entries of a tally, and the word for further ones.
fn most<K>(
    tally: BTreeMap<K, u64>,
    more: &'static str,
    word: impl Fn((K, u64)) -> String,
) -> (String, &'static str) {
    let mut sorted: Vec<(K, u64)> = tally.into_iter().collect();
    sorted.sort_by_key(|each| std::cmp::Reverse(each.1));
    let more = if sorted.len() > MOST_SITES { more } else { "" };
    let words: Vec<String> = sorted.into_iter().take(MOST_SITES).map(word).collect();
    (words.join(", "), more)
}

/// Returns the losses of all processes.
fn losses(recordings: &[Recording]) -> Losses {
    let mut losses = Losses::default();
    for of in recordings.iter().map(|recording| recording.losses) {
        add(&mut losses.no_room, of.no_room);
        add(&mut losses.overlapping, of.overlapping);
        add(&mut losses.unasked, of.unasked);
        add(&mut losses.unknown_names, of.unknown_names);
        add(&mut losses.dropped, of.dropped);
        add(&mut losses.unfinished, of.unfinished);
        add(&mut losses.ambiguous, of.ambiguous);
        if of.ambiguous_size > losses.ambiguous_size {
            losses.ambiguous_size = of.ambiguous_size;
            losses.ambiguous_align = of.ambiguous_align;
        }
    }
    losses
}

fn notes(out: &mut String, plan: &Plan, recordings: &[Recording]) {
    let losses = losses(recordings);
    if losses.ambiguous > 0 {
        let (size, align) = (losses.ambiguous_size, losses.ambiguous_align.max(1));
        let names = |align: u64| -> Vec<String> {
            plan.types
                .iter()
                .filter(|of| (of.size as u64).checked_next_multiple_of(align) == Some(size))
                .take(4)
                .map(|of| format!("`{}`", short(&of.name)))
                .collect()
        };
        let names = [names(1), names(align)].into_iter().find(|names| !names.is_empty());
        let names = names.map_or(String::new(), |names| format!(" ({})", names.join(", ")));
        let _ = writeln!(
            out,
            "not recorded: {} that may be one of several wanted types, the first of {size} bytes{names}; name one \
             with --type, or say which with LEDGERLINE_OBJECT",
            many(losses.ambiguous, "block")
        );
    }
    if losses.unasked > 0 {
        let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
        for (&ty, blocks) in recordings.iter().flat_map(|recording| &recording.unasked) {
            add(sums.entry(ty).or_default(), *blocks);
        }
        let (list, more) =
            most(sums, " and others", |(ty, _)| format!("`{}`", short(&plan.types[ty].name)));
        let _ = writeln!(
            out,
            "not recorded: {} of several times the size of {list}{more}, in use and maybe arrays; --heap arrays takes \
             them for objects",
            many(losses.unasked, "block")
        );
    }
    let mut lost = |count: u64, one: &str, several: &str, why: &str| {
        if count > 0 {
            let what = if count == 1 { one } else { several };
            let _ = writeln!(out, "not recorded: {count} {what} {why}");
        }
    };
    let (one, several) = ("object, thread, site or access", "objects, threads, sites or accesses");
    lost(losses.no_room, one, several, "for want of room");
    let why = "with bytes, or four of them, of another recorded object";
    lost(losses.overlapping, "object", "objects", why);
    let why = "with a name that is not a recorded type's";
    lost(losses.unknown_names, "annotation", "annotations", why);
    let why = "by signal handlers that came while the thread was counting";
    lost(losses.dropped, "access", "accesses", why);
    lost(losses.unfinished, "operation", "operations", "under way when the program ended");
}

fn many(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Formats a rate with up to four digits; a point for zero.
fn rate(times: f64) -> String {
    if times == 0.0 {
        return ".".to_owned();
    }
    let digits = (3 - times.log10().floor().max(-9.0) as i32).clamp(0, 9) as usize;
    without_zeros(format!("{times:.digits$}"))
}

/// Formats a field's path as a source spells it, without steps through base classes: `nodes._M_impl._M_start`.
fn path(path: &str) -> String {
    let steps = steps(path);
    let last = steps.len() - 1;
    let spoken =
        |(at, step): (usize, &&str)| (at == last || !step.contains("::")).then(|| short(step));
    steps.iter().enumerate().filter_map(spoken).collect::<Vec<_>>().join(".")
}

/// Splits a path. Dots within generic arguments do not separate.
fn steps(path: &str) -> Vec<&str> {
    let (mut depth, mut start, mut steps) = (0usize, 0, Vec::new());
    for (at, character) in path.char_indices() {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '.' if depth == 0 => {
                steps.push(&path[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    steps.push(&path[start..]);
    steps
}

/// Returns a name without generic arguments if it is long, and without characters that could control a terminal.
fn short(name: &str) -> String {
    let mut out = String::new();
    let mut depth = 0usize;
    let long = name.len() > LONGEST;
    for character in name.chars() {
        if long && character == '>' {
            depth = depth.saturating_sub(1);
        }
        if depth == 0 {
            if character.is_control() {
                out.extend(character.escape_default());
            } else {
                out.push(character);
            }
        }
        if long && character == '<' {
            if depth == 0 {
                out.push_str("..");
            }
            depth += 1;
        }
    }
    out
}

/// Returns the counts as one JSON object:
///
/// * `types`, each with `name`, `size`, `instances` (`shared`, `per cpu` or a number), `stride` (the distance of
///   objects in bytes if they lie in a row, or null), `neighbours` (pairs of objects of different threads on a pair of
///   lines), `objects_shared`, `objects_own`, `fields` (`name`, `reads`, `writes`, `atomics` an operation, `threads`)
///   and `roles` (`name`, `threads`, `operations`, `takes_ns`, `measured_ns` or null, `phases` with `times` and
///   `fields`)
/// * `operations`, the functions that were named
/// * `lost`, the data that was not recorded, by reason
#[must_use]
pub fn json(plan: &Plan, recordings: &[Recording], recorded: &Recorded) -> Value {
    let types = recorded.profile.types.iter().zip(&recorded.types).map(|(profile, basis)| {
        let fields = basis.users.iter().map(|(path, threads)| {
            let times = |kind| times(profile, basis, path, kind);
            json!({
                "name": path,
                "reads": times(Kind::Load),
                "writes": times(Kind::Store),
                "atomics": times(Kind::Atomic),
                "threads": threads,
            })
        });
        let roles = profile.roles.iter().zip(&basis.roles).map(|(role, rests)| {
            let phases = role.phases.iter().map(|phase| {
                let touched = phase.accesses.iter().filter(|access| access.times > 0.0);
                let fields = distinct(touched.map(|access| &access.field));
                json!({ "times": phase.times, "fields": fields })
            });
            json!({
                "name": role.name,
                "threads": rests.threads,
                "operations": rests.operations,
                "takes_ns": role.work_ns,
                "measured_ns": rests.measured_ns,
                "phases": phases.collect::<Vec<_>>(),
            })
        });
        json!({
            "name": profile.name,
            "size": plan.types[basis.ty].size,
            "instances": match profile.instances {
                Instances::Shared => json!("shared"),
                Instances::PerCpu | Instances::Row(_) => json!("per cpu"),
                Instances::Dealt(count) => json!(count),
            },
            "stride": profile.instances.row().map(|row| row.stride),
            "neighbours": basis.neighbours,
            "objects_shared": basis.objects.1,
            "objects_own": basis.objects.0,
            "fields": fields.collect::<Vec<_>>(),
            "roles": roles.collect::<Vec<_>>(),
        })
    });
    json!({
        "schema": "ledgerline/layout-record.v1",
        "operations": plan.operations,
        "types": types.collect::<Vec<_>>(),
        "lost": losses(recordings),
    })
}

#[cfg(test)]
mod tests;
