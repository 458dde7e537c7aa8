//! What the user asked for, checked.

use super::ReproduceArgs;
use super::document::{DOCUMENTS, Document, names};
use ledgerline_coherence::experiments::FITTED_ON;
use ledgerline_coherence::experiments::study::MOST_CPUS;
use std::path::PathBuf;

/// Most design points: beyond some tens the medians stand still.
const MOST_POINTS: usize = 1000;
/// Most numbers of CPUs of a curve.
const MOST_PLACES: usize = 64;
/// Rows of seed 003 that can be calibrated on: on the others no line is contended.
const ROWS: [u32; 5] = [32, 64, 125, 256, 512];
/// The curve of a page for which none is asked for.
const WHOLE_CURVE: &str = "1..1024";
/// The same, in a hurry.
const QUICK_CURVE: &str = "1,16,128,1024";

/// The checked options.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    pub(super) names: Vec<&'static str>,
    pub(super) points: usize,
    /// Design points of a curve, each of which is run once a number of CPUs.
    pub(super) curve_points: usize,
    pub(super) row: u32,
    /// Numbers of CPUs, rising; empty where no curve is asked for.
    pub(super) cpus: Vec<usize>,
    /// Whether the user chose them.
    pub(super) cpus_chosen: bool,
    /// Whether the curves are asked for instead of the tables.
    pub(super) curves_alone: bool,
    pub(super) measure: bool,
    pub(super) quick: bool,
    pub(super) json: bool,
    pub(super) html: Option<PathBuf>,
}

impl Options {
    /// The error is one line for the user.
    pub(super) fn check(args: &ReproduceArgs) -> Result<Options, String> {
        let named = match &args.name {
            None => None,
            Some(name) => Some(Document::named(name).ok_or_else(|| {
                format!("no experiment is called \"{}\"; there are {}", plain(name), names())
            })?),
        };
        let chosen: Vec<&Document> = match named {
            Some(document) => vec![document],
            None => DOCUMENTS.iter().collect(),
        };
        if let Some(document) = named.filter(|document| !document.is_simulated()) {
            let name = document.name;
            if args.no_measure {
                return Err(format!("{name} is measured alone; leave --no-measure out"));
            }
            if args.cpus.is_some() {
                return Err(format!(
                    "{name} is measured, not simulated; --cpus is for the other four"
                ));
            }
        }
        let points = match &args.points {
            Some(text) => Some(number("--points", text, MOST_POINTS)?),
            None => None,
        };
        let row = match &args.row {
            None => FITTED_ON,
            Some(text) => {
                if chosen.iter().all(|document| document.name != "numa-threshold") {
                    return Err("--row chooses what numa-threshold is calibrated on".to_owned());
                }
                let row = text.parse().ok().filter(|row| ROWS.contains(row));
                row.ok_or_else(|| {
                    let rows = ROWS.map(|row| row.to_string()).join(", ");
                    format!("--row: \"{}\" is no contended row; those are {rows}", plain(text))
                })?
            }
        };
        let html = args.html.as_ref().map(PathBuf::from);
        if let Some(file) = &args.html
            && Document::named(file).is_some()
        {
            return Err(format!(
                "--html takes \"{file}\" for its file; write `ledgerline reproduce {file} --html`"
            ));
        }
        if args.json && html.as_deref().is_some_and(|file| file.as_os_str() == "-") {
            return Err("--json and --html - both write to standard output; name a file".to_owned());
        }
        let cpus = match (&args.cpus, &html) {
            (Some(text), _) => numbers_of_cpus(text)?,
            (None, Some(_)) if args.quick => numbers_of_cpus(QUICK_CURVE)?,
            (None, Some(_)) => numbers_of_cpus(WHOLE_CURVE)?,
            (None, None) => Vec::new(),
        };
        Ok(Options {
            names: chosen.iter().map(|document| document.name).collect(),
            points: points.unwrap_or(if args.quick { 4 } else { 16 }),
            curve_points: points.unwrap_or(4),
            row,
            cpus,
            cpus_chosen: args.cpus.is_some(),
            curves_alone: args.cpus.is_some() && html.is_none(),
            measure: !args.no_measure,
            quick: args.quick,
            json: args.json,
            html,
        })
    }
}

fn number(option: &str, text: &str, most: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("{option}: \"{}\" is not a number from 1 to {most}", plain(text)))
}

/// `2,8,64`, `1..1024` (its ends and the powers of two between), or both; rising, each once.
fn numbers_of_cpus(text: &str) -> Result<Vec<usize>, String> {
    let one = |text: &str| number("--cpus", text.trim(), MOST_CPUS);
    let mut cpus = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => cpus.push(one(part)?),
            Some((first, last)) => {
                let (first, last) = (one(first)?, one(last)?);
                if first > last {
                    return Err(format!("--cpus: {first}..{last} runs backwards"));
                }
                let powers = (0..usize::BITS).map(|bit| 1 << bit);
                cpus.extend([first, last]);
                cpus.extend(
                    powers.take_while(|&power| power < last).filter(|&power| power > first),
                );
            }
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    if cpus.len() > MOST_PLACES {
        return Err(format!("--cpus: {} numbers; at most {MOST_PLACES}", cpus.len()));
    }
    Ok(cpus)
}

/// A word of the user's, fit for one line.
fn plain(word: &str) -> String {
    let mut plain: String =
        word.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    if plain.chars().count() > 40 {
        plain = plain.chars().take(37).chain("...".chars()).collect();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cpus_are_lists_and_ranges() {
        let cpus = |text: &str| numbers_of_cpus(text).unwrap();
        assert_eq!(cpus("1..1024"), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
        assert_eq!(cpus("2,8,64"), [2, 8, 64]);
        assert_eq!(cpus("88, 3..20"), [3, 4, 8, 16, 20, 88]);
        assert_eq!(cpus("64,64..64"), [64]);
    }

    #[test]
    fn bad_numbers_of_cpus_are_told_in_one_line() {
        let told = |text: &str| numbers_of_cpus(text).unwrap_err();
        for bad in
            ["", "0", "1025", "-1", "2,,3", "1..", "..8", "many", "1..2..3", "99999999999999999999"]
        {
            let line = told(bad);
            assert!(line.starts_with("--cpus: \"") && line.contains("from 1 to 1024"), "{line}");
        }
        assert_eq!(told("8..2"), "--cpus: 8..2 runs backwards");
        let many: Vec<String> = (1..=65).map(|cpus: usize| cpus.to_string()).collect();
        assert_eq!(told(&many.join(",")), "--cpus: 65 numbers; at most 64");
        assert!(!told("2\n3\u{1b}[31m").contains(['\n', '\u{1b}']));
    }
}
