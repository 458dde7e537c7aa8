//! Numbers, sentences and lists as they are printed.

/// A figure with as many digits as a median over some points means: three, or all before the point.
pub(super) fn figure(value: f64) -> String {
    let size = value.abs();
    let text = if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    };
    // No minus before a zero.
    match text.strip_prefix('-') {
        Some(digits) if digits.chars().all(|digit| matches!(digit, '0' | '.')) => digits.to_owned(),
        _ => text,
    }
}

/// A figure that somebody else gave, with all digits but zeros at its end; nothing where there is none.
pub(super) fn exact(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// Each item once, in the order in which they first come.
pub(super) fn each_once<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut seen, item| {
        if !seen.contains(&item) {
            seen.push(item);
        }
        seen
    })
}

/// From the least to the most.
pub(super) fn range(low: f64, high: f64) -> String {
    format!("{} .. {}", figure(low), figure(high))
}

/// Lines of at most `width` columns that begin with `indent` columns; the first with `begin` instead. A word
/// that is longer stays whole.
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
