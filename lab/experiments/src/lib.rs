//! `ledgerline reproduce`: the five documents' experiments.
//!
//! | room       | what it holds                                                        |
//! |------------|----------------------------------------------------------------------|
//! | `options`  | what the user asked for, checked                                     |
//! | `document` | the five documents                                                   |
//! | `table`    | an experiment with all that was found: gathers it                    |
//! | `measured` | what is measured here for real: the documents' designs, and ours     |
//! | `text`     | tables for people; `plot`: curves of letters; `words`: numbers       |
//! | `json`     | one object a line                                                    |
//! | `page`     | one self-contained page of tables and plots                          |

mod document;
pub mod history;
mod json;
mod measured;
mod options;
mod page;
mod plot;
mod table;
mod text;
mod words;

use self::document::Document;
use self::options::Options;
use self::table::Table;
use clap::Args;
use ledgerline_terminal::output;
use ledgerline_terminal::progress::Progress;
use ledgerline_terminal::style;
use std::path::Path;
use std::process::ExitCode;

/// What `ledgerline help reproduce` ends with.
pub const HELP: &str = "\
Experiments (none named: all):
  page-counter-lockless  page counters without locks, beside spinlocked ones; 144 CPUs
  numa-threshold         NUMA statistics by the threshold of their differences; 88 CPUs
  memcg-layout           struct mem_cgroup moved by 32 bytes, and the repairs; 72 CPUs
  page-counter-layout    struct page_counter by who writes, two patches beside it; 72 CPUs
  rss-cache              resident pages by task, by CPU and by us; measured alone

Each is shown as published; as predicted by simulation of that machine, with the interval
over what nobody published; as our own design would do there; and as measured here,
where a few CPUs show less than many. A row marked = was calibrated on and predicts
nothing. What a prediction lacks is listed below it.

Examples:
  ledgerline reproduce
  ledgerline reproduce numa-threshold --no-measure --row 64
  ledgerline reproduce page-counter-layout --cpus 1..1024
  ledgerline reproduce --json --quick
  ledgerline reproduce --html page.html

`--cpus` prints the scaling curve instead of the table: the document's machine with fewer
CPUs in use, or grown by whole sockets. The exit status is 0, 1 when something could not
be predicted, measured or written, 2 for a bad command line.";

/// What to reproduce, and how.
// The values are texts that `options` checks, so that a bad one is reported in one line.
#[derive(Args, Debug)]
pub struct ReproduceArgs {
    /// One of the experiments below [default: all]
    name: Option<String>,

    /// Few design points and short rounds: to see that it works
    #[arg(long)]
    quick: bool,

    /// Predict alone; for seconds the CPUs compute, and nothing is timed
    #[arg(long)]
    no_measure: bool,

    /// Design points to take the median of [default: 16; 4 with --quick or for a curve]
    #[arg(long, value_name = "N")]
    points: Option<String>,

    /// The threshold that numa-threshold is calibrated on [default: 125]
    #[arg(long, value_name = "R")]
    row: Option<String>,

    /// Print the scaling curve for these numbers of CPUs: 1..1024, or 2,8,64
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,

    /// Write a page of tables and plots [default file: reproduce.html; - for standard output]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "reproduce.html")]
    html: Option<String>,
}

/// Reproduces what was asked for and prints it.
pub fn main(args: &ReproduceArgs) -> ExitCode {
    let options = match Options::check(args) {
        Ok(options) => options,
        Err(error) => return fail(&error, 2),
    };
    match run(&options) {
        Ok(status) => status,
        Err(error) => fail(&error, 1),
    }
}

fn run(options: &Options) -> Result<ExitCode, String> {
    if let Some(file) = options.html.as_deref().filter(|file| file.as_os_str() != "-") {
        // Now, and not after minutes of measuring.
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
        opened.map_err(|error| unwritable(file, &error))?;
    }
    let style = style::Style::of_stdout();
    let style = text::Style::new(style.colour, style.width);
    let mut status = ExitCode::SUCCESS;
    let mut tables: Vec<Table> = Vec::new();
    for name in &options.names {
        let document = Document::named(name).expect("the options name documents");
        // There is no curve, and no prediction, of what is only measured.
        if !document.is_simulated() && (options.curves_alone || !options.measure) {
            continue;
        }
        let progress = Progress::on_stderr();
        let table = table::table(document, options, &progress)?;
        drop(progress);
        if let Err(error) = &table.measured {
            fail(&format!("{name}: not measured: {error}"), 1);
            status = ExitCode::FAILURE;
        }
        // Each as soon as it is there, but for the page, which is one file.
        if options.json {
            print(&json::lines(&table, options.curves_alone)?)?;
        } else if options.html.is_none() {
            let between = if tables.is_empty() { "" } else { "\n" };
            print(&format!("{between}{}", text::table(&table, style)))?;
        }
        tables.push(table);
    }
    if let Some(file) = &options.html {
        write(file, &page::page(&tables))?;
    }
    Ok(status)
}

fn write(file: &Path, page: &str) -> Result<(), String> {
    if file.as_os_str() == "-" {
        return print(page);
    }
    std::fs::write(file, page).map_err(|error| unwritable(file, &error))?;
    eprintln!("ledgerline: reproduce: wrote {}", file.display());
    Ok(())
}

fn unwritable(file: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}; name another file", file.display())
}

/// Prints, and ends the program where nobody reads any more.
fn print(text: &str) -> Result<(), String> {
    match output::print(text.as_bytes()) {
        Ok(true) => Ok(()),
        Ok(false) => std::process::exit(0),
        Err(error) => Err(format!("cannot write to standard output: {error}")),
    }
}

fn fail(error: &str, status: u8) -> ExitCode {
    eprintln!("ledgerline: reproduce: {error}");
    ExitCode::from(status)
}
