//! `ledgerline layout check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ledgerline_layout::Error;
use ledgerline_layout::lines::Lines;
use ledgerline_layout::pick::{named, pick};
use ledgerline_layout::rules::{self, Broken, File, Language, MISSING};

pub(super) const LONG_ABOUT: &str = "\
Check the rules of a layout.toml: which fields lie together on a line and which apart, how many lines and \
bytes a type has, what straddles. The kernel's __cacheline_group markers are rules, too: a group must not \
cross a line that it need not cross. Without --rules all groups of all types are checked.

The exit status is 0 when all holds, 1 when a rule is broken, 2 when a file cannot be read or the rules name what \
is not there. Whatever they name in vain is told, a line for each, and the other rules are checked nevertheless. \
One file may have rules for several builds: types and fields that not all of them have are marked as optional, and \
no rule misses them.

The rules of a type:
  [[type]]
  name = \"page_counter\"            # or a pattern
  optional = true                  # the type may be missing [default: false]
  optional_fields = [\"low\"]        # these may be missing; the rules then hold for the others
  when = [\"smp\"]                   # only with --config smp
  base = 8                         # all that is known of its address [default: it begins a line]
  together = [[\"min\", \"low\"]]      # each list on one line
  apart = [{ fields = [\"usage\"], from = [\"min\", \"low\"], distance = 128 }, { among = [\"a\", \"b\"] }]
  alone = [\"usage\"]                # shares its line with nothing
  starts_line = [\"usage\"]
  no_straddle = [\"*\"]              # touches no more lines than it must
  max_lines = 3
  size_max = 192                   # bytes
  no_rmw_with_read_mostly = { rmw = [\"usage\"], read_mostly = [\"max\"] }
Fields of nested records are named by path: memory.usage.";

const EXAMPLES: &str = "\
Examples:
  ledgerline layout check target/debug/libcache.so --rules layout.toml
  ledgerline layout check vmlinux --init page_counter 'mem_cgroup*' >layout.toml
  ledgerline layout check vmlinux                 every marked group of the kernel
  ledgerline layout check --sarif libcache.so --rules layout.toml >layout.sarif
  ledgerline layout check --emit c vmlinux --rules layout.toml >layout_assert.h";

/// The language of assertions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Emit {
    /// offset_of! in constant assertions
    Rust,
    /// _Static_assert
    C,
    /// CACHELINE_ASSERT_GROUP_... for marked groups
    Kernel,
}

/// The options of `ledgerline layout check`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// The file that holds the types
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The rules
    #[arg(long, value_name = "FILE", conflicts_with = "init")]
    rules: Option<PathBuf>,

    /// Write today's layout of these types as rules
    #[arg(long, value_name = "TYPE", num_args = 1..)]
    init: Vec<String>,

    /// The configuration whose rules hold besides those of every configuration
    #[arg(long, value_name = "NAME", requires = "rules")]
    config: Option<String>,

    /// Print what is broken as JSON
    #[arg(long, conflicts_with_all = ["sarif", "emit", "init"])]
    json: bool,

    /// Print what is broken as SARIF 2.1.0
    #[arg(long, conflicts_with_all = ["emit", "init"])]
    sarif: bool,

    /// Write the rules as assertions for a compiler; comments say what is left to `check`
    #[arg(long, value_enum, requires = "rules")]
    emit: Option<Emit>,
}

/// Returns the output, and whether all rules hold. Adds to `missing` what the rules name and the file lacks.
pub(super) fn text(args: &CheckArgs, missing: &mut Vec<Error>) -> Result<(Vec<u8>, bool), Error> {
    // The rules are read first: that takes less time than reading a kernel.
    let file = args.rules.as_deref().map(File::read).transpose()?;
    if let (Some(file), Some(path)) = (&file, &args.rules)
        && file.types.is_empty()
    {
        // Without a rule, the check would always pass.
        let error = Error::new("has no rules").in_file(path);
        return Err(error.advise("add a [[type]]; --init TYPE writes today's layout as rules"));
    }
    let names: Vec<String> = match &file {
        Some(file) => file.types.iter().map(|rules| rules.name.clone()).collect(),
        None => args.init.clone(),
    };
    let types = super::types(&args.file, &names)?;
    let of_types = |error: Error| error.in_file(&args.file);
    if !args.init.is_empty() {
        let picked = pick(types, &args.init).map_err(of_types)?;
        return Ok((rules::lock(types, &picked, 64).into_bytes(), true));
    }
    let configuration = args.config.as_deref();
    let broken: Vec<Broken> = match &file {
        Some(file) => {
            if let Some(language) = args.emit {
                let language = match language {
                    Emit::Rust => Language::Rust,
                    Emit::C => Language::C,
                    Emit::Kernel => Language::Kernel,
                };
                let text = rules::emit(types, file, configuration, language).map_err(of_types)?;
                return Ok((text.into_bytes(), true));
            }
            rules::check(types, file, configuration).map_err(of_types)?
        }
        None => (named(types).into_iter())
            .flat_map(|(name, id)| rules::crossing(types, name, id, Lines::of(64)))
            .collect(),
    };
    let (absent, present): (Vec<Broken>, Vec<Broken>) =
        broken.iter().cloned().partition(|broken| broken.rule == MISSING);
    missing.extend(absent.into_iter().map(|broken| of_types(Error::new(broken.message))));
    let text = if args.json {
        super::line_of(&rules::json(&broken))
    } else if args.sarif {
        super::line_of(&rules::sarif(&broken, &args.file.to_string_lossy()))
    } else {
        rules::text(&present)
    };
    Ok((text.into_bytes(), broken.is_empty()))
}
