//! The simulated world: machines, a network, a store with real books, and faults.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use ledgerline_fleet::book::{Book, Change, Terms};
use ledgerline_fleet::message::{Nudge, Reply, Sync};
use ledgerline_fleet::node::AtEnd;

use super::check::Check;
use super::machine::Machine;
use super::random::Random;
use super::replica::Replica;

/// The size of a world, and its faults.
#[derive(Clone, Debug)]
pub struct Size {
    pub machines: usize,
    pub organisations: usize,
    pub tenants: usize,
    /// Number of budgets below each tenant.
    pub jobs: usize,
    /// Maximum number of budgets that a machine uses of an organisation.
    pub opened: u64,
    /// Number of organisations that a machine works for.
    pub works_for: u64,
    /// Simulated time, in milliseconds.
    pub time: u64,
    /// Mean time between two faults; 0 for none.
    pub faults: u64,
    /// Mean time between two charges or frees of a machine.
    pub load: u64,
    /// The terms of leases.
    pub terms: Terms,
    /// Number of events after which every machine is checked, in addition to those that the event concerns.
    pub check_every: u64,
}

impl Size {
    /// Returns a lease and its grace, the longest that an operator sets.
    pub fn promise(&self) -> u64 {
        let terms = self.each_terms().into_iter();
        terms.map(|terms| terms.ttl + terms.grace).max().expect("some terms")
    }

    /// Returns the terms that an operator sets. Each grace covers the drift of clocks within a lease.
    pub fn each_terms(&self) -> [Terms; 4] {
        let Terms { ttl, grace } = self.terms;
        let halves = |n| Terms { ttl: ttl * n / 2, grace: grace * n / 2 };
        [self.terms, halves(1), halves(3), Terms { ttl: ttl / 6, grace: grace / 6 }]
    }
}

/// A deliberate mistake, to verify that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// A machine raises limits when it asks.
    RaiseFirst,
    /// A machine reports that it lowered limits, but lowers them later or never.
    TellFirst,
    /// The store frees units at the end of a lease, without a grace.
    NoGrace,
    /// Machines notice the end of their leases late.
    EndLate,
    /// The store takes a repeated message for a new one whose replies it lost.
    AdoptAgain,
    /// Machines measure their leases from the reply.
    MeasureLate,
}

#[derive(Debug)]
pub enum Event {
    Wake { machine: usize, organisation: usize },
    Arrive { machine: usize, organisation: usize, message: Sync },
    Answer { machine: usize, organisation: usize, incarnation: u64, sequence: u64, reply: Reply },
    TimeOut { machine: usize, organisation: usize, incarnation: u64, sequence: u64 },
    Nudge { machine: usize, organisation: usize, nudge: Nudge },
    Load { machine: usize },
    Replicate { organisation: usize },
    Fault,
}

pub struct World {
    pub size: Size,
    pub mistake: Mistake,
    pub now: u64,
    pub random: Random,
    pub queue: BinaryHeap<Reverse<(u64, u64, Slot)>>,
    pub events: Vec<Option<Event>>,
    spare: Vec<usize>,
    order: u64,
    pub books: Vec<Book>,
    /// The replicas, and the offset of the books' clocks from the true time.
    pub replicas: Vec<Replica>,
    pub store_clock: u64,
    pub machines: Vec<Machine>,
    /// The living machines that work for each organisation.
    pub members: Vec<Vec<usize>>,
    /// The earliest true time at which the book of each organisation frees the units of a machine, unless it renews their leases.
    pub ends: Vec<BTreeSet<(u64, usize)>>,
    /// All living machines.
    pub living: Vec<usize>,
    pub check: Check,
    pub handled: u64,
    /// Number of messages that reached a store.
    pub syncs: u64,
    /// There are no faults and no work any more.
    pub quiet: bool,
    /// Whether to print each event.
    pub traces: bool,
    pub faults: BTreeMap<&'static str, u64>,
}

type Slot = usize;

pub const RESERVE: u64 = 4;

pub fn organisation(number: usize) -> String {
    format!("/o{number}")
}

impl World {
    pub fn new(seed: u64, size: Size, mistake: Mistake) -> Self {
        let mut world = Self {
            mistake,
            now: 0,
            random: Random::new(seed),
            queue: BinaryHeap::new(),
            events: Vec::new(),
            spare: Vec::new(),
            order: 0,
            books: Vec::new(),
            replicas: Vec::new(),
            store_clock: 1_000_000_000,
            machines: Vec::new(),
            members: vec![Vec::new(); size.organisations],
            ends: vec![BTreeSet::new(); size.organisations],
            living: Vec::new(),
            check: Check::new(size.organisations, 3 * size.promise()),
            handled: 0,
            syncs: 0,
            quiet: false,
            traces: std::env::var_os("LEDGERLINE_TRACE").is_some(),
            faults: BTreeMap::new(),
            size,
        };
        for number in 0..world.size.organisations {
            let book = world.new_book(number);
            world.replicas.push(Replica::of(&book));
            world.books.push(book);
            world.after(1_000, Event::Replicate { organisation: number });
        }
        for _ in 0..world.size.machines {
            let name = format!("m{}", world.machines.len());
            world.start(name);
        }
        if world.size.faults > 0 {
            let wait = world.random.below(world.size.faults * 2);
            world.after(wait, Event::Fault);
        }
        world
    }

    /// Returns how long the books keep units after the end of their lease.
    pub fn grace(&self) -> u64 {
        if self.mistake == Mistake::NoGrace { 0 } else { self.size.terms.grace }
    }

    fn new_book(&mut self, number: usize) -> Book {
        let mut book = Book::new();
        let terms = Terms { grace: self.grace(), ..self.size.terms };
        let top = organisation(number);
        let machines = self.size.machines as u64;
        let mut set = |path: String, limit: u64, minimum: u64| {
            let change = Change::Set { path, limit: Some(limit), minimum: Some(minimum) };
            book.administer(0, &change).expect("a change that fits");
        };
        set(top.clone(), machines * 40, 0);
        for tenant in 0..self.size.tenants {
            let path = format!("{top}/t{tenant}");
            let minimum = if self.random.chance(300) { self.random.below(3) } else { 0 };
            set(path.clone(), self.random.between(machines * 2, machines * 10), minimum);
            for job in 0..self.size.jobs {
                set(format!("{path}/j{job}"), self.random.between(machines * 2, machines * 6), 0);
            }
        }
        book.administer(0, &Change::from(terms)).expect("terms that fit");
        book
    }

    /// Starts a process of that name.
    pub fn start(&mut self, name: String) -> usize {
        let number = self.machines.len();
        self.living.push(number);
        let random = &mut self.random;
        let mut machine = Machine {
            name,
            incarnation: random.next() >> 12 | 1,
            alive: true,
            at_end: if random.chance(250) { AtEnd::GoOn } else { AtEnd::Shrink },
            rate: random.between(800, 1_200),
            offset: random.below(1 << 20),
            paused: 0,
            cut_off: 0,
            appetite: random.between(300, 700),
            parties: BTreeMap::new(),
            charges: Vec::new(),
        };
        for _ in 0..self.size.works_for {
            let organisation = random.below(self.size.organisations as u64) as usize;
            let mut paths: Vec<String> = Vec::new();
            for _ in 0..random.between(1, self.size.opened) {
                let tenant = random.below(self.size.tenants as u64);
                let job = random.below(self.size.jobs as u64 + 1);
                let top = super::world::organisation(organisation);
                paths.push(match job {
                    0 => format!("{top}/t{tenant}"),
                    job => format!("{top}/t{tenant}/j{}", job - 1),
                });
            }
            paths.sort();
            paths.dedup();
            machine.join(self.now, organisation, RESERVE, paths);
        }
        let parties: Vec<usize> = machine.parties.keys().copied().collect();
        self.machines.push(machine);
        for organisation in parties {
            self.members[organisation].push(number);
            self.schedule(number, organisation);
        }
        let wait = self.random.below(self.size.load * 2);
        self.after(wait, Event::Load { machine: number });
        number
    }

    pub fn after(&mut self, wait: u64, event: Event) {
        let slot = match self.spare.pop() {
            Some(slot) => {
                self.events[slot] = Some(event);
                slot
            }
            None => {
                self.events.push(Some(event));
                self.events.len() - 1
            }
        };
        self.order += 1;
        self.queue.push(Reverse((self.now + wait, self.order, slot)));
    }

    /// Runs until a time.
    pub fn run_until(&mut self, end: u64) -> Result<(), String> {
        while let Some(Reverse((at, _, slot))) = self.queue.peek().copied() {
            if at > end {
                break;
            }
            self.queue.pop();
            self.now = at;
            let event = self.events[slot].take().expect("an event that waits");
            self.spare.push(slot);
            self.handle(event)?;
            self.handled += 1;
            if self.handled.is_multiple_of(self.size.check_every) {
                self.check_all()?;
            }
        }
        self.now = end;
        self.check_all()
    }

    pub fn store_now(&self) -> u64 {
        self.store_clock + self.now
    }

    /// Schedules a machine's next wake for an organisation.
    pub fn schedule(&mut self, number: usize, organisation: usize) {
        let machine = &self.machines[number];
        let Some(party) = machine.parties.get(&organisation) else { return };
        let (due, until) = (party.node.due(), party.node.until());
        let look = due.map(|_| party.looked + party.node.ttl().max(1_000) / 12);
        // A node without messages to send and without leases sleeps.
        let Some(local) = [due, until, look].into_iter().flatten().min() else { return };
        let at = machine.when(local).max(self.now + 1).max(machine.paused);
        if at != party.wake {
            self.machines[number].parties.get_mut(&organisation).expect("found above").wake = at;
            self.after(at - self.now, Event::Wake { machine: number, organisation });
        }
    }

    pub fn note(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }
}
