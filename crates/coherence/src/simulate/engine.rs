//! The simulation: one loop over the earliest event, a CPU's next shared access or a line's next hand-over.

use super::ahead::Ahead;
use super::cpu::{Cpu, Op, Waiting, fuse, hit_time};
use super::lines::{Lines, Request};
use super::outcome::{Outcome, Tally};
use super::schedule::{NEVER, Schedule};
use super::{Error, Prepared};
use crate::code::{Access, Action, Kind};
use crate::machine::Settings;

pub(super) fn run(prepared: &Prepared<'_>) -> Result<Outcome, Error> {
    let mut engine = Engine::new(prepared);
    for cpu in 0..engine.cpus.len() {
        engine.advance(cpu, 0);
    }
    loop {
        let (time, leaf) = engine.schedule.next();
        if time == NEVER {
            return Err(Error::Stuck { nanosecond: engine.now / 1000 });
        }
        if time >= prepared.to {
            return Ok(engine.outcome());
        }
        engine.now = time;
        match leaf.checked_sub(engine.cpus.len()) {
            None => engine.access(leaf, time),
            Some(shared) => {
                engine.handed_over = time;
                engine.grant(engine.shared[shared] as usize, time);
            }
        }
    }
}

/// Who asks for a line, whose instance of it, for which instruction, and whether by the prefetcher.
struct Asked {
    cpu: u32,
    whose: u32,
    pc: u32,
    prefetch: bool,
}

struct Engine<'a> {
    prepared: &'a Prepared<'a>,
    settings: &'a Settings,
    programs: Vec<Vec<Op>>,
    cpus: Vec<Cpu>,
    ahead: Ahead,
    lines: Lines<'a>,
    values: Vec<u64>,
    /// CPUs, and after them the lines that anybody shares.
    schedule: Schedule,
    /// The lines that anybody shares, and each line's place among them.
    shared: Vec<u32>,
    places: Vec<u32>,
    /// The line that is being handed over: it is scheduled when that is done.
    granting: usize,
    tally: Tally,
    now: u64,
    /// When a line was last handed over.
    handed_over: u64,
}

impl<'a> Engine<'a> {
    fn new(prepared: &'a Prepared<'a>) -> Engine<'a> {
        let count = prepared.setup.cpus.len();
        let cpus: Vec<Cpu> = (0..count).map(|cpu| Cpu::new(prepared, cpu)).collect();
        let shared: Vec<u32> = (0..prepared.private.len() as u32)
            .filter(|&line| prepared.private[line as usize].is_none())
            .collect();
        let mut places = vec![0; prepared.private.len()];
        for (place, &line) in shared.iter().enumerate() {
            places[line as usize] = place as u32;
        }
        Engine {
            prepared,
            settings: &prepared.setup.settings,
            programs: prepared.codes.iter().map(|code| fuse(prepared, code)).collect(),
            ahead: Ahead::new(&cpus),
            cpus,
            lines: Lines::new(prepared),
            values: vec![0; prepared.placement.slots],
            schedule: Schedule::new(count + shared.len()),
            shared,
            places,
            granting: usize::MAX,
            tally: Tally::new(prepared),
            now: 0,
            handed_over: NEVER,
        }
    }

    fn outcome(mut self) -> Outcome {
        for (cpu, &program) in self.cpus.iter().zip(&self.prepared.setup.cpus) {
            self.tally.operations[program] += cpu.operations;
            self.tally.accesses += cpu.counted;
        }
        self.tally.outcome(self.prepared)
    }

    /// Runs a CPU from `clock` on to its next access that others could notice, and schedules that.
    fn advance(&mut self, index: usize, clock: u64) {
        let reach = self.ahead.reach(index);
        let (clock, reads) = self.run(index, clock, reach, u64::MAX);
        if reads == reach && reach > 0 {
            self.ahead.reached(index);
        }
        self.cpus[index].waiting = Waiting::No;
        self.schedule.set(index, clock);
    }

    /// Runs a CPU from `clock` on, through at most `reach` reads that hit before `end`: to when, through how
    /// many.
    #[inline]
    fn run(&mut self, index: usize, mut clock: u64, reach: u32, end: u64) -> (u64, u32) {
        let ops = &self.programs[self.prepared.setup.cpus[index]];
        let cpu = &mut self.cpus[index];
        let mut reads = 0;
        loop {
            match ops[cpu.pc as usize] {
                Op::Run { time, accesses, next } => {
                    clock += time;
                    cpu.accesses += accesses;
                    cpu.pc = next;
                }
                Op::Evenly { mean, share } => {
                    clock += cpu.compute(mean, share);
                    cpu.pc += 1;
                }
                Op::Every { counter, period, otherwise } => {
                    let round = cpu.count(counter, period);
                    cpu.pc = if round { cpu.pc + 1 } else { otherwise };
                }
                Op::Read { access, hit } => {
                    let line = self.prepared.placement.line(access.field, index as u32);
                    if reads == reach || clock >= end || !self.lines.has(line, index as u32) {
                        break;
                    }
                    if reads == 0 {
                        self.ahead.begin(index, cpu, clock);
                    }
                    self.ahead.read(index, line, clock);
                    reads += 1;
                    clock += hit;
                    cpu.accesses += 1;
                    cpu.pc += 1;
                }
                Op::Access(_) => break,
                Op::Other(instruction) => {
                    let (time, ended) = cpu.step(instruction, self.settings);
                    clock += time;
                    if ended {
                        if self.prepared.in_window(clock) {
                            cpu.operations += 1;
                            cpu.counted += u64::from(cpu.accesses);
                        }
                        cpu.accesses = 0;
                        if clock >= self.prepared.to {
                            break;
                        }
                    }
                }
            }
        }
        (clock, reads)
    }

    /// Sends those who have read a line later than it is taken, by `taker` at `time`, back to that moment.
    fn catch_up(&mut self, line: usize, taker: u32, time: u64) {
        for word in 0..self.lines.words {
            let mut running = self.ahead.running(word, self.lines.bits(line)[word]);
            while running != 0 {
                let index = 64 * word + running.trailing_zeros() as usize;
                running &= running - 1;
                if index == taker as usize {
                    continue;
                }
                // Reads of this very moment come before a line's hand-over, and before those of higher numbers.
                let first = index < taker as usize || self.handed_over == time;
                let end = time + u64::from(first);
                if self.ahead.reads_from(index, line, end) {
                    let clock = self.ahead.back(index, &mut self.cpus[index]);
                    let (clock, reads) = self.run(index, clock, u32::MAX, end);
                    self.ahead.cut(index, reads);
                    self.schedule.set(index, clock);
                }
            }
        }
    }

    fn decode(&self, index: usize, pc: u32) -> Access {
        match self.programs[self.prepared.setup.cpus[index]][pc as usize] {
            Op::Access(access) | Op::Read { access, .. } => access,
            _ => unreachable!("CPUs are scheduled at accesses"),
        }
    }

    /// The CPU whose instance an access of this CPU touches.
    fn whose(&self, index: usize, access: &Access) -> u32 {
        access
            .of
            .map_or(index as u32, |name| (self.cpus[index].registers[usize::from(name)] - 1) as u32)
    }

    /// Goes past an access that is done.
    fn done(&mut self, index: usize, clock: u64) {
        let cpu = &mut self.cpus[index];
        cpu.pc += 1;
        cpu.accesses += 1;
        self.advance(index, clock);
    }

    fn wait(&mut self, index: usize, what: Waiting) {
        self.cpus[index].waiting = what;
        self.schedule.set(index, NEVER);
    }

    /// A CPU's next shared access is due.
    fn access(&mut self, index: usize, time: u64) {
        let access = self.decode(index, self.cpus[index].pc);
        let to_write = !matches!(access.kind, Kind::Load { .. });
        if access.kind == Kind::Rmw {
            if self.cpus[index].outstanding > 0 {
                return self.wait(index, Waiting::Drain);
            }
            if self.cpus[index].drained_at > time {
                return self.schedule.set(index, self.cpus[index].drained_at);
            }
        }
        let whose = self.whose(index, &access);
        let line = self.prepared.placement.line(access.field, whose);
        let cpu = index as u32;
        let hit = self.lines.suffices(line, cpu, to_write);
        if !hit && self.forwards(index, &access, whose) {
            self.done(index, time + hit_time(&access, self.settings));
        } else if hit {
            if to_write {
                self.lines.mark_dirty(line);
            }
            self.ahead.hit(index);
            self.complete(index, &access, line, time, hit_time(&access, self.settings));
        } else if self.lines.within_core(line, cpu, to_write) {
            let wait = if access.kind == Kind::Store {
                self.settings.cycle
            } else {
                self.settings.transfer[0][0]
            };
            if self.prepared.in_window(time) {
                self.tally.lines[line][0] += 1;
                self.tally.lines[line][2] += wait;
                if access.kind != Kind::Store {
                    self.tally.stall(self.lines.lines[line].spoiler, access.field, wait);
                }
            }
            self.hand_over(line, cpu, &access, time);
            let atomic = if access.kind == Kind::Rmw { self.settings.atomic } else { 0 };
            self.complete(index, &access, line, time, wait + atomic);
        } else if access.kind == Kind::Store {
            if self.cpus[index].outstanding >= self.settings.store_buffer {
                return self.wait(index, Waiting::Room);
            }
            self.cpus[index].outstanding += 1;
            let slot = self.prepared.placement.slot(access.field, whose);
            self.cpus[index].stored.push(slot as u32);
            self.ask(line, Asked { cpu, whose, pc: self.cpus[index].pc, prefetch: false }, time);
            self.done(index, time + self.settings.cycle);
        } else {
            self.wait(index, Waiting::Line);
            self.ask(line, Asked { cpu, whose, pc: self.cpus[index].pc, prefetch: false }, time);
        }
    }

    /// Whether a load finds its value among the CPU's own stores that wait for their lines.
    fn forwards(&self, index: usize, access: &Access, whose: u32) -> bool {
        let stored = &self.cpus[index].stored;
        matches!(access.kind, Kind::Load { .. })
            && access.action == Action::Nothing
            && stored.contains(&(self.prepared.placement.slot(access.field, whose) as u32))
    }

    /// The line is there: does the access, or watches the line until somebody writes.
    fn complete(&mut self, index: usize, access: &Access, line: usize, time: u64, takes: u64) {
        let whose = self.whose(index, access);
        if self.act(index, access, whose) {
            self.done(index, time + takes);
        } else {
            self.wait(index, Waiting::Write);
            self.lines.lines[line].watchers.push(index as u32);
        }
    }

    fn act(&mut self, index: usize, access: &Access, whose: u32) -> bool {
        let slot = self.prepared.placement.slot(access.field, whose);
        self.cpus[index].act(access.action, index, &mut self.values[slot])
    }

    /// A request sets out for a line, and joins its queue.
    fn ask(&mut self, line: usize, asked: Asked, time: u64) {
        let Asked { cpu, whose, pc, prefetch } = asked;
        let mut ready = time;
        if !prefetch && self.settings.request > 0.0 {
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
        state.queue.push_back(Request { cpu, whose, at: time, ready, pc, prefetch });
    }

    /// Changes who has a line as an access of `cpu` wants it.
    fn hand_over(&mut self, line: usize, cpu: u32, access: &Access, time: u64) {
        if matches!(access.kind, Kind::Load { .. }) {
            self.read(line, cpu, time);
        } else {
            self.take(line, cpu, access, true, time);
        }
    }

    /// A CPU gets a line to read: a copy, or the line itself where changed lines migrate.
    fn read(&mut self, line: usize, cpu: u32, time: u64) {
        if self.lines.migrates(line) {
            self.catch_up(line, cpu, time);
            let lost = self.lines.own(line, cpu, false);
            if self.prepared.in_window(time) {
                self.tally.lines[line][1] += lost;
            }
            self.wake(line, time);
        } else {
            self.lines.share(line, cpu);
        }
    }

    fn take(&mut self, line: usize, cpu: u32, access: &Access, dirty: bool, time: u64) {
        self.catch_up(line, cpu, time);
        let lost = self.lines.own(line, cpu, dirty);
        let state = &mut self.lines.lines[line];
        state.spoiler = Some(access.field);
        if self.prepared.in_window(time) {
            self.tally.lines[line][1] += lost;
        }
        self.wake(line, time);
    }

    /// Those who watched a line ask for it again.
    fn wake(&mut self, line: usize, time: u64) {
        let watchers = std::mem::take(&mut self.lines.lines[line].watchers);
        for watcher in watchers {
            let index = watcher as usize;
            self.cpus[index].waiting = Waiting::Line;
            let pc = self.cpus[index].pc;
            let whose = self.whose(index, &self.decode(index, pc));
            self.ask(line, Asked { cpu: watcher, whose, pc, prefetch: false }, time);
        }
    }

    /// A line can be handed over, to whoever asked first.
    fn grant(&mut self, line: usize, time: u64) {
        let request =
            self.lines.lines[line].queue.pop_front().expect("a scheduled line is asked for");
        self.granting = line;
        if request.prefetch {
            self.prefetched(line, request, time);
        } else {
            self.granted(line, request, time);
        }
        self.granting = usize::MAX;
        let state = &self.lines.lines[line];
        let next = state.queue.front();
        let next = next.map_or(NEVER, |next| state.free_at.max(next.ready).max(time));
        self.schedule.set(self.cpus.len() + self.places[line] as usize, next);
    }

    /// A line goes to an access that asked for it.
    fn granted(&mut self, line: usize, request: Request, time: u64) {
        let Request { cpu, whose, at, pc, .. } = request;
        let index = cpu as usize;
        let access = self.decode(index, pc);
        let to_write = !matches!(access.kind, Kind::Load { .. });
        let spoiler = self.lines.lines[line].spoiler;
        let there = self.lines.suffices(line, cpu, to_write);
        let within_core = !there && self.lines.within_core(line, cpu, to_write);
        let (latency, busy) = if there {
            if to_write {
                // Its own earlier store brought it, and itself may be watching it since.
                self.lines.mark_dirty(line);
                self.wake(line, time);
            }
            (0, 0)
        } else if within_core {
            (self.settings.transfer[0][0], 0)
        } else {
            let (latency, busy) = self.lines.fetch(line, cpu, to_write);
            let atomic = if access.kind == Kind::Rmw { self.settings.atomic } else { 0 };
            // Its owner's from now on, though it came to be read.
            let owned = to_write || self.lines.migrates(line);
            let stays = if owned { self.settings.keep + atomic } else { 0 };
            (latency - self.settings.requested(latency), busy + stays)
        };
        let arrival = time + latency;
        let counts = self.prepared.in_window(time);
        if counts {
            let cost = &mut self.tally.lines[line];
            cost[0] += u64::from(latency > 0);
            cost[2] += arrival - at;
        }
        self.lines.lines[line].free_at = time + busy;
        if !there {
            self.hand_over(line, cpu, &access, time);
            if !within_core {
                self.fetch_neighbour(line, cpu, pc, time);
            }
        }
        let again = !self.act(index, &access, whose);
        if access.kind == Kind::Store {
            let slot = self.prepared.placement.slot(access.field, whose) as u32;
            self.cpus[index].stored_no_more(slot);
            self.store_arrives(index, arrival);
            self.store_with_it(line, index, arrival, counts);
        } else {
            let resumes = if access.kind == (Kind::Load { overlapping: true }) {
                let seen = (arrival - at) as f64 * (1.0 - self.settings.overlap);
                time.max(at + seen.round() as u64)
            } else {
                arrival
            };
            if counts {
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
    }

    /// A line that a store brings serves all stores of its CPU that wait for it.
    fn store_with_it(&mut self, line: usize, index: usize, arrival: u64, counts: bool) {
        let mut at = 0;
        while !self.cpus[index].stored.is_empty() && at < self.lines.lines[line].queue.len() {
            let request = self.lines.lines[line].queue[at];
            let access = self.decode(request.cpu as usize, request.pc);
            if request.cpu as usize != index || request.prefetch || access.kind != Kind::Store {
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

    /// A store's line is on its way: the CPU goes on if that is what it waited for.
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

    /// The prefetcher asks for the other line of the pair, unless it waits for one already.
    fn fetch_neighbour(&mut self, line: usize, cpu: u32, pc: u32, time: u64) {
        let Some(neighbour) = self.lines.lines[line].neighbour else { return };
        if self.lines.lines[line].random.unit() >= self.settings.pair
            || self.cpus[cpu as usize].prefetching
        {
            return;
        }
        self.cpus[cpu as usize].prefetching = true;
        let request = Asked { cpu, whose: cpu, pc, prefetch: true };
        self.ask(neighbour as usize, request, time);
    }

    /// A line goes to a prefetcher, in the state that the access beside it wanted.
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
        if to_write {
            self.take(line, cpu, &access, false, time);
        } else {
            self.read(line, cpu, time);
        }
    }
}
