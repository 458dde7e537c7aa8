//! Makes a machine file of figures, with the source of each figure of the model, and the unknown ones.

use super::fights;
use super::fit::{Fitted, Known, fit};
use super::modes::Mode;
use super::probe::Found;
use super::rounds::Pair;
use super::spread::Spread;
use super::topology::{Places, flat};
use ledgerline_coherence::machine::{
    Distance, Figure, Latencies, Machine, Nuisance, Range, Settings,
};

/// A load from the second cache and from memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caches {
    pub(super) second: Option<Spread>,
    pub(super) memory: Option<Spread>,
}

/// A mode's machine, and one line for each figure that was not measured.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) machine: Machine,
    /// The mode of the first pair, by ping-pong.
    pub(super) mode: Mode,
    pub(super) fitted: Fitted,
    pub(super) refusals: Vec<String>,
}

/// The subject of a description: the parts that all modes share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) model: &'a str,
    pub(super) date: &'a str,
    pub(super) places: &'a Places,
    pub(super) pairs: &'a [Pair],
    pub(super) caches: Caches,
}

impl Subject<'_> {
    /// Returns the machine as it was in `mode` of the first pair. Other pairs count in their own most frequent mode.
    ///
    /// # Errors
    /// If no undisturbed visit of the mode gave one of the figures.
    pub(super) fn in_mode(&self, mode: &Mode) -> Result<Described, String> {
        let mut refusals = Vec::new();
        let mut refuse = |why: &str| refusals.push(why.to_owned());
        let first = &self.pairs[0];
        let rounds = first.during(mode).count();
        let disturbed = |name: &str| {
            format!(
                "{name} could not be measured: every try was disturbed; try again on a quieter machine"
            )
        };
        let measured =
            |how: &str| format!("measured by ledgerline calibrate, {}: {how}", self.date);
        let get = |figure: &dyn Fn(&Found) -> f64, name: &str| {
            first.figure(mode, figure).ok_or_else(|| disturbed(name))
        };
        let rounds = format!("median of {rounds} rounds");
        let figure =
            |spread: Spread, how: &str| bounded(spread, measured(&format!("{how}; {rounds}")));

        let cycle = get(&|found| found.cycle, "the clock")?;
        let clock =
            Spread { value: 1.0 / cycle.value, low: 1.0 / cycle.high, high: 1.0 / cycle.low };
        let load = get(&|found| found.load, "the first cache")?;
        let atomic = get(&|found| found.atomic, "atomics")?;
        let atomic = atomic.at_least(0.01);
        let modified = get(&|found| found.modified, "a transfer")?;
        // In a disturbed round it may not be a number.
        let moved_of = |found: &Found| match found.moved {
            less if less < found.atomic => found.atomic,
            moved => moved,
        };
        let moved = get(&moved_of, "atomics on lines of another CPU")?;
        let ping = get(&|found| f64::midpoint(found.before, found.after), "a transfer")?;
        let multiplication = get(&|found| found.multiplication / found.cycle, "the clock")?.value;

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

        let early = get(&|found| belief(found.early), "atomics behind stores")?;

        // If lines migrate, the CPU that has a clean line is known. Otherwise the shared line decides.
        let clean =
            |found: &Found| if returned.value > 0.5 { found.returned } else { found.upgrade };
        let of_clean = if returned.value > 0.5 {
            "loads of lines that the other CPU has read since they were changed"
        } else {
            "atomics on lines that both CPUs have, less those on lines of the CPU's own"
        };
        // An atomic whose transfer overlaps with the next one's seems to take no time.
        let unchanged = get(&clean, "a line that no CPU has changed")?.at_least(load.value);
        let ahead_of = |found: &Found| (1.0 - found.value / found.atomic).clamp(0.0, 1.0);
        let ahead = get(&ahead_of, "atomics with work behind them")?;

        // Figures that cannot be measured separately are fitted to the times of fights.
        let settings = Settings {
            // Two CPUs that fight.
            topology: flat(2),
            cycle: (cycle.value * 1000.0).round() as u64,
            clock_ghz: clock.value,
            first_cache: ps(load.value),
            second_cache: ps(load.value),
            transfer: [[ps(unchanged.value), ps(modified.value)]; 5],
            homed_at_reader: ps(modified.value),
            memory: [ps(modified.value); 2],
            atomic: ps(atomic.value),
            ahead: ps(ahead.value * atomic.value),
            moved: ps(moved.value - atomic.value),
            migratory: returned.value > 0.5,
            early_request: early.value > 0.5,
            store_buffer: STORE_BUFFER[1] as u32,
            // Fights have no neighbours, no third CPU that reads, and no work beside accesses.
            read_service: 0,
            pair: 0.0,
            overlap: 0.0,
            upgrade_keep: 0.0,
            window: 0,
            lead: 0,
            flush: 0,
            // These are fitted.
            handover: 0.0,
            request: 0.0,
            keep: 0,
            keep_spread: 0.0,
            closing: 0,
            behind: 0,
        };
        let known =
            Known { settings: &settings, modified: 1000.0 * modified.value, multiplication };
        let took: Vec<f64> = (0..fights::all().count())
            .map(|at| first.figure(mode, |found| found.fights[at]).map_or(f64::NAN, |of| of.value))
            .collect();
        let fitted = fit(&known, &took).ok_or_else(|| disturbed("fights for a line"))?;
        let shares = &fitted.shares;
        let found = |how: &str| {
            format!(
                "fitted by ledgerline calibrate, {}: {how}; with it and what else is fitted the model takes what fights for a line took, \
                 half of them within {:.0} %",
                self.date,
                100.0 * fitted.median_off
            )
        };

        // Each distance uses its own transfers; the fitted figures are in proportion to them.
        let of_changed =
            "loads of a line that the other CPU has just changed, each needing the one before";
        let changed = |of: Spread| bounded(shares.modified.times(of.value), found(of_changed));
        let by_distance = |distance: Distance, dirty: bool| {
            let pair = self.pairs.iter().find(|pair| pair.distance == distance)?;
            let mode = if pair.cpus == first.cpus { *mode } else { *pair.modes().first()? };
            let [one, other] = pair.cpus;
            if dirty {
                let mut figure = changed(pair.figure(&mode, |found| found.modified)?);
                figure.source = format!("{}; CPUs {one} and {other}", figure.source);
                Some(figure)
            } else {
                let how = format!("CPUs {one} and {other}, {of_clean}");
                Some(bounded(pair.figure(&mode, clean)?.at_least(load.value), measured(&how)))
            }
        };
        // If the topology lacks a distance, the nearest that was measured stands in, and is not written.
        let at = |distance: Distance, dirty: bool| {
            by_distance(distance, dirty).unwrap_or_else(|| {
                if dirty { changed(modified) } else { bounded(unchanged, measured(of_clean)) }
            })
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
            let crossing = (at(Distance::Remote, true).value - changed(modified).value).max(0.0);
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
        refuse(
            "upgrade_keep, overlap, store_buffer, window_ns, lead_ns, flush_ns: not measured; inferred",
        );
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
            handover: range(shares.request.rest(), found("the rest of a transfer, when the request has arrived: the line is on its way")),
            latency_scale: range(
                Spread { value: 1.0, low: (modified.low * scale).min(1.0), high: (modified.high * scale).max(1.0) },
                measured("how much transfers of this mode differed from round to round"),
            ),
            read_service_ns: range(
                Spread { value: 0.18 * transfer, low: 0.07 * transfer, high: 0.43 * transfer },
                "inferred: as on other machines, in proportion to a transfer; takes three CPUs to measure"
                    .to_owned(),
            ),
            keep_ns: range(shares.keep.times(transfer), found("how long a contended line stays at least")),
            pair: range(beside, measured("what an atomic on a neighbouring line costs, from 0, as on a line apart, to 1, as on the same line")),
            overlap: guessed([0.0, 0.3, 0.6], "out-of-order windows hide tens of nanoseconds where the program has other work; not measured"),
            store_buffer: guessed(STORE_BUFFER, "42 to 72 entries in vendors' optimisation manuals; not measured"),
            request: range(shares.request, found("the part of a transfer that the request takes")),
            migratory: range(returned, measured("whether a CPU that changed a line still has it after another has read it")),
            keep_spread: range(shares.spread, found("by how much stays differ")),
            upgrade_keep: guessed([0.0, 0.0, 1.0], "how long work must be for a ticket lock to go in turns on AMD EPYC (Zen 4), as the README of ledgerline-coherence tells; not measured"),
            closing_ns: range(shares.closing.times(transfer), found("for how long before it goes a line serves no atomic")),
            window_ns: guessed([0.0, 20.0, 80.0], "windows of 200 to 512 instructions, of which work that waits for itself does five a nanosecond or so; programs need soon what they access, or later; not measured"),
            lead_ns: guessed([40.0, 80.0, 80.0], "as far as windows reach; most programs know long before where what they share lies; not measured"),
            flush_ns: guessed([0.0, 5.0, 9.0], "20 to 30 cycles to fill the pipeline anew, or nothing where it was empty; not measured"),
            behind_ns: range(shares.behind.times(transfer), found("until when an atomic that fetched its line may lose what is loaded behind it")),
            atomic_ahead: range(ahead, measured("what of an atomic goes on beside work that follows it and needs its value")),
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
        Ok(Described { machine, mode: *mode, fitted, refusals })
    }
}

/// Entries of store buffers: the fewest, a typical number and the most.
const STORE_BUFFER: [f64; 3] = [42.0, 64.0, 72.0];

fn ps(nanoseconds: f64) -> u64 {
    (1000.0 * nanoseconds).round() as u64
}

/// Returns one for a share of more than a half, and zero for less. An unmeasured share stays not a number.
fn belief(share: f64) -> f64 {
    if share.is_nan() { share } else { f64::from(share > 0.5) }
}

/// Returns a figure within its spread, to a thousandth.
fn bounded(spread: Spread, source: String) -> Figure {
    let Spread { value, low, high } = rounded(spread);
    Figure { value, low: Some(low), high: Some(high), source }
}

fn range(spread: Spread, source: String) -> Range {
    let Spread { value, low, high } = rounded(spread);
    Range { low, best: value, high, source }
}

/// Returns a range that was not measured.
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
