//! Manual pages for a clap command: its definitions in the sections that readers of manuals expect.
//!
//! ```
//! use clap::{Arg, Command};
//!
//! let mut command = Command::new("weigh").about("Weigh a file").arg(Arg::new("FILE"));
//! command.build(); // names of subcommands, usage
//! let page = String::from_utf8(ledgerline_view::manual::page(&command, None, "weigh 1.0", "Scales")).unwrap();
//! assert!(page.contains("\n.SH DESCRIPTION\nWeigh a file\n"));
//! ```

mod error;
mod prose;

pub use error::tame;

use clap::Command;
pub use clap_complete::Shell;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::path::Path;

/// Writes the pages of a command and of its subcommands into a folder, which is made if it is missing.
///
/// The foot of each page has the `source`, which is the package with its version, and the name of the `manual`.
///
/// # Errors
///
/// The path that cannot be written, with the cause.
pub fn write_pages(
    folder: &Path,
    command: &mut Command,
    source: &str,
    manual: &str,
) -> Result<(), String> {
    command.build();
    fs::create_dir_all(folder).map_err(|error| told(folder, &error))?;
    write_page(folder, command, None, source, manual)
}

fn write_page(
    folder: &Path,
    command: &Command,
    above: Option<&Command>,
    source: &str,
    manual: &str,
) -> Result<(), String> {
    let file = folder.join(format!("{}.1", name(command)));
    fs::write(&file, page(command, above, source, manual)).map_err(|error| told(&file, &error))?;
    below(command).try_for_each(|sub| write_page(folder, sub, Some(command), source, manual))
}

fn told(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Returns a script by which a shell completes the subcommands, options and values of a command.
///
/// # Panics
///
/// Never: the generators write text.
pub fn completions(shell: Shell, command: &mut Command) -> String {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, command, name.as_str(), &mut script);
    let script = String::from_utf8(script).expect("generators write text");
    match shell {
        // clap_complete 4.6 writes a hyphen of the name in one way where it chooses a case, and in another in the cases
        // of subcommands, so those would never be chosen.
        Shell::Bash => script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__")),
        _ => script,
    }
}

/// Returns the name of a command's page.
pub fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Returns the direct subcommands that have pages. `help` has none, since it only repeats the others.
pub fn below(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

/// Returns the page of a built command, with the command `above` it under "see also". The foot has the `source`, which
/// is the package with its version, and the name of the `manual`.
pub fn page(command: &Command, above: Option<&Command>, source: &str, manual: &str) -> Vec<u8> {
    let mut page = Vec::new();
    let man =
        Man::new(command.clone()).title(name(command).to_uppercase()).source(source).manual(manual);
    let write = |roff: &Roff, page: &mut Vec<u8>| roff.to_writer(page);
    let written = man
        .render_title(&mut page)
        .and_then(|()| man.render_name_section(&mut page))
        .and_then(|()| write(&first(command), &mut page))
        .and_then(|()| man.render_options_section(&mut page))
        .and_then(|()| write(&last(command, above), &mut page));
    written.expect("memory takes what is written");
    page
}

/// Returns the part before the options: the usage and the description.
fn first(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let called = command.get_bin_name().unwrap_or_else(|| command.get_name());
    match usage.strip_prefix(called) {
        Some(rest) => roff.text([bold(called), roman(rest)]),
        None => roff.text([roman(usage)]),
    };
    roff.control("SH", ["DESCRIPTION"]);
    let about = command.get_long_about().or_else(|| command.get_about());
    prose::render(&mut roff, &about.map(ToString::to_string).unwrap_or_default());
    roff
}

/// Returns the part after the options: subcommands, the end of --help, and other pages.
fn last(command: &Command, above: Option<&Command>) -> Roff {
    let mut roff = Roff::new();
    let subcommands: Vec<_> = below(command).collect();
    if !subcommands.is_empty() {
        roff.control("SH", ["SUBCOMMANDS"]);
    }
    for sub in &subcommands {
        roff.control("TP", []).text([bold(name(sub)), roman("(1)")]);
        prose::render(&mut roff, &sub.get_about().map(ToString::to_string).unwrap_or_default());
    }
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    for (heading, text) in sections(&after.map(ToString::to_string).unwrap_or_default()) {
        roff.control("SH", [&*heading]);
        prose::render(&mut roff, &text);
    }
    let others = above.into_iter().chain(subcommands).map(name);
    let others: Vec<_> = others.flat_map(|page| [roman(", "), bold(page), roman("(1)")]).collect();
    if let Some((_, others)) = others.split_first() {
        // No hyphens in the middle of names, no gaps between them.
        roff.control("SH", ["SEE ALSO"]).control("nh", []).control("ad", ["l"]).text(others);
    }
    roff
}

/// Splits the text after the options in --help by headings: a line of one word and a colon is one.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut found = vec![("NOTES".to_owned(), String::new())];
    for line in text.lines() {
        match line.strip_suffix(':').filter(|word| word.chars().all(char::is_alphabetic)) {
            Some(word) => found.push((word.to_uppercase(), String::new())),
            None => {
                let (_, section) = found.last_mut().expect("there is the first");
                section.push_str(line);
                section.push('\n');
            }
        }
    }
    found.retain(|(_, text)| !text.trim().is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_that_bash_comes_to_has_a_case_also_with_a_hyphen_in_its_name() {
        for name in ["weigh", "weigh-it"] {
            let scale = Command::new("scale").subcommand(Command::new("zero"));
            let script = completions(Shell::Bash, &mut Command::new(name).subcommand(scale));
            let lines = || script.lines().map(str::trim);
            let chosen = |line: &str| line.strip_prefix("cmd=\"").map(|it| it.replace('"', ")"));
            let cases: Vec<_> = lines().filter_map(chosen).filter(|case| case != ")").collect();
            assert!(cases.len() > 3, "{script}");
            for case in cases {
                assert!(lines().any(|line| line == case), "no {case}: {script}");
            }
        }
    }

    #[test]
    fn a_heading_is_one_word() {
        let text = "First (none: all):\n  a  b\n\nExamples:\n  x\n\nAn order is:\n  lock\n";
        let found = sections(text);
        let headings: Vec<_> = found.iter().map(|(heading, _)| &**heading).collect();
        assert_eq!(headings, ["NOTES", "EXAMPLES"]);
        assert_eq!(found[0].1, "First (none: all):\n  a  b\n\n");
        assert_eq!(found[1].1, "  x\n\nAn order is:\n  lock\n");
    }
}
