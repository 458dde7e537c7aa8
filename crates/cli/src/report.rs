//! `ledgerline report`: a recording as text, JSON, a picture or a page.

use ledgerline_view::report::{Recording, page, picture, summary};
use ledgerline_view::terminal::output::{fail, finish, printable};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use ledgerline_run::launch::Target;

/// The introduction of `ledgerline report --help`.
pub const LONG_ABOUT: &str = "\
Say who held what when, by the recording of a run.

FILE is what `ledgerline run --record FILE` wrote, of a run that ended, that goes on, or whose supervisor was killed: \
what was written until then is read. Without an option the largest rows are printed, with their peaks, when these were, \
their lives, charges and refusals.

-o writes one HTML file that needs no server and loads nothing: areas over time that zoom and can be asked, refusals and \
memory that caches gave back marked, the lives of processes on a time line, and a table that sorts and filters. It is \
worked by mouse or by keys, is light or dark, and prints. --svg draws the areas and the lives alone.

Times are those of the looks (--record-every): what was born and gone between two of them is not seen, and a peak that no \
look met is shown in the look after it. In a recording that became too long older points are coarser.";

const EXAMPLES: &str = "\
Examples:
  ledgerline run --by process --record build.rec -- make -j8
  ledgerline report build.rec
  ledgerline report build.rec -o build.html
  ledgerline report build.rec --svg > build.svg
  ledgerline report build.rec --json | jq '.groups[] | select(.refused > 0) | .path'";

/// The options of `ledgerline report`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// What `ledgerline run --record` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Write a page to PAGE; `-` is standard output
    #[arg(short, long, value_name = "PAGE")]
    output: Option<OsString>,

    /// Call it TEXT, in place of the command that was recorded
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// Print a picture as SVG
    #[arg(long, conflicts_with_all = ["output", "json"])]
    svg: bool,

    /// Print all of it as JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Prints the requested output. The exit status is 0, 1 on an error, or 2 for a bad command line.
pub fn main(args: &ReportArgs) -> ExitCode {
    let Some(output) = &args.output else {
        return finish("report", text(args));
    };
    let target = match Target::check("-o", output) {
        Ok(target) => target,
        Err(failure) => return failure.report(),
    };
    if target.is_over(&args.file) {
        return fail("report", "-o names the recording itself; name another file", 2);
    }
    let page =
        open(args).and_then(|recording| page::html(&recording).map_err(|error| error.to_string()));
    match page.map(|page| target.write(page.as_bytes())) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => failure.report(),
        Err(error) => fail("report", &error, 1),
    }
}

fn open(args: &ReportArgs) -> Result<Recording, String> {
    let mut recording = Recording::open(&args.file).map_err(|error| printable(&error))?;
    if let Some(title) = &args.title {
        recording.title.clone_from(title);
    }
    Ok(recording)
}

fn text(args: &ReportArgs) -> Result<String, String> {
    let recording = open(args)?;
    match (args.svg, args.json) {
        (true, _) => Ok(picture::svg(&recording)),
        (_, true) => summary::json(&recording).map_err(|error| error.to_string()),
        _ => Ok(summary::text(&recording)),
    }
}
