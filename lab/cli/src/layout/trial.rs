//! `ledgerline layout trial`, and the part that `advise --trial` appends.

use std::path::PathBuf;

use clap::Args;
use ledgerline_advise::advice::Advice;
use ledgerline_advise::cost::{self, Place, Question};
use ledgerline_advise::trial::against::Subject;
use ledgerline_advise::trial::report::{Report, predict};
use ledgerline_advise::trial::{Order, Plan, measure};
use ledgerline_bench::measure::machine::{allowed_cpus, describe};
use ledgerline_layout::Error;
use ledgerline_view::terminal::progress::Progress;

use super::asked::{Asked, OrderArgs};

pub(super) const LONG_ABOUT: &str = "\
Replay a profile with real threads on this machine, on today's layout and on a proposed one, and print what was \
measured beside what is predicted. Advice is checked in seconds, and the program need not be changed for it.

Each thread has a CPU of its own and plays a role of the profile: it works, and touches the bytes where the layout \
has the fields. Both layouts are played in turns. Alone an operation takes what the profile says, whatever replaying it \
takes; where it is too short for that, the output says so. No more CPUs take part than this machine has, and the \
prediction is for as many.

The other work of an operation is arithmetic here, and has the touched lines leave the first cache where it takes \
250 ns or more, as the prediction has it.

The exit status is 0 whichever is faster (`within` in the JSON says whether the measured gain lies within the predicted \
range; null where other programs disturbed the replay, or operations are too short for one), 2 when a file cannot be read or names what is not there.";

const EXAMPLES: &str = "\
Examples:
  ledgerline layout trial vmlinux page_counter --profile charges.toml
  ledgerline layout trial ./server 'server::Shard' --profile shard.toml --against order.txt
  ledgerline layout trial --machine here.toml ./server shard --profile shard.toml --against ./new
  ledgerline layout trial --json ./server shard --profile shard.toml | jq .measured.gain_ns

An order names members, one a line:
  lock
  usage 64                  # begins a line; 128: a pair of lines
  limit";

/// The help text of `--against`.
const AGAINST: &str = "\
A file with a proposed order: names of members, one a line (`64` or `128` behind a name has it begin a line or a pair \
of lines; members that are not named come last, as they lie today), or what `layout advise --json` printed, or another \
build of the program, in which the type has been changed [default: what `layout advise` proposes; where it proposes \
nothing, today's layout alone is replayed]";

/// The options of `ledgerline layout trial`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TrialArgs {
    #[command(flatten)]
    of: OrderArgs,

    /// A file with a proposed order [default: what `layout advise` proposes]
    #[arg(long, value_name = "ORDER", long_help = AGAINST)]
    against: Option<PathBuf>,

    /// Seconds that the replay takes, about
    #[arg(long, value_name = "S", default_value_t = SECONDS, value_parser = seconds)]
    seconds: f64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The default length of a replay, in seconds.
pub(super) const SECONDS: f64 = 2.5;

/// Parses the value of `--seconds`.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.ok_or_else(|| "seconds are 0.1 to 600".to_owned())
}

/// Returns the text or JSON to print.
pub(super) fn text(args: &TrialArgs) -> Result<Vec<u8>, Error> {
    let asked = Asked::read(&args.of, "there is nothing to replay")?;
    let wishes = asked.wishes()?;
    let place = Place::of(&asked.uses).based(wishes.base);
    let (uses, _) =
        cost::settle(&asked.question(), wishes.timed.as_ref(), asked.uses.clone(), &place)?;
    let subject = asked.subject(&uses);
    let proposed = match &args.against {
        Some(path) => (path.display().to_string(), Some(subject.read(path)?)),
        None => {
            let progress = Progress::on_stderr();
            progress.show("looking for a better order");
            proposed(&asked.advice(&wishes)?)
        }
    };
    replay(&asked, &subject, proposed, args.seconds, args.json).map(String::into_bytes)
}

/// Returns the proposal of `advise`, if there is one, and where it comes from.
pub(super) fn proposed(advice: &Advice) -> (String, Option<Order>) {
    let proposed = advice.proposal.as_ref().map(Order::from);
    let from = if proposed.is_some() { "advise" } else { "advise proposes no other order" };
    (from.to_owned(), proposed)
}

/// Replays today's order and a proposed one, predicts both, and returns the report. The first member of the pair names
/// the source of the proposed order.
pub(super) fn replay(
    asked: &Asked<'_>,
    subject: &Subject<'_>,
    (from, proposed): (String, Option<Order>),
    seconds: f64,
    json: bool,
) -> Result<String, Error> {
    let cpus = allowed_cpus().map_err(|error| Error::new(error.to_string()))?;
    let wanted = asked.question();
    let cpus = &cpus[..cpus.len().min(wanted.cpus)];
    let question = Question { cpus: cpus.len(), ..wanted };
    let (uses, today, proposed) = (subject.uses, subject.today(), proposed.as_ref());
    let plan = Plan { uses, today: &today, proposed, cpus, seconds };
    let progress = Progress::on_stderr();
    progress.show("predicting");
    let predicted = predict(&question, uses, &today, proposed)?;
    let measured = measure(&plan, &|step| progress.show(step))?;
    drop(progress);
    let report = Report {
        name: &asked.name,
        profile: &asked.profile.source,
        from: &from,
        here: &describe(cpus.len()),
        asked: wanted.cpus,
        question: &question,
        assumed: asked.is_assumed(),
        today: &today,
        proposed,
        measured: &measured,
        predicted: &predicted,
    };
    if json {
        return Ok(format!("{}\n", report.json()));
    }
    let mut out = String::new();
    report.text(&mut out);
    Ok(out)
}
