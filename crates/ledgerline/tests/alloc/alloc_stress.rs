//! Rayon, both runtimes of tokio, threads, streams and reclaimers at once, with random limits and random panics. The end of
//! each piece of work is known beforehand, whatever runs beside it and on top of it.
//!
//! A piece has a group with a random max. Its parts keep rows until the piece ends. A piece that should end well needs at most
//! half of its max, so that the runtimes' own blocks fit beside; one that should be refused needs at least twice as much.

use crate::common::{Random, in_both_modes, times};
use futures::{FutureExt, StreamExt, stream};
use ledgerline::current::rayon::ThreadPoolExt;
use ledgerline::current::{rayon as on_rayon, tokio as on_tokio};
use ledgerline::percpu::{self, Mode};
use ledgerline::{Charge, Group, Ledger, Limit, Refused, alloc, current};
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::task::{JoinHandle, yield_now};

const TENANTS: usize = 4;
/// Pieces of a tenant start while the sum of their limits is at most this.
const BUDGET: u64 = 1 << 20;
/// The memory that ended pieces may still hold for a moment, such as a task that is about to be dropped.
const SLACK: u64 = 256 << 10;
const ROW: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Thread,
    Rayon,
    /// Charges by hand beside a cache whose reclaimer hands parts of its own work to the pool.
    Reclaimed,
    ManyThreads,
    OneThread,
    Stream,
}

const PLACES: [Place; 6] = [
    Place::Thread,
    Place::Rayon,
    Place::Reclaimed,
    Place::ManyThreads,
    Place::OneThread,
    Place::Stream,
];

/// The end of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// With so many rows.
    Right(usize),
    /// By the max of its own group.
    Refused,
    /// By its own panic.
    Panicked(u64),
    Wrong(String),
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    number: u64,
    tenant: usize,
    place: Place,
    max: u64,
    /// The number of rows of each part.
    rows: usize,
    parts: usize,
    /// How many rows are created between two checkpoints.
    batch: usize,
    panics: bool,
}

impl Piece {
    fn new(number: u64, random: &mut Random) -> Piece {
        let max = (64 << 10) + random.below(192 << 10);
        let parts = 1 + random.below(4) as usize;
        let is_over = random.below(3) == 0;
        let bytes =
            if is_over { 2 * max + random.below(max) } else { max / 4 + random.below(max / 4) };
        Piece {
            number,
            tenant: random.below(TENANTS as u64) as usize,
            place: PLACES[random.below(PLACES.len() as u64) as usize],
            max,
            rows: (bytes / (ROW * parts) as u64) as usize + usize::from(is_over),
            parts,
            batch: if is_over && random.below(8) == 0 { 300 } else { 1 + random.below(8) as usize },
            panics: !is_over && random.below(6) == 0,
        }
    }

    fn end(&self) -> End {
        match self {
            Piece { panics: true, .. } => End::Panicked(self.number),
            _ if self.needs() > self.max => End::Refused,
            _ => End::Right(self.rows * self.parts),
        }
    }

    fn needs(&self) -> u64 {
        (self.rows * self.parts * ROW) as u64
    }

    /// Creates the rows of one part. The last part of a piece that should panic does so in its middle.
    fn part(&self, part: usize) -> Vec<Vec<u8>> {
        let mut rows = Vec::new();
        for row in 0..self.rows {
            if row % self.batch == 0 {
                alloc::checkpoint();
            }
            self.panic_at(part, row);
            rows.push(vec![part as u8; ROW]);
        }
        rows
    }

    fn panic_at(&self, part: usize, row: usize) {
        if self.panics && part + 1 == self.parts && row == self.rows / 2 {
            std::panic::panic_any(Boom(self.number));
        }
    }
}

/// The payload of a piece's panic.
struct Boom(u64);

/// Suppresses the messages of intended panics.
fn quiet_hook() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Boom>() {
            before(info);
        }
    }));
}

/// The pieces that have started and not ended.
#[derive(Default)]
struct Pending {
    limits: [u64; TENANTS],
    pieces: usize,
    wrong: Vec<String>,
}

struct Run {
    tenants: [Group<'static>; TENANTS],
    pending: Mutex<Pending>,
    ended: Condvar,
}

impl Run {
    /// Waits until a tenant has room for a piece. Returns `false` once a piece ended wrongly.
    fn begin(&self, piece: &Piece) -> bool {
        let full = |pending: &mut Pending| {
            pending.limits[piece.tenant] + piece.max > BUDGET && pending.wrong.is_empty()
        };
        let pending = self.pending.lock().unwrap();
        let (mut pending, late) = self.ended.wait_timeout_while(pending, PATIENCE, full).unwrap();
        assert!(!late.timed_out(), "{} pieces hang", pending.pieces);
        if !pending.wrong.is_empty() {
            return false;
        }
        pending.limits[piece.tenant] += piece.max;
        pending.pieces += 1;
        true
    }

    fn group(&self, piece: &Piece) -> Group<'static> {
        let group = self.tenants[piece.tenant].create(&format!("p{}", piece.number)).unwrap();
        group.set_max(Limit::units(piece.max)).unwrap();
        group
    }

    fn end(&self, piece: &Piece, group: Group<'static>, end: End) {
        let refusals = u64::from(piece.end() == End::Refused);
        let counted = group.max_events();
        drop(group.destroy_on_drop());
        let mut pending = self.pending.lock().unwrap();
        pending.limits[piece.tenant] -= piece.max;
        pending.pieces -= 1;
        if (&end, counted) != (&piece.end(), refusals) {
            let ends = format!("{end:?} and {counted} max events, not {:?}", piece.end());
            pending.wrong.push(format!("{piece:?}: {ends}"));
        }
        self.ended.notify_all();
    }

    fn finish(&self) {
        let busy = |pending: &mut Pending| pending.pieces > 0;
        let pending = self.pending.lock().unwrap();
        let (pending, late) = self.ended.wait_timeout_while(pending, PATIENCE, busy).unwrap();
        assert!(
            pending.wrong.is_empty(),
            "{} pieces:\n{}",
            pending.wrong.len(),
            pending.wrong.join("\n")
        );
        assert!(!late.timed_out(), "{} pieces hang", pending.pieces);
    }
}

/// Derives a piece's end from the result of its work.
fn judge(
    group: Group<'static>,
    result: Result<Result<usize, Refused>, Box<dyn Any + Send>>,
) -> End {
    match result {
        Ok(Ok(rows)) => End::Right(rows),
        Ok(Err(refused)) if refused.group == group.path() => End::Refused,
        Ok(Err(refused)) => End::Wrong(refused.to_string()),
        Err(payload) => match payload.downcast::<Boom>() {
            Ok(boom) => End::Panicked(boom.0),
            Err(_) => End::Wrong("another panic".to_owned()),
        },
    }
}

/// Runs work that a single call completes. Returns its end.
fn call(group: Group<'static>, work: impl FnOnce() -> usize) -> End {
    judge(group, catch_unwind(AssertUnwindSafe(|| group.catch(work))))
}

fn count(parts: &[Vec<Vec<u8>>]) -> usize {
    parts.iter().map(Vec::len).sum()
}

fn in_threads(piece: &Piece) -> usize {
    std::thread::scope(|threads| {
        let spawn = |part| threads.spawn(current::inherit_once(move || piece.part(part)));
        let others: Vec<_> = (1..piece.parts).map(spawn).collect();
        let mut parts = vec![piece.part(0)];
        for other in others {
            parts.push(other.join().unwrap_or_else(|payload| resume_unwind(payload)));
        }
        alloc::checkpoint();
        count(&parts)
    })
}

fn in_jobs(piece: &Piece, parts: Range<usize>) -> Vec<Vec<Vec<u8>>> {
    if parts.len() == 1 {
        return vec![piece.part(parts.start)];
    }
    let middle = parts.start + parts.len() / 2;
    let (mut left, right) = on_rayon::join(
        || in_jobs(piece, parts.start..middle),
        || in_jobs(piece, middle..parts.end),
    );
    left.extend(right);
    left
}

/// Charges by hand more than fits unless the cache gives way.
fn reclaimed(piece: &Piece, group: Group<'static>) -> Result<usize, Refused> {
    const PAGE: u64 = 4096;
    let cache = group.create("cache").unwrap().destroy_on_drop();
    let pages = Arc::new(Mutex::new(Vec::<Charge<'static>>::new()));
    for _ in 0..piece.max * 3 / 4 / PAGE {
        let page = cache.try_charge(PAGE)?;
        pages.lock().unwrap().push(page);
    }
    let evicted = pages.clone();
    let evict = move |wanted: u64| {
        let mut freed = 0;
        while freed < wanted {
            let Some(page) = evicted.lock().unwrap().pop() else { break };
            freed += page.units();
        }
        freed
    };
    let _reclaimer = cache.add_reclaimer(0, move |wanted| {
        // The thread runs jobs of others meanwhile.
        let (one, other) = on_rayon::join(|| evict(wanted.div_ceil(2)), || evict(wanted / 2));
        one + other
    });
    let mut held = Vec::new();
    for part in 0..piece.parts {
        held.push(group.try_charge((piece.rows * ROW) as u64)?);
        piece.panic_at(part, piece.rows / 2);
    }
    Ok(held.len() * piece.rows)
}

/// Runs a part as a task: it ends at a poll.
async fn task(piece: Piece, part: usize) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    for row in 0..piece.rows {
        if row % piece.batch == 0 {
            yield_now().await;
        }
        piece.panic_at(part, row);
        rows.push(vec![part as u8; ROW]);
    }
    rows
}

/// Runs a piece whose parts are tasks, and waits until all of them are gone.
async fn in_tasks(
    piece: Piece,
    group: Group<'static>,
    spawn: impl Fn(usize, tokio::sync::mpsc::Sender<()>) -> JoinHandle<Vec<Vec<u8>>>,
) -> End {
    // Each part has a sender, so nothing is received when the last one is gone.
    let (part, mut gone) = tokio::sync::mpsc::channel::<()>(1);
    let work = group.catch_future(async move {
        let handles: Vec<_> = (0..piece.parts).map(|number| spawn(number, part.clone())).collect();
        drop(part);
        let mut parts = Vec::new();
        for handle in handles {
            parts.push(handle.await.unwrap_or_else(|ended| resume_unwind(ended.into_panic())));
        }
        count(&parts)
    });
    let result = AssertUnwindSafe(work).catch_unwind().await;
    gone.recv().await;
    judge(group, result)
}

async fn in_a_stream(piece: Piece, group: Group<'static>) -> End {
    let items = stream::unfold((0, 0), move |(part, row)| async move {
        if part == piece.parts {
            return None;
        }
        yield_now().await;
        let last = piece.rows.min(row + piece.batch);
        let rows: Vec<_> = (row..last)
            .map(|row| {
                piece.panic_at(part, row);
                vec![part as u8; ROW]
            })
            .collect();
        Some((rows, if last == piece.rows { (part + 1, 0) } else { (part, last) }))
    });
    let consumed = async {
        let (mut items, mut kept) = (pin!(group.catch_stream(items)), Vec::new());
        while let Some(item) = items.next().await {
            kept.push(item?);
        }
        Ok(count(&kept))
    };
    judge(group, AssertUnwindSafe(consumed).catch_unwind().await)
}

/// Runs pieces of one kind from the dispatcher, until that is gone.
fn serve_threads(run: &Run, pieces: &Mutex<mpsc::Receiver<Piece>>) {
    loop {
        let next = pieces.lock().unwrap().recv();
        let Ok(piece) = next else { return };
        let group = run.group(&piece);
        run.end(&piece, group, call(group, || in_threads(&piece)));
    }
}

fn serve_one_thread(run: &'static Run, mut pieces: tokio::sync::mpsc::UnboundedReceiver<Piece>) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.spawn_local(async move {
        while let Some(piece) = pieces.recv().await {
            let group = run.group(&piece);
            tokio::task::spawn_local(async move {
                let spawn = |part, token| {
                    on_tokio::spawn_local(async move {
                        let _token: tokio::sync::mpsc::Sender<()> = token;
                        task(piece, part).await
                    })
                };
                let end = in_tasks(piece, group, spawn).await;
                run.end(&piece, group, end);
            });
        }
    });
    // Until all of its tasks have ended.
    runtime.block_on(local);
}

fn serve_runtime(run: &'static Run, piece: Piece) {
    tokio::spawn(async move {
        let group = run.group(&piece);
        let end = match piece.place {
            Place::Stream => in_a_stream(piece, group).await,
            _ => {
                let spawn = |part, token: tokio::sync::mpsc::Sender<()>| match part {
                    1 => on_tokio::spawn_blocking(move || {
                        let _token = token;
                        piece.part(part)
                    }),
                    _ => on_tokio::spawn(async move {
                        let _token = token;
                        task(piece, part).await
                    }),
                };
                in_tasks(piece, group, spawn).await
            }
        };
        run.end(&piece, group, end);
    });
}

#[test]
fn work_that_meets_its_own_limit_is_refused_and_all_other_work_ends_right() {
    const NAME: &str = "work_that_meets_its_own_limit_is_refused_and_all_other_work_ends_right";
    in_both_modes(NAME, || {
        quiet_hook();
        let pieces = match percpu::detect() {
            Mode::Rseq => times(3000, 1_000_000),
            _ => times(600, 100_000),
        };
        let ledger = Ledger::builder().capacity(1024).anonymous().unwrap().into_static();
        let tenants = std::array::from_fn(|number| {
            let tenant = ledger.root().create(&format!("t{number}")).unwrap();
            tenant.set_max(Limit::units(BUDGET + SLACK)).unwrap();
            tenant
        });
        let run = Run { tenants, pending: Mutex::default(), ended: Condvar::new() };
        let run: &'static Run = Box::leak(Box::new(run));
        dispatch(run, pieces);
        // Rayon's threads end by themselves, and free the pool's memory.
        let began = Instant::now();
        while ledger.root().precise() > 0 {
            assert!(began.elapsed() < PATIENCE, "left charged: {:?}", ledger.leaks());
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Creates pieces and runs each in its place. Returns when all have ended, and the pools and runtimes, too.
fn dispatch(run: &'static Run, pieces: u64) {
    let mut random = Random::new(0x5743);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (to_threads, for_threads) = mpsc::channel();
    let (to_one, for_one) = tokio::sync::mpsc::unbounded_channel();
    let for_threads = Mutex::new(for_threads);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| serve_threads(run, &for_threads));
        }
        threads.spawn(|| serve_one_thread(run, for_one));
        for number in 0..pieces {
            let piece = Piece::new(number, &mut random);
            if !run.begin(&piece) {
                break;
            }
            match piece.place {
                Place::Thread => to_threads.send(piece).unwrap(),
                Place::OneThread => to_one.send(piece).unwrap(),
                // A job that does not name its group, as servers spawn them.
                Place::Rayon => pool.spawn(move || {
                    let group = run.group(&piece);
                    let work = || count(&in_jobs(&piece, 0..piece.parts));
                    run.end(&piece, group, call(group, work));
                }),
                Place::Reclaimed => pool.spawn_inheriting(move || {
                    let group = run.group(&piece);
                    let result = catch_unwind(AssertUnwindSafe(|| reclaimed(&piece, group)));
                    run.end(&piece, group, judge(group, result));
                }),
                Place::ManyThreads | Place::Stream => {
                    let _entered = runtime.enter();
                    serve_runtime(run, piece);
                }
            }
        }
        drop((to_threads, to_one));
    });
    run.finish();
}
