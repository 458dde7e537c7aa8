//! A model of the protocol with the real node and book code. It explores every order of messages, their loss, repetition and
//! delay, lost writes, and the end of leases, for three nodes and two levels. The passage of time is one of the steps, possible
//! in every state. The network keeps all messages.

use std::collections::BTreeMap;

use ledgerline_fleet::book::{Book, Change, Terms};
use ledgerline_fleet::message::{Reply, Sync};
use ledgerline_fleet::node::{Action as Deed, Node, Reading, Scope, Settings};
use stateright::{Checker, Model, Property};

const TOP: &str = "/o";
const JOB: &str = "/o/j";
const QUERY: &str = "/o/j/q";
const LIMIT: u64 = 2;
const TTL: u64 = 1_000;
/// When a world begins.
const START: u64 = 10 * TTL;

/// The bounds of the exploration.
#[derive(Clone)]
struct Protocol {
    nodes: usize,
    /// Maximum number of messages of each node.
    messages: usize,
    /// How often the store may lose its last writes.
    failures: u8,
    /// How often the time may advance by a lease.
    leases: u64,
    /// How often an operator shortens the leases, or restores their length.
    changes: u8,
    /// How often the store's clock goes back.
    backs: u8,
    /// A deliberate mistake: nodes raise their limits before the reply.
    raises_first: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// The true time, by which nodes measure.
    now: u64,
    /// By how much the store's clock is behind.
    behind: u64,
    changes: u8,
    backs: u8,
    book: Book,
    /// The book without the last write.
    before: Book,
    failures: u8,
    nodes: Vec<Member>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Member {
    node: Node,
    /// The limits of its groups.
    max: BTreeMap<String, u64>,
    used: u64,
    /// Number of refused charges.
    refused: u64,
    /// All messages and replies so far. Each may arrive at any time, any number of times; one that never arrives is lost.
    said: Vec<Sync>,
    replies: Vec<Reply>,
    /// Whether the book has received its newest message since it last lost writes.
    heard: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// A node reports its leases, and wants one unit more, or none.
    Say {
        node: usize,
        wants: bool,
    },
    Arrive {
        node: usize,
        message: usize,
    },
    Hear {
        node: usize,
        reply: usize,
    },
    Charge {
        node: usize,
    },
    Free {
        node: usize,
    },
    Fail,
    /// An operator shortens the leases, or restores their length.
    Change,
    /// The store's clock goes back.
    Back(u64),
    /// A lease's time passes, by all clocks.
    Pass,
}

fn read(member: &Member) -> impl Fn(&str) -> Reading + use<> {
    let used = member.used;
    move |_| Reading { used, refused: 0 }
}

impl Member {
    fn new(number: usize) -> Self {
        let settings = Settings { reserve: 0, ..Settings::default() };
        let mut node = Node::new(&format!("n{number}"), number as u64 + 1, settings);
        node.open(START, JOB);
        let max = [(TOP.to_owned(), 0), (JOB.to_owned(), 0)].into();
        Self { node, max, used: 0, refused: 0, said: Vec::new(), replies: Vec::new(), heard: false }
    }

    fn carry_out(&mut self, deeds: Vec<Deed>) {
        for deed in deeds {
            if let Deed::Raise { path, max }
            | Deed::Lower { path, max }
            | Deed::Hold { path, max } = deed
            {
                self.max.insert(path, max);
            }
        }
        self.used = self.used.min(self.usable());
    }

    fn usable(&self) -> u64 {
        self.max.values().copied().min().unwrap_or(0)
    }

    fn say(&mut self, now: u64, wants: bool, raises_first: bool) {
        if wants {
            if self.used >= self.usable() {
                self.node.refused(now, JOB, QUERY, 1, 1);
                self.refused += 1;
            }
            self.node.need(now, JOB, 1);
        }
        let reading = read(self);
        let mut turn = self.node.begin(now, Scope::All, reading);
        for lower in turn.lowers() {
            let max = lower.to().max(self.used);
            self.max.insert(lower.path().to_owned(), max);
            lower.done(max, self.used);
        }
        let message = self.node.say(now, turn);
        if wants {
            self.node.served(now, JOB, 1);
        }
        if raises_first {
            for line in &message.lines {
                let max = self.max.entry(line.path.clone()).or_default();
                *max = (*max).max(line.want);
            }
        }
        self.said.push(message);
        self.heard = false;
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let mut book = Book::new();
        for path in [TOP, JOB] {
            let change = Change::Set { path: path.to_owned(), limit: Some(LIMIT), minimum: None };
            book.administer(START, &change).expect("a budget");
        }
        let terms = Change::from(Terms { ttl: TTL, grace: TTL / 2 });
        book.administer(START, &terms).expect("terms");
        let nodes = (0..self.nodes).map(Member::new).collect();
        let before = book.clone();
        vec![World {
            now: START,
            behind: 0,
            changes: 0,
            backs: 0,
            book,
            before,
            failures: 0,
            nodes,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for (node, member) in world.nodes.iter().enumerate() {
            if member.said.len() < self.messages {
                steps.push(Step::Say { node, wants: true });
                steps.push(Step::Say { node, wants: false });
            }
            steps.extend((0..member.said.len()).map(|message| Step::Arrive { node, message }));
            steps.extend((0..member.replies.len()).map(|reply| Step::Hear { node, reply }));
            if member.used < member.usable() {
                steps.push(Step::Charge { node });
            }
            if member.used > 0 {
                steps.push(Step::Free { node });
            }
        }
        if world.failures < self.failures && world.book != world.before {
            steps.push(Step::Fail);
        }
        if world.changes < self.changes {
            steps.push(Step::Change);
        }
        if world.backs < self.backs {
            steps.extend([Step::Back(TTL), Step::Back(3 * TTL)]);
        }
        if world.now < START + self.leases * TTL {
            steps.push(Step::Pass);
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = last.clone();
        let now = world.now;
        let there = now - world.behind;
        match step {
            Step::Say { node, wants } => {
                world.nodes[node].say(now, wants, self.raises_first);
            }
            Step::Arrive { node, message } => {
                let member = &mut world.nodes[node];
                let message = member.said.get(message)?.clone();
                let before = world.book.clone();
                let reply = world.book.apply(there, &message);
                world.book.nudged();
                if world.book != before {
                    world.before = before;
                }
                let newest = member.said.last() == Some(&message);
                member.heard |= newest && matches!(reply, Reply::Synced { .. });
                if !member.replies.contains(&reply) {
                    member.replies.push(reply);
                }
            }
            Step::Hear { node, reply } => {
                let member = &mut world.nodes[node];
                let reply = member.replies.get(reply)?.clone();
                // A late reply belongs to an older message, for which the node no longer waits.
                if let Reply::Synced { sequence, .. } = reply {
                    let deeds = member.node.take(now, sequence, reply);
                    member.carry_out(deeds);
                }
            }
            Step::Charge { node } => world.nodes[node].used += 1,
            Step::Free { node } => world.nodes[node].used -= 1,
            Step::Fail => {
                world.book = world.before.clone();
                world.failures += 1;
                world.nodes.iter_mut().for_each(|member| member.heard = false);
            }
            Step::Change => {
                world.changes += 1;
                let ttl = if world.changes % 2 == 1 { TTL / 4 } else { TTL };
                let change = Change::from(Terms { ttl, grace: ttl / 2 });
                world.book.administer(there, &change).expect("terms");
                // The replica has the change as well.
                world.before.administer(there, &change).expect("terms");
                world.book.nudged();
                world.before.nudged();
            }
            Step::Back(by) => {
                world.backs += 1;
                world.behind += by;
            }
            Step::Pass => {
                world.now += TTL;
                for member in &mut world.nodes {
                    let deeds = member.node.end(world.now);
                    member.carry_out(deeds);
                }
            }
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("leased within the limit", |_, world: &World| {
                world.failures > 0
                    || [TOP, JOB].iter().all(|path| {
                        world.book.budget(path).is_some_and(|budget| budget.leased <= budget.limit)
                    })
            }),
            Property::always("used within the limit", |_, world: &World| {
                let used: u64 = world.nodes.iter().map(|member| member.used).sum();
                // Only the last write is lost, and it granted no more than the limit.
                used <= LIMIT * (1 + u64::from(world.failures))
            }),
            Property::always("usable within the book", |_, world: &World| {
                world.nodes.iter().enumerate().all(|(number, member)| {
                    let hold = world.book.hold(JOB, &format!("n{number}"), number as u64 + 1);
                    (world.failures > 0 && !member.heard)
                        || member.usable() <= hold.map_or(0, |hold| hold.lease)
                })
            }),
            Property::always("refusals are told once", |_, world: &World| {
                let noted = world.book.clone().view(world.now - world.behind).refusals;
                world.nodes.iter().enumerate().all(|(number, member)| {
                    let mine = noted.iter().filter(|noted| noted.node == format!("n{number}"));
                    let told: u64 = mine.map(|noted| noted.count).sum();
                    let lost = world.failures > 0
                        || told + member.node.refusals_waiting() >= member.refused;
                    told <= member.refused && lost
                })
            }),
            Property::sometimes("all is used", |_, world: &World| {
                world.nodes.iter().map(|member| member.used).sum::<u64>() == LIMIT
            }),
            Property::sometimes("two nodes share", |_, world: &World| {
                world.nodes.iter().filter(|member| member.used > 0).count() > 1
            }),
        ]
    }
}

fn is_long() -> bool {
    std::env::var("LEDGERLINE_SOAK").is_ok_and(|how| how == "long")
}

const SHORT: Protocol = Protocol {
    nodes: 3,
    messages: 2,
    failures: 0,
    leases: 1,
    changes: 0,
    backs: 0,
    raises_first: false,
};

fn check(protocol: Protocol, depth: usize) -> impl Checker<Protocol> {
    protocol.checker().threads(2).target_max_depth(depth).spawn_bfs().join()
}

/// The invariants of every state.
const ALWAYS: [&str; 4] = [
    "leased within the limit",
    "used within the limit",
    "usable within the book",
    "refusals are told once",
];

#[test]
fn three_nodes_share_two_levels_in_every_order_of_messages() {
    let checker = check(SHORT, if is_long() { 11 } else { 8 });
    println!("{} states", checker.unique_state_count());
    for property in ALWAYS {
        checker.assert_no_discovery(property);
    }
}

/// Explores all steps: the longest path is shorter than the bound.
#[test]
fn three_nodes_that_say_one_thing_each_share_two_levels_to_the_end() {
    let longest = 40;
    let checker = check(Protocol { messages: 1, leases: 0, ..SHORT }, longest);
    println!("{} states, {} steps", checker.unique_state_count(), checker.max_depth());
    assert!(checker.max_depth() < longest);
    checker.assert_properties();
}

#[test]
fn a_store_that_loses_a_write_overruns_by_no_more_than_the_write_granted() {
    let protocol = Protocol { nodes: 2, failures: 1, leases: 0, ..SHORT };
    let checker = check(protocol, if is_long() { 15 } else { 12 });
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// Combines late and repeated messages, lost writes, leases that become shorter and longer, and a clock that goes back.
#[test]
fn a_lease_is_kept_while_its_node_believes_in_it_whatever_befalls_the_store() {
    let trouble =
        Protocol { nodes: 2, messages: 3, failures: 1, leases: 3, changes: 2, backs: 1, ..SHORT };
    let checker = check(trouble, if is_long() { 9 } else { 8 });
    println!("{} states", checker.unique_state_count());
    for property in ALWAYS {
        checker.assert_no_discovery(property);
    }
}

#[test]
fn a_node_that_raises_before_it_hears_is_found() {
    let checker = check(Protocol { nodes: 2, raises_first: true, ..SHORT }, 9);
    assert!(checker.discovery("usable within the book").is_some());
}
