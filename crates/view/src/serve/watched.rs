//! The served ledgers: found, and looked at once an interval at most, for any number of clients.
//!
//! ```text
//! a request     Watched::fresh     the last look, or a new one if that is older than the interval
//! the keeper    one thread         looks once an interval while there are listeners for events,
//!                                  every five seconds for the history alone, and finds ledgers anew
//! ```

use crate::serve::changes::{By, Changed, Event};
use crate::serve::frame::Frame;
use crate::serve::history;
use crate::serve::listing::Listing;
use crate::serve::settings::{INTERVAL_MIN, Settings};
use crate::watch::find::{self, Found};
use crate::watch::{History, Life, Look, Point, Source, State as Of, Tempo, Titles};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::broadcast;

/// The interval between looks for the history alone.
const IDLE: Duration = Duration::from_secs(5);
/// The interval at which ledgers are found anew.
const FIND: Duration = Duration::from_secs(2);
/// The finest step of history.
const STEP: Duration = Duration::from_secs(1);
/// The most changes that wait for a slow reader of events; a reader further behind gets the whole state anew.
const WAITING: usize = 4;

/// A served ledger.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Its number in requests. No other ledger of this server ever has it.
    pub(crate) id: u32,
    /// Its title, unique among the ledgers that are served now.
    pub(crate) title: String,
    pub(crate) path: PathBuf,
    /// The process that has it, if it was found and not named. It distinguishes two ledgers with one path.
    pid: Option<u32>,
    interval: Duration,
    keeps_history: bool,
    looks: Mutex<Looks>,
    listing: Mutex<Listing>,
    /// One channel for each order of changes.
    changes: [broadcast::Sender<Event>; By::ALL.len()],
}

#[derive(Debug)]
struct Looks {
    source: Source,
    life: Life,
    titles: Titles,
    tempo: Tempo,
    /// Starts with the first look, if it is wanted.
    history: Option<History>,
    last: Option<Arc<Frame>>,
}

/// All ledgers that are served.
#[derive(Debug)]
pub(crate) struct Ledgers {
    /// The settings of the server.
    pub(crate) settings: Settings,
    state: Mutex<State>,
    /// Notified when a listener comes, and at the end.
    woken: Condvar,
}

#[derive(Debug)]
struct State {
    ledgers: Vec<Arc<Watched>>,
    next_id: u32,
    ending: bool,
}

/// Marks the groups of a program that has ended as ended: all of them, if no process can charge its ledger any more.
/// The last holdings of its processes stay theirs until they are settled, which nothing may do any more.
fn end(look: &mut Look, all: bool) {
    for row in look.rows.iter_mut().filter(|row| row.state == Of::Live && (all || row.pid != 0)) {
        row.state = Of::Exited;
    }
}

/// Locks a mutex, even after a panic: the panicking thread left nothing half done that a later look does not mend.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    fn new(
        id: u32,
        title: String,
        source: Source,
        pid: Option<u32>,
        settings: &Settings,
    ) -> Watched {
        let interval = settings.interval.max(INTERVAL_MIN);
        Watched {
            id,
            title,
            path: source.path().to_owned(),
            pid,
            interval,
            keeps_history: settings.history,
            looks: Mutex::new(Looks {
                life: Life::of(&source),
                titles: Titles::default(),
                source,
                tempo: Tempo::new(),
                history: None,
                last: None,
            }),
            listing: Mutex::new(Listing::new(settings.groups, settings.depth)),
            changes: By::ALL.map(|_| broadcast::channel(WAITING).0),
        }
    }

    /// Returns a look that is no older than the interval.
    pub(crate) fn fresh(&self) -> Arc<Frame> {
        let mut looks = locked(&self.looks);
        match &looks.last {
            Some(last) if last.taken.elapsed() < self.interval => last.clone(),
            _ => self.look(&mut looks),
        }
    }

    /// Takes a new look, whatever the age of the last one.
    pub(crate) fn anew(&self) -> Arc<Frame> {
        self.look(&mut locked(&self.looks))
    }

    /// Returns a group's history; `None` if no history of it is kept.
    pub(crate) fn history(&self, group: ledgerline::GroupId) -> Option<Vec<Point>> {
        let looks = locked(&self.looks);
        Some(looks.history.as_ref()?.get(group)?.series.points())
    }

    /// Subscribes to the changes from the next look on.
    pub(crate) fn listen(&self, by: By) -> broadcast::Receiver<Event> {
        self.changes[by as usize].subscribe()
    }

    fn listeners(&self) -> usize {
        self.changes.iter().map(broadcast::Sender::receiver_count).sum()
    }

    /// Returns the groups that metrics name.
    pub(crate) fn listing(&self) -> MutexGuard<'_, Listing> {
        locked(&self.listing)
    }

    fn look(&self, looks: &mut Looks) -> Arc<Frame> {
        let taken = Instant::now();
        let mut look = looks.source.look();
        looks.titles.name(&mut look);
        let ended = looks.life.has_ended(&looks.source, &look);
        if ended {
            end(&mut look, !looks.source.path().exists());
        }
        let took = taken.elapsed();
        let rates = looks.tempo.rates(&look);
        if self.keeps_history && !ended {
            let step = STEP.max(self.interval);
            let history = &mut looks.history;
            history.get_or_insert_with(|| history::of(step, look.rows.len())).push(&look);
        }
        let number = looks.last.as_ref().map_or(0, |last| last.number) + 1;
        let frame = Arc::new(Frame::new(number, look, rates, taken, took));
        let before = looks.last.replace(frame.clone());
        if let Some(before) = before
            && self.listeners() > 0
        {
            let changed = Changed::between(&before, &frame);
            for (by, to) in By::ALL.into_iter().zip(&self.changes) {
                if to.receiver_count() > 0 {
                    // The listeners may be gone by now.
                    let _ = to.send(changed.event(by));
                }
            }
        }
        frame
    }

    /// Looks if a look is due, and returns the time of the next one.
    fn keep(&self, now: Instant) -> Option<Instant> {
        let mut looks = locked(&self.looks);
        let every = match (self.listeners(), self.keeps_history) {
            (0, false) => return None,
            (0, true) => self.interval.max(IDLE),
            _ => self.interval,
        };
        let due = looks.last.as_ref().map_or(now, |last| last.taken + every);
        if due > now {
            return Some(due);
        }
        Some(self.look(&mut looks).taken + every)
    }
}

impl Ledgers {
    /// Opens the ledgers to serve.
    ///
    /// # Errors
    /// A sentence with the ledger that cannot be opened, and the cause.
    pub(crate) fn open(settings: &Settings) -> Result<Arc<Ledgers>, String> {
        let ledgers = Ledgers {
            settings: settings.clone(),
            state: Mutex::new(State { ledgers: Vec::new(), next_id: 1, ending: false }),
            woken: Condvar::new(),
        };
        if settings.named.is_none() {
            ledgers.find();
        }
        for name in settings.named.iter().flatten() {
            ledgers.add(&mut locked(&ledgers.state), Source::named(name)?, None);
        }
        Ok(Arc::new(ledgers))
    }

    /// Returns the ledgers that are served now.
    pub(crate) fn all(&self) -> Vec<Arc<Watched>> {
        locked(&self.state).ledgers.clone()
    }

    /// Returns a ledger by its number.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<Watched>> {
        locked(&self.state).ledgers.iter().find(|ledger| ledger.id == id).cloned()
    }

    /// Notifies the keeper of a listener.
    pub(crate) fn wake(&self) {
        // Held for a moment, so that the keeper is not between its check for listeners and its sleep.
        drop(locked(&self.state));
        self.woken.notify_all();
    }

    /// Ends the keeper.
    pub(crate) fn end(&self) {
        locked(&self.state).ending = true;
        self.woken.notify_all();
    }

    /// Starts the thread that looks while there are listeners, and for the history.
    pub(crate) fn start_keeper(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let ledgers = self.clone();
        std::thread::Builder::new().name("keeper".to_owned()).spawn(move || ledgers.keep())
    }

    fn keep(&self) {
        let mut found = Instant::now();
        loop {
            let now = Instant::now();
            let mut next = None::<Instant>;
            if self.settings.named.is_none() {
                if now.duration_since(found) >= FIND {
                    self.find();
                    found = now;
                }
                next = Some(found + FIND);
            }
            for ledger in self.all() {
                next = next.into_iter().chain(ledger.keep(now)).min();
            }
            let state = locked(&self.state);
            if state.ending {
                return;
            }
            // A listener that comes meanwhile waits for one interval at most, or until the next wake.
            let wait = next.map_or(IDLE, |next| next.saturating_duration_since(Instant::now()));
            drop(self.woken.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Serves the ledgers of programs that are running now. An ended program stays as long as its ledger can be found;
    /// a program that was not served while it ran is not added.
    fn find(&self) {
        let found = find::all();
        let mut state = locked(&self.state);
        let is = |ledger: &Watched, found: &Found| {
            ledger.path == found.path && ledger.pid == Some(found.pid)
        };
        state.ledgers.retain(|ledger| found.iter().any(|found| is(ledger, found)));
        for found in found.iter().filter(|found| found.running) {
            if state.ledgers.iter().any(|ledger| is(ledger, found)) {
                continue;
            }
            // A ledger that cannot be opened ended just now.
            if let Ok(source) = Source::found(found) {
                self.add(&mut state, source, Some(found.pid));
            }
        }
    }

    fn add(&self, state: &mut State, source: Source, pid: Option<u32>) {
        let title = source.title();
        let taken = |title: &str| state.ledgers.iter().any(|ledger| ledger.title == title);
        let mut own = title.to_owned();
        for number in 2.. {
            if !taken(&own) {
                break;
            }
            own = format!("{title} ({number})");
        }
        let ledger = Arc::new(Watched::new(state.next_id, own, source, pid, &self.settings));
        state.next_id += 1;
        state.ledgers.push(ledger);
    }
}
