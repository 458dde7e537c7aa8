//! Random loads: nodes that sync, forget, come twice, leave; messages that are lost, repeated, late; changes by operators.

use std::collections::BTreeMap;

use ledgerline_fleet::book::{Change, Terms};
use ledgerline_fleet::message::{Granted, Line, MAX_REFUSALS, Refusal, Reply, State, Sync, above};
use proptest::prelude::*;

/// The organisation of all budgets.
pub const ORGANISATION: &str = "a";

/// The budgets, each after the level above it. The last one is created late or never.
pub const PATHS: [&str; 5] = ["/a", "/a/b", "/a/b/d", "/a/c", "/a/x"];

/// Number of processes. The last two have the names of the first two.
pub const NODES: usize = 6;

/// A step of a world.
#[derive(Clone, Debug)]
pub enum Step {
    /// A process syncs the budgets of a bit mask. Its message or the reply may get lost.
    Sync { node: usize, mask: u8, numbers: [(u8, u8); 5], heard: bool, answered: bool },
    /// An old message arrives again, or for the first time.
    Again { back: usize },
    /// A process restarts without memory.
    Restart { node: usize },
    /// A process leaves.
    Bye { node: usize, heard: bool },
    /// Time passes, in milliseconds.
    Wait { ms: u64 },
    /// The store's clock goes back, and stays behind.
    Back { ms: u64 },
    /// An operator changes something.
    Operate(Operation),
    /// The store remembers its state, for `Forget`.
    Remember,
    /// The store loses all writes since then.
    Forget,
}

/// An operator's action.
#[derive(Clone, Debug)]
pub enum Operation {
    Set { path: usize, limit: Option<u8>, minimum: Option<u8> },
    Delete { path: usize },
    Terms { ttl: Option<u64>, grace: Option<u64> },
    Drain { node: usize, on: bool },
    Repair,
}

/// An operation on a store.
#[derive(Clone, Debug)]
pub enum Deed {
    Send(Sync),
    Change(Change),
    Remember,
    Forget,
}

pub fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..most)
}

fn step() -> impl Strategy<Value = Step> {
    let sync = (
        0..NODES,
        any::<u8>(),
        any::<[(u8, u8); 5]>(),
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(node, mask, numbers, heard, answered)| Step::Sync {
            node,
            mask,
            numbers,
            heard,
            answered,
        });
    prop_oneof![
        40 => sync,
        4 => (0_usize..12).prop_map(|back| Step::Again { back }),
        1 => (0..NODES).prop_map(|node| Step::Restart { node }),
        1 => (0..NODES, any::<bool>()).prop_map(|(node, heard)| Step::Bye { node, heard }),
        8 => prop_oneof![8 => 0_u64..40, 1 => 0_u64..300].prop_map(|ms| Step::Wait { ms }),
        1 => prop_oneof![4 => 1_u64..60, 1 => 1_u64..100_000].prop_map(|ms| Step::Back { ms }),
        6 => operation().prop_map(Step::Operate),
        1 => Just(Step::Remember),
        1 => Just(Step::Forget),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0..PATHS.len(), any::<Option<u8>>(), prop::option::weighted(0.2, 0_u8..30))
            .prop_map(|(path, limit, minimum)| Operation::Set { path, limit, minimum }),
        1 => (0..PATHS.len()).prop_map(|path| Operation::Delete { path }),
        1 => (prop::option::weighted(0.8, 1_u64..150), prop::option::weighted(0.8, 0_u64..80))
            .prop_map(|(ttl, grace)| Operation::Terms { ttl, grace }),
        1 => (0..NODES, any::<bool>()).prop_map(|(node, on)| Operation::Drain { node, on }),
        1 => Just(Operation::Repair),
    ]
}

/// A process, and its beliefs about its leases.
#[derive(Clone, Debug, Default)]
pub struct Process {
    pub name: String,
    pub incarnation: u64,
    pub sequence: u64,
    pub taken: u64,
    /// Until when the store keeps its leases, according to the last reply.
    pub until: u64,
    /// When its leases end, by the true time, and the grace promised with them.
    pub ends: u64,
    pub grace: u64,
    pub leases: BTreeMap<String, u64>,
    pub refused: u64,
    /// Refusals that no reply has acknowledged, and the highest number of one.
    pub refusals: Vec<Refusal>,
    pub told: u64,
    /// The book may have forgotten this process's leases, until it names them again.
    pub forgotten: bool,
}

/// All processes, and the messages they sent.
pub struct World {
    /// The store's clock.
    pub now: u64,
    /// How far it is behind the true time, by which nodes measure.
    behind: u64,
    pub processes: Vec<Process>,
    scale: u64,
    sent: Vec<(usize, u64, Sync)>,
    started: u64,
    /// Number of refusals so far.
    pub refusals: u64,
}

impl World {
    /// Creates a world. Units are multiples of `scale`.
    pub fn new(scale: u64) -> Self {
        let mut world = Self {
            now: 10_000_000,
            behind: 0,
            processes: vec![Process::default(); NODES],
            scale,
            sent: Vec::new(),
            started: 0,
            refusals: 0,
        };
        (0..NODES).for_each(|node| world.restart(node));
        world
    }

    /// Returns the first changes of an operator.
    pub fn founding(&self) -> Vec<Change> {
        let set = |path: &str, limit: u64, minimum: u64| Change::Set {
            path: path.to_owned(),
            limit: Some(limit * self.scale),
            minimum: Some(minimum * self.scale),
        };
        vec![
            Change::from(Terms { ttl: 100, grace: 50 }),
            set("/a", 150, 0),
            set("/a/b", 100, 10),
            set("/a/b/d", 60, 0),
        ]
    }

    fn restart(&mut self, node: usize) {
        self.started += 1;
        let name = format!("node {}", node % (NODES - 2));
        // Above 2^53 and below 2^64: a store must keep all bits.
        let incarnation = self.started.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63;
        self.processes[node] = Process { name, incarnation, ..Process::default() };
    }

    /// Performs a step: `deed` applies it to the store, and returns the reply to a message.
    pub fn step(&mut self, step: &Step, mut deed: impl FnMut(u64, &Deed) -> Option<Reply>) {
        match step {
            Step::Sync { node, mask, numbers, heard, answered } => {
                let message = self.message(*node, *mask, numbers);
                self.sent.push((*node, self.true_time(), message.clone()));
                if *heard && let Some(reply) = deed(self.now, &Deed::Send(message.clone())) {
                    if mask & 0x1f == 0x1f && knows(&message, &reply) {
                        self.processes[*node].forgotten = false;
                    }
                    if *answered {
                        self.take(*node, self.true_time(), &message, &reply);
                    }
                }
            }
            Step::Again { back } => {
                let Some((node, at, message)) = self.sent.iter().rev().nth(*back).cloned() else {
                    return;
                };
                let reply = deed(self.now, &Deed::Send(message.clone()));
                let process = &self.processes[node];
                if process.incarnation == message.incarnation
                    && process.sequence == message.sequence
                    && let Some(reply) = reply
                {
                    self.take(node, at, &message, &reply);
                }
            }
            Step::Restart { node } => self.restart(*node),
            Step::Bye { node, heard } => {
                let process = &mut self.processes[*node];
                process.sequence += 1;
                let message = Sync {
                    node: process.name.clone(),
                    incarnation: process.incarnation,
                    sequence: process.sequence,
                    taken: process.taken,
                    until: process.until,
                    left: 0,
                    ended: false,
                    bye: true,
                    lines: Vec::new(),
                    refusals: process.refusals.clone(),
                };
                if *heard {
                    deed(self.now, &Deed::Send(message));
                }
                self.restart(*node);
            }
            Step::Wait { ms } => self.now += ms,
            Step::Back { ms } => {
                self.now -= ms;
                self.behind += ms;
            }
            Step::Operate(operation) => {
                deed(self.now, &Deed::Change(self.change(operation)));
            }
            Step::Remember => {
                deed(self.now, &Deed::Remember);
            }
            Step::Forget => {
                self.processes.iter_mut().for_each(|process| process.forgotten = true);
                deed(self.now, &Deed::Forget);
            }
        }
        let now = self.true_time();
        for process in self.processes.iter_mut().filter(|process| process.ends <= now) {
            process.leases.clear();
        }
    }

    /// Returns the time by which nodes measure. It never goes back.
    pub fn true_time(&self) -> u64 {
        self.now + self.behind
    }

    fn change(&self, operation: &Operation) -> Change {
        match operation {
            Operation::Set { path, limit, minimum } => Change::Set {
                path: PATHS[*path].to_owned(),
                limit: limit.map(|limit| u64::from(limit) * self.scale),
                minimum: minimum.map(|minimum| u64::from(minimum) * self.scale),
            },
            Operation::Delete { path } => Change::Delete { path: PATHS[*path].to_owned() },
            Operation::Terms { ttl, grace } => Change::Terms { ttl: *ttl, grace: *grace },
            Operation::Repair => {
                Change::By { who: "op@host".to_owned(), change: Box::new(Change::Repair) }
            }
            Operation::Drain { node, on } => {
                Change::Drain { node: self.processes[*node].name.clone(), on: *on }
            }
        }
    }

    fn message(&mut self, node: usize, mask: u8, numbers: &[(u8, u8); 5]) -> Sync {
        let (scale, now) = (self.scale, self.true_time());
        let process = &mut self.processes[node];
        process.sequence += 1;
        let ended = process.taken > 0 && process.ends <= now;
        let has_leases = process.taken > 0 && !ended;
        let left = if has_leases { process.ends - now + process.grace } else { 0 };
        let mut lines: Vec<Line> = Vec::new();
        for (at, path) in PATHS.into_iter().enumerate() {
            let level_named =
                above(path).is_none_or(|above| lines.iter().any(|line| line.path == above));
            if mask & (1 << at) == 0 || !level_named {
                continue;
            }
            let (want, used) = numbers[at];
            let lease = process.leases.get(path).copied().unwrap_or(0);
            // In a quarter of cases it gives all back, in an eighth it uses more than it may.
            let want = if want < 64 { 0 } else { (u64::from(want) - 64) * scale };
            let used = u64::from(used);
            let used =
                if used < 32 { used * 8 * scale } else { (used * scale).min(lease).min(want) };
            process.refused += u64::from(want > lease);
            if want > lease && process.refusals.len() < MAX_REFUSALS {
                process.told += 1;
                self.refusals += 1;
                process.refusals.push(Refusal {
                    number: process.told,
                    budget: (*path).to_owned(),
                    group: match numbers[at].1 % 4 {
                        0 => (*path).to_owned(),
                        query => format!("{path}/query {query}"),
                    },
                    units: want - lease,
                    count: 1,
                    age: u64::from(numbers[at].0) * 300,
                });
            }
            // Lower first, tell later.
            process.leases.insert(path.to_owned(), lease.min(want));
            // A level mostly wants the sum of those below it. Sometimes a charge waits.
            let (least, urgent) = match numbers[at].1 % 8 {
                0..4 => (lease.min(want), 0),
                4..6 => (want / 2, want / 2),
                _ => (want, want - want / 4),
            };
            let next = if numbers[at].0.is_multiple_of(2) { urgent } else { urgent - urgent / 3 };
            let waited = if urgent > 0 { u64::from(numbers[at].0) } else { 0 };
            let (path, refused) = (path.to_owned(), process.refused);
            lines.push(Line { path, lease, used, want, least, urgent, next, waited, refused });
        }
        let Process { incarnation, sequence, taken, until, .. } = *process;
        Sync {
            node: process.name.clone(),
            incarnation,
            sequence,
            taken,
            until,
            left,
            ended,
            bye: false,
            lines,
            refusals: process.refusals.clone(),
        }
    }

    fn take(&mut self, node: usize, sent: u64, message: &Sync, reply: &Reply) {
        let process = &mut self.processes[node];
        let Reply::Synced { sequence, at, ttl, grace, lines } = reply else { return };
        assert_eq!((*sequence, lines.len()), (message.sequence, message.lines.len()));
        process.taken = *sequence;
        let told = message.refusals.last().map_or(0, |last| last.number);
        process.refusals.retain(|refusal| refusal.number > told);
        process.ends = sent + ttl;
        process.grace = *grace;
        process.until = at + ttl + grace;
        for (line, granted) in message.lines.iter().zip(lines) {
            if granted.state == State::Unknown {
                process.leases.remove(&line.path);
            } else {
                process.leases.insert(line.path.clone(), granted.lease);
            }
        }
    }
}

/// Returns whether the book has every budget of which the message claims a lease.
fn knows(message: &Sync, reply: &Reply) -> bool {
    let Reply::Synced { lines, .. } = reply else { return false };
    let known =
        |(line, granted): (&Line, &Granted)| line.lease == 0 || granted.state != State::Unknown;
    message.lines.iter().zip(lines).all(known)
}
