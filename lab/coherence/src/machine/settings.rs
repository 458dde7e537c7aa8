//! Settings: one choice out of a machine's ranges, in the simulator's units.

use super::{Distance, Machine, Range, Topology};

/// What a simulation runs on: a machine with one value chosen from every range. Times are picoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Which sockets, complexes and cores the CPUs belong to.
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
    /// How much longer an atomic takes than a load.
    pub atomic: u64,
    /// How much longer still where the line comes from another core.
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
    /// What of an atomic that finds its line there its CPU does not wait for; see [`super::Nuisance::atomic_ahead`].
    pub ahead: u64,
    /// See [`super::Nuisance::window_ns`].
    pub window: u64,
    /// See [`super::Nuisance::lead_ns`].
    pub lead: u64,
    /// See [`super::Nuisance::flush_ns`].
    pub flush: u64,
}

impl Settings {
    pub(super) fn of(machine: &Machine, mut choose: impl FnMut(&Range) -> f64) -> Settings {
        let (latency, nuisance) = (&machine.latency, &machine.nuisance);
        // The order is that of the file, so that each range keeps its own dimension of a design.
        let handover = choose(&nuisance.handover);
        let read_service = picoseconds(choose(&nuisance.read_service_ns));
        let keep = picoseconds(choose(&nuisance.keep_ns));
        let pair = choose(&nuisance.pair);
        let overlap = choose(&nuisance.overlap);
        let store_buffer = choose(&nuisance.store_buffer).round() as u32;
        let scale = choose(&nuisance.latency_scale);
        let request = choose(&nuisance.request);
        let migratory = choose(&nuisance.migratory) >= 0.5;
        let keep_spread = choose(&nuisance.keep_spread);
        let upgrade_keep = choose(&nuisance.upgrade_keep);
        let early_request = choose(&nuisance.early_request) >= 0.5;
        let closing = picoseconds(choose(&nuisance.closing_ns));
        let window = picoseconds(choose(&nuisance.window_ns));
        let behind = picoseconds(choose(&nuisance.behind_ns));
        let ahead = picoseconds(choose(&nuisance.atomic_ahead) * latency.atomic.value);
        let lead = picoseconds(choose(&nuisance.lead_ns));
        let flush = picoseconds(choose(&nuisance.flush_ns));
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
            cycle: machine.cycle_ps().round() as u64,
            clock_ghz: machine.clock_ghz.value,
            first_cache: picoseconds(latency.first_cache.value),
            second_cache: picoseconds(latency.second_cache.value),
            transfer: transfer.map(|states| states.map(scaled)),
            homed_at_reader: scaled(latency.remote_homed_at_reader.value),
            memory: [scaled(latency.memory_local.value), scaled(latency.memory_remote.value)],
            atomic: picoseconds(latency.atomic.value),
            moved: picoseconds(latency.atomic_moved.value - latency.atomic.value),
            handover,
            read_service,
            keep,
            pair,
            overlap,
            store_buffer,
            request,
            migratory,
            keep_spread,
            upgrade_keep,
            early_request,
            closing,
            behind,
            ahead,
            window,
            lead,
            flush,
        }
    }

    /// How long a line takes from a CPU at a distance to a CPU of socket `reader`; its memory is on socket `home`.
    #[must_use]
    pub fn transfer(&self, distance: Distance, modified: bool, home: usize, reader: usize) -> u64 {
        if distance == Distance::Remote && home == reader {
            self.homed_at_reader
        } else {
            self.transfer[distance as usize][usize::from(modified)]
        }
    }

    /// How long a CPU waits for an atomic that finds its line there, beyond the load.
    #[must_use]
    pub fn waits_for_atomic(&self) -> u64 {
        self.atomic.saturating_sub(self.ahead)
    }

    /// The part of a transfer's latency during which its line serves no other CPU.
    #[must_use]
    pub fn occupied(&self, latency: u64) -> u64 {
        (latency as f64 * self.handover).round() as u64
    }

    /// The part of a transfer's latency that the request takes to reach the line.
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
