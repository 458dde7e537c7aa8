//! "Replace per-task RSS cache with per-CPU RSS cache" (RFC, 2022): measures how each design counts the resident pages
//! of programs that run here. Nothing is simulated.
//!
//! Before: each task keeps its counts for 64 events (to Linux 6.1). After: each CPU caches the address space that it
//! runs (the document), and in rows of their own the per-CPU batches that Linux took instead.

use super::asleep;
use super::cost::{self, Costs};
use super::programs::{PROGRAMS, Size};
use super::replay::{ByBatch, ByCpu, ByTask, Ours, Outcome, replay};
use super::row::{Measured, Note, quartiles};
use super::script::Script;
use super::trace::Trace;
use super::variants::{self, Session, Timed};
use ledgerline_coherence::experiments::Interval;

/// The suffix of the batches' rows.
const BATCHES: &str = "batches of 6.2";

pub(super) fn measure(session: &Session<'_>) -> Result<Vec<Measured>, String> {
    let Session { cpus, quick, progress } = *session;
    let size = Size { passes: if quick { 1 } else { 3 }, quick };
    let mut rows = Vec::new();
    for (name, record) in PROGRAMS {
        progress(&format!("{name}: running and recording it"));
        let followed = record(cpus, size).and_then(|trace| {
            let told = |step: &str| progress(&format!("{name}: {step}"));
            follow(name, &trace, &Session { progress: &told, ..*session })
        });
        match followed {
            Ok(followed) => rows.extend(followed),
            Err(why) => rows.push(empty(name, why)),
        }
    }
    rows.push(asleep::shown(cpus)?);
    Ok(rows)
}

/// Returns a row with only the reason why it has no figures.
fn empty(name: &str, why: String) -> Measured {
    Measured { row: name.to_owned(), notes: vec![Note::Row(why)], ..Measured::default() }
}

fn follow(name: &str, trace: &Trace, session: &Session<'_>) -> Result<Vec<Measured>, String> {
    let script = Script::of(trace, session.cpus);
    if script.updates() == 0 {
        return Err("no change of resident pages was recorded".to_owned());
    }
    (session.progress)("replaying it");
    let by_task = replay(&script, ByTask::new(&script));
    let by_cpu = replay(&script, ByCpu::new(&script));
    let by_batch = replay(&script, ByBatch::new(&script));
    let table = Ours::table(&script)?;
    let ours = replay(&script, Ours::new(&table, &script)?);
    let costs = cost::measure(&script, session)?;

    let mut rows = Vec::new();
    for (kind, after) in [("", &by_cpu), (BATCHES, &by_batch)] {
        let designs = [&by_task, after, &ours];
        let mut row = |what: &str, unit, value: fn(&Outcome) -> f64, notes: Vec<Note>| {
            let [before, after, ours] = designs.map(|passes| figure(passes, value));
            rows.push(Measured {
                row: called(name, what, kind),
                unit,
                before,
                after,
                ours,
                notes,
                ..Measured::default()
            });
        };
        let about = if kind.is_empty() { about(trace, &script) } else { Vec::new() };
        row("updates without a shared write", "%", Outcome::hit_rate, about);
        row("worst error of a reading", "pages", |outcome| outcome.worst as f64, Vec::new());
        row("mean error of a reading", "pages", Outcome::mean, Vec::new());
        if let Some(costs) = &costs {
            rows.push(cost_row(name, kind, costs));
        }
    }
    rows.insert(1, as_published(name, &by_cpu));
    if let Some(costs) = &costs {
        rows.extend(share_rows(name, trace, &script, costs));
    }
    Ok(rows)
}

fn called(name: &str, what: &str, kind: &str) -> String {
    if kind.is_empty() { format!("{name}: {what}") } else { format!("{name}: {what}, {kind}") }
}

/// Returns the row of the cost of an update.
fn cost_row(name: &str, kind: &str, costs: &Costs) -> Measured {
    let after = if kind.is_empty() { &costs.by_cpu } else { &costs.by_batch };
    let about = kind.is_empty().then(|| {
        Note::Table("with the program's own sequence of faults, turns and updates on each CPU; going through that is in it".to_owned())
    });
    let name = called(name, "an update", kind);
    variants::row(&name, Some(&costs.by_task), Some(after), Some(&costs.ours), about)
}

/// Returns the share of the CPUs' time that updates take, an upper bound for the savings of another design.
fn share_rows(name: &str, trace: &Trace, script: &Script, costs: &Costs) -> Vec<Measured> {
    let time: u64 = trace.passes.iter().map(|pass| pass.end - pass.start).sum();
    let available = time as f64 * f64::from(script.cpus);
    if available <= 0.0 {
        return Vec::new();
    }
    let share = |timed: &Timed| {
        let percent = |ns: f64| 100.0 * script.updates() as f64 * ns / available;
        let Interval { median, low, high } = timed.figure();
        Some(Interval { median: percent(median), low: percent(low), high: percent(high) })
    };
    let about = "what updates take by the row \"an update\", of the time of all CPUs while it was recorded, which \
                 slows it; no other design saves more here";
    [("", &costs.by_cpu), (BATCHES, &costs.by_batch)]
        .map(|(kind, after)| Measured {
            row: called(name, "time of the accounting", kind),
            unit: "% of CPU",
            before: share(&costs.by_task),
            after: share(after),
            ours: share(&costs.ours),
            notes: kind.is_empty().then(|| Note::Table(about.to_owned())).into_iter().collect(),
            ..Measured::default()
        })
        .into()
}

/// Returns the rate as the document defines it. It counts the updates that faults make, and as a miss an update that
/// its CPU's cache does not hold. It leaves out the flushes when a CPU switches to another address space.
fn as_published(name: &str, by_cpu: &[Outcome]) -> Measured {
    let missed: u64 = by_cpu.iter().map(|pass| pass.fast_missed).sum();
    let updates: u64 = by_cpu.iter().map(|pass| pass.fast).sum();
    let rate = |pass: &Outcome| pass.fast as f64 / pass.fast_missed.max(1) as f64;
    let after = if missed == 0 { None } else { figure(by_cpu, rate) };
    let mut notes = Vec::new();
    if missed == 0 {
        notes.push(Note::Row(format!(
            "no miss in {updates} updates, so there is no number of updates a miss"
        )));
    }
    notes.push(Note::Table(
        "misses are counted of updates by faults; flushes at a turn to another address space are not counted"
            .to_owned(),
    ));
    Measured {
        row: called(name, "updates a miss, as the document counts", ""),
        unit: "updates",
        after,
        notes,
        ..Measured::default()
    }
}

/// Returns the quartiles of the passes.
fn figure(passes: &[Outcome], value: fn(&Outcome) -> f64) -> Option<Interval> {
    let values: Vec<f64> = passes.iter().filter(|pass| pass.updates > 0).map(value).collect();
    (!values.is_empty()).then(|| quartiles(&values))
}

/// Describes what was recorded and what could not be, with a note for each, since programs share most of them.
fn about(trace: &Trace, script: &Script) -> Vec<Note> {
    let mut about = vec![format!(
        "{} updates of {} address spaces by {} tasks, passes: {}, CPUs: {}",
        script.updates(),
        script.spaces,
        script.tasks,
        script.passes,
        script.cpus
    )];
    let how = if trace.exact {
        "each change of a count was recorded as kmem:rss_stat tells it (from Linux 6.16 on without what an \
         exit takes away)"
    } else {
        "faults alone could be recorded: each is taken for one page, and what exec, fork, munmap and exit \
         change is not seen"
    };
    about.push(how.to_owned());
    about.push("a CPU that idles keeps its address space".to_owned());
    if trace.lost > 0 {
        about.push(format!("{} records were lost", trace.lost));
    }
    if trace.cut {
        about.push("what came after the first two million events is left out".to_owned());
    }
    about.into_iter().map(Note::Table).collect()
}

#[cfg(test)]
mod tests {
    use super::super::script::tests::event;
    use super::super::trace::What;
    use super::*;
    use crate::reported::{Here, RSS_CACHE};

    const TWO_CPUS: Session<'_> = Session { cpus: &[0, 1], quick: true, progress: &|_| () };

    #[test]
    fn a_hand_written_trace_has_its_known_rates() {
        // Two processes take turns on a CPU, ten faults each.
        let faults = (0..200).map(|time| event(time, 0, 7 + (time / 10 % 2) as u32, What::Fault));
        let passes = std::iter::once(0..200).collect();
        let trace = Trace { events: faults.collect(), passes, ..Trace::default() };
        let rows = follow("turns", &trace, &TWO_CPUS).unwrap();
        let medians = |row: &str| {
            let row = rows.iter().find(|one| one.row == row).expect("the row is there");
            [row.before, row.after, row.ours].map(|figure| figure.map(|figure| figure.median))
        };
        // By task: each gives its counts away at its 66th fault. By CPU: 19 turns flush. Ours: the first update of each
        // process on a CPU.
        let rates = medians("turns: updates without a shared write");
        assert_eq!(rates, [Some(99.0), Some(90.5), Some(99.0)]);
        assert_eq!(medians("turns: worst error of a reading"), [Some(65.0), Some(0.0), Some(0.0)]);
        assert_eq!(
            medians("turns: worst error of a reading, batches of 6.2"),
            [Some(65.0), Some(31.0), Some(0.0)]
        );
        assert_eq!(medians("turns: updates a miss, as the document counts"), [None; 3]);
        assert!(medians("turns: an update").iter().all(Option::is_some));
        assert_eq!(rows.len(), 11);
        // 200 updates, as a share of the 200 ns of each of two CPUs.
        let costs = medians("turns: an update").map(Option::unwrap);
        let shares = medians("turns: time of the accounting").map(Option::unwrap);
        for (share, ns) in shares.into_iter().zip(costs) {
            assert!((share / (100.0 * 200.0 * ns / 400.0) - 1.0).abs() < 1e-9, "{share} {ns}");
        }
    }

    #[test]
    fn every_row_that_is_to_stand_in_for_a_published_figure_is_one_that_is_measured() {
        let faults = (0..200).map(|time| event(time, 0, 7, What::Fault));
        let passes = std::iter::once(0..200).collect();
        let trace = Trace { events: faults.collect(), passes, ..Trace::default() };
        let mut rows = vec![asleep::shown(&[0, 1]).unwrap().row];
        for (name, _) in PROGRAMS {
            let followed = follow(name, &trace, &TWO_CPUS);
            rows.extend(followed.unwrap().into_iter().map(|row| row.row));
        }
        for one in &RSS_CACHE {
            let Here::Row(row) = one.here else { continue };
            assert!(rows.iter().any(|name| name == row), "{row}");
        }
    }

    #[test]
    fn a_trace_of_nothing_says_so() {
        let session = Session { cpus: &[0], ..TWO_CPUS };
        let why = follow("nothing", &Trace::default(), &session).unwrap_err();
        assert_eq!(empty("nothing", why.clone()).note(), Some(why));
    }
}
