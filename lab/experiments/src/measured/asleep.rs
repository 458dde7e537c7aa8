//! The program with which the document of the RSS cache shows the error of a count by task: threads that each write a
//! few pages of their own and sleep. It is not run here; each design follows the steps of its source.

use super::replay::{ByCpu, ByTask, Design, Ours};
use super::row::{Measured, Note};
use super::script::Script;
use super::trace::{Event, Trace, What};
use ledgerline_coherence::experiments::Interval;

/// `THREAD_NUM` of the program.
const THREADS: u32 = 10_000;
/// Pages of its `MAP_SIZE`.
const PAGES: u64 = 32;
const KIB_OF_A_PAGE: f64 = 4.0;

/// Measures what a reader finds while all threads sleep.
pub(super) fn shown(cpus: &[usize]) -> Result<Measured, String> {
    let script = Script::of(&trace(cpus), cpus);
    let table = Ours::table(&script)?;
    let note = format!(
        "replayed from the program's source, not run: {THREADS} threads write {PAGES} pages each; the document's \
         figures have their stacks and the program itself besides, which is why they are larger"
    );
    Ok(Measured {
        row: "threads asleep: resident size shown".to_owned(),
        unit: "KiB",
        before: Some(read(&script, ByTask::new(&script))),
        after: Some(read(&script, ByCpu::new(&script))),
        ours: Some(read(&script, Ours::new(&table, &script)?)),
        notes: vec![Note::Row(note)],
        ..Measured::default()
    })
}

/// Returns the trace: each thread writes its pages, on one CPU after the other, and sleeps before the next thread
/// begins.
fn trace(cpus: &[usize]) -> Trace {
    let events = (0..THREADS).flat_map(|thread| {
        let cpu = cpus[thread as usize % cpus.len()] as u32;
        (0..PAGES).map(move |page| Event {
            time: u64::from(thread) * PAGES + page,
            cpu,
            pid: 1,
            tid: 1 + thread,
            what: What::Fault,
        })
    });
    Trace { events: events.collect(), ..Trace::default() }
}

fn read(script: &Script, mut design: impl Design) -> Interval {
    for placed in &script.steps {
        design.follow(placed.cpu as usize, placed.step);
    }
    let kib = KIB_OF_A_PAGE * design.shown(0) as f64;
    Interval { median: kib, low: kib, high: kib }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_keep_all_that_sleeping_threads_hold_and_nobody_else_loses_a_page() {
        let row = shown(&[0, 1]).unwrap();
        let all = KIB_OF_A_PAGE * f64::from(THREADS) * PAGES as f64;
        let shown = [row.before, row.after, row.ours].map(|figure| figure.unwrap().median);
        // By task: each task keeps its counts until its 64th event, which none reaches.
        assert_eq!(shown, [0.0, all, all]);
    }
}
