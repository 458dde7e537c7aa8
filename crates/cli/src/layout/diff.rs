//! `ledgerline layout diff`.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use ledgerline_layout::Error;
use ledgerline_layout::diff::{Sides, compare, json, text as write};
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::pick::{named, pick};
use serde_json::json;

pub(super) const LONG_ABOUT: &str = "\
Say what changed between two builds in line-mates, not in offsets: first the members that moved everything \
else (inserted, removed, grown, put elsewhere), then who left whose line and who shares one now. Renamed \
members and those that were put into another record are followed.

Without TYPE all types of both are compared, and those printed that changed. The exit status is 0 when \
nothing changed, 1 when something did, 2 when a file cannot be read.";

const EXAMPLES: &str = "\
Examples:
  ledgerline layout diff vmlinux.old vmlinux mem_cgroup
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
    #[arg(long, value_name = "N", default_value = "64", value_parser = ["64", "128"])]
    line: String,

    /// One JSON object
    #[arg(long)]
    json: bool,
}

fn chosen<'t>(
    types: &'t Types,
    args: &DiffArgs,
    path: &std::path::Path,
) -> Result<Vec<(&'t str, TypeId)>, Error> {
    if args.types.is_empty() {
        return Ok(named(types));
    }
    pick(types, &args.types).map_err(|error| error.in_file(path))
}

/// What is printed, and whether nothing changed.
pub(super) fn text(args: &DiffArgs) -> Result<(Vec<u8>, bool), Error> {
    let (old, new) = (super::types(&args.old)?, super::types(&args.new)?);
    let line = if args.line == "128" { 128 } else { 64 };
    let before = chosen(old, args, &args.old)?;
    let after = chosen(new, args, &args.new)?;
    // Types of one name: the first of one build beside the first of the other, and so on.
    let mut waiting: HashMap<&str, Vec<TypeId>> = HashMap::new();
    for &(name, id) in before.iter().rev() {
        waiting.entry(name).or_default().push(id);
    }
    let (mut changed, mut only_new) = (Vec::new(), Vec::new());
    for &(name, id) in &after {
        match waiting.get_mut(name).and_then(Vec::pop) {
            Some(was) => {
                changed.extend(compare(name, Sides { old: (old, was), new: (new, id) }, line));
            }
            None => only_new.push(name),
        }
    }
    let mut only_old: Vec<&str> =
        waiting.iter().flat_map(|(&name, ids)| ids.iter().map(move |_| name)).collect();
    only_old.sort_unstable();
    let same = changed.is_empty() && only_old.is_empty() && only_new.is_empty();
    if args.json {
        let changed: Vec<_> = changed.iter().map(json).collect();
        let value = json!({ "changed": changed, "removed": only_old, "added": only_new });
        return Ok((super::line_of(&value).into_bytes(), same));
    }
    let mut out = String::new();
    for difference in &changed {
        write(difference, &mut out);
    }
    for (names, what) in [(only_old, "is gone"), (only_new, "is new")] {
        names.iter().for_each(|name| out.push_str(&format!("{name} {what}\n")));
    }
    Ok((out.into_bytes(), same))
}
