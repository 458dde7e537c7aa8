//! `ledgerline layout advise`.

use clap::Args;
use ledgerline_advise::advice::Wishes;
use ledgerline_advise::pieces::Freedom;
use ledgerline_advise::print::{self, Options};
use ledgerline_layout::Error;
use ledgerline_view::terminal::progress::Progress;
use ledgerline_view::terminal::style::Style;

use super::asked::{Asked, OrderArgs};
use super::trial::{self, SECONDS};

pub(super) const LONG_ABOUT: &str = "\
Say what the layout of a type costs under a profile, line by line, and which field makes which other wait. \
Propose a better order, with the reason and the gain of each move.

Costs are predicted by simulation for a machine and a number of CPUs, as a median and a range over what \
nobody knows about the machine. An order is proposed only where it is cheaper in the middle of the range \
and dearer nowhere in it; otherwise the advice is to keep today's. Nothing is packed for the sake of size. With --trial both orders are \
replayed on this machine besides, as `layout trial` does.

Members that are records move as wholes, and bitfields move with those of their unit. Base classes, tables of \
virtual functions and a record that begins the type stay where they are, and an array without a length comes \
last. In Rust an order is of use to repr(C) types alone.

The exit status is 0 whether something is proposed or not (`proposed` in the JSON tells), 2 when a file \
cannot be read or names what is not there.";

const EXAMPLES: &str = "\
Examples:
  ledgerline layout advise vmlinux page_counter --profile charges.toml
  ledgerline layout advise --machine haswell-ep-2699v3 --cpus 72 vmlinux mem_cgroup --profile faults.toml
  ledgerline layout advise --pin lock --size-max 256 server 'server::Shard' --profile shard.toml
  ledgerline layout advise --trial ./server shard --profile shard.toml
  ledgerline layout advise --takes 39 --machine box.toml server shard --profile shard.toml
  ledgerline layout advise --json vmlinux page_counter --profile charges.toml | jq -r .proposal.sketch

A profile says who touches which field how often:
  cpus = 72
  [types.page_counter]
  instances = \"shared\"             # or how many, or \"per cpu\"; these with stride = 40 lie side by side,
                                   # so many bytes apart, as the elements of an array do
  work_ns = 300                    # of an operation, beside these accesses; or [200, 400]; or
                                   # takes_ns = 340, what it takes as a whole today, waits included
  [[types.page_counter.phases]]
  name = \"walk\"                    # once in 64 operations, together
  times = 0.0156
  fields = { usage = { atomic = 1 }, max = { load = 1 }, parent = { load = 1 } }
Where kinds of CPUs differ, each has a role, with its own times and phases:
  [[types.page_counter.roles]]
  name = \"reader\"
  share = 0.25                     # of the CPUs; the shares add up to 1
  takes_ns = 340                   # and recording_ns = 25, the part of it that recording took;
  alone_ns = 310                   # or what it takes where its thread runs alone
  fields = { usage = { load = 1 } }";

/// The options of `ledgerline layout advise`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    #[command(flatten)]
    of: OrderArgs,

    /// A field that stays where it is; may be repeated
    #[arg(long, value_name = "FIELD")]
    pin: Vec<String>,

    /// A record among the members whose own members may move; may be repeated
    #[arg(long, value_name = "MEMBER")]
    expand: Vec<String>,

    /// Let a record that begins the type move, too
    #[arg(long)]
    move_first: bool,

    /// Bytes that the type may have [default: today's in whole lines, and 128]
    #[arg(long, value_name = "BYTES")]
    size_max: Option<u64>,

    /// Bytes of a line in the tables: 64, or 128 for pairs
    #[arg(long, value_name = "64|128", default_value = "64", value_parser = super::line_size())]
    line: u64,

    /// Replay today's order and the proposed one on this machine, as `layout trial` does
    #[arg(long)]
    trial: bool,

    /// Seconds that the replay takes, about [default: 2.5]
    #[arg(long, value_name = "S", requires = "trial", value_parser = trial::seconds)]
    seconds: Option<f64>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Returns the text or JSON to print.
pub(super) fn text(args: &AdviseArgs) -> Result<Vec<u8>, Error> {
    let asked = Asked::read(&args.of, "there is no advice")?;
    let question = asked.question();
    let wishes = Wishes {
        freedom: Freedom {
            pinned: args.pin.clone(),
            opened: args.expand.clone(),
            first: args.move_first,
        },
        size_max: args.size_max,
        ..asked.wishes()?
    };
    let progress = Progress::on_stderr();
    progress.show(format_args!(
        "simulating {} CPUs of {}, and looking for a better order",
        question.cpus, asked.machine.name
    ));
    let advice = asked.advice(&wishes)?;
    drop(progress);
    let options = Options {
        question: &question,
        profile: &asked.profile.source,
        line: args.line,
        colour: !args.json && Style::of_stdout().colour,
    };
    let mut out = String::new();
    if args.json {
        out = print::json(asked.types, asked.id, &advice, &options);
    } else {
        print::text(asked.types, asked.id, &advice, &options, &mut out);
    }
    if args.trial {
        // The advice holds the uses with the work that was fitted to the times.
        let subject = asked.subject(&advice.uses);
        let seconds = args.seconds.unwrap_or(SECONDS);
        let printed =
            trial::replay(&asked, &subject, trial::proposed(&advice), seconds, args.json)?;
        if args.json {
            // The output is one JSON object: the trial is a member of the advice.
            out.truncate(out.trim_end().len() - 1);
            out.push_str(&format!(",\"trial\":{}}}", printed.trim_end()));
        } else {
            out.push_str(&format!("\nTrial of {printed}"));
        }
    }
    if args.json {
        out.push('\n');
    }
    Ok(out.into_bytes())
}
