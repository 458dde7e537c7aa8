//! Makes a machine file of figures. It says where each figure of the model comes from, and what is not known here.

use super::modes::Mode;
use super::probe::Found;
use super::rounds::Pair;
use super::spread::Spread;
use super::topology::Places;
use ledgerline_coherence::machine::{Distance, Figure, Latencies, Machine, Nuisance, Range};

/// A load from the second cache and from memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caches {
    pub(super) second: Option<Spread>,
    pub(super) memory: Option<Spread>,
}

/// A mode's machine, and what it does not say, one line each.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) machine: Machine,
    /// The mode of the first pair, by ping-pong.
    pub(super) mode: Mode,
    pub(super) refusals: Vec<String>,
}

/// What is described: the parts that all modes share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) model: &'a str,
    pub(super) date: &'a str,
    pub(super) places: &'a Places,
    pub(super) pairs: &'a [Pair],
    pub(super) caches: Caches,
}

impl Subject<'_> {
    /// The machine as it was in `mode` of the first pair. Other pairs count in their own most frequent mode.
    ///
    /// # Errors
    /// No undisturbed visit of the mode gave one of the figures.
    pub(super) fn in_mode(&self, mode: &Mode) -> Result<Described, String> {
        let mut refusals = Vec::new();
        let mut refuse = |why: &str| refusals.push(why.to_owned());
        let first = &self.pairs[0];
        let visits = first.during(mode).count();
        let measured =
            |how: &str| format!("measured by ledgerline calibrate, {}: {how}", self.date);
        let get = |figure: &dyn Fn(&Found) -> f64, name: &str| {
            first.figure(mode, figure).ok_or_else(|| {
                format!("{name} could not be measured: every try was disturbed; try again on a quieter machine")
            })
        };
        let rounds = format!("median of {visits} rounds");
        let figure =
            |spread: Spread, how: &str| bounded(spread, measured(&format!("{how}; {rounds}")));

        let cycle = get(&|found| found.cycle, "the clock")?;
        let clock =
            Spread { value: 1.0 / cycle.value, low: 1.0 / cycle.high, high: 1.0 / cycle.low };
        let load = get(&|found| found.load, "the first cache")?;
        let atomic = get(&|found| found.atomic, "atomics")?;
        let atomic = atomic.at_least(0.01);
        // Lines that were changed a moment ago come later than those of a walk over many.
        // (Where the machine changed in the middle of a fight, its operations take no longer than their work.)
        let transfer_of = |found: &Found| match found.stores.fetch - found.cycle {
            way if way > 0.0 => way,
            _ => f64::NAN,
        };
        // (Of a round that was disturbed either may be no number.)
        let moved_of = |found: &Found| match found.fights.fetch - found.stores.fetch {
            way if way < found.atomic => found.atomic,
            way => way,
        };
        let modified = get(&transfer_of, "a transfer")?;
        let moved = get(&moved_of, "atomics on lines of another CPU")?;
        let ping = get(&|found| f64::midpoint(found.before, found.after), "a transfer")?;
        let of_changed =
            "loads of a line that the other CPU has just changed, each needing the one before";

        // What is left of a visit's cycle when the line can no longer be used says how long it is on its way, and so
        // how long requests are. So does a race, which differs more from round to round: it widens the range.
        get(&|found| found.stores.cycle, "the stay of a contended line")?;
        let way_of = |found: &Found| found.stores.cycle - found.stores.usable - found.cycle;
        let fought = |found: &Found| (1.0 - way_of(found) / transfer_of(found)).clamp(0.0, 0.95);
        let raced = |found: &Found| (found.request / transfer_of(found)).clamp(0.0, 0.95);
        let request = get(&fought, "how long requests are on their way")?;
        let raced = get(&raced, "how long requests are on their way")?;
        let request = Spread {
            low: request.low.min(raced.value),
            high: request.high.max(raced.value),
            ..request
        };
        let on_its_way =
            Spread { value: 1.0 - request.value, low: 1.0 - request.high, high: 1.0 - request.low };
        // What is left of a visit to a contended line beyond its way there is its stay.
        let way = |found: &Found| on_its_way.value * transfer_of(found);
        let stay = get(
            &|found| {
                let cycle = f64::midpoint(found.fights.cycle - found.atomic, found.stores.cycle);
                (cycle - way(found)).clamp(0.0, f64::INFINITY)
            },
            "the stay of a contended line",
        )?;
        // Atomics can use less of a visit than loads.
        let closing = get(
            &|found| {
                let all = found.fights.cycle - way(found) - moved_of(found) - found.cycle;
                (all - found.fights.usable).clamp(0.0, f64::INFINITY)
            },
            "for how long atomics need their line",
        )?;
        let beside = get(
            &|found| {
                let most = (found.same - found.apart).clamp(f64::MIN_POSITIVE, f64::INFINITY);
                ((found.neighbour - found.apart) / most).clamp(0.0, 1.0)
            },
            "neighbouring lines",
        )?;
        let returned = get(
            &|found| belief((found.returned - found.load) / (found.modified - found.load)),
            "migration",
        )?;

        let spread = get(&|found| found.stores.spread, "how much stays differ")?;
        let early = get(&|found| belief(found.early), "atomics behind stores")?;

        // Where lines migrate, it is known which CPU has a clean line. Elsewhere the shared line tells.
        let migrates = returned.value > 0.5;
        let clean = |found: &Found| if migrates { found.returned } else { found.upgrade };
        let of_clean = if migrates {
            "loads of lines that the other CPU has read since they were changed"
        } else {
            "atomics on lines that both CPUs have, less those on lines of the CPU's own"
        };
        let unchanged = get(&clean, "a line that nobody has changed")?;

        let by_distance = |distance: Distance, changed: bool| {
            let pair = self.pairs.iter().find(|pair| pair.distance == distance)?;
            let mode = if pair.cpus == first.cpus { *mode } else { *pair.modes().first()? };
            let spread = pair
                .figure(&mode, |found| if changed { transfer_of(found) } else { clean(found) })?;
            let how = if changed { of_changed } else { of_clean };
            let [one, other] = pair.cpus;
            Some(bounded(spread, measured(&format!("CPUs {one} and {other}, {how}"))))
        };
        let (changed, shared) = (figure(modified, of_changed), figure(unchanged, of_clean));
        // Where the topology lacks a distance, the nearest that was measured stands in, and is not written.
        let at = |distance: Distance, dirty: bool| {
            by_distance(distance, dirty)
                .unwrap_or_else(|| if dirty { changed.clone() } else { shared.clone() })
        };
        let topology = &self.places.topology;
        let inferred = |value: f64, why: &str| Figure {
            value,
            low: None,
            high: None,
            source: format!("inferred: {why}"),
        };
        let second_cache = match self.caches.second {
            Some(spread) => {
                bounded(spread, measured("loads over 512 KiB, each needing the one before"))
            }
            None => {
                refuse("second_cache: every try was disturbed; inferred from the first cache");
                inferred(
                    (3500.0 * load.value).round() / 1000.0,
                    "14 cycles where the first cache takes 4; every try was disturbed",
                )
            }
        };
        let memory_local = match self.caches.memory {
            Some(spread) => bounded(
                spread,
                measured("loads over 256 MiB, each needing the one before, page walks included"),
            ),
            None => {
                refuse(
                    "memory_local: not measured (--quick, or too little memory); a common value is inferred",
                );
                inferred(110.0, "100 to 120 ns on servers of the 2020s; not measured")
            }
        };
        let memory_remote = if topology.sockets > 1 {
            refuse(
                "memory_remote: not measured, since memory is not bound to a socket here; inferred from the transfer between sockets",
            );
            let crossing = (at(Distance::Remote, true).value - modified.value).max(0.0);
            inferred(
                memory_local.value + crossing,
                "local memory and a crossing of sockets; not measured",
            )
        } else {
            memory_local.clone()
        };
        if topology.sockets == 1 {
            refuse("other sockets: none to be seen, so the file says nothing of them");
        }
        refuse(
            "an atomic on a line that several have: measured (see the table), and no figure of the model",
        );
        if topology.threads_per_core == 1 {
            refuse("sibling threads: none to be seen, so the file says nothing of them");
        }
        if self.places.source.contains("hypervisor") {
            refuse(
                "topology: what a hypervisor shows; transfers, not /sys, say how far CPUs are apart",
            );
        }
        refuse("read_service_ns: takes three CPUs or more to measure; inferred");
        refuse("upgrade_keep, overlap, store_buffer, window_ns: not measured; inferred");
        if beside.high - beside.low > 0.5 {
            refuse(
                "pair: too noisy to tell whether neighbouring lines are fetched; its range is wide",
            );
        }

        let latency = Latencies {
            first_cache: figure(
                load,
                "loads of a line of the CPU's own, each needing the one before",
            ),
            second_cache,
            sibling: at(Distance::Sibling, true),
            near_clean: at(Distance::Near, false),
            near_modified: at(Distance::Near, true),
            socket_clean: at(Distance::Socket, false),
            socket_modified: at(Distance::Socket, true),
            remote_homed_at_owner: at(Distance::Remote, true),
            remote_homed_at_reader: at(Distance::Remote, true),
            far: at(Distance::Remote, true),
            memory_local,
            memory_remote,
            atomic: figure(atomic, "atomics on a line of the CPU's own, less loads"),
            atomic_moved: figure(
                moved.at_least(atomic.value),
                "atomics on a line that the other CPU has just changed, less loads of such a line",
            ),
        };
        let scale = 1.0 / modified.value;
        let transfer = modified.value;
        let nuisance = Nuisance {
            handover: range(on_its_way, measured("the rest of a transfer, when the request has arrived: the line is on its way")),
            latency_scale: range(
                Spread { value: 1.0, low: (modified.low * scale).min(1.0), high: (modified.high * scale).max(1.0) },
                measured("how much transfers of this mode differed from round to round"),
            ),
            read_service_ns: range(
                Spread { value: 0.18 * transfer, low: 0.07 * transfer, high: 0.43 * transfer },
                "inferred: as on other machines, in proportion to a transfer; takes three CPUs to measure"
                    .to_owned(),
            ),
            keep_ns: range(stay, measured("from one visit of a contended line to the next, less the line's way")),
            pair: range(beside, measured("what an atomic on a neighbouring line costs, from 0, as on a line apart, to 1, as on the same line")),
            overlap: guessed([0.0, 0.3, 0.6], "out-of-order windows hide tens of nanoseconds where the program has other work; not measured"),
            store_buffer: guessed([42.0, 64.0, 72.0], "42 to 72 entries in vendors' optimisation manuals; not measured"),
            request: range(request, measured("between how long before a store a load may be sent and see it all the same, and what visits to a contended line leave, as shares of a transfer")),
            migratory: range(returned, measured("whether a CPU that changed a line still has it after another has read it")),
            keep_spread: range(spread, measured("how gradually work between contended loads ends their visits of more than one")),
            upgrade_keep: guessed([0.0, 0.0, 1.0], "how long work must be for a ticket lock to go in turns on AMD EPYC (Zen 4), as the README of ledgerline-coherence tells; not measured"),
            closing_ns: range(closing, measured("by how much less of a visit contended atomics can use than loads")),
            window_ns: guessed([0.0, 40.0, 80.0], "windows of 200 to 512 instructions, of which work that waits for itself does five a nanosecond or so; not measured"),
            early_request: range(early, measured("whether an atomic takes longer when a store to another line, which the other CPU had changed as well, comes before it")),
        };
        let cpus = topology.cpus();
        let machine = Machine {
            name: format!("{}, {cpus} CPUs, transfers of {:.0} ns", self.model, ping.value),
            clock_ghz: bounded(clock, measured("a chain of additions, one a cycle")),
            topology: *topology,
            topology_source: self.places.source.clone(),
            latency,
            nuisance,
        };
        Ok(Described { machine, mode: *mode, refusals })
    }
}

/// One if a share is more than a half, and zero if it is less. What was not measured stays not a number.
fn belief(share: f64) -> f64 {
    if share.is_nan() { share } else { f64::from(share > 0.5) }
}

/// A figure within its spread, to a thousandth.
fn bounded(spread: Spread, source: String) -> Figure {
    let Spread { value, low, high } = rounded(spread);
    Figure { value, low: Some(low), high: Some(high), source }
}

fn range(spread: Spread, source: String) -> Range {
    let Spread { value, low, high } = rounded(spread);
    Range { low, best: value, high, source }
}

/// A range that was not measured.
fn guessed([low, best, high]: [f64; 3], why: &str) -> Range {
    Range { low, best, high, source: format!("inferred: {why}") }
}

fn rounded(Spread { value, low, high }: Spread) -> Spread {
    let round = |number: f64| (number * 1000.0).round() / 1000.0;
    let value = round(value);
    Spread { value, low: round(low).min(value), high: round(high).max(value) }
}

#[cfg(test)]
mod tests;
