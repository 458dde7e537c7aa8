//! The simulation: one loop that takes the earliest event, a CPU's next shared access or a line's next transfer.

mod early;
mod grant;

use super::ahead::Ahead;
use super::cpu::{Cpu, Op, Waiting, fuse, hit_time};
use super::lines::{Lines, Purpose};
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

/// A request before it is sent: the requesting CPU, the CPU whose instance it means, the instruction and the purpose.
struct Asked {
    cpu: u32,
    whose: u32,
    pc: u32,
    purpose: Purpose,
}

struct Engine<'a> {
    prepared: &'a Prepared<'a>,
    settings: &'a Settings,
    programs: Vec<Vec<Op>>,
    cpus: Vec<Cpu>,
    ahead: Ahead,
    lines: Lines<'a>,
    values: Vec<u64>,
    /// The leaves are the CPUs, followed by the shared lines.
    schedule: Schedule,
    /// The lines that several CPUs use; next, each line's place among them.
    shared: Vec<u32>,
    places: Vec<u32>,
    /// The line whose transfer is being granted. It is scheduled again after that.
    granting: usize,
    tally: Tally,
    now: u64,
    /// The time of the last grant of a transfer.
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

    /// Runs a CPU from `clock` on to its next access that other CPUs could notice, and schedules that access.
    fn advance(&mut self, index: usize, clock: u64) {
        let reach = self.ahead.reach(index);
        let (clock, reads) = self.run(index, clock, reach, u64::MAX);
        if reads == reach && reach > 0 {
            self.ahead.reached(index);
        }
        self.cpus[index].waiting = Waiting::No;
        self.schedule.set(index, clock);
    }

    /// Runs a CPU from `clock` on, through at most `reach` reads that hit before `end`. Returns the time it reached,
    /// and the number of reads that it passed.
    #[inline]
    fn run(&mut self, index: usize, mut clock: u64, reach: u32, end: u64) -> (u64, u32) {
        let ops = &self.programs[self.prepared.setup.cpus[index]];
        let knows = self.prepared.knows_places(index);
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
                    let time = cpu.compute(mean, share);
                    cpu.works(clock, time, self.settings.window);
                    clock += time;
                    cpu.pc += 1;
                }
                Op::Every { counter, period, otherwise } => {
                    let round = cpu.count(counter, period);
                    cpu.pc = if round { cpu.pc + 1 } else { otherwise };
                }
                Op::Read { access, hit } => {
                    let line = self.prepared.placement.line(access.field, index as u32);
                    if reads == reach
                        || !cpu.early.is_empty()
                        || clock >= end
                        || !self.lines.has(line, index as u32)
                        || self.lines.is_provisional(line, index as u32, clock)
                        || knows && self.lines.is_fresh(line, index as u32)
                    {
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
                Op::Access(_) | Op::Ask(_) => break,
                Op::Other(instruction) => {
                    let (time, ended) = cpu.step(instruction, clock, self.settings);
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

    /// Sends each CPU that has read a line after `time` back to that moment, when the CPU `to` takes the line.
    fn catch_up(&mut self, line: usize, to: u32, time: u64) {
        for word in 0..self.lines.words {
            let mut running = self.ahead.running(word, self.lines.bits(line)[word]);
            while running != 0 {
                let index = 64 * word + running.trailing_zeros() as usize;
                running &= running - 1;
                if index == to as usize {
                    continue;
                }
                // A read at this very moment comes before a transfer of a line, and before a CPU of a higher number.
                let first = index < to as usize || self.handed_over == time;
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
            Op::Access(access) | Op::Read { access, .. } | Op::Ask(access) => access,
            _ => unreachable!("CPUs are scheduled at accesses"),
        }
    }

    /// Returns the access that a CPU does when a request is granted: the one that requested the line, or the one that
    /// waits for it by now.
    fn wanted(&self, index: usize, pc: u32) -> Access {
        self.decode(index, if self.asks(index, pc) { self.cpus[index].pc } else { pc })
    }

    /// Returns whether an instruction requests the line of a later access.
    fn asks(&self, index: usize, pc: u32) -> bool {
        matches!(self.programs[self.prepared.setup.cpus[index]][pc as usize], Op::Ask(_))
    }

    /// Returns the CPU whose instance the access touches.
    fn whose(&self, index: usize, access: &Access) -> u32 {
        access
            .of
            .map_or(index as u32, |name| (self.cpus[index].registers[usize::from(name)] - 1) as u32)
    }

    /// Moves a CPU past an access that is done.
    fn done(&mut self, index: usize, clock: u64) {
        let clock = self.cpus[index].passed(clock);
        self.advance(index, clock);
    }

    fn wait(&mut self, index: usize, what: Waiting) {
        self.cpus[index].waiting = what;
        self.schedule.set(index, NEVER);
    }

    /// Performs a CPU's next shared access, which is due.
    fn access(&mut self, index: usize, time: u64) {
        let access = self.decode(index, self.cpus[index].pc);
        let to_write = !matches!(access.kind, Kind::Load { .. });
        let whose = self.whose(index, &access);
        let line = self.prepared.placement.line(access.field, whose);
        let cpu = index as u32;
        if self.asks(index, self.cpus[index].pc) {
            self.ask_ahead(line, index, to_write, time);
            self.cpus[index].pc += 1;
            return self.advance(index, time);
        }
        if access.kind == Kind::Rmw {
            let Cpu { outstanding, drained_at, .. } = self.cpus[index];
            if outstanding > 0 || drained_at > time {
                self.ask_early(line, index, whose, time);
                return match outstanding {
                    0 => self.schedule.set(index, drained_at),
                    _ => self.wait(index, Waiting::Drain),
                };
            }
        }
        if self.still_comes(line, index, &access, whose, time) {
            return;
        }
        if access.kind == Kind::Rmw
            && let Some(leaves) = self.lines.closes(line, cpu, time)
        {
            return self.schedule.set(index, leaves + 1);
        }
        if !to_write && self.prepared.knows_places(index) {
            if self.lines.is_fresh(line, cpu) {
                self.lines.lines[line].fresh = false;
                self.cpus[index].undone = true;
            }
        } else if !to_write && let Some(leaves) = self.lines.loses(line, cpu, time) {
            return self.schedule.set(index, leaves + 1);
        }
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
            self.hand_over(line, cpu, &access, true, time);
            let atomic =
                if access.kind == Kind::Rmw { self.settings.waits_for_atomic() } else { 0 };
            self.complete(index, &access, line, time, wait + atomic);
        } else {
            let asked = Asked { cpu, whose, pc: self.cpus[index].pc, purpose: Purpose::Access };
            if access.kind != Kind::Store {
                self.wait(index, Waiting::Line);
                return self.ask(line, asked, time);
            }
            if self.cpus[index].outstanding >= self.settings.store_buffer {
                return self.wait(index, Waiting::Room);
            }
            self.cpus[index].outstanding += 1;
            let slot = self.prepared.placement.slot(access.field, whose);
            self.cpus[index].stored.push(slot as u32);
            self.ask(line, asked, time);
            self.done(index, time + self.settings.cycle);
        }
    }

    /// Returns whether a load finds its value in a store of its own CPU that waits for its line.
    fn forwards(&self, index: usize, access: &Access, whose: u32) -> bool {
        let stored = &self.cpus[index].stored;
        matches!(access.kind, Kind::Load { .. })
            && access.action == Action::Nothing
            && stored.contains(&(self.prepared.placement.slot(access.field, whose) as u32))
    }

    /// Does an access whose line is there, or watches the line until another CPU writes.
    fn complete(&mut self, index: usize, access: &Access, line: usize, time: u64, takes: u64) {
        let whose = self.whose(index, access);
        if access.kind == Kind::Rmw {
            self.cpus[index].done_ahead(time + takes, self.settings.ahead);
        }
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
}
