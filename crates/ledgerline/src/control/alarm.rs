//! Wakes futures: one thread of the process sleeps until a time comes, or until an alarm rings.
//!
//! A signal handler or `malloc` may return units. Neither can run a waker, which may lock and allocate. So it rings
//! the alarm of the first waiter (`wake/rung.rs`), and this thread wakes that waiter.
//!
//! ```text
//! poll                                     ring (signal-safe)          the thread
//!   not ready                                make it ready               key = count of the rings
//!   set the alarm, with the lock             ring the alarm's number     with the lock: take the wakers of
//!   tell its number to those that ring                                     alarms that were rung, and of
//!   look again: ready now? done                                            those whose time has come
//!   pending                                                              wake them; sleep on the key
//! ```
//!
//! Consider a ring and an alarm at the same time. If the thread took the lock after the alarm was set, it wakes the
//! future. If it took the lock before, the future's second look follows the ring, through the lock (model:
//! `of_a_ring_and_an_alarm_the_future_is_woken_or_sees_it`). A spurious wake-up is possible: a thread may have kept
//! the number of an earlier future. The future then looks again and waits.
//!
//! Setting an alarm, taking it back and letting it go off cost the logarithm of their number. The thread starts with
//! the first alarm and ends with the process. A forked child starts its own thread, and has none of its parent's
//! alarms.

use crate::gate::lock;
use crate::sync::thread;
use crate::wake::rung::RUNG;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::task::Waker;
use std::time::{Duration, Instant};

static ALARMS: Mutex<Alarms> = Mutex::new(Alarms {
    set: Vec::new(),
    free: Vec::new(),
    times: BTreeSet::new(),
    process: 0,
    has_thread: false,
    soonest: None,
});

struct Alarms {
    /// The alarms, by number from 1 on. `None` if the alarm was taken back or has gone off.
    set: Vec<Option<Set>>,
    /// Numbers that were given back.
    free: Vec<u32>,
    /// The times at which alarms go off.
    times: BTreeSet<(Instant, u32)>,
    /// The process that these alarms belong to.
    process: u32,
    has_thread: bool,
    /// The time at which the thread wakes by itself.
    soonest: Option<Instant>,
}

struct Set {
    waker: Waker,
    at: Option<Instant>,
}

impl Alarms {
    /// Forgets the alarms of the process that this one was forked from. Does not drop them: a waker may take a lock
    /// that some thread of the parent held.
    fn belong_to(&mut self, process: u32) {
        if self.process != process {
            std::mem::forget(std::mem::take(&mut self.set));
            self.free.clear();
            self.times.clear();
            (self.process, self.has_thread, self.soonest) = (process, false, None);
        }
    }

    fn number(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.set.push(None);
            let number = u32::try_from(self.set.len()).expect("fewer futures than 2^32");
            RUNG.make_room(number);
            number
        })
    }

    /// Replaces an alarm. Returns the previous one, to be dropped while no lock is held.
    fn replace(&mut self, number: u32, set: Option<Set>) -> Option<Set> {
        let at = set.as_ref().and_then(|set| set.at);
        let before = std::mem::replace(self.set.get_mut(number as usize - 1)?, set);
        if let Some(at) = before.as_ref().and_then(|before| before.at) {
            self.times.remove(&(at, number));
        }
        if let Some(at) = at {
            self.times.insert((at, number));
        }
        before
    }
}

/// An alarm that a future has set or will set. Taken back when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    /// 0 if it was never set.
    number: u32,
    /// The process that the number belongs to.
    process: u32,
}

impl Alarm {
    /// Sets the alarm: it wakes the future at a time, and when its [`number`](Self::number) is rung. Replaces the
    /// previous setting.
    pub(crate) fn set(&mut self, waker: &Waker, at: Option<Instant>) {
        // Wakers are foreign code, so they are cloned, dropped and woken while no lock is held.
        let set = Set { waker: waker.clone(), at };
        let mut alarms = lock::gated(&ALARMS);
        alarms.belong_to(std::process::id());
        if self.number == 0 || self.process != alarms.process {
            (self.number, self.process) = (alarms.number(), alarms.process);
        }
        let before = alarms.replace(self.number, Some(set));
        let has_thread = alarms.has_thread || start(&mut alarms);
        let sooner = at.is_some_and(|at| alarms.soonest.is_none_or(|soonest| at < soonest));
        if sooner {
            alarms.soonest = at;
        }
        drop(alarms);
        drop(before);
        if !has_thread {
            // No thread would wake it, so it asks again and again.
            waker.wake_by_ref();
        } else if sooner {
            RUNG.eventcount.notify();
        }
    }

    /// Returns the number that rings this alarm once it is set. After this is dropped, the number is another
    /// future's.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if self.number != 0 {
            let mut alarms = lock::gated(&ALARMS);
            if self.process == alarms.process && self.process == std::process::id() {
                let before = alarms.replace(self.number, None);
                alarms.free.push(self.number);
                drop(alarms);
                drop(before);
            }
        }
    }
}

/// Starts the thread. Returns `false` if the system cannot.
fn start(alarms: &mut Alarms) -> bool {
    alarms.has_thread = thread::start(c"ledgerline-alarm", run).is_ok();
    alarms.soonest = None;
    alarms.has_thread
}

/// Runs the thread's loop.
fn run() {
    let mut due = Vec::new();
    loop {
        let key = RUNG.eventcount.key();
        let mut alarms = lock::gated(&ALARMS);
        let mut go_off = |alarms: &mut Alarms, number| {
            due.extend(alarms.replace(number, None).map(|set| set.waker));
        };
        RUNG.take(|number| go_off(&mut alarms, number));
        let now = Instant::now();
        while let Some(&(at, number)) = alarms.times.first()
            && at <= now
        {
            go_off(&mut alarms, number);
        }
        alarms.soonest = alarms.times.first().map(|&(at, _)| at);
        let until = alarms.soonest.unwrap_or(now + Duration::from_secs(3600));
        drop(alarms);
        for waker in due.drain(..) {
            // A waker that panics affects only its own executor.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        RUNG.eventcount.wait(key, until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake::rung::ring;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, MutexGuard, PoisonError};
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

    /// Runs one test at a time: a number that one test gave back is reused by the next.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn an_alarm_goes_off_at_its_time_and_not_before_a_sooner_one() {
        let _alone = alone();
        let (late, lately) = waker();
        let (early, earlier) = waker();
        let start = Instant::now();
        let (mut first, mut second) = (Alarm::default(), Alarm::default());
        first.set(&late, Some(start + Duration::from_millis(80)));
        second.set(&early, Some(start + Duration::from_millis(5)));
        earlier.recv_timeout(SOON).unwrap();
        lately.recv_timeout(SOON).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(80));
    }

    #[test]
    fn a_ring_wakes_whose_alarm_it_is_and_nobody_else() {
        let _alone = alone();
        let (waiting, woken) = waker();
        let (sleeping, asleep) = waker();
        let (mut first, mut second) = (Alarm::default(), Alarm::default());
        first.set(&waiting, None);
        second.set(&sleeping, Some(Instant::now() + SOON));
        ring(first.number());
        woken.recv_timeout(SOON).unwrap();
        assert!(asleep.try_recv().is_err());
        // Set again after it went off: it goes off again.
        first.set(&waiting, None);
        ring(first.number());
        woken.recv_timeout(SOON).unwrap();
    }

    #[test]
    fn an_alarm_that_was_dropped_wakes_nobody() {
        let _alone = alone();
        loop {
            let (waiting, woken) = waker();
            let mut alarm = Alarm::default();
            let due = Instant::now() + Duration::from_millis(20);
            alarm.set(&waiting, Some(due));
            let number = alarm.number();
            drop(alarm);
            drop(waiting);
            // On a busy machine it may be due before it is dropped, and wakes as it should.
            let was_dropped = Instant::now() < due;
            ring(number);
            // Its waker is gone, too.
            let told = woken.recv_timeout(SOON);
            if was_dropped {
                assert_eq!(told, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
                break;
            }
        }
        // Shows that the thread has seen that ring once it handles the next.
        let (waiting, woken) = waker();
        let mut next = Alarm::default();
        next.set(&waiting, None);
        ring(next.number());
        woken.recv_timeout(SOON).unwrap();
    }

    /// A waker whose drop takes an alarm back, like that of a task that owns futures.
    struct Owns(Mutex<Option<Alarm>>, Sender<()>);

    impl Wake for Owns {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Owns {
        fn drop(&mut self) {
            drop(self.0.lock().unwrap().take());
            // The test may have given up.
            let _ = self.1.send(());
        }
    }

    #[test]
    fn a_waker_that_is_replaced_may_take_an_alarm_back() {
        let _alone = alone();
        let (sender, ended) = channel();
        // In a thread of its own, since it would wait for itself.
        std::thread::spawn(move || {
            let (other, _woken) = waker();
            let later = Some(Instant::now() + SOON);
            let mut owned = Alarm::default();
            owned.set(&other, later);
            let mut alarm = Alarm::default();
            alarm.set(&Arc::new(Owns(Mutex::new(Some(owned)), sender)).into(), later);
            alarm.set(&other, later);
        });
        ended.recv_timeout(SOON).expect("it waits for a lock");
    }

    #[test]
    fn alarms_go_off_in_the_order_of_their_times_whichever_are_set_again_or_taken_back() {
        let _alone = alone();
        let (sender, woken) = channel();
        let wakers: Vec<Waker> =
            (0..500).map(|number| Arc::new(Numbered(number, sender.clone())).into()).collect();
        let far = Instant::now() + SOON;
        let mut alarms: Vec<Alarm> = (0..500).map(|_| Alarm::default()).collect();
        alarms.iter_mut().zip(&wakers).for_each(|(alarm, waker)| alarm.set(waker, Some(far)));
        (0..500).step_by(3).for_each(|number| alarms[number] = Alarm::default());
        let start = Instant::now() + Duration::from_millis(500);
        for number in (0..500).map(|turn| turn * 7 % 500).filter(|number| number % 3 != 0) {
            let at = start + Duration::from_micros(10 * number as u64);
            alarms[number].set(&wakers[number], Some(at));
        }
        for number in (0..500).filter(|number| number % 3 != 0) {
            assert_eq!(woken.recv_timeout(SOON), Ok(number));
        }
        assert!(woken.recv_timeout(Duration::from_millis(20)).is_err());
        assert!(start.elapsed() >= Duration::from_micros(10 * 499));
    }

    struct Numbered(usize, Sender<usize>);

    impl Wake for Numbered {
        fn wake(self: Arc<Self>) {
            // The test may be over.
            let _ = self.1.send(self.0);
        }
    }
}
