//! The command line.

use super::document::{DOCUMENTS, Document};
use clap::Args;
use clap::builder::{
    PathBufValueParser, PossibleValuesParser, RangedU64ValueParser, TypedValueParser,
};
use ledgerline_coherence::experiments::FITTED_ON;
use ledgerline_coherence::experiments::study::MOST_CPUS;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Most design points. Beyond some tens the medians no longer change.
const MOST_POINTS: u64 = 1000;
/// Most numbers of CPUs of a curve.
const MOST_PLACES: usize = 64;
/// Rows of the NUMA commit that can be used for calibration. The other rows have no contended line.
const ROWS: [&str; 5] = ["32", "64", "125", "256", "512"];
/// The experiment with these rows.
const HAS_ROWS: &str = "numa-threshold";

/// The end of `ledgerline help reproduce`.
pub const HELP: &str = "\
Experiments (none named: all):
  page-counter-lockless  page counters without locks, beside spinlocked ones; 144 CPUs
  numa-threshold         NUMA statistics by the threshold of their differences; 88 CPUs
  memcg-layout           struct mem_cgroup moved by 32 bytes, and the repairs; 72 CPUs
  page-counter-layout    struct page_counter by who writes, two patches beside it; 72 CPUs
  rss-cache              resident pages by task, by CPU and by us; measured alone

Each is shown as published; as predicted by simulation of that machine, with the interval
over what nobody published; as our own design would do there; and as measured here,
where a few CPUs show less than many. A row marked = was calibrated on, one marked ~ rests
on a floor that was, one marked 0 is the base of the others: they predict nothing. What a
prediction lacks is listed below it.

Examples:
  ledgerline reproduce
  ledgerline reproduce numa-threshold --no-measure --row 64
  ledgerline reproduce page-counter-layout --cpus 1..1024
  ledgerline reproduce --json --quick
  ledgerline reproduce --html page.html
  ledgerline reproduce --published
  ledgerline reproduce --published dentry-lockref my-case.toml

`--published` takes layout changes of the kernel and others that were published with
figures, on none of which the model was tuned: whether the sign is right, whether the
published figure lies in the predicted interval, and on which unknown the answer turns.
A case is a TOML file; a named one is told with its source and all that it assumes.

`--cpus` prints the scaling curve instead of the table: the document's machine with fewer
CPUs in use, or grown by whole sockets. The exit status is 0, 1 when something could not
be predicted, measured or written, 2 for a bad command line.";

/// What to reproduce, and how.
#[derive(Args, Debug)]
pub struct ReproduceArgs {
    /// One of the experiments below [default: all]
    #[arg(value_name = "EXPERIMENT", value_parser = experiment(), hide_possible_values = true)]
    name: Option<&'static Document>,

    /// Few design points and short rounds: to see that it works
    #[arg(long)]
    pub(super) quick: bool,

    /// Predict alone; for seconds the CPUs compute, and nothing is timed
    #[arg(long)]
    no_measure: bool,

    /// Design points to take the median of [default: 16; 4 with --quick or for a curve; 32 with --published]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_POINTS))]
    points: Option<usize>,

    /// The threshold that numa-threshold is calibrated on [default: 125]
    #[arg(long, value_name = "R", value_parser = row())]
    row: Option<u32>,

    /// Print the scaling curve for these numbers of CPUs: 1..1024, or 2,8,64
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = range)]
    cpus: Vec<RangeInclusive<usize>>,

    /// Hold the model against published layout changes instead: all that come with it, or these
    #[arg(long, value_name = "CASE|FILE", num_args = 0..)]
    #[arg(conflicts_with_all = ["name", "no_measure", "row", "cpus", "html", "quick"])]
    pub(super) published: Option<Vec<String>>,

    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,

    /// Write a page of tables and plots [default file: reproduce.html; - for standard output]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "reproduce.html")]
    #[arg(value_parser = page())]
    pub(super) html: Option<PathBuf>,
}

impl ReproduceArgs {
    /// Refuses options that contradict each other.
    ///
    /// # Errors
    /// One line for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(&Document { name, .. }) = self.name.filter(|document| !document.is_simulated())
        {
            if self.no_measure {
                return Err(format!("{name} is measured alone; leave --no-measure out"));
            }
            if !self.cpus.is_empty() {
                return Err(format!(
                    "{name} is measured, not simulated; --cpus is for the other four"
                ));
            }
        }
        if self.row.is_some() && self.name.is_some_and(|document| document.name != HAS_ROWS) {
            return Err(format!("--row chooses what {HAS_ROWS} is calibrated on"));
        }
        if self.json && self.html.as_deref() == Some(Path::new("-")) {
            return Err("--json and --html - both write to standard output; name a file".to_owned());
        }
        match self.curve().len() {
            0..=MOST_PLACES => Ok(()),
            cpus => Err(format!("--cpus: {cpus} numbers; at most {MOST_PLACES}")),
        }
    }

    /// Returns the documents to reproduce. A document that is only measured has no curve and no prediction.
    pub(super) fn documents(&self) -> impl Iterator<Item = &'static Document> {
        let all =
            DOCUMENTS.iter().filter(|document| self.name.is_none_or(|name| name == *document));
        all.filter(|document| document.is_simulated() || self.measures())
    }

    /// Returns whether the curves replace the tables.
    pub(super) fn curves_alone(&self) -> bool {
        self.cpus_chosen() && self.html.is_none()
    }

    /// Returns whether the user chose the numbers of CPUs.
    pub(super) fn cpus_chosen(&self) -> bool {
        !self.cpus.is_empty()
    }

    /// Returns whether the designs are timed here.
    pub(super) fn measures(&self) -> bool {
        !self.no_measure && !self.curves_alone()
    }

    pub(super) fn points(&self) -> usize {
        self.points_of(if self.quick { 4 } else { 16 })
    }

    /// Returns the number of design points, or `otherwise` if the user chose none.
    pub(super) fn points_of(&self, otherwise: usize) -> usize {
        self.points.unwrap_or(otherwise)
    }

    /// Returns the number of design points of a curve. Each is run once for each number of CPUs.
    pub(super) fn curve_points(&self) -> usize {
        self.points.unwrap_or(4)
    }

    pub(super) fn row(&self) -> u32 {
        self.row.unwrap_or(FITTED_ON)
    }

    /// Returns the numbers of CPUs, ascending; empty if there is no curve. A page always has one.
    pub(super) fn curve(&self) -> Vec<usize> {
        match (&self.cpus[..], &self.html) {
            ([], None) => Vec::new(),
            ([], Some(_)) if self.quick => vec![1, 16, 128, 1024],
            ([], Some(_)) => numbers_of_cpus(&[1..=1024]),
            (chosen, _) => numbers_of_cpus(chosen),
        }
    }
}

fn experiment() -> impl TypedValueParser<Value = &'static Document> {
    let names = PossibleValuesParser::new(DOCUMENTS.iter().map(|document| document.name));
    names.map(|name| Document::named(&name).expect("a name of the list"))
}

fn row() -> impl TypedValueParser<Value = u32> {
    PossibleValuesParser::new(ROWS).try_map(|row| row.parse())
}

/// Returns the parser of the page's file. Refuses the name of an experiment, which would be taken for the file after
/// `--html`.
fn page() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|file| match file.to_str().and_then(Document::named) {
        Some(Document { name, .. }) => {
            Err(format!("it names an experiment; write `ledgerline reproduce {name} --html`"))
        }
        None => Ok(file),
    })
}

/// Parses a number of CPUs, or the first and the last of a range: `1..1024`.
fn range(part: &str) -> Result<RangeInclusive<usize>, String> {
    let number = |text: &str| {
        let number = text.trim().parse().ok().filter(|number| (1..=MOST_CPUS).contains(number));
        number.ok_or_else(|| format!("not a number from 1 to {MOST_CPUS}"))
    };
    let (first, last) = part.split_once("..").unwrap_or((part, part));
    let range = number(first)?..=number(last)?;
    if range.is_empty() { Err("runs backwards".to_owned()) } else { Ok(range) }
}

/// Returns the ends of each range and the powers of two between, ascending, each once.
fn numbers_of_cpus(ranges: &[RangeInclusive<usize>]) -> Vec<usize> {
    let numbers = |range: &RangeInclusive<usize>| {
        let powers = (0..usize::BITS).map(|bit| 1 << bit);
        let (first, last) = range.clone().into_inner();
        powers.filter(move |power| (first..last).contains(power)).chain([first, last])
    };
    let mut cpus: Vec<usize> = ranges.iter().flat_map(numbers).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn parse(arguments: &[&str]) -> Result<ReproduceArgs, String> {
        let command = ReproduceArgs::augment_args(Command::new("reproduce"));
        let line = [&["reproduce"], arguments].concat();
        let parsed = command.try_get_matches_from(line);
        let parsed = parsed.and_then(|found| ReproduceArgs::from_arg_matches(&found));
        let args = parsed.map_err(|error| error.to_string())?;
        args.check().map(|()| args)
    }

    #[test]
    fn numbers_of_cpus_are_lists_and_ranges() {
        let cpus = |text: &str| parse(&["--cpus", text]).unwrap().curve();
        assert_eq!(cpus("1..1024"), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
        assert_eq!(cpus("2,8,64"), [2, 8, 64]);
        assert_eq!(cpus("88, 3..20"), [3, 4, 8, 16, 20, 88]);
        assert_eq!(cpus("64,64..64"), [64]);
    }

    #[test]
    fn bad_numbers_of_cpus_are_told() {
        let told = |text: &str| parse(&[&format!("--cpus={text}")]).unwrap_err();
        for bad in
            ["", "0", "1025", "-1", "2,,3", "1..", "..8", "many", "1..2..3", "99999999999999999999"]
        {
            let line = told(bad);
            assert!(line.contains("'--cpus <LIST>'") && line.contains("from 1 to 1024"), "{line}");
        }
        assert!(told("8..2").contains("invalid value '8..2' for '--cpus <LIST>': runs backwards"));
        let many: Vec<String> = (1..=65).map(|cpus: usize| cpus.to_string()).collect();
        assert_eq!(told(&many.join(",")), "--cpus: 65 numbers; at most 64");
    }

    #[test]
    fn a_page_has_a_curve_and_a_curve_alone_is_not_measured() {
        let curve = |arguments: &[&str]| {
            let args = parse(arguments).unwrap();
            (args.curve().len(), args.curves_alone(), args.measures())
        };
        assert_eq!(curve(&[]), (0, false, true));
        assert_eq!(curve(&["--html"]), (11, false, true));
        assert_eq!(curve(&["--html", "-", "--quick"]), (4, false, true));
        assert_eq!(curve(&["--html", "--cpus", "2"]), (1, false, true));
        assert_eq!(curve(&["--cpus", "2"]), (1, true, false));
        let names = |arguments: &[&str]| parse(arguments).unwrap().documents().count();
        assert_eq!((names(&[]), names(&["--no-measure"]), names(&["memcg-layout"])), (5, 4, 1));
    }
}
