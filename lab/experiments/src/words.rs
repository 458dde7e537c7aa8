//! Formats numbers, sentences and lists.

/// Formats a figure with the significant digits of a median over some points: three, or all before the point.
pub(super) fn figure(value: f64) -> String {
    let size = value.abs();
    let text = if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    };
    // Avoids a negative zero.
    match text.strip_prefix('-') {
        Some(digits) if digits.chars().all(|digit| matches!(digit, '0' | '.')) => digits.to_owned(),
        _ => text,
    }
}

/// Formats an external figure with all digits; empty without a figure.
pub(super) fn exact(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// Returns each item once, in the order of first occurrence.
pub(super) fn each_once<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut seen, item| {
        if !seen.contains(&item) {
            seen.push(item);
        }
        seen
    })
}

/// Formats a range from the least to the greatest value.
pub(super) fn range(low: f64, high: f64) -> String {
    format!("{} .. {}", figure(low), figure(high))
}

/// Wraps a text into lines of at most `width` columns that are indented by `indent`. The first begins with `begin`
/// instead. A longer word stays whole.
pub(super) fn wrapped(begin: &str, text: &str, indent: usize, width: usize) -> String {
    let mut lines = String::new();
    let mut line = begin.to_owned();
    let mut columns = begin.chars().count();
    let mut empty = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !empty && columns + 1 + length > width {
            lines += &line;
            lines.push('\n');
            line = " ".repeat(indent);
            columns = indent;
            empty = true;
        }
        if !empty {
            line.push(' ');
            columns += 1;
        }
        line += word;
        columns += length;
        empty = false;
    }
    lines += &line;
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_or_all_before_the_point() {
        let cases = [
            (27_198.4, "27198"),
            (799.0, "799"),
            (99.96, "100.0"),
            (-18.14, "-18.1"),
            (5.555, "5.55"),
            (-0.001, "0.00"),
            (0.0, "0.00"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn sentences_are_wrapped_between_words() {
        let text = wrapped("  note: ", "one two three", 8, 15);
        assert_eq!(text, "  note: one two\n        three\n");
        assert_eq!(wrapped("", "unbreakable", 2, 5), "unbreakable\n");
        assert_eq!(wrapped("a: ", "", 2, 5), "a: \n");
    }
}
