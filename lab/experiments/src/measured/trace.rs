//! Records what programs do to their resident pages, from the kernel's events while they run.
//!
//! | module       | what it holds                                                   |
//! |--------------|-----------------------------------------------------------------|
//! | `event`      | an event                                                        |
//! | `open`       | asks the kernel for records about this thread and its children  |
//! | `ring`       | the memory through which records come                           |
//! | `record`     | their format                                                    |
//! | `tracepoint` | the tracepoint of changes of counts, if it may be used          |
//!
//! Every user may record page faults, and which thread runs on which CPU, of his own children. If the tracepoint
//! `kmem:rss_stat` may be used as well (root, with tracefs), each change of an address space's counts is recorded with
//! the kernel's exact sum after it. That includes the pages of `exec`, `fork` and `munmap`, none of which is a fault.
//! From Linux 6.16 on, the recording of a task ends before its address space does, so the pages that an exit removes
//! are not recorded.

mod event;
mod open;
mod record;
mod ring;
mod tracepoint;

use self::open::Opened;
use self::record::Format;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub(super) use self::event::{Event, What};

/// Most events that are kept; 40 bytes each.
const MOST: usize = 2_000_000;
/// The interval at which the kernel's memory is emptied.
const PAUSE: Duration = Duration::from_millis(5);

/// The recorded events, by time.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    pub(super) events: Vec<Event>,
    /// Records for which the kernel had no room.
    pub(super) lost: u64,
    /// Whether more events happened than are kept.
    pub(super) cut: bool,
    /// Whether changes of counts are among the events. Otherwise there are only faults.
    pub(super) exact: bool,
    /// The measured times. Events outside of them set the stage.
    pub(super) passes: Vec<Range<u64>>,
}

/// Records the children that the calling thread starts from now on.
pub(super) struct Recorder {
    opened: Opened,
    stop: Arc<AtomicBool>,
    reader: JoinHandle<Trace>,
    passes: Vec<Range<u64>>,
}

impl Recorder {
    /// Begins to record.
    ///
    /// # Errors
    /// A line for the user: the kernel has no such events, or denies them to this user.
    pub(super) fn begin(cpus: &[usize]) -> Result<Recorder, String> {
        let (opened, mut rings, format) = open::open(cpus)?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let reader = std::thread::spawn(move || {
            let mut trace = Trace { exact: format.fields.is_some(), ..Trace::default() };
            let mut bytes = Vec::new();
            loop {
                // Loaded before the rings are emptied, so that all records from before the stop are kept.
                let last = told.load(Ordering::Acquire);
                for ring in &mut rings {
                    bytes.clear();
                    ring.drain(&mut bytes);
                    keep(&mut trace, &bytes, &format);
                }
                if last {
                    return trace;
                }
                std::thread::sleep(PAUSE);
            }
        });
        Ok(Recorder { opened, stop, reader, passes: Vec::new() })
    }

    /// Runs `work` as a measured pass.
    pub(super) fn pass<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = now();
        let result = work();
        self.passes.push(start..now());
        result
    }

    /// Ends the recording.
    pub(super) fn end(self) -> Trace {
        drop(self.opened);
        self.stop.store(true, Ordering::Release);
        let mut trace = self.reader.join().unwrap_or_else(|why| std::panic::resume_unwind(why));
        // The sort is stable: events of one CPU at one time keep their order.
        trace.events.sort_by_key(|event| event.time);
        trace.passes = self.passes;
        trace
    }
}

/// Keeps the records of a ring. This process itself is not recorded, except for its changes of the address spaces of
/// its children.
fn keep(trace: &mut Trace, bytes: &[u8], format: &Format) {
    let this = std::process::id();
    let lost = record::parse(bytes, format, &mut |event| {
        let foreign = matches!(event.what, What::Pages { own: false, .. });
        if event.pid != this || foreign {
            if trace.events.len() < MOST {
                trace.events.push(event);
            } else {
                trace.cut = true;
            }
        }
    });
    trace.lost += lost;
}

/// Returns nanoseconds of the clock that the kernel stamps records with.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_childs_faults_are_recorded_with_who_and_where() {
        let cpus = ledgerline_bench::measure::machine::allowed_cpus().unwrap();
        let mut recorder = match Recorder::begin(&cpus) {
            Ok(recorder) => recorder,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let child = recorder.pass(|| {
            let mut child = Command::new("true").spawn().unwrap();
            child.wait().unwrap();
            child.id()
        });
        let trace = recorder.end();
        assert!(!trace.cut && trace.passes.len() == 1);
        assert!(trace.events.is_sorted_by_key(|event| event.time));
        let of_child = |what: fn(&What) -> bool| {
            trace.events.iter().filter(|event| event.pid == child && what(&event.what)).count()
        };
        assert!(of_child(|what| *what == What::Fault) > 0);
        assert_eq!(of_child(|what| *what == What::Exec), 1);
        assert_eq!(of_child(|what| *what == What::Exit), 1);
        let within = |event: &&Event| event.pid == child && event.what == What::Fault;
        for event in trace.events.iter().filter(within) {
            assert!(trace.passes[0].contains(&event.time));
            assert!(cpus.contains(&(event.cpu as usize)) && event.tid == child);
        }
        if trace.exact {
            let pages = |what: &What| matches!(what, What::Pages { own: true, .. });
            assert!(of_child(pages) > 0);
        } else {
            eprintln!("kmem:rss_stat may not be used here: faults alone were recorded");
        }
    }
}
