//! Grants a request whose turn has come.

use super::State::{Exclusive, Modified};
use super::{Asked, Oracle, writes};
use crate::code::{Access, Kind};
use crate::layout::FieldId;
use crate::simulate::cpu::Waiting;
use crate::simulate::lines::Purpose;

impl Oracle<'_> {
    pub(super) fn grant(&mut self, line: usize, time: u64) {
        let settings = &self.setup.settings;
        let Asked { cpu, whose, at, access, does, purpose, .. } = self.lines[line].asked.remove(0);
        if purpose == Purpose::Prefetch {
            return self.prefetched(line, cpu, &access, time);
        }
        let early = purpose == Purpose::Early;
        let only_brings = early || does.kind != access.kind;
        let written = if only_brings { Exclusive } else { Modified };
        let spoiler = self.lines[line].spoiler;
        let mut fetched = false;
        let there = self.suffices(line, cpu, &access);
        let (latency, busy) = if there {
            if writes(&access) && !only_brings {
                self.lines[line].copies[cpu] = Modified;
                self.wake(line, time);
            }
            (0, 0)
        } else if self.within_core(line, cpu, &access) {
            self.move_line(line, cpu, &access, written, time);
            (settings.transfer[0][0], 0)
        } else {
            let (latency, busy) = self.price(line, cpu, &access);
            let stays = self.stay(line, cpu, &access);
            let moved = if access.kind == Kind::Rmw { settings.moved } else { 0 };
            let way = latency - (latency as f64 * settings.request).round() as u64;
            let price = (way + moved, busy + stays);
            self.move_line(line, cpu, &access, written, time);
            fetched = true;
            price
        };
        let arrival = time + latency;
        self.lines[line].free_at = time + busy;
        if !there && access.kind == Kind::Rmw {
            self.lines[line].fresh = !only_brings;
            if settings.behind > 0 {
                self.lines[line].final_at = arrival + settings.behind;
            }
        }
        let counts = self.prepared.in_window(time);
        if counts {
            self.tally.lines[line][0] += u64::from(latency > 0);
            self.tally.lines[line][2] += arrival - at;
        }
        if fetched {
            self.prefetch(line, cpu, access, time);
        }
        if early {
            return self.came_early(line, cpu, (arrival, spoiler));
        }
        let access = does;
        let passed = self.act(cpu, access, whose);
        match access.kind {
            Kind::Store => {
                self.stored(cpu, access, whose, arrival);
                // The line serves all stores of this CPU that wait for it.
                let (with_it, asked) =
                    std::mem::take(&mut self.lines[line].asked).into_iter().partition(|asked| {
                        asked.cpu == cpu
                            && asked.access.kind == Kind::Store
                            && asked.purpose != Purpose::Prefetch
                    });
                self.lines[line].asked = asked;
                let with_it: Vec<Asked> = with_it;
                for Asked { whose, at, access, .. } in with_it {
                    if counts {
                        self.tally.lines[line][2] += arrival - at;
                    }
                    self.act(cpu, access, whose);
                    self.stored(cpu, access, whose, arrival);
                }
                // The line also serves the load with which the CPU waits.
                let waiting = self.lines[line].asked.iter().position(|asked| {
                    asked.cpu == cpu
                        && matches!(asked.does.kind, Kind::Load { .. })
                        && asked.purpose == Purpose::Access
                });
                if let Some(waiting) = waiting {
                    let Asked { whose, at, does: access, .. } =
                        self.lines[line].asked.remove(waiting);
                    if counts {
                        self.tally.lines[line][2] += arrival - at;
                    }
                    let passed = self.act(cpu, access, whose);
                    self.loaded(cpu, access, spoiler, [at, time, arrival], passed);
                }
            }
            Kind::Load { .. } => {
                self.loaded(cpu, access, spoiler, [at, time, arrival], passed);
            }
            Kind::Rmw => {
                if counts {
                    self.tally.stall(spoiler, access.field, arrival - at);
                }
                self.finish(cpu, arrival + settings.atomic);
            }
        }
    }

    /// Resumes a CPU whose load comes with a line.
    fn loaded(
        &mut self,
        cpu: usize,
        access: Access,
        spoiler: Option<FieldId>,
        [at, time, arrival]: [u64; 3],
        passed: bool,
    ) {
        let mut resumes = arrival;
        if access.kind == (Kind::Load { overlapping: true }) {
            let seen = (arrival - at) as f64 * (1.0 - self.setup.settings.overlap);
            resumes = time.max(at + seen.round() as u64);
        }
        if self.prepared.in_window(time) {
            self.tally.stall(spoiler, access.field, resumes - at);
        }
        if passed {
            self.finish(cpu, resumes);
        } else {
            self.clocks[cpu] = Some(resumes);
        }
    }

    /// Removes a store from its CPU's buffer.
    fn stored(&mut self, cpu: usize, access: Access, whose: u32, arrival: u64) {
        let slot = self.prepared.placement.slot(access.field, whose);
        let first = self.stores[cpu].iter().position(|&stored| stored == slot).unwrap();
        self.stores[cpu].remove(first);
        self.cpus[cpu].outstanding -= 1;
        let drained = self.cpus[cpu].drained_at.max(arrival);
        self.cpus[cpu].drained_at = drained;
        let waiting = self.cpus[cpu].waiting;
        let resumes = match waiting {
            Waiting::Drain if self.cpus[cpu].outstanding == 0 => Some(drained),
            Waiting::Room => Some(arrival),
            _ => None,
        };
        if resumes.is_some() {
            self.cpus[cpu].waiting = Waiting::No;
            self.clocks[cpu] = resumes;
        }
    }

    fn prefetch(&mut self, line: usize, cpu: usize, access: Access, time: u64) {
        let Some(neighbour) = self.prepared.placement.lines[line].neighbour else { return };
        let wanted = self.lines[line].random.unit() < self.setup.settings.pair;
        if wanted && !self.cpus[cpu].prefetching {
            self.cpus[cpu].prefetching = true;
            let whose = cpu as u32;
            let purpose = Purpose::Prefetch;
            let asked = Asked { cpu, whose, at: time, ready: time, access, does: access, purpose };
            self.lines[neighbour as usize].asked.push(asked);
        }
    }

    fn prefetched(&mut self, line: usize, cpu: usize, access: &Access, time: u64) {
        self.cpus[cpu].prefetching = false;
        self.lines[line].free_at = time;
        if self.suffices(line, cpu, access) {
            return;
        }
        // No access uses it yet, so it is busy for the transfer alone.
        let read = Access { kind: Kind::Load { overlapping: false }, ..*access };
        let store = Access { kind: Kind::Store, ..*access };
        let busy = self.price(line, cpu, if writes(access) { &store } else { &read }).1;
        self.lines[line].free_at = time + busy;
        if self.prepared.in_window(time) {
            self.tally.lines[line][0] += 1;
        }
        self.move_line(line, cpu, access, Exclusive, time);
    }
}
