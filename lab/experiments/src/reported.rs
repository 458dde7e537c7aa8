//! Figures that a document reports of whole programs on its own machines, and their substitutes here.
//!
//! A kernel has only one design, so a program cannot be run here before and after the document's change. The substitute
//! is the share of a program's time that the accounting takes with each design. No change of the accounting saves more
//! than that.

/// A figure that a document reports before and after its change.
#[derive(Debug, PartialEq)]
pub(super) struct Reported {
    /// The program and the machine.
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    pub(super) before: Option<f64>,
    pub(super) after: Option<f64>,
    /// Hits and misses, of which `after` is the average that the document prints.
    pub(super) hits: Option<(u64, u64)>,
    pub(super) here: Here,
}

/// The substitute for a figure here.
#[derive(Debug, PartialEq)]
pub(super) enum Here {
    /// A measured row, by its name.
    Row(&'static str),
    /// None, with the reason.
    Nothing(&'static str),
}

impl Reported {
    /// Returns the change in per cent.
    pub(super) fn change(&self) -> Option<f64> {
        Some(100.0 * (self.after? / self.before? - 1.0))
    }
}

const fn run(
    what: &'static str,
    unit: &'static str,
    [before, after]: [f64; 2],
    here: &'static str,
) -> Reported {
    let here = Here::Row(here);
    Reported { what, unit, before: Some(before), after: Some(after), hits: None, here }
}

const fn rate(what: &'static str, average: f64, hits: (u64, u64), here: Here) -> Reported {
    let unit = "updates a miss";
    Reported { what, unit, before: None, after: Some(average), hits: Some(hits), here }
}

const PGBENCH: &str = "pgbench: time of the accounting";
const MESSAGES: &str = "messages: time of the accounting";
const MAKE: &str = "make -j: time of the accounting";

/// The figures of "Replace per-task RSS cache with per-CPU RSS cache".
pub(super) const RSS_CACHE: [Reported; 12] = [
    run(
        "10000 threads asleep, shown by ps",
        "KiB",
        [43_888.0, 1_498_856.0],
        "threads asleep: resident size shown",
    ),
    rate(
        "boot and login",
        1800.0,
        (1_021_027, 567),
        Here::Nothing("a machine boots once, before anything can be recorded on it"),
    ),
    rate(
        "kernel build, tinyconfig",
        521.0,
        (35_613_357, 68_327),
        Here::Row("make -j: updates a miss, as the document counts"),
    ),
    rate(
        "pgbench",
        2_543_811.0,
        (35_613_357, 14),
        Here::Row("pgbench: updates a miss, as the document counts"),
    ),
    run("pgbench, 100 clients, 8 cores", "transactions/s", [16_073.0, 16_829.0], PGBENCH),
    run("pgbench, 100 clients, 8 cores", "ms", [6.241, 5.962], PGBENCH),
    run("hackbench, 32 processes, 8 cores", "s", [125.317, 123.482], MESSAGES),
    run("kernel build, tinyconfig, 8 cores", "s", [20.9947, 20.9955], MAKE),
    run("pgbench, 100 clients, 2 x 48 cores", "transactions/s", [22_556.0, 23_025.0], PGBENCH),
    run("pgbench, 100 clients, 2 x 48 cores", "ms", [4.458, 4.347], PGBENCH),
    run("hackbench, 2 x 48 cores", "s", [48.774, 48.540], MESSAGES),
    run("kernel build, defconfig, 2 x 48 cores", "s", [42.7050, 42.7121], MAKE),
];

/// Returns whether another figure has the same count of hits. Then one of the two programs has the other's count.
pub(super) fn printed_twice(all: &[Reported], one: &Reported) -> bool {
    let hits = |figure: &Reported| figure.hits.map(|(hits, _)| hits);
    hits(one).is_some() && all.iter().filter(|other| hits(other) == hits(one)).count() > 1
}

/// Returns the remarks about the figures: those with a count that the document prints twice, and the substitutes.
/// `measured` returns whether a row has a figure; `None` if there is no such row.
pub(super) fn remarks(all: &[Reported], measured: impl Fn(&str) -> Option<bool>) -> Vec<String> {
    let mut remarks = Vec::new();
    let doubtful: Vec<&Reported> = all.iter().filter(|one| printed_twice(all, one)).collect();
    if let Some(first) = doubtful.first().and_then(|one| one.hits) {
        let names: Vec<&str> = doubtful.iter().map(|one| one.what).collect();
        remarks.push(format!(
            "the document prints the same {} hits for {}: at most one of these rates can be right, and it does \
             not say which",
            first.0,
            names.join(" and for ")
        ));
    }
    let mut said: Vec<&Here> = Vec::new();
    for one in all {
        if said.contains(&&one.here) {
            continue;
        }
        said.push(&one.here);
        let mut about: Vec<&str> =
            all.iter().filter(|other| other.here == one.here).map(|other| other.what).collect();
        about.dedup();
        let about = about.join("; ");
        remarks.push(match one.here {
            Here::Row(row) => match measured(row) {
                Some(true) => format!("{about}: the row \"{row}\" stands in here"),
                Some(false) => {
                    format!("{about}: \"{row}\" would stand in here and came to no figure")
                }
                None => format!("{about}: nothing stands in, since \"{row}\" was not measured"),
            },
            Here::Nothing(why) => format!("{about}: nothing stands in: {why}"),
        });
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_averages_are_those_of_the_printed_counts() {
        for one in &RSS_CACHE {
            let Some((hits, misses)) = one.hits else { continue };
            let average = hits as f64 / misses as f64;
            assert!((average - one.after.unwrap()).abs() < 1.0, "{}: {average}", one.what);
        }
    }

    #[test]
    fn a_count_that_is_printed_twice_is_told_with_both_who_have_it() {
        let twice: Vec<&str> = RSS_CACHE
            .iter()
            .filter(|one| printed_twice(&RSS_CACHE, one))
            .map(|one| one.what)
            .collect();
        assert_eq!(twice, ["kernel build, tinyconfig", "pgbench"]);
        let told = &remarks(&RSS_CACHE, |_| Some(true))[0];
        assert!(
            told.contains("35613357 hits for kernel build, tinyconfig and for pgbench"),
            "{told}"
        );
        assert!(!remarks(&RSS_CACHE[..3], |_| Some(true))[0].contains("same"));
    }

    #[test]
    fn what_stands_in_is_told_once_and_only_where_it_was_measured() {
        let told = remarks(&RSS_CACHE, |row| (row == PGBENCH).then_some(true)).join("\n");
        let pgbench = "pgbench, 100 clients, 8 cores; pgbench, 100 clients, 2 x 48 cores: the row";
        assert_eq!(told.matches(pgbench).count(), 1, "{told}");
        assert!(told.contains(&format!("since \"{MESSAGES}\" was not measured")), "{told}");
        let none = remarks(&RSS_CACHE, |_| Some(false)).join("\n");
        assert!(none.contains(&format!("\"{PGBENCH}\" would stand in")), "{none}");
        assert!(told.contains("boot and login: nothing stands in: a machine boots once"), "{told}");
    }
}
