//! Measurements on this machine: the documents' older and newer designs, and ours.
//!
//! | module      | what it holds                                                                |
//! |-------------|------------------------------------------------------------------------------|
//! | `row`       | one variant, measured                                                        |
//! | `variants`  | times an experiment's variants side by side, and derives notes               |
//! | `lockless`  | "mm: memcontrol: lockless page counters"                                     |
//! | `layout`    | "memcg: optimize charge codepath"                                            |
//! | `memcg`     | `struct mem_cgroup` in five layouts (2018)                                   |
//! | `threshold` | thresholds of NUMA statistics                                                |
//! | `rss`       | resident pages of real programs                                              |
//! | `asleep`    | the document's own program about them, from its source                       |
//! | `programs`  | the programs                                                                 |
//! | `trace`     | the kernel's records of them                                                 |
//! | `script`    | a trace as steps for the designs                                             |
//! | `replay`    | the outcome of a script for each design                                      |
//! | `cost`      | the time that a design takes                                                 |
//!
//! The designs are in `crate::history`. An operation is the accounting alone, without the fault, message or allocation
//! that it accounts for, because on few CPUs those would hide the differences.

mod asleep;
mod cost;
mod layout;
mod lockless;
mod memcg;
mod programs;
mod replay;
mod row;
mod rss;
mod script;
mod threshold;
mod trace;
mod variants;

use ledgerline_bench::measure::machine::allowed_cpus;

pub(super) use self::row::{Measured, Note};
use self::variants::Session;

/// Measures an experiment, and reports to `progress`.
///
/// # Errors
/// A line for the user: there is no such experiment, or it cannot be measured here at all.
pub(super) fn measure(
    experiment: &str,
    quick: bool,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Measured>, String> {
    let cpus =
        allowed_cpus().map_err(|error| format!("cannot tell which CPUs may be used: {error}"))?;
    let session = &Session { cpus: &cpus, quick, progress };
    let measured = match experiment {
        "page-counter-lockless" => lockless::measure(session),
        "page-counter-layout" => layout::measure(session),
        "memcg-layout" => memcg::measure(session),
        "numa-threshold" => threshold::measure(session),
        "rss-cache" => return rss::measure(session),
        _ => return Err(format!("nothing is measured for {experiment:?}")),
    };
    measured.map_err(|error| format!("cannot make what is to be measured: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline_coherence::experiments::{
        Interval, memcg_layout, numa_threshold, page_counter_layout,
    };
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Measures in short rounds, and checks the figures.
    fn rows(experiment: &str) -> Vec<Measured> {
        let told = AtomicBool::new(false);
        let rows = measure(experiment, true, &|_| told.store(true, Ordering::Relaxed)).unwrap();
        assert!(told.into_inner(), "whoever waits is told nothing");
        for row in &rows {
            for figure in [row.before, row.after, row.ours].into_iter().flatten() {
                let Interval { median, low, high } = figure;
                assert!(low.is_finite() && low <= median && median <= high, "{row:?}");
            }
            assert!(row.before.or(row.after).or(row.ours).is_some(), "{row:?}");
        }
        rows
    }

    fn names(rows: &[Measured]) -> Vec<&str> {
        rows.iter().map(|row| row.row.as_str()).collect()
    }

    #[test]
    fn spinlocked_and_lockless_counters_are_measured() {
        let rows = rows("page-counter-lockless");
        assert_eq!(names(&rows)[..2], ["lockless", "locked, 1 to 4 visits in 32 faults"]);
        assert_eq!(names(&rows)[5], "locked, 4 visits in 32 faults");
        assert!(rows[1..].iter().all(|row| row.before.is_some() && row.after.is_some()));
        assert!(rows.iter().all(|row| row.ours.is_some()));
    }

    #[test]
    fn the_rows_of_the_layout_are_those_of_the_simulation() {
        let rows = rows("page-counter-layout");
        assert_eq!(names(&rows)[0], "all in root");
        assert!(names(&rows)[1..].iter().eq(page_counter_layout::ROWS.iter().map(|row| &row.0)));
    }

    #[test]
    fn the_layouts_of_the_group_are_those_of_the_simulation() {
        let rows = rows("memcg-layout");
        assert!(names(&rows).iter().eq(memcg_layout::VARIANTS.iter().map(|variant| &variant.0)));
    }

    #[test]
    fn the_thresholds_are_those_of_the_simulation() {
        let rows = rows("numa-threshold");
        let simulated = numa_threshold::ROWS.map(|row| match row.0 {
            Some(threshold) => threshold.to_string(),
            None => "none".to_owned(),
        });
        assert_eq!(names(&rows), simulated);
    }

    #[test]
    fn real_programs_are_followed_or_it_is_said_why_not() {
        let rows = measure("rss-cache", true, &|_| ()).unwrap();
        for name in ["make -j", "pgbench", "messages"] {
            let mine: Vec<_> = rows.iter().filter(|row| row.row.starts_with(name)).collect();
            if let [only] = mine[..] {
                let why = only.note().expect("a row without figures says why");
                assert!(!why.is_empty() && !why.contains('\n'), "{why:?}");
                eprintln!("{name}: {why}");
                continue;
            }
            assert_eq!(mine.len(), 11, "{mine:?}");
            for row in mine {
                let Some(Interval { median, low, high }) = row.ours else { continue };
                assert!(low <= median && median <= high);
                // Our counts are exact for any recording.
                assert!(!row.row.contains("error") || high == 0.0, "{row:?}");
                assert!(row.unit != "%" || (0.0..=100.0).contains(&low), "{row:?}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_refused_in_one_line() {
        let error = measure("bogus", true, &|_| ()).unwrap_err();
        assert!(error.contains("\"bogus\"") && !error.contains('\n'));
    }
}
