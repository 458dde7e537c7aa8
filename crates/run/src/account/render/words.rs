//! Numbers and words in their printed forms.

use std::fmt::Write as _;

use ledgerline_view::terminal::output::is_plain;
use ledgerline_view::terminal::style::Style;

/// Cells of a bar.
pub const BAR: usize = 8;

/// Returns a bar of blocks, to an eighth of a cell.
pub fn bar(part: u64, whole: u64) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = u128::from(part.min(whole)) * (BAR as u128 * 8) / u128::from(whole);
    // A part that is not zero is never drawn as nothing.
    let eighths = if part > 0 { eighths.max(1) } else { 0 } as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    let missing = BAR - bar.chars().count();
    bar.extend(std::iter::repeat_n(' ', missing));
    bar
}

/// Returns a count with separated thousands, so that it cannot be taken for a size.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns how often something happened.
pub fn times(number: u64) -> String {
    if number == 1 { "once".to_owned() } else { format!("{} times", count(number)) }
}

/// Returns a number of processes.
pub fn processes(number: u64) -> String {
    format!("{} {}", count(number), if number == 1 { "process" } else { "processes" })
}

/// Returns a word as a shell would read it back.
pub fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./=:,+@%^".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if word.chars().any(|letter| !is_plain(letter)) {
        // The kind of quotes with escapes.
        let mut quoted = "$'".to_owned();
        for letter in word.chars() {
            match letter {
                '\'' | '\\' => quoted.extend(['\\', letter]),
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                letter if letter.is_ascii_control() => {
                    let _ = write!(quoted, "\\x{:02x}", u32::from(letter));
                }
                letter if is_plain(letter) => quoted.push(letter),
                letter if u32::from(letter) <= 0xffff => {
                    let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
                }
                letter => {
                    let _ = write!(quoted, "\\U{:08x}", u32::from(letter));
                }
            }
        }
        quoted.push('\'');
        quoted
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Returns the columns of a text without wide letters.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// Returns at most `most` columns of a text, with dots in place of the missing part.
pub fn shortened(text: &str, most: usize, style: &Style) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let dots = if style.unicode { "…" } else { "..." };
    let mut short: String = text.chars().take(most.saturating_sub(width(dots))).collect();
    short.push_str(dots);
    short
}
