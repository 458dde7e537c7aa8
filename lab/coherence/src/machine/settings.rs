//! Settings: one choice out of a machine's ranges, in the simulator's units.

use super::{Distance, Machine, Range, Topology};

/// The input of a simulation: a machine with one value chosen from every range. Times are picoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The sockets, complexes and cores that the CPUs belong to.
    pub topology: Topology,
    /// The length of a cycle.
    pub cycle: u64,
    /// Billions of cycles a second, exactly.
    pub clock_ghz: f64,
    /// A dependent load that hits the first cache.
    pub first_cache: u64,
    /// A dependent load that hits the second cache.
    pub second_cache: u64,
    /// Clean and modified transfers by [`Distance`]; the remote ones are for a line homed at its owner.
    pub transfer: [[u64; 2]; 5],
    /// A transfer between sockets whose line is homed at the reader.
    pub homed_at_reader: u64,
    /// A load from memory of the CPU's own socket, and of another.
    pub memory: [u64; 2],
    /// The time of an atomic beyond that of a load.
    pub atomic: u64,
    /// The time beyond `atomic` if the line comes from another core.
    pub moved: u64,
    /// See [`super::Nuisance::handover`].
    pub handover: f64,
    /// See [`super::Nuisance::read_service_ns`].
    pub read_service: u64,
    /// See [`super::Nuisance::keep_ns`].
    pub keep: u64,
    /// See [`super::Nuisance::pair`].
    pub pair: f64,
    /// See [`super::Nuisance::overlap`].
    pub overlap: f64,
    /// See [`super::Nuisance::store_buffer`].
    pub store_buffer: u32,
    /// See [`super::Nuisance::request`].
    pub request: f64,
    /// See [`super::Nuisance::migratory`].
    pub migratory: bool,
    /// See [`super::Nuisance::keep_spread`].
    pub keep_spread: f64,
    /// See [`super::Nuisance::upgrade_keep`].
    pub upgrade_keep: f64,
    /// See [`super::Nuisance::early_request`].
    pub early_request: bool,
    /// See [`super::Nuisance::closing_ns`].
    pub closing: u64,
    /// See [`super::Nuisance::behind_ns`].
    pub behind: u64,
    /// The part of an atomic hit that its CPU does not wait for; see [`super::Nuisance::atomic_ahead`].
    pub ahead: u64,
    /// See [`super::Nuisance::window_ns`].
    pub window: u64,
    /// See [`super::Nuisance::lead_ns`].
    pub lead: u64,
    /// See [`super::Nuisance::flush_ns`].
    pub flush: u64,
}

impl Settings {
    /// Chooses from each range by its dimension. A range's dimension in a design stays the same when other ranges are
    /// added.
    pub(super) fn of(machine: &Machine, choose: impl Fn(usize, &Range) -> f64) -> Settings {
        let (latency, nuisance) = (&machine.latency, &machine.nuisance);
        let time = |dimension, range| picoseconds(choose(dimension, range));
        let scale = choose(6, &nuisance.latency_scale);
        let scaled = |nanoseconds: f64| picoseconds(nanoseconds * scale);
        let remote = latency.remote_homed_at_owner.value;
        let transfer = [
            [latency.sibling.value, latency.sibling.value],
            [latency.near_clean.value, latency.near_modified.value],
            [latency.socket_clean.value, latency.socket_modified.value],
            [remote, remote],
            [latency.far.value, latency.far.value],
        ];
        Settings {
            topology: machine.topology,
            cycle: (1000.0 / machine.clock_ghz.value).round() as u64,
            clock_ghz: machine.clock_ghz.value,
            first_cache: picoseconds(latency.first_cache.value),
            second_cache: picoseconds(latency.second_cache.value),
            transfer: transfer.map(|states| states.map(scaled)),
            homed_at_reader: scaled(latency.remote_homed_at_reader.value),
            memory: [scaled(latency.memory_local.value), scaled(latency.memory_remote.value)],
            atomic: picoseconds(latency.atomic.value),
            moved: picoseconds(latency.atomic_moved.value - latency.atomic.value),
            handover: choose(0, &nuisance.handover),
            read_service: time(1, &nuisance.read_service_ns),
            keep: time(2, &nuisance.keep_ns),
            pair: choose(3, &nuisance.pair),
            overlap: choose(4, &nuisance.overlap),
            store_buffer: choose(5, &nuisance.store_buffer).round() as u32,
            request: choose(7, &nuisance.request),
            migratory: choose(8, &nuisance.migratory) >= 0.5,
            keep_spread: choose(9, &nuisance.keep_spread),
            upgrade_keep: choose(10, &nuisance.upgrade_keep),
            early_request: choose(11, &nuisance.early_request) >= 0.5,
            closing: time(12, &nuisance.closing_ns),
            window: time(13, &nuisance.window_ns),
            behind: time(14, &nuisance.behind_ns),
            ahead: picoseconds(choose(15, &nuisance.atomic_ahead) * latency.atomic.value),
            lead: time(16, &nuisance.lead_ns),
            flush: time(17, &nuisance.flush_ns),
        }
    }

    /// Returns how long a line takes from a CPU at a distance to a CPU of socket `reader`; its memory is on socket
    /// `home`.
    #[must_use]
    pub fn transfer(&self, distance: Distance, modified: bool, home: usize, reader: usize) -> u64 {
        if distance == Distance::Remote && home == reader {
            self.homed_at_reader
        } else {
            self.transfer[distance as usize][usize::from(modified)]
        }
    }

    /// Returns the time beyond a load that a CPU waits for an atomic hit.
    #[must_use]
    pub fn waits_for_atomic(&self) -> u64 {
        self.atomic.saturating_sub(self.ahead)
    }

    /// Returns the part of a transfer's latency during which its line serves no other CPU.
    #[must_use]
    pub fn occupied(&self, latency: u64) -> u64 {
        (latency as f64 * self.handover).round() as u64
    }

    /// Returns the part of a transfer's latency that the request takes to reach the line.
    #[must_use]
    pub fn requested(&self, latency: u64) -> u64 {
        (latency as f64 * self.request).round() as u64
    }

    /// Converts cycles of this clock into picoseconds.
    #[must_use]
    pub fn cycles(&self, cycles: f64) -> u64 {
        (cycles * 1000.0 / self.clock_ghz).round() as u64
    }

    /// Converts picoseconds into cycles of this clock.
    #[must_use]
    pub fn in_cycles(&self, picoseconds: f64) -> f64 {
        picoseconds * self.clock_ghz / 1000.0
    }
}

fn picoseconds(nanoseconds: f64) -> u64 {
    (nanoseconds * 1000.0).round() as u64
}
