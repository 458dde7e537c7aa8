//! `ledgerline reproduce`: the experiments of the five documents that this project starts from, as published, as
//! predicted by simulation, and as measured here.
//!
//! | module     | what it holds                                                        |
//! |------------|----------------------------------------------------------------------|
//! | `options`  | the command line                                                     |
//! | `document` | the five documents                                                   |
//! | `table`    | all results of an experiment                                         |
//! | `history`  | the older designs; `bench`: their counting, beside ours              |
//! | `measured` | the measurements on this machine: the documents' designs, and ours   |
//! | `text`     | tables as text; `plot`: curves of letters; `words`: numbers          |
//! | `mark`     | how far a predicted figure is a prediction                           |
//! | `published` | published layout changes, out of sample                             |
//! | `reported` | figures of whole programs, and their substitutes here                |
//! | `notes`    | notes about measured rows                                            |
//! | `scale`    | scales of plots                                                      |
//! | `json`     | one object a line                                                    |
//! | `page`     | one self-contained page of tables and plots                          |

pub mod bench;
#[cfg(test)]
#[path = "../../../tests/support/cases.rs"]
mod cases;
mod document;
pub mod history;
mod json;
mod mark;
mod measured;
mod notes;
mod options;
mod page;
mod plot;
mod published;
mod reported;
mod scale;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
#[cfg(test)]
mod shown;
mod table;
mod text;
mod words;

pub use self::options::{HELP, ReproduceArgs};
use self::table::Table;
use ledgerline_view::terminal::output;
use ledgerline_view::terminal::output::say;
use ledgerline_view::terminal::progress::Progress;
use ledgerline_view::terminal::style::Style;
use std::path::Path;
use std::process::ExitCode;

/// Reproduces the experiments that were asked for, and prints them.
pub fn main(args: &ReproduceArgs) -> ExitCode {
    if let Err(error) = args.check() {
        return output::fail("reproduce", &error, 2);
    }
    match run(args) {
        Ok(status) => status,
        Err(error) => output::fail("reproduce", &error, 1),
    }
}

fn run(args: &ReproduceArgs) -> Result<ExitCode, String> {
    if let Some(file) = args.html.as_deref().filter(|file| file.as_os_str() != "-") {
        // The file is opened now, and not after minutes of measuring.
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
        opened.map_err(|error| unwritable(file, &error))?;
    }
    if let Some(names) = &args.published {
        print(&published::text(args, names)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let style = Style::of_stdout();
    let mut status = ExitCode::SUCCESS;
    let mut tables: Vec<Table> = Vec::new();
    for document in args.documents() {
        let progress = Progress::on_stderr();
        let table = table::table(document, args, &progress)?;
        drop(progress);
        if let Err(error) = &table.measured {
            output::fail("reproduce", &format!("{}: not measured: {error}", document.name), 1);
            status = ExitCode::FAILURE;
        }
        // Each experiment is printed as soon as it is done; only the page is one file.
        if args.json {
            print(&json::lines(&table, args.curves_alone())?)?;
        } else if args.html.is_none() {
            let between = if tables.is_empty() { "" } else { "\n" };
            print(&format!("{between}{}", text::table(&table, style)))?;
        }
        tables.push(table);
    }
    if let Some(file) = &args.html {
        write(file, &page::page(&tables))?;
    }
    Ok(status)
}

fn write(file: &Path, page: &str) -> Result<(), String> {
    if file.as_os_str() == "-" {
        return print(page);
    }
    std::fs::write(file, page).map_err(|error| unwritable(file, &error))?;
    say(format_args!("ledgerline: reproduce: wrote {}", file.display()));
    Ok(())
}

fn unwritable(file: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}; name another file", file.display())
}

/// Prints, and ends the program if the output is closed.
fn print(text: &str) -> Result<(), String> {
    if !output::print(text, "cannot write to standard output")? {
        std::process::exit(0);
    }
    Ok(())
}
