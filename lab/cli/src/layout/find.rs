//! `ledgerline layout find`.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use ledgerline_layout::Error;
use ledgerline_layout::holders::{self, Link, Targets, holders};
use ledgerline_layout::pick::pick;

pub(super) const LONG_ABOUT: &str = "\
Print the types that hold another by value, or that point to it: each place with its path, offset and size, sorted by \
name and offset.

TYPE is a name or a pattern of any type: a record, a number, an enumeration, a typedef, or what the file only \
declares. Typedefs and qualifiers are seen through, and a typedef of a record means the record.

--contains finds members of that type, elements of arrays of it, and both within members, however deep. Base classes \
and the variants of Rust enums are members.

--points-to finds pointers and references to it, or to arrays of it. They are members of the type itself, or elements \
of its arrays: what members without a name and variants have is the type's own, what other records have is theirs. \
So a smart pointer is a record that has a pointer, and a pointer to a pointer points to none but that.

A path has [] for each dimension of an array; the row says how often the place is there, and how far apart.";

const EXAMPLES: &str = "\
Examples:
  ledgerline layout find vmlinux --contains list_head
  ledgerline layout find vmlinux --contains spinlock_t task_struct     within task_struct alone
  ledgerline layout find target/debug/server --points-to 'server::cache::Shard'
  ledgerline layout find vmlinux --points-to page_counter --json | jq -r '.name'";

/// The options of `ledgerline layout find`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FindArgs {
    /// The file that holds the types
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Names or patterns of the types that are looked at [default: all that have a name]
    #[arg(value_name = "WITHIN")]
    within: Vec<String>,

    /// Find the types that have a TYPE, directly or within a member
    #[arg(long, value_name = "TYPE", required_unless_present = "points_to")]
    contains: Option<String>,

    /// Find the types that have a pointer or a reference to a TYPE
    #[arg(long, value_name = "TYPE", conflicts_with = "contains")]
    points_to: Option<String>,

    /// Print one JSON object for each type
    #[arg(long)]
    json: bool,
}

/// Returns the text or JSON to print.
pub(super) fn text(args: &FindArgs) -> Result<Vec<u8>, Error> {
    let in_file = |error: Error| error.in_file(&args.file);
    let types = super::types(&args.file, &[])?;
    let (link, name) = match (&args.contains, &args.points_to) {
        (Some(name), _) => (Link::Contains, name),
        (None, Some(name)) => (Link::PointsTo, name),
        (None, None) => unreachable!("one of them is required"),
    };
    let targets = Targets::of(types, name).map_err(in_file)?;
    let mut found = holders(types, &targets, link).map_err(in_file)?;
    if !args.within.is_empty() {
        let within = pick(types, &args.within).map_err(in_file)?;
        let within: HashSet<&str> = within.into_iter().map(|(name, _)| name).collect();
        found.retain(|holder| within.contains(holder.name));
    }
    let (mut json, mut text) = (Vec::new(), String::new());
    for holder in &found {
        if args.json {
            holders::json(types, holder, &mut json);
        } else {
            holders::text(types, holder, &mut text);
        }
    }
    if found.is_empty() && !args.json {
        let what = match link {
            Link::Contains => "contains",
            Link::PointsTo => "points to",
        };
        text = format!("no type {what} {name:?}\n");
    }
    json.extend_from_slice(text.as_bytes());
    Ok(json)
}
