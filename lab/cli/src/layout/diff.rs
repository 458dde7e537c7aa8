//! `ledgerline layout diff`.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use clap::Args;
use ledgerline_advise::cost::{Question, Timed};
use ledgerline_advise::profile::Profile;
use ledgerline_advise::ranking::{self, Priced};
use ledgerline_coherence::machine::Machine;
use ledgerline_layout::Error;
use ledgerline_layout::diff::{self, Difference, Sides, compare};
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::pick::{named, pick};
use serde_json::json;

use super::profile::{MachineArgs, ProfileArgs, knows};

pub(super) const LONG_ABOUT: &str = "\
Say what changed between two builds: which fields share a line, not at which offsets they lie. The members \
that moved everything else come first (inserted, removed, grown, put elsewhere), then the fields that left each \
other's line and those that share one now. Members that were renamed or put into another record are followed.

With --profile, the types that the profile knows come first, the dearest at the top, each with what an operation \
cost before and what it costs after, by simulation for a machine and a number of CPUs. The changes within a type \
are in the same order, with the fields that make others wait. Figures are medians, with ranges over what nobody \
knows about the machine. A profile with addresses must be one of OLD.

Without TYPE all types of both are compared, and those printed that changed. The exit status is 0 when \
nothing changed, 1 when something did, 2 when a file cannot be read.";

const EXAMPLES: &str = "\
Examples:
  ledgerline layout diff vmlinux.old vmlinux mem_cgroup
  ledgerline layout diff vmlinux.old vmlinux --profile faults.toml --machine haswell-ep-2699v3 --cpus 72
  ledgerline layout diff --json old/libcache.so new/libcache.so | jq -r '.changed[].name'";

/// The options of `ledgerline layout diff`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DiffArgs {
    /// The build before
    #[arg(value_name = "OLD")]
    old: PathBuf,

    /// The build after
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// Names or patterns of types [default: all]
    #[arg(value_name = "TYPE")]
    types: Vec<String>,

    /// Bytes of a line: 64 or 128
    #[arg(long, value_name = "N", default_value = "64", value_parser = super::line_size())]
    line: u64,

    #[command(flatten)]
    profile: ProfileArgs,

    #[command(flatten)]
    machine: MachineArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Types of a build, with their names.
type Chosen<'t> = Vec<(&'t str, TypeId)>;

/// Returns the types of both builds that are compared. A type that is named may exist in only one of them.
fn chosen<'t>(
    old: &'t Types,
    new: &'t Types,
    args: &DiffArgs,
) -> Result<(Chosen<'t>, Chosen<'t>), Error> {
    if args.types.is_empty() {
        return Ok((named(old), named(new)));
    }
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for pattern in args.types.chunks(1) {
        match (pick(old, pattern), pick(new, pattern)) {
            (Err(error), Err(_)) => return Err(error.in_file(&args.old)),
            (was, is) => {
                before.extend(was.into_iter().flatten());
                after.extend(is.into_iter().flatten());
            }
        }
    }
    // A type that matches several patterns is compared once.
    for types in [&mut before, &mut after] {
        let mut seen = HashSet::new();
        types.retain(|&(_, id)| seen.insert(id));
    }
    Ok((before, after))
}

/// Returns the output, and whether nothing changed.
pub(super) fn text(args: &DiffArgs) -> Result<(Vec<u8>, bool), Error> {
    let all = args.types.is_empty();
    let named = if all { Vec::new() } else { args.profile.with_objects(&args.types) };
    let (old, new) = (super::types(&args.old, &named)?, super::types(&args.new, &named)?);
    let (before, after) = chosen(old, new, args)?;
    // Types of the same name are compared in order: the first of one build with the first of the other, and so on.
    let mut waiting: HashMap<&str, Vec<TypeId>> = HashMap::new();
    for &(name, id) in before.iter().rev() {
        waiting.entry(name).or_default().push(id);
    }
    let (mut changed, mut only_new) = (Vec::new(), Vec::new());
    for &(name, id) in &after {
        match waiting.get_mut(name).and_then(Vec::pop) {
            Some(was) => {
                let sides = Sides { old: (old, was), new: (new, id) };
                changed
                    .extend(compare(name, sides, args.line).map(|difference| (sides, difference)));
            }
            None => only_new.push(name),
        }
    }
    let costs = Costs::of(args, old, &before)?;
    let changed = priced(changed, costs.as_ref())?;
    let mut only_old: Vec<&str> =
        waiting.iter().flat_map(|(&name, ids)| ids.iter().map(move |_| name)).collect();
    only_old.sort_unstable();
    let same = changed.is_empty() && only_old.is_empty() && only_new.is_empty();
    if args.json {
        let told = |(difference, priced): &Told| match (priced, &costs) {
            (Some(priced), Some(costs)) => ranking::json(difference, priced, &costs.question()),
            _ => diff::json(difference),
        };
        let changed: Vec<_> = changed.iter().map(told).collect();
        let value = json!({
            "schema": "ledgerline/layout-diff.v1",
            "changed": changed, "removed": only_old, "added": only_new,
        });
        return Ok((super::line_of(&value).into_bytes(), same));
    }
    let mut out = String::new();
    for (difference, priced) in &changed {
        match (priced, &costs) {
            (Some(priced), Some(costs)) => {
                ranking::text(difference, priced, &costs.question(), &mut out);
            }
            _ => diff::text(difference, &mut out),
        }
    }
    for (names, what) in [(only_old, "is gone"), (only_new, "is new")] {
        names.iter().for_each(|name| out.push_str(&format!("{name} {what}\n")));
    }
    Ok((out.into_bytes(), same))
}

/// The profile, and the machine by which costs are predicted.
struct Costs<'a> {
    profile: Profile,
    machine: Machine,
    args: &'a MachineArgs,
}

impl<'a> Costs<'a> {
    /// Returns `None` without a profile.
    fn of(
        args: &'a DiffArgs,
        old: &Types,
        compared: &[(&str, TypeId)],
    ) -> Result<Option<Costs<'a>>, Error> {
        let Some(profile) = args.profile.read(&args.old, old)? else { return Ok(None) };
        if !compared.iter().any(|(name, _)| profile.of(name).is_some()) {
            let error = Error::new("says nothing of the types that are compared");
            return Err(error.advise(knows(&profile)).in_file(Path::new(&profile.source)));
        }
        let machine = args.machine.machine(&profile)?;
        Ok(Some(Costs { profile, machine, args: &args.machine }))
    }

    fn question(&self) -> Question<'_> {
        self.args.question(&self.profile, &self.machine)
    }
}

/// A difference and its cost, if the profile knows the type.
type Told = (Difference, Option<Priced>);

/// Sorts the differences by cost, the dearest first. Those without a cost come last.
fn priced(
    changed: Vec<(Sides<'_>, Difference)>,
    costs: Option<&Costs<'_>>,
) -> Result<Vec<Told>, Error> {
    let mut told = Vec::with_capacity(changed.len());
    for (sides, difference) in changed {
        let price = |costs: &Costs<'_>| {
            let of = costs.profile.of(&difference.name)?;
            let timed = costs.args.timed(&costs.profile);
            let price = |timed: Option<Timed>| {
                let (question, base) = (costs.question(), costs.args.base);
                ranking::price(sides, &difference, of, &question, timed.as_ref(), base)
            };
            let priced = timed.and_then(price);
            Some(priced.map_err(|error| error.in_file(Path::new(&costs.profile.source))))
        };
        let priced = costs.and_then(price).transpose()?;
        told.push((difference, priced));
    }
    // The sort is stable: types that the profile does not know keep their order.
    let rank = |told: &Told| match &told.1 {
        Some(priced) => (0, -priced.difference.change.median),
        None => (1, 0.0),
    };
    told.sort_by(|one, other| {
        let (one, other) = (rank(one), rank(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    Ok(told)
}
