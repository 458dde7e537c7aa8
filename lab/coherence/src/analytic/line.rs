//! A contended line as a server: how often CPUs miss it, and how long it serves each.

use super::visits::{Visit, Visited};
use super::{Station, ns};
use crate::machine::Distance;
use crate::simulate::Setup;

/// A latency with the part of it during which the line serves no other CPU, and the square of that part for its
/// variance.
#[derive(Clone, Copy, Debug, Default)]
struct Price {
    latency: f64,
    service: f64,
    square: f64,
}

impl Price {
    fn of(latency: f64, service: f64) -> Price {
        Price { latency, service, square: service * service }
    }

    /// Returns the average of this price, weighted by `share`, and another.
    fn or(self, share: f64, other: Price) -> Price {
        let mix = |one: f64, other: f64| share * one + (1.0 - share) * other;
        Price {
            latency: mix(self.latency, other.latency),
            service: mix(self.service, other.service),
            square: mix(self.square, other.square),
        }
    }
}

/// A line that several CPUs visit, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Line {
    visits: Vec<Visit>,
    /// The number of CPUs that visit it; next, their share of all CPUs.
    cpus: f64,
    pub share: f64,
    first_cache: f64,
    sibling: f64,
    /// The chance that the other thread of a CPU's core reads the line again before the CPU does.
    sibling_first: f64,
    /// The price of an atomic on a line that another CPU wrote; next, on one that many have read.
    written: Price,
    shared: Price,
    /// The price of a load of a line that another CPU wrote; next, of one that readers have, far and near.
    fresh: Price,
    across: Price,
    near: Price,
    /// How many loads come from other sockets after each write, beyond the first.
    crossings: f64,
}

impl Line {
    /// Takes averages over all pairs of CPUs between which the line may move.
    pub(super) fn new(setup: &Setup, visited: &Visited) -> Line {
        let settings = &setup.settings;
        let topology = &settings.topology;
        let (home, cpus) = (visited.home, &visited.cpus);
        let moved = ns(settings.moved);
        let stay = ns(settings.keep + settings.atomic);
        let (mut written, mut fresh) = (Price::default(), Price::default());
        let (mut same_socket, mut siblings, mut far, mut near) = (0.0, 0.0, 0.0_f64, 0.0_f64);
        let pairs = (cpus.len() * (cpus.len() - 1)) as f64;
        for &reader in cpus {
            for &owner in cpus.iter().filter(|&&owner| owner != reader) {
                let distance = topology.distance(owner, reader);
                let socket = topology.socket(reader);
                let transfer = |modified| settings.transfer(distance, modified, home, socket);
                let (changed, clean) = (ns(transfer(true)), ns(transfer(false)));
                let occupied = ns(settings.occupied(transfer(true)));
                let (atomic, load) = match distance {
                    Distance::Sibling => (0.0, 0.0),
                    _ => (occupied + stay, occupied),
                };
                let add = |price: &mut Price, busy: f64| {
                    price.latency += changed / pairs;
                    price.service += busy / pairs;
                    price.square += busy * busy / pairs;
                };
                add(&mut written, atomic);
                if distance != Distance::Sibling {
                    written.latency += moved / pairs;
                }
                add(&mut fresh, load);
                if topology.socket(owner) == socket {
                    same_socket += 1.0 / pairs;
                }
                match distance {
                    Distance::Sibling => siblings += 1.0 / cpus.len() as f64,
                    Distance::Near | Distance::Socket => near = near.max(clean),
                    Distance::Remote | Distance::Far => far = far.max(clean),
                }
            }
        }
        let mut sockets: Vec<usize> = cpus.iter().map(|&cpu| topology.socket(cpu)).collect();
        sockets.sort_unstable();
        sockets.dedup();
        let farthest = far.max(near);
        let read = ns(settings.read_service);
        Line {
            visits: visited.visits.clone(),
            cpus: cpus.len() as f64,
            share: cpus.len() as f64 / setup.cpus.len() as f64,
            first_cache: ns(settings.first_cache),
            sibling: ns(settings.transfer[0][0]),
            sibling_first: siblings / (1.0 + siblings),
            written,
            shared: Price::of(farthest + moved, settings.handover * farthest + stay),
            fresh,
            across: Price::of(farthest, read),
            near: Price::of(if near > 0.0 { near } else { farthest }, read),
            crossings: sockets.len() as f64 - 2.0 + same_socket,
        }
    }

    /// Returns whether CPUs also load from the line.
    pub(super) fn is_read(&self) -> bool {
        self.visits.iter().any(|visit| !visit.writes)
    }

    /// Returns the line as a server for operations that take `cycle` nanoseconds, `stretch` times the length of what
    /// they compute. Also returns the CPU's wait in an operation beyond the service and beyond the cost of hits.
    pub(super) fn station(&self, stretch: f64, cycle: f64, busy: f64) -> (Station, f64) {
        let atomics: f64 = self.visits.iter().map(Visit::atomics).sum();
        let others = (self.cpus - 1.0) * atomics / cycle;
        let (mut loads, mut spread) = (0.0, 0.0);
        for (index, visit) in self.visits.iter().enumerate().filter(|(_, visit)| !visit.writes) {
            let (taken, gap) = self.taken(index, visit, stretch, cycle, others);
            loads += visit.share * taken;
            spread += visit.share * gap * gap / cycle;
        }
        // The other thread of the CPU's core may have brought the line already.
        let from_sibling = loads * self.sibling_first;
        let fetched = loads - from_sibling;
        // A writer still owns the line if no other CPU came since its last write. That takes an idle line: a busy one
        // goes to a CPU that waits.
        let came = (self.cpus - 1.0) * (atomics + loads);
        let kept = atomics * (1.0 - busy) * atomics / (atomics + came);
        let missed = atomics - kept;
        // The number of loads that a write causes, and the chance that none came before the next write.
        let burst = fetched / atomics;
        let alone = 1.0 / (1.0 + burst * (self.cpus - 1.0) / self.cpus);
        let atomic = self.written.or(alone, self.shared);
        let first = (1.0 / burst.max(1.0)).min(1.0);
        let crossing = ((1.0 - first) * self.crossings / (burst - 1.0).max(1.0)).min(1.0 - first);
        let rest = 1.0 - first;
        let again = self.across.or(if rest > 0.0 { crossing / rest } else { 0.0 }, self.near);
        let load = self.fresh.or(first, again);
        let all = missed + fetched;
        let price = atomic.or(if all > 0.0 { missed / all } else { 1.0 }, load);
        let variation = if price.service > 0.0 {
            (price.square / (price.service * price.service) - 1.0).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let beside = all * (price.latency - price.service - self.first_cache)
            + from_sibling * (self.sibling - self.first_cache)
            + fetched * (self.crowd(burst, spread) - busy * price.service / 2.0).max(0.0);
        let station = Station { visits: all, service: price.service, variation };
        (station, beside)
    }

    /// Returns how long one of `burst` readers waits for the others, which come at random within `spread` nanoseconds
    /// of a write. If the time is too short to serve them all, the wait is the length of the queue; otherwise it is
    /// the queueing by chance.
    fn crowd(&self, burst: f64, spread: f64) -> f64 {
        let service = self.near.service;
        let short = burst * service - spread;
        (short + (short * short + 4.0 * burst * service * service).sqrt()) / 4.0
    }

    /// Returns the chance that another CPU has written since this CPU's previous visit, if writes come at random, and
    /// how long ago that visit was.
    fn taken(
        &self,
        index: usize,
        visit: &Visit,
        stretch: f64,
        cycle: f64,
        writes: f64,
    ) -> (f64, f64) {
        let before = self.visits[..index].iter().rev().map(|last| (last, 0.0));
        let wrapped = self.visits.iter().rev().map(|last| (last, cycle));
        let (mut still, mut taken, mut ago) = (1.0, 0.0, 0.0);
        for (last, wraps) in before.chain(wrapped) {
            let gap = (visit.at - last.at) * stretch + wraps;
            taken += still * last.share * (1.0 - (-writes * gap).exp());
            ago += still * last.share * gap;
            still *= 1.0 - last.share;
        }
        // The visit was longer ago than one operation, so it was at least two operations ago.
        (taken + still * (1.0 - (-writes * 2.0 * cycle).exp()), ago + still * 2.0 * cycle)
    }
}
