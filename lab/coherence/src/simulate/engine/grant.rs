//! Transfers of lines between CPUs: requests queue, the first gets the line, and the CPUs that watched it ask again.

use super::{Asked, Engine};
use crate::code::{Access, Kind};
use crate::layout::FieldId;
use crate::simulate::cpu::{Waiting, stay};
use crate::simulate::lines::{Purpose, Request};
use crate::simulate::schedule::NEVER;

impl Engine<'_> {
    /// Sends a request to a line, where it joins the queue.
    pub(super) fn ask(&mut self, line: usize, asked: Asked, time: u64) {
        let Asked { cpu, whose, pc, purpose } = asked;
        let mut ready = time;
        if purpose != Purpose::Prefetch && self.settings.request > 0.0 {
            let to_write = !matches!(self.decode(cpu as usize, pc).kind, Kind::Load { .. });
            if !self.lines.suffices(line, cpu, to_write)
                && !self.lines.within_core(line, cpu, to_write)
            {
                ready += self.settings.requested(self.lines.fetch(line, cpu, to_write).0);
            }
        }
        let state = &mut self.lines.lines[line];
        if state.queue.is_empty() && line != self.granting {
            let leaf = self.cpus.len() + self.places[line] as usize;
            self.schedule.set(leaf, ready.max(state.free_at));
        }
        state.queue.push_back(Request { cpu, whose, at: time, ready, pc, purpose });
    }

    /// Changes the set of CPUs that have a line, as an access of `cpu` demands. The access writes at once or later.
    pub(super) fn hand_over(
        &mut self,
        line: usize,
        cpu: u32,
        access: &Access,
        written: bool,
        time: u64,
    ) {
        let reads = matches!(access.kind, Kind::Load { .. });
        if reads && !self.lines.migrates(line) {
            self.lines.share(line, cpu);
        } else {
            // A changed line migrates to its reader, which may then write it.
            self.catch_up(line, cpu, time);
            let lost = self.lines.own(line, cpu, written && !reads);
            if !reads {
                self.lines.lines[line].spoiler = Some(access.field);
            }
            if self.prepared.in_window(time) {
                self.tally.lines[line][1] += lost;
            }
            self.wake(line, time);
        }
        self.ask_again(line, time);
    }

    /// Makes the CPUs that watched a line request it again.
    fn wake(&mut self, line: usize, time: u64) {
        let watchers = std::mem::take(&mut self.lines.lines[line].watchers);
        for watcher in watchers {
            let index = watcher as usize;
            self.cpus[index].waiting = Waiting::Line;
            let pc = self.cpus[index].pc;
            let whose = self.whose(index, &self.decode(index, pc));
            self.ask(line, Asked { cpu: watcher, whose, pc, purpose: Purpose::Access }, time);
        }
    }

    /// Grants a line, which is free, to the CPU that asked first.
    pub(super) fn grant(&mut self, line: usize, time: u64) {
        let request =
            self.lines.lines[line].queue.pop_front().expect("a scheduled line is asked for");
        self.granting = line;
        match request.purpose {
            Purpose::Access => self.granted(line, request, time),
            Purpose::Early => self.came_early(line, request, time),
            Purpose::Prefetch => self.prefetched(line, request, time),
        }
        self.granting = usize::MAX;
        let state = &self.lines.lines[line];
        let next = state.queue.front();
        let next = next.map_or(NEVER, |next| state.free_at.max(next.ready).max(time));
        self.schedule.set(self.cpus.len() + self.places[line] as usize, next);
    }

    /// Brings a line to the CPU that requested it, `written` at once or later. Returns its arrival.
    pub(super) fn bring(
        &mut self,
        line: usize,
        request: Request,
        access: &Access,
        written: bool,
        time: u64,
    ) -> u64 {
        let Request { cpu, at, pc, .. } = request;
        let to_write = !matches!(access.kind, Kind::Load { .. });
        let there = self.lines.suffices(line, cpu, to_write);
        let within_core = !there && self.lines.within_core(line, cpu, to_write);
        let (latency, busy) = if there {
            if to_write && written {
                // An earlier store of this CPU brought it, and the CPU itself may be watching it since.
                self.lines.mark_dirty(line);
                self.wake(line, time);
            }
            (0, 0)
        } else if within_core {
            (self.settings.transfer[0][0], 0)
        } else {
            let (latency, busy) = self.lines.fetch(line, cpu, to_write);
            let moved = if access.kind == Kind::Rmw { self.settings.moved } else { 0 };
            let way = latency - self.settings.requested(latency) + moved;
            (way, busy + self.stay(line, cpu, access))
        };
        let arrival = time + latency;
        if self.prepared.in_window(time) {
            let cost = &mut self.tally.lines[line];
            cost[0] += u64::from(latency > 0);
            cost[2] += arrival - at;
        }
        self.lines.lines[line].free_at = time + busy;
        if !there {
            self.hand_over(line, cpu, access, written, time);
            // After that, CPUs that are sent back read the earlier value again.
            if access.kind == Kind::Rmw {
                self.lines.lines[line].fresh = written;
                if self.settings.behind > 0 {
                    self.lines.lines[line].final_at = arrival + self.settings.behind;
                }
            }
            if !within_core {
                self.fetch_neighbour(line, cpu, pc, time);
            }
        }
        arrival
    }

    /// Returns the time for which a line stays with the CPU that gets it, beyond the transfer.
    fn stay(&mut self, line: usize, cpu: u32, access: &Access) -> u64 {
        let to_write = !matches!(access.kind, Kind::Load { .. });
        let atomic = if access.kind == Kind::Rmw { self.settings.atomic } else { 0 };
        // The reader owns the line from now on, though it only reads it.
        if to_write || self.lines.migrates(line) {
            let had_copy = self.lines.has(line, cpu);
            stay(self.settings, had_copy, &mut self.lines.lines[line].random) + atomic
        } else {
            0
        }
    }

    /// Does an access whose line is granted.
    fn granted(&mut self, line: usize, request: Request, time: u64) {
        let Request { cpu, whose, at, pc, .. } = request;
        let index = cpu as usize;
        let (asked, access) = (self.decode(index, pc), self.wanted(index, pc));
        let spoiler = self.lines.lines[line].spoiler;
        let arrival = self.bring(line, request, &asked, asked.kind == access.kind, time);
        let counts = self.prepared.in_window(time);
        let again = !self.act(index, &access, whose);
        if access.kind == Kind::Store {
            let slot = self.prepared.placement.slot(access.field, whose) as u32;
            self.cpus[index].stored_no_more(slot);
            self.store_arrives(index, arrival);
            self.store_with_it(line, index, arrival, counts);
            self.load_with_it(line, index, spoiler, time, arrival);
        } else {
            self.go_on(index, &access, spoiler, [at, time, arrival], again);
        }
    }

    /// Resumes a CPU that waited since `at` for a line that is granted now.
    fn go_on(
        &mut self,
        index: usize,
        access: &Access,
        spoiler: Option<FieldId>,
        [at, time, arrival]: [u64; 3],
        again: bool,
    ) {
        let resumes = if access.kind == (Kind::Load { overlapping: true }) {
            let seen = (arrival - at) as f64 * (1.0 - self.settings.overlap);
            time.max(at + seen.round() as u64)
        } else {
            arrival
        };
        if self.prepared.in_window(time) {
            self.tally.stall(spoiler, access.field, resumes - at);
        }
        if again {
            self.cpus[index].waiting = Waiting::No;
            self.schedule.set(index, resumes);
        } else {
            let atomic = if access.kind == Kind::Rmw { self.settings.atomic } else { 0 };
            self.done(index, resumes + atomic);
        }
    }

    /// Serves the load with which a CPU waits for a line from the store that brings the line.
    fn load_with_it(
        &mut self,
        line: usize,
        index: usize,
        spoiler: Option<FieldId>,
        time: u64,
        arrival: u64,
    ) {
        let waits =
            |request: &Request| request.cpu as usize == index && request.purpose == Purpose::Access;
        let Some(at) = self.lines.lines[line].queue.iter().position(waits) else { return };
        let Request { whose, at: asked, pc, .. } = self.lines.lines[line].queue[at];
        let access = self.wanted(index, pc);
        if !matches!(access.kind, Kind::Load { .. }) {
            return;
        }
        self.lines.lines[line].queue.remove(at);
        if self.prepared.in_window(time) {
            self.tally.lines[line][2] += arrival - asked;
        }
        let again = !self.act(index, &access, whose);
        self.go_on(index, &access, spoiler, [asked, time, arrival], again);
    }

    /// Serves all stores of a CPU that wait for a line from the store that brings the line.
    fn store_with_it(&mut self, line: usize, index: usize, arrival: u64, counts: bool) {
        let mut at = 0;
        while !self.cpus[index].stored.is_empty() && at < self.lines.lines[line].queue.len() {
            let request = self.lines.lines[line].queue[at];
            let access = self.decode(request.cpu as usize, request.pc);
            if request.cpu as usize != index
                || request.purpose == Purpose::Prefetch
                || access.kind != Kind::Store
            {
                at += 1;
                continue;
            }
            self.lines.lines[line].queue.remove(at);
            if counts {
                self.tally.lines[line][2] += arrival - request.at;
            }
            self.act(index, &access, request.whose);
            let slot = self.prepared.placement.slot(access.field, request.whose) as u32;
            self.cpus[index].stored_no_more(slot);
            self.store_arrives(index, arrival);
        }
    }

    /// Notes that a store's line is on its way. The CPU goes on if it waited for that.
    fn store_arrives(&mut self, index: usize, arrival: u64) {
        let cpu = &mut self.cpus[index];
        cpu.outstanding -= 1;
        cpu.drained_at = cpu.drained_at.max(arrival);
        let resumes = match cpu.waiting {
            Waiting::Drain if cpu.outstanding == 0 => cpu.drained_at,
            Waiting::Room => arrival,
            _ => return,
        };
        cpu.waiting = Waiting::No;
        self.schedule.set(index, resumes);
    }

    /// Makes the prefetcher request the other line of the pair, unless it waits for one already.
    fn fetch_neighbour(&mut self, line: usize, cpu: u32, pc: u32, time: u64) {
        let Some(neighbour) = self.lines.lines[line].neighbour else { return };
        if self.lines.lines[line].random.unit() >= self.settings.pair
            || self.cpus[cpu as usize].prefetching
        {
            return;
        }
        self.cpus[cpu as usize].prefetching = true;
        let request = Asked { cpu, whose: cpu, pc, purpose: Purpose::Prefetch };
        self.ask(neighbour as usize, request, time);
    }

    /// Gives a line to a prefetcher, in the state that the access to its neighbour wanted.
    fn prefetched(&mut self, line: usize, request: Request, time: u64) {
        let Request { cpu, pc, .. } = request;
        self.cpus[cpu as usize].prefetching = false;
        let access = self.decode(cpu as usize, pc);
        let to_write = !matches!(access.kind, Kind::Load { .. });
        let there = self.lines.suffices(line, cpu, to_write);
        if there {
            self.lines.lines[line].free_at = time;
            return;
        }
        let (_, busy) = self.lines.fetch(line, cpu, to_write);
        self.lines.lines[line].free_at = time + busy;
        if self.prepared.in_window(time) {
            self.tally.lines[line][0] += 1;
        }
        self.hand_over(line, cpu, &access, false, time);
    }
}
