//! A quick estimate of a layout's cost, with which the search tries thousands.
//!
//! It uses averages instead of events. A CPU that comes back to a line has lost it if another CPU wrote it since; the
//! rates give the probability. A line that many CPUs want has a queue. The neighbour in a pair comes and goes with the
//! line. The orders that the search finds by this estimate are simulated before one is proposed.
//!
//! ```text
//! visits     of a line, by a CPU of a role, a nanosecond:       those of its phases that touch it
//! others     the same of all other CPUs that have the instance, and `pair` times those of the neighbour
//! read miss  P(another wrote since)       = others' writes / (others' writes + own visits)
//! write miss P(another came since)        = others' visits / (others' visits + own visits)
//! a miss     waits the mean transfer and the line's queue, as far as its kind of access waits at all
//! queue      service x busy / (1 - busy), busy the line's transfers x service; a CPU that waits in it
//!            takes the line before the visit of another one is over
//! an operation's time changes the rates: a few rounds settle it
//! ```

use ledgerline_coherence::machine::Settings;

use crate::cost::{Fetch, Question, outgrows, parts, passes, share};
use crate::profile::{Instances, Kind};
use crate::uses::{self, Spot, Uses};

/// Rounds after which times and rates agree well enough.
const ROUNDS: usize = 6;
/// The share of a store's miss that its CPU waits for. The store buffer hides the rest.
const STORE_WAITS: f64 = 0.15;
/// The largest utilization of a queue.
const BUSIEST: f64 = 0.95;

/// The inputs of the estimate.
pub(crate) struct Proxy<'u> {
    spots: &'u [Spot],
    visits: Vec<Visit>,
    roles: Vec<RoleLoad>,
    /// The number of CPUs that share an instance, and their share of all CPUs.
    sharing: f64,
    part: f64,
    transfer: f64,
    write_service: f64,
    read_service: f64,
    first_of_readers: f64,
    pair: f64,
    fetch: Fetch,
}

struct RoleLoad {
    cpus: f64,
    share: f64,
    work_ns: f64,
    outgrows: bool,
    passes: f64,
}

/// A phase of a role.
struct Visit {
    role: usize,
    /// Occurrences in an operation.
    times: f64,
    touches: Vec<Touch>,
}

struct Touch {
    spot: usize,
    writes: bool,
    /// The cost of the line if this is its first touch.
    price: f64,
    /// The share of a miss that is waited for.
    waits: f64,
    times: f64,
}

/// The accesses of a visit to one line.
#[derive(Clone, Copy)]
struct Entry {
    role: usize,
    line: usize,
    /// The cost of the line at the first touch.
    price: f64,
    /// Visits an operation.
    visits: f64,
    /// The visits that write.
    writes: f64,
    /// Whether the first touch writes, and the share of its miss that is waited for.
    writes_first: bool,
    waits: f64,
    /// The share that is waited for at a write that follows a read.
    upgrade_waits: f64,
    /// The share that is waited for at a read after a write, if a queue took the line in between.
    later_waits: f64,
}

impl<'u> Proxy<'u> {
    pub(crate) fn new(question: &Question<'_>, uses: &'u Uses) -> Proxy<'u> {
        let settings = question.machine.best();
        let ns = |picoseconds: u64| picoseconds as f64 / 1000.0;
        let cpus = question.cpus as f64;
        let sharing = match uses.instances {
            Instances::Shared => cpus,
            // Sharing between objects of a row does not depend on the order: `advice` tries that.
            Instances::PerCpu | Instances::Row(_) => 1.0,
            Instances::Dealt(count) => (cpus / count.max(1) as f64).max(1.0),
        };
        let transfer = transfer(&settings, question.cpus);
        let roles = uses.roles.iter().map(|role| RoleLoad {
            cpus: cpus * role.share,
            share: role.share,
            work_ns: role.work_ns,
            outgrows: outgrows(role),
            passes: passes(role),
        });
        let fetch = Fetch::new(&settings, uses, question.cpus);
        let overlapped = 1.0 - settings.overlap;
        let visits = uses.roles.iter().enumerate().flat_map(|(role, of)| {
            of.phases.iter().map(move |phase| Visit {
                role,
                times: phase.times,
                touches: (phase.accesses.iter())
                    .map(|&uses::Touch { spot, kind, times }| {
                        let awaited = uses.spots[spot].awaited;
                        let (second, last) = fetch.price(kind, awaited);
                        let waits = match kind {
                            Kind::Load if !awaited => overlapped,
                            Kind::Load | Kind::Atomic => 1.0,
                            Kind::Store => STORE_WAITS,
                        };
                        Touch { spot, writes: kind.writes(), price: second + last, waits, times }
                    })
                    .collect(),
            })
        });
        Proxy {
            spots: &uses.spots,
            visits: visits.collect(),
            roles: roles.collect(),
            sharing,
            part: sharing / cpus,
            transfer,
            write_service: settings.handover * transfer + ns(settings.keep + settings.atomic),
            read_service: ns(settings.read_service),
            first_of_readers: settings.handover * transfer,
            pair: settings.pair,
            fetch,
        }
    }

    /// Returns nanoseconds an operation, averaged over the places of the base.
    pub(crate) fn cost(&self, offsets: &[u64], begins: &[u64]) -> f64 {
        self.cost_and_touching(offsets, begins).0
    }

    /// Returns the cost, and the cost of the touched lines if nothing hides it. The second makes the search prefer an
    /// order that costs no more but touches fewer lines.
    pub(crate) fn cost_and_touching(&self, offsets: &[u64], begins: &[u64]) -> (f64, f64) {
        let (mut cost, mut touching) = (0.0, 0.0);
        for &begins in begins {
            let (lines, entries) = self.entries(offsets, begins);
            cost += self.settle(&lines, &entries);
            touching += self.mean(&self.fetching(&lines, &entries, true));
        }
        (cost / begins.len() as f64, touching / begins.len() as f64)
    }

    /// Returns the number of touches that an estimate looks at, for one place of the base.
    pub(crate) fn touches(&self) -> usize {
        self.visits.iter().map(|visit| visit.touches.len()).sum()
    }

    /// Returns the lines that are touched, and each visit to one.
    fn entries(&self, offsets: &[u64], begins: u64) -> (Vec<u64>, Vec<Entry>) {
        let mut lines: Vec<u64> = Vec::new();
        let mut entries: Vec<Entry> = Vec::new();
        for visit in &self.visits {
            let from = entries.len();
            for touch in &visit.touches {
                let spot = &self.spots[touch.spot];
                let parts = parts(spot, offsets[touch.spot], begins);
                let chance = (touch.times * share(spot, parts.len())).min(1.0);
                for part in parts {
                    let number = (begins + part) / 64;
                    let line = lines.iter().position(|&seen| seen == number).unwrap_or_else(|| {
                        lines.push(number);
                        lines.len() - 1
                    });
                    let known = entries[from..].iter_mut().find(|entry| entry.line == line);
                    match known {
                        Some(entry) => {
                            entry.visits = entry.visits.max(chance);
                            entry.later_waits = entry.later_waits.max(touch.waits * chance);
                            if touch.writes {
                                entry.writes = entry.writes.max(chance);
                                entry.upgrade_waits = entry.upgrade_waits.max(touch.waits);
                            }
                        }
                        None => entries.push(Entry {
                            role: visit.role,
                            line,
                            price: touch.price,
                            visits: chance,
                            writes: if touch.writes { chance } else { 0.0 },
                            writes_first: touch.writes,
                            waits: touch.waits,
                            upgrade_waits: if touch.writes { touch.waits } else { 0.0 },
                            later_waits: 0.0,
                        }),
                    }
                }
            }
            for entry in &mut entries[from..] {
                entry.visits *= visit.times;
                entry.writes *= visit.times;
            }
        }
        (lines, entries)
    }

    fn settle(&self, lines: &[u64], entries: &[Entry]) -> f64 {
        let (roles, count) = (self.roles.len(), lines.len());
        let fetching = self.fetching(lines, entries, false);
        let mut times: Vec<f64> = (self.roles.iter().zip(&fetching))
            .map(|(role, fetching)| role.work_ns.max(1.0) + fetching)
            .collect();
        if self.sharing <= 1.0 {
            return self.mean(&times);
        }
        let neighbours: Vec<Option<usize>> =
            (lines.iter()).map(|line| lines.iter().position(|other| *other == line ^ 1)).collect();
        // By line and role, of one CPU in a nanosecond: visits and writes.
        let mut visits = vec![0.0; count * roles];
        let mut writes = vec![0.0; count * roles];
        let mut queues = vec![0.0; count];
        let mut missed = vec![1.0f64; count];
        let mut taken = vec![0.0f64; count];
        for _ in 0..ROUNDS {
            visits.fill(0.0);
            writes.fill(0.0);
            for entry in entries {
                visits[entry.line * roles + entry.role] += entry.visits / times[entry.role];
                writes[entry.line * roles + entry.role] += entry.writes / times[entry.role];
            }
            let total = |rates: &[f64], line: usize| -> f64 {
                let rates = &rates[line * roles..(line + 1) * roles];
                let all = self.roles.iter().zip(rates).map(|(role, rate)| role.cpus * rate);
                all.sum::<f64>() * self.part
            };
            let others = |rates: &[f64], line: usize, role: usize, missed: &[f64]| {
                let near = (total(rates, line) - rates[line * roles + role]).max(0.0);
                let far = neighbours[line].map_or(0.0, |next| {
                    let near = (total(rates, next) - rates[next * roles + role]).max(0.0);
                    self.pair * missed[next] * near
                });
                near + far
            };
            let mut costs = fetching.clone();
            let mut reading = vec![0.0; count];
            let mut writing = vec![0.0; count];
            for entry in entries {
                let (line, role) = (entry.line, entry.role);
                let own = visits[line * roles + role];
                let wrote = others(&writes, line, role, &missed);
                let came = others(&visits, line, role, &missed);
                let wait = self.transfer + queues[line];
                let cpus = self.roles[role].cpus * self.part / times[role];
                let (lost, fetched) = if entry.writes_first {
                    (came, &mut writing[line])
                } else {
                    (wrote, &mut reading[line])
                };
                let miss = entry.visits * lost / (lost + own);
                costs[role] += miss * wait * entry.waits;
                *fetched += miss * cpus;
                if !entry.writes_first && entry.writes > 0.0 {
                    let upgrade = entry.writes * came / (came + writes[line * roles + role]);
                    costs[role] += upgrade * wait * entry.upgrade_waits;
                    writing[line] += upgrade * cpus;
                }
                // A CPU that waits in the queue gets the line before the visit is over.
                let again = miss * taken[line];
                costs[role] += again * wait * entry.later_waits;
                reading[line] += again * cpus * entry.later_waits;
            }
            for line in 0..count {
                // Of the readers that lost the line to a write, the first gets it from the owner.
                let firsts = reading[line].min(total(&writes, line));
                let busy = writing[line] * self.write_service
                    + firsts * self.first_of_readers
                    + reading[line] * self.read_service;
                let served = writing[line] + reading[line];
                let service = if served > 0.0 { busy / served } else { 0.0 };
                let busy = busy.min(BUSIEST);
                taken[line] = busy;
                queues[line] = service * (busy / (1.0 - busy)).min(self.sharing - 1.0);
                let all = total(&visits, line);
                missed[line] = if all > 0.0 { (served / all).min(1.0) } else { 0.0 };
            }
            for (role, time) in times.iter_mut().enumerate() {
                // The geometric mean of the old and new time: a full step oscillates if lines are never idle.
                *time = (*time * (self.roles[role].work_ns.max(1.0) + costs[role])).sqrt();
            }
        }
        self.mean(&times)
    }

    /// Returns the cost of lines that no other CPU took, for an operation of each role: the price of each access, or
    /// the second cache's price for each line.
    fn fetching(&self, lines: &[u64], entries: &[Entry], alike: bool) -> Vec<f64> {
        let roles = self.roles.len();
        let mut seen = vec![0.0f64; lines.len() * roles];
        let mut costs = vec![0.0; roles];
        for entry in entries.iter().filter(|entry| self.roles[entry.role].outgrows) {
            let passes = self.roles[entry.role].passes;
            let here = entry.line * roles + entry.role;
            // Certain touches count once a pass, others each time.
            let times = entry.visits.min((passes - seen[here]).max(0.0));
            seen[here] =
                (seen[here] + if entry.visits >= passes { passes } else { 0.0 }).min(passes);
            let neighbour = lines.iter().position(|line| *line == lines[entry.line] ^ 1);
            let beside = neighbour.is_some_and(|line| seen[line * roles + entry.role] > 0.0);
            let price = match (alike, beside && self.fetch.last > 0.0) {
                (true, _) => self.fetch.second,
                (_, true) => entry.price * (1.0 - self.fetch.pair),
                _ => entry.price,
            };
            costs[entry.role] += times * price;
        }
        costs
    }

    fn mean(&self, times: &[f64]) -> f64 {
        let shares: f64 = self.roles.iter().map(|role| role.share).sum();
        let sum: f64 = self.roles.iter().zip(times).map(|(role, time)| role.share * time).sum();
        sum / shares.max(f64::MIN_POSITIVE)
    }
}

/// Returns the mean time of a modified line between two of `cpus` CPUs, in nanoseconds.
fn transfer(settings: &Settings, cpus: usize) -> f64 {
    let topology = &settings.topology;
    let cpus = cpus.min(topology.cpus());
    // CPUs are alike, so a sample of them is enough.
    let some = cpus.div_ceil(8).max(1);
    let (mut sum, mut pairs) = (0.0, 0.0);
    for one in (0..cpus).step_by(some) {
        for other in (0..cpus).filter(|&other| other != one) {
            let distance = topology.distance(one, other);
            sum += settings.transfer(distance, true, 0, topology.socket(other)) as f64 / 1000.0;
            pairs += 1.0;
        }
    }
    if pairs > 0.0 { sum / pairs } else { 0.0 }
}
