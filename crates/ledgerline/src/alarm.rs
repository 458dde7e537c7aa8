//! Waking futures: one thread of the process sleeps until a time comes, or until something rings that
//! futures wait for.
//!
//! Who returns units may be a signal handler, or `malloc`, and cannot run a waker, which may lock and
//! allocate. So it rings a futex, and this thread wakes.
//!
//! ```text
//! poll                                     ring (signal-safe)          the thread
//!   not ready                                make it ready               seen = bell
//!   set the alarm, with the lock             rings += 1                  with the lock: take the wakers whose
//!   look again: ready now? done              ring the bell                 time has come, and if rings changed,
//!   pending                                                                those who wait for a ring
//!                                                                        wake them; sleep on the bell
//! ```
//!
//! Of a ring and an alarm at the same time: if the thread took the lock after the alarm was set, it wakes
//! the future; if before, the future's second look follows the ring, through the lock (model:
//! `of_a_ring_and_an_alarm_the_future_is_woken_or_sees_it`). A future that is woken for nothing looks and waits
//! again.
//!
//! The thread starts with the first alarm, and ends with the process. A forked child starts its own.

use crate::bell::Rings;
use crate::lock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::task::Waker;
use std::time::{Duration, Instant};

static RINGS: Rings = Rings::new();
static ALARMS: Mutex<Alarms> =
    Mutex::new(Alarms { set: Vec::new(), next: 0, process: 0, soonest: None });

struct Alarms {
    set: Vec<(u64, Set)>,
    next: u64,
    /// The process whose thread runs; a forked child has none.
    process: u32,
    /// When the thread wakes by itself.
    soonest: Option<Instant>,
}

struct Set {
    waker: Waker,
    at: Option<Instant>,
    rings: bool,
}

/// An alarm that a future has set, or not yet; taken back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<u64>);

impl Alarm {
    /// Wakes the future at a time, and at the next ring if it waits for one. Replaces what was set.
    pub(crate) fn set(&mut self, waker: &Waker, at: Option<Instant>, rings: bool) {
        let mut alarms = lock::gated(&ALARMS);
        let set = Set { waker: waker.clone(), at, rings };
        let number = self.0.unwrap_or(alarms.next);
        match alarms.set.iter_mut().find(|(it, _)| *it == number) {
            Some(entry) => entry.1 = set,
            None => {
                alarms.set.push((number, set));
                alarms.next = alarms.next.max(number + 1);
            }
        }
        self.0 = Some(number);
        if alarms.process != std::process::id() && !start(&mut alarms) {
            // Without a thread nobody would wake it: it asks again and again.
            return waker.wake_by_ref();
        }
        let sooner = at.is_some_and(|at| alarms.soonest.is_none_or(|soonest| at < soonest));
        if sooner {
            alarms.soonest = at;
            RINGS.bell.ring();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            let waker = {
                let mut alarms = lock::gated(&ALARMS);
                let place = alarms.set.iter().position(|(it, _)| *it == number);
                place.map(|place| alarms.set.swap_remove(place))
            };
            // Outside of the lock: it is somebody else's code.
            drop(waker);
        }
    }
}

/// Wakes the futures that wait for a ring. Async-signal-safe.
pub(crate) fn ring() {
    RINGS.ring();
}

/// Starts the thread; `false` if there can be none.
fn start(alarms: &mut Alarms) -> bool {
    let thread = std::thread::Builder::new().name("ledgerline-alarm".into());
    // What rings from here on is news, however late the thread comes to look.
    let rings = RINGS.count();
    let started = thread.stack_size(128 << 10).spawn(move || run(rings)).is_ok();
    if started {
        alarms.process = std::process::id();
        alarms.soonest = None;
    }
    started
}

/// The thread: `rings` were there before its first alarm.
fn run(mut rings: u64) {
    loop {
        let seen = RINGS.bell.seen();
        let rung = RINGS.count();
        let now = Instant::now();
        let mut due = Vec::new();
        let mut alarms = lock::gated(&ALARMS);
        let mut place = 0;
        while let Some((_, set)) = alarms.set.get(place) {
            if set.at.is_some_and(|at| at <= now) || set.rings && rung != rings {
                due.push(alarms.set.swap_remove(place).1.waker);
            } else {
                place += 1;
            }
        }
        alarms.soonest = alarms.set.iter().filter_map(|(_, set)| set.at).min();
        let until = alarms.soonest.unwrap_or(now + Duration::from_secs(3600));
        drop(alarms);
        rings = rung;
        for waker in due {
            // A waker that panics is its executor's trouble, and nobody else's.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        RINGS.bell.sleep(seen, until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::Wake;

    struct Told(Sender<()>);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            // The test may be over.
            let _ = self.0.send(());
        }
    }

    fn waker() -> (Waker, Receiver<()>) {
        let (sender, receiver) = channel();
        (Arc::new(Told(sender)).into(), receiver)
    }

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn an_alarm_goes_off_at_its_time_and_not_before_a_sooner_one() {
        let (late, lately) = waker();
        let (early, earlier) = waker();
        let start = Instant::now();
        let (mut first, mut second) = (Alarm::default(), Alarm::default());
        first.set(&late, Some(start + Duration::from_millis(80)), false);
        second.set(&early, Some(start + Duration::from_millis(5)), false);
        earlier.recv_timeout(SOON).unwrap();
        lately.recv_timeout(SOON).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(80));
    }

    #[test]
    fn a_ring_wakes_who_waits_for_one_and_nobody_else() {
        let (waiting, woken) = waker();
        let (sleeping, asleep) = waker();
        let (mut first, mut second) = (Alarm::default(), Alarm::default());
        first.set(&waiting, None, true);
        second.set(&sleeping, Some(Instant::now() + SOON), false);
        ring();
        woken.recv_timeout(SOON).unwrap();
        assert!(asleep.try_recv().is_err());
        // Set again after it went off: it goes off again.
        first.set(&waiting, None, true);
        ring();
        woken.recv_timeout(SOON).unwrap();
    }

    #[test]
    fn an_alarm_that_was_dropped_wakes_nobody() {
        let (waiting, woken) = waker();
        let mut alarm = Alarm::default();
        alarm.set(&waiting, Some(Instant::now() + Duration::from_millis(20)), true);
        drop(alarm);
        drop(waiting);
        ring();
        // Its waker is gone, too.
        assert!(matches!(
            woken.recv_timeout(Duration::from_millis(60)),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
        ));
    }
}
