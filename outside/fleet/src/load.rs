//! One load for several ways of sharing a budget among nodes, and its results.
//!
//! Some nodes are busy at a time, and others after them. All together need about as much as the budget has, and a
//! busy node needs more than an equal part of it. Nodes are tasks of this process, each with a ledger and a
//! connection of its own.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ledgerline::{Ledger, Limit, OwnedCharge, OwnedGroup};
use ledgerline_fleet::book::Change;
use ledgerline_fleet::fleet::{Budget, Fleet};
use ledgerline_fleet::store::{Access, open};
use redis::aio::MultiplexedConnection;

/// The most that all nodes may hold together.
pub const LIMIT: u64 = 1 << 20;
/// The number of concurrently charging tasks of a busy node. An idle node has a single task.
const TASKS: u64 = 8;
/// The time for which a node is busy.
const SPELL: Duration = Duration::from_secs(1);
/// The time for which a charge waits for room, if it waits.
const PATIENCE: Duration = Duration::from_millis(100);
/// The key of the counters.
const COUNTER: &str = "counter";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The way in which nodes share a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `INCRBY` for each charge, and `DECRBY` at once if that went beyond the limit.
    RollBack,
    /// `GET` for each charge, and `INCRBY` if it fits.
    LookFirst,
    /// Each node has an equal part.
    Split,
    /// A fleet's budget. A charge asks the store at most once.
    Leases,
    /// Like `Leases`, but a charge waits up to [`PATIENCE`].
    Waits,
}

impl Way {
    pub const ALL: [Self; 5] =
        [Self::RollBack, Self::LookFirst, Self::Split, Self::Leases, Self::Waits];

    pub fn name(self) -> &'static str {
        match self {
            Self::RollBack => "INCRBY, roll back",
            Self::LookFirst => "GET, then INCRBY",
            Self::Split => "fixed split",
            Self::Leases => "leases",
            Self::Waits => "leases, waits 100 ms",
        }
    }
}

/// The results of a load.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub granted: u64,
    pub refused: u64,
    /// Charges that were refused although all nodes together held so little that they fitted.
    pub refused_with_room: u64,
    /// The most that all nodes held beyond the limit at an instant.
    pub overrun: u64,
}

/// One node's access to the budget.
enum Door {
    Count { connection: MultiplexedConnection, looks: bool },
    Part(OwnedGroup),
    Budget { budget: Budget, patience: Duration },
}

/// Units that a node may use.
enum Held {
    Counted(u64),
    Charge { _charge: OwnedCharge },
}

impl Door {
    async fn charge(&self, units: u64) -> Outcome<Option<Held>> {
        let charge = match self {
            Self::Count { connection, looks } => {
                let mut connection = connection.clone();
                return count(&mut connection, *looks, units).await;
            }
            Self::Part(group) => group.try_charge(units).ok(),
            Self::Budget { budget, patience } if patience.is_zero() => {
                budget.charge(units).await.ok()
            }
            Self::Budget { budget, patience } => budget.charge_within(units, *patience).await.ok(),
        };
        Ok(charge.map(|charge| Held::Charge { _charge: charge }))
    }

    async fn give_back(&self, held: Held) -> Outcome<()> {
        if let (Self::Count { connection, .. }, Held::Counted(units)) = (self, held) {
            redis::cmd("DECRBY")
                .arg(COUNTER)
                .arg(units)
                .exec_async(&mut connection.clone())
                .await?;
        }
        Ok(())
    }
}

/// Charges a counter the way that programs usually do; with `looks`, reads it first.
async fn count(
    connection: &mut MultiplexedConnection,
    looks: bool,
    units: u64,
) -> Outcome<Option<Held>> {
    if looks {
        let there: Option<u64> = redis::cmd("GET").arg(COUNTER).query_async(connection).await?;
        if there.unwrap_or(0) + units > LIMIT {
            return Ok(None);
        }
    }
    let there: u64 = redis::cmd("INCRBY").arg(COUNTER).arg(units).query_async(connection).await?;
    if looks || there <= LIMIT {
        return Ok(Some(Held::Counted(units)));
    }
    redis::cmd("DECRBY").arg(COUNTER).arg(units).exec_async(connection).await?;
    Ok(None)
}

/// Opens the access for each node. `mean` is the mean size of a charge.
async fn doors(redis: &str, way: Way, nodes: u64, mean: u64) -> Outcome<Vec<Arc<Door>>> {
    let mut control = redis::Client::open(redis)?.get_multiplexed_async_connection().await?;
    redis::cmd("FLUSHALL").exec_async(&mut control).await?;
    if matches!(way, Way::Leases | Way::Waits) {
        let store = open(redis, &Access::default())?;
        store.prepare().await?;
        for path in ["/acme", "/acme/batch"] {
            let change = Change::Set { path: path.to_owned(), limit: Some(LIMIT), minimum: None };
            store.administer("acme", &change).await?;
        }
    }
    let mut doors = Vec::new();
    for node in 0..nodes {
        doors.push(Arc::new(match way {
            Way::RollBack | Way::LookFirst => {
                let client = redis::Client::open(redis)?;
                let connection = client.get_multiplexed_async_connection().await?;
                Door::Count { connection, looks: way == Way::LookFirst }
            }
            Way::Split => {
                let ledger = Arc::new(Ledger::new()?);
                let part = ledger.owned_root().create("batch")?;
                part.group().set_max(Limit::units(LIMIT / nodes))?;
                Door::Part(part)
            }
            Way::Leases | Way::Waits => {
                let patience = if way == Way::Waits { PATIENCE } else { Duration::ZERO };
                let store = open(redis, &Access::default())?;
                let fleet = Fleet::join(store, &format!("n{node}")).reserve(mean).start()?;
                Door::Budget { budget: fleet.budget("/acme/batch").await?, patience }
            }
        }));
    }
    Ok(doors)
}

/// Returns the number of nodes that are busy at a time.
fn busy(nodes: u64) -> u64 {
    nodes.div_ceil(3)
}

#[derive(Default)]
struct Counts {
    held: AtomicU64,
    most: AtomicU64,
    granted: AtomicU64,
    refused: AtomicU64,
    refused_with_room: AtomicU64,
}

/// Makes nodes charge, hold the units for some milliseconds, and return them.
pub async fn hold(redis: &str, way: Way, nodes: u64, time: Duration) -> Outcome<Figures> {
    let tasks = busy(nodes) * TASKS + (nodes - busy(nodes));
    // On average, all of them would just fit.
    let mean = LIMIT / tasks;
    let doors = doors(redis, way, nodes, mean).await?;
    let counts = Arc::new(Counts::default());
    let start = Instant::now();
    let mut workers = Vec::new();
    for (node, door) in doors.iter().enumerate() {
        for task in 0..TASKS {
            let (door, counts, node) = (door.clone(), counts.clone(), node as u64);
            let mut random = Random(node * TASKS + task);
            workers.push(tokio::spawn(async move {
                while start.elapsed() < time {
                    let spell = (start.elapsed().as_nanos() / SPELL.as_nanos()) as u64;
                    let is_busy =
                        (node + nodes - spell * busy(nodes) % nodes) % nodes < busy(nodes);
                    if is_busy || task == 0 {
                        let units = mean / 2 + random.below(mean + 1);
                        charge_once(&door, &counts, units, random.below(20)).await?;
                    } else {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
                Outcome::Ok(())
            }));
        }
    }
    for worker in workers {
        worker.await??;
    }
    let Counts { most, granted, refused, refused_with_room, .. } = &*counts;
    let [most, granted, refused, refused_with_room] =
        [most, granted, refused, refused_with_room].map(|count| count.load(Ordering::Relaxed));
    Ok(Figures { granted, refused, refused_with_room, overrun: most.saturating_sub(LIMIT) })
}

async fn charge_once(door: &Door, counts: &Counts, units: u64, ms: u64) -> Outcome<()> {
    let before = counts.held.load(Ordering::SeqCst);
    let held = door.charge(units).await?;
    if held.is_some() {
        // Counted after it was granted and until before it is returned: never more than the nodes hold.
        let sum = counts.held.fetch_add(units, Ordering::SeqCst) + units;
        counts.most.fetch_max(sum, Ordering::SeqCst);
        counts.granted.fetch_add(1, Ordering::Relaxed);
    } else {
        let there = before.max(counts.held.load(Ordering::SeqCst));
        counts.refused.fetch_add(1, Ordering::Relaxed);
        counts.refused_with_room.fetch_add(u64::from(there + units <= LIMIT), Ordering::Relaxed);
    }
    tokio::time::sleep(Duration::from_millis(5 + ms)).await;
    if let Some(held) = held {
        counts.held.fetch_sub(units, Ordering::SeqCst);
        door.give_back(held).await?;
    }
    Ok(())
}

/// Returns how many charges and returns a second a node does if there is room for all.
pub async fn throughput(redis: &str, way: Way, nodes: u64, time: Duration) -> Outcome<f64> {
    let doors = doors(redis, way, nodes, LIMIT / nodes / 4).await?;
    let start = Instant::now();
    let mut workers = Vec::new();
    for door in doors.iter().flat_map(|door| (0..TASKS).map(move |_| door)) {
        let door = door.clone();
        workers.push(tokio::spawn(async move {
            let mut done = 0_u64;
            while start.elapsed() < time {
                // A task that never waits yields to the others now and then.
                for _ in 0..64 {
                    let held = door.charge(64).await?.ok_or("there is room")?;
                    door.give_back(held).await?;
                    done += 1;
                }
                tokio::task::yield_now().await;
            }
            Outcome::Ok(done)
        }));
    }
    let mut done = 0;
    for worker in workers {
        done += worker.await??;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64() / nodes as f64)
}

/// A generator of random numbers (SplitMix64), so that each way gets the same load.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most.max(1)
    }
}
