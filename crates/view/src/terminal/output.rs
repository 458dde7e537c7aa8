//! The output of a command: text on standard output, and untrusted words.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write, stdout};
use std::process::ExitCode;

/// Writes all of it. Returns `false` if the reader has closed its end: a pager that was left, or `head`, has seen
/// enough, and that is no error.
///
/// # Errors
/// The text of `failed`, with any other error of writing.
pub fn print(text: impl AsRef<[u8]>, failed: &str) -> Result<bool, String> {
    let mut stdout = stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("{failed}: {error}")),
    }
}

/// Prints the findings of a subcommand. The exit status is 0, or 1 if finding or writing them failed.
pub fn finish(subcommand: &str, found: Result<String, String>) -> ExitCode {
    match found.and_then(|text| print(text, "cannot write the figures")) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(subcommand, &error, 1),
    }
}

/// Writes a line to standard error. An error is ignored, since there is no reader to report it to (`2>&1 | head`).
pub fn say(line: impl std::fmt::Display) {
    // In one piece, so that lines of several programs do not mix.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Reports why a subcommand failed, in one line; returns the exit status.
pub fn fail(subcommand: &str, error: &str, status: u8) -> ExitCode {
    say(format_args!("ledgerline: {subcommand}: {error}"));
    ExitCode::from(status)
}

/// Returns the exit status of a subcommand: 0, or 1 after it reports why it failed, possibly in untrusted words.
pub fn status(subcommand: &str, done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(subcommand, &printable(&error), 1),
    }
}

/// Returns whether a terminal shows a letter as itself, without any control function: those allowed in the name of a
/// group, and `/`.
pub fn is_plain(letter: char) -> bool {
    letter == '/' || ledgerline::name::allows(letter)
}

/// Escapes untrusted names, paths and messages: control characters for a terminal become `\u{1b}`.
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

/// Like [`printable`], but on one line for people, such as a heading with a command of several lines: a line break with
/// the blanks around it becomes ` ⏎ `, a tab a blank.
pub fn one_line(text: &str) -> String {
    let lines: Vec<_> = text.split(['\n', '\r']).map(str::trim).collect();
    let lines: Vec<_> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    printable(&lines.join(" ⏎ ").replace('\t', " "))
}

/// Escapes a document of JSON for a terminal, also characters that JSON need not escape. Line breaks between its parts
/// stay.
pub fn plain_json(document: &str) -> String {
    json_with(document, |letter| letter == '\n' || is_plain(letter))
}

/// Escapes all letters in the strings of a document of JSON, except for those that `stays` accepts.
pub fn json_with(document: &str, stays: impl Fn(char) -> bool) -> String {
    let mut plain = String::with_capacity(document.len());
    for letter in document.chars() {
        if stays(letter) {
            plain.push(letter);
        } else {
            // Outside of its strings a document has no such letter.
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
