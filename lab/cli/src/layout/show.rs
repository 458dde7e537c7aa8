//! `ledgerline layout show`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ledgerline_advise::heat;
use ledgerline_layout::Error;
use ledgerline_layout::leaf::Expand;
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::pick::{named, pick};
use ledgerline_layout::show::{self, Accessed, Options};

use super::profile::{ProfileArgs, base, knows};
use ledgerline_view::terminal::style::Style;

pub(super) const LONG_ABOUT: &str = "\
Print types by cache lines: each member's offset, size and line, holes and padding, and how sure the \
alignment is.

FILE is a program, a library, an object or an archive of objects with DWARF, or what has BTF: a kernel, an image of \
it, /sys/kernel/btf/vmlinux. Types that are named without a pattern are found quickly in large programs, since only \
what they need is read. TYPE is a name or a pattern (page_counter, 'mem_cgroup*', 'ledgerline::*'). A \
hole is what no printed member covers. Of a Rust enum a hole is what no variant covers, and a table says what each \
variant has of data, of the tag beside it (`niche`: the tag is in the data) and of padding.

With --profile, the fields that the profile knows have columns that say how often an operation reads and writes \
them (an atomic counts as a write), averaged over all CPUs, and which role does. Pictures are tinted: red where a \
field is written, yellow where it is only read.";

const EXAMPLES: &str = "\
Examples:
  ledgerline layout show /sys/kernel/btf/vmlinux page_counter
  ledgerline layout show --expand --lines 128 target/debug/server 'server::cache::*'
  ledgerline layout show --base align=8 vmlinux list_head   best and worst place of the base
  ledgerline layout show --svg lines.svg vmlinux mem_cgroup
  ledgerline layout show --profile net_cachelines/tcp_sock.rst vmlinux tcp_sock
  ledgerline layout show --profile c2c.txt --object page_counter@0xffff888100a4c000 vmlinux page_counter
  ledgerline layout show --all --json vmlinux | jq -r 'select(.holes != []) | .name'";

/// Which lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Width {
    /// Lines of 64 bytes
    #[value(name = "64")]
    One,
    /// Lines of 128 bytes, or pairs that are fetched together
    #[value(name = "128")]
    Pair,
    /// One after the other
    Both,
}

/// The options of `ledgerline layout show`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// The file that holds the types
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Names or patterns of types
    #[arg(value_name = "TYPE", required_unless_present = "all")]
    types: Vec<String>,

    /// All types that have a name
    #[arg(long, conflicts_with = "types")]
    all: bool,

    /// Open nested records, down to numbers, pointers and arrays
    #[arg(long)]
    expand: bool,

    /// Bytes of a line
    #[arg(long, value_enum, value_name = "64|128|both", default_value = "64")]
    lines: Width,

    /// What is known of a type's address; say which places are best and worst [default: it begins a line]
    #[arg(long, value_name = "align=N", value_parser = base)]
    base: Option<u64>,

    #[command(flatten)]
    profile: ProfileArgs,

    /// Print one JSON object for each type and size of line
    #[arg(long)]
    json: bool,

    /// Draw the lines into an SVG file instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html", "all", "base"])]
    svg: Option<PathBuf>,

    /// Draw the lines into a page of HTML instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "all", "base"])]
    html: Option<PathBuf>,
}

/// Returns the text or JSON to print.
pub(super) fn text(args: &ShowArgs) -> Result<Vec<u8>, Error> {
    let names = if args.all { Vec::new() } else { args.profile.with_objects(&args.types) };
    let types = super::types(&args.file, &names)?;
    let picked = if args.all {
        named(types)
    } else {
        pick(types, &args.types).map_err(|error| error.in_file(&args.file))?
    };
    let widths = match args.lines {
        Width::One => &[64][..],
        Width::Pair => &[128],
        Width::Both => &[64, 128],
    };
    let expand = if args.expand { Expand::All } else { Expand::Anonymous };
    let accessed = accessed(args, types, &picked)?;
    let options =
        Options { expand, base: args.base, accessed: accessed.as_ref(), ..Options::default() };
    if args.svg.is_some() || args.html.is_some() {
        return draw(args, types, &picked, widths, &options).map(|()| Vec::new());
    }
    let colour = !args.json && Style::of_stdout().colour;
    let (mut json, mut text) = (Vec::new(), String::new());
    for (name, id) in picked {
        for &line in widths {
            let options = Options { line, colour, ..options };
            if args.json {
                show::json(types, name, id, &options, &mut json);
            } else {
                show::text(types, name, id, &options, &mut text);
            }
        }
    }
    json.extend_from_slice(text.as_bytes());
    Ok(json)
}

/// Returns the profile's parts for the types that are shown; empty without a profile.
fn accessed(
    args: &ShowArgs,
    types: &Types,
    picked: &[(&str, TypeId)],
) -> Result<Option<Accessed>, Error> {
    let Some(profile) = args.profile.read(&args.file, types)? else { return Ok(None) };
    let in_profile = |error: Error| error.in_file(Path::new(&profile.source));
    let mut accessed = Accessed::default();
    let known: Vec<_> =
        picked.iter().filter_map(|&(name, id)| Some((id, profile.of(name)?))).collect();
    if known.is_empty() {
        let error = Error::new("says nothing of the types that are shown");
        return Err(in_profile(error.advise(knows(&profile))));
    }
    for (id, of) in known {
        accessed.add(id, heat::accesses(types, id, of).map_err(in_profile)?);
    }
    Ok(Some(accessed))
}

/// Writes the pictures that the options ask for.
fn draw(
    args: &ShowArgs,
    types: &Types,
    picked: &[(&str, TypeId)],
    widths: &[u64],
    options: &Options<'_>,
) -> Result<(), Error> {
    let &[line] = widths else {
        return Err(Error::new("a picture has lines of one size").advise("give --lines 64 or 128"));
    };
    let options = Options { line, ..*options };
    for (path, picture) in
        [(&args.svg, show::svg as fn(_, _, &Options<'_>) -> _), (&args.html, show::html)]
    {
        let Some(path) = path else { continue };
        let picture: String = picture(types, picked, &options);
        std::fs::write(path, picture)
            .map_err(|error| Error::new(format!("cannot be written: {error}")).in_file(path))?;
    }
    Ok(())
}
