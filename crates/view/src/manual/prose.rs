//! The text of --help as roff: paragraphs are filled, indented lines are kept, words in backticks are bold.

use clap_mangen::roff::{Inline, Roff, bold, roman};

/// The indentation of kept lines in --help.
const INDENT: &str = "  ";

/// Appends `text`.
pub fn render(roff: &mut Roff, text: &str) {
    // Kept lines are consecutive, including blank ones between them.
    let mut kept = false;
    let mut gap = false;
    let mut anything = false;
    for line in text.lines() {
        if line.trim().is_empty() {
            gap = true;
            continue;
        }
        match line.strip_prefix(INDENT) {
            Some(line) => {
                if !kept {
                    if anything {
                        roff.control("PP", []);
                    }
                    roff.control("RS", ["2"]).control("nf", []);
                } else if gap {
                    roff.control("sp", []);
                }
                roff.text([roman(line)]);
                kept = true;
            }
            None => {
                if kept {
                    roff.control("fi", []).control("RE", []);
                }
                if (kept || gap) && anything {
                    roff.control("PP", []);
                }
                roff.text(inlines(line));
                kept = false;
            }
        }
        (gap, anything) = (false, true);
    }
    if kept {
        roff.control("fi", []).control("RE", []);
    }
}

/// Returns a line with the text in backticks in bold.
fn inlines(line: &str) -> Vec<Inline> {
    let whole = line.matches('`').count().is_multiple_of(2);
    let parts = line.split('`').enumerate();
    match whole {
        true => {
            parts.map(|(at, part)| if at % 2 == 1 { bold(part) } else { roman(part) }).collect()
        }
        false => vec![roman(line)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        let mut roff = Roff::new();
        render(&mut roff, text);
        roff.to_roff()
    }

    #[test]
    fn paragraphs_are_filled_and_indented_lines_are_kept() {
        let text = "One `run` is\nhere.\n\n  a   b\n\n  .c\nAfter it.\n";
        let expected = "One \\fBrun\\fR is\nhere.\n.PP\n.RS 2\n.nf\na   b\n.sp\n\\&.c\n.fi\n.RE\n.PP\nAfter it.\n";
        assert_eq!(rendered(text), expected);
    }

    #[test]
    fn nothing_stands_open_at_the_end() {
        assert_eq!(rendered("  x\n"), ".RS 2\n.nf\nx\n.fi\n.RE\n");
        assert_eq!(rendered("a ` alone"), "a ` alone\n");
        assert_eq!(rendered(""), "");
    }
}
