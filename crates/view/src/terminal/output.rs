//! What a command prints: on standard output, and words that came from elsewhere.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write, stdout};
use std::process::ExitCode;

/// Writes all of it. `false` if nobody reads any more: whoever read so far, a pager that was left or `head`, has
/// seen enough, and that is no error.
///
/// # Errors
/// What `failed` says, with anything else that keeps it from being written.
pub fn print(text: impl AsRef<[u8]>, failed: &str) -> Result<bool, String> {
    let mut stdout = stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("{failed}: {error}")),
    }
}

/// Prints what a subcommand found; the exit status is 0, or 1 where something kept it from being found or
/// written.
pub fn finish(subcommand: &str, found: Result<String, String>) -> ExitCode {
    match found.and_then(|text| print(text, "cannot write the figures")) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(subcommand, &error, 1),
    }
}

/// Says a line on standard error. Nobody may read it any more (`2>&1 | head`), and that is no error: there is nobody to tell.
pub fn say(line: impl std::fmt::Display) {
    // (In one piece, so that lines of several programs do not mix.)
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Says why a subcommand failed, in one line; returns the exit status.
pub fn fail(subcommand: &str, error: &str, status: u8) -> ExitCode {
    say(format_args!("ledgerline: {subcommand}: {error}"));
    ExitCode::from(status)
}

/// The exit status of a subcommand: 0, or 1 where it says why it failed, in words that may be others'.
pub fn status(subcommand: &str, done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(subcommand, &printable(&error), 1),
    }
}

/// Whether a letter is shown by a terminal as itself, and steers nothing: what the name of a group may hold,
/// and `/`.
pub fn is_plain(letter: char) -> bool {
    letter == '/' || ledgerline::name::allows(letter)
}

/// Names, paths and messages hold what others wrote: what would steer the terminal is shown as `\u{1b}`.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_plain(letter) {
            shown.push(letter);
        } else {
            let _ = write!(shown, "{}", letter.escape_unicode());
        }
    }
    shown
}

/// The same on one line that people read, as a heading with a command of several lines: what breaks a line, and the
/// blanks around it, is shown as ` ⏎ `, a tab as a blank.
pub fn one_line(text: &str) -> String {
    let lines: Vec<_> = text.split(['\n', '\r']).map(str::trim).collect();
    let lines: Vec<_> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    printable(&lines.join(" ⏎ ").replace('\t', " "))
}

/// A document of JSON whose letters steer no terminal: those that JSON need not escape are escaped as well. Ends of lines
/// between its parts stay.
pub fn plain_json(document: &str) -> String {
    json_with(document, |letter| letter == '\n' || is_plain(letter))
}

/// A document of JSON in whose strings all letters are escaped but those that stay.
pub fn json_with(document: &str, stays: impl Fn(char) -> bool) -> String {
    let mut plain = String::with_capacity(document.len());
    for letter in document.chars() {
        if stays(letter) {
            plain.push(letter);
        } else {
            // (Outside of its strings a document has no such letter.)
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(plain, "\\u{unit:04x}");
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_lines_are_told_on_one() {
        assert_eq!(
            one_line("sh -c set -e\n\tmake  -j2\r\n\n./x\ty\n"),
            "sh -c set -e ⏎ make  -j2 ⏎ ./x y"
        );
        assert_eq!(one_line("a\u{1b}[31m\0"), r"a\u{1b}[31m\u{0}");
        assert_eq!(one_line(&one_line("a\nb")), "a ⏎ b");
        assert_eq!(printable("a\nb"), r"a\u{a}b", "where lines are told apart, as in tables");
    }
}
