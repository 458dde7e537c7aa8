//! The lines: the copies of each, its owner, and the CPUs that wait for it.

use super::Prepared;
use crate::layout::FieldId;
use crate::machine::{Distance, Settings};
use crate::random::Random;
use std::collections::VecDeque;

/// Stands for no CPU.
const NOBODY: u32 = u32::MAX;

/// The request of a CPU that waits for a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub cpu: u32,
    /// The CPU whose instance of the field is meant.
    pub whose: u32,
    /// The time at which the CPU began to wait.
    pub at: u64,
    /// The time at which the request has reached the line.
    pub ready: u64,
    /// The instruction that needs the line. A prefetch names the instruction that touched the neighbouring line.
    pub pc: u32,
    pub purpose: Purpose,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An access, which is done when the line comes.
    Access,
    /// An access whose turn comes later.
    Early,
    /// Nothing yet: the CPU's prefetcher makes the request.
    Prefetch,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// The one CPU that has it; [`NOBODY`] if it is shared or in no cache.
    owner: u32,
    /// Whether the owner has changed it.
    dirty: bool,
    /// The number of CPUs with a copy.
    copies: u32,
    /// The earliest time of its next transfer.
    pub free_at: u64,
    /// The end of the time in which the atomic that brought it is not final; zero if no atomic brought it.
    pub final_at: u64,
    /// Whether its owner has it for an atomic, and has not loaded from it since it came.
    pub fresh: bool,
    pub queue: VecDeque<Request>,
    /// CPUs that read it over and over until another CPU writes.
    pub watchers: Vec<u32>,
    /// CPUs that request it again when they lose it, since a later access will need it.
    pub wanting: Vec<u32>,
    /// The field whose write last took copies away.
    pub spoiler: Option<FieldId>,
    pub neighbour: Option<u32>,
    home: u32,
    pub random: Random,
}

/// All lines. A copy is a bit, so that a thousand copies are taken away in a few words.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    settings: &'a Settings,
    pub lines: Vec<Line>,
    /// Each line's copies, `words` words of bits.
    bits: Vec<u64>,
    pub words: usize,
    /// Bits of the CPUs of each complex and each socket.
    complexes: Vec<u64>,
    sockets: Vec<u64>,
    cpus: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn new(prepared: &Prepared<'a>) -> Lines<'a> {
        let settings = &prepared.setup.settings;
        let topology = &settings.topology;
        let cpus = prepared.setup.cpus.len();
        let words = cpus.div_ceil(64);
        let mut complexes = vec![0; topology.sockets * topology.complexes_per_socket * words];
        let mut sockets = vec![0; topology.sockets * words];
        for cpu in 0..cpus {
            complexes[topology.complex(cpu) * words + cpu / 64] |= 1 << (cpu % 64);
            sockets[topology.socket(cpu) * words + cpu / 64] |= 1 << (cpu % 64);
        }
        let placed = &prepared.placement.lines;
        let mut lines = Lines {
            settings,
            lines: Vec::with_capacity(placed.len()),
            bits: vec![0; placed.len() * words],
            words,
            complexes,
            sockets,
            cpus,
        };
        for (index, line) in placed.iter().enumerate() {
            lines.lines.push(Line {
                owner: NOBODY,
                neighbour: line.neighbour,
                home: line.home as u32,
                random: Random::stream(prepared.setup.seed, (1 << 32) + index as u64),
                ..Line::default()
            });
            // A CPU has its own lines from the start.
            if let Some(owner) = prepared.private[index] {
                lines.own(index, owner, true);
            }
        }
        lines
    }

    #[inline]
    pub(super) fn bits(&self, line: usize) -> &[u64] {
        &self.bits[line * self.words..][..self.words]
    }

    /// Returns whether a CPU has a copy.
    #[inline]
    pub(super) fn has(&self, line: usize, cpu: u32) -> bool {
        self.bits[line * self.words + cpu as usize / 64] >> (cpu % 64) & 1 == 1
    }

    /// Returns whether a CPU may read or write without a request.
    #[inline]
    pub(super) fn suffices(&self, line: usize, cpu: u32, to_write: bool) -> bool {
        if to_write { self.lines[line].owner == cpu } else { self.has(line, cpu) }
    }

    /// Returns when a line leaves its owner, if that is too soon for an atomic of the owner to begin on it.
    pub(super) fn closes(&self, line: usize, cpu: u32, time: u64) -> Option<u64> {
        let Line { owner, free_at, queue, .. } = &self.lines[line];
        let first = queue.front().filter(|_| *owner == cpu && self.settings.closing > 0)?;
        let leaves = first.ready.max(*free_at);
        (first.cpu != cpu && (time..time + self.settings.closing).contains(&leaves))
            .then_some(leaves)
    }

    /// Returns when a line leaves its owner, if the request that takes it invalidates a load behind the atomic that
    /// brought the line.
    pub(super) fn loses(&self, line: usize, cpu: u32, time: u64) -> Option<u64> {
        let Line { owner, free_at, final_at, queue, .. } = &self.lines[line];
        let first = queue.front().filter(|_| *owner == cpu && time < *final_at)?;
        (first.cpu != cpu && first.ready <= *final_at).then(|| first.ready.max(*free_at).max(time))
    }

    /// Returns whether the owner of a line may lose a value that it loads from it at `time`.
    #[inline]
    pub(super) fn is_provisional(&self, line: usize, cpu: u32, time: u64) -> bool {
        time < self.lines[line].final_at && self.lines[line].owner == cpu
    }

    /// Returns whether the owner of a line has it for an atomic, and has not loaded from it since it came.
    #[inline]
    pub(super) fn is_fresh(&self, line: usize, cpu: u32) -> bool {
        self.lines[line].fresh && self.lines[line].owner == cpu
    }

    pub(super) fn mark_dirty(&mut self, line: usize) {
        self.lines[line].dirty = true;
    }

    /// Returns whether the other threads of a CPU's core can serve it. They can if they have a copy and, for a write,
    /// no other core has one.
    pub(super) fn within_core(&self, line: usize, cpu: u32, to_write: bool) -> bool {
        let own = u32::from(self.has(line, cpu));
        let siblings = self.siblings(line, cpu);
        siblings > 0 && (!to_write || self.lines[line].copies == own + siblings)
    }

    /// Returns the number of other threads of a CPU's core that have a copy.
    fn siblings(&self, line: usize, cpu: u32) -> u32 {
        let topology = &self.settings.topology;
        let threads = (topology.core(cpu as usize)..self.cpus).step_by(topology.cores());
        threads.filter(|&thread| thread != cpu as usize && self.has(line, thread as u32)).count()
            as u32
    }

    /// Returns the time in which a line comes to a CPU, and the part of it in which the line serves no other CPU.
    pub(super) fn fetch(&self, line: usize, cpu: u32, to_write: bool) -> (u64, u64) {
        let Line { owner, dirty, copies, home, .. } = self.lines[line];
        let topology = &self.settings.topology;
        let socket = topology.socket(cpu as usize);
        let transfer =
            |distance, modified| self.settings.transfer(distance, modified, home as usize, socket);
        if owner != NOBODY {
            let latency = transfer(topology.distance(owner as usize, cpu as usize), dirty);
            return (latency, self.settings.occupied(latency));
        }
        if copies == 0 {
            let latency = self.settings.memory[usize::from(home as usize != socket)];
            return (latency, self.settings.occupied(latency));
        }
        let (mut nearest, mut farthest) = (u64::MAX, 0);
        self.each_distance(line, cpu, |distance| {
            let latency = transfer(distance, false);
            nearest = nearest.min(latency);
            farthest = farthest.max(latency);
        });
        if to_write {
            (farthest, self.settings.occupied(farthest))
        } else {
            (nearest, self.settings.read_service)
        }
    }

    /// Calls `at` with each distance at which another CPU has a copy.
    fn each_distance(&self, line: usize, cpu: u32, mut at: impl FnMut(Distance)) {
        let topology = &self.settings.topology;
        let words = self.words;
        let bits = self.bits(line);
        let complex = &self.complexes[topology.complex(cpu as usize) * words..][..words];
        let own_socket = topology.socket(cpu as usize);
        let socket = &self.sockets[own_socket * words..][..words];
        let (mut near, mut across, mut beyond) = (0, 0, 0);
        for word in 0..words {
            near += (bits[word] & complex[word]).count_ones();
            across |= bits[word] & socket[word] & !complex[word];
            beyond |= bits[word] & !socket[word];
        }
        let own = u32::from(self.has(line, cpu));
        let siblings = self.siblings(line, cpu);
        if siblings > 0 {
            at(Distance::Sibling);
        }
        if near > own + siblings {
            at(Distance::Near);
        }
        if across != 0 {
            at(Distance::Socket);
        }
        if beyond != 0 {
            for other in (0..topology.sockets).filter(|&other| other != own_socket) {
                let there = &self.sockets[other * words..][..words];
                if bits.iter().zip(there).any(|(bits, there)| bits & there != 0) {
                    at(topology.socket_distance(own_socket, other));
                    if topology.hops == 1 {
                        break;
                    }
                }
            }
        }
    }

    /// Returns whether a CPU that reads a line takes it away from the CPU that changed it.
    pub(super) fn migrates(&self, line: usize) -> bool {
        let Line { owner, dirty, .. } = self.lines[line];
        self.settings.migratory && dirty && owner != NOBODY
    }

    /// Gives a CPU a copy to read.
    pub(super) fn share(&mut self, line: usize, cpu: u32) {
        let state = &mut self.lines[line];
        if state.copies == 0 {
            self.own(line, cpu, false);
            return;
        }
        state.owner = NOBODY;
        state.dirty = false;
        state.copies += 1;
        self.bits[line * self.words + cpu as usize / 64] |= 1 << (cpu % 64);
    }

    /// Makes a CPU the only one that has a line; returns how many other CPUs lost their copy.
    pub(super) fn own(&mut self, line: usize, cpu: u32, dirty: bool) -> u64 {
        let had = self.has(line, cpu);
        self.bits[line * self.words..][..self.words].fill(0);
        self.bits[line * self.words + cpu as usize / 64] |= 1 << (cpu % 64);
        let state = &mut self.lines[line];
        let lost = state.copies - u32::from(had);
        state.owner = cpu;
        state.dirty = dirty;
        state.copies = 1;
        state.final_at = 0;
        state.fresh = false;
        u64::from(lost)
    }
}
