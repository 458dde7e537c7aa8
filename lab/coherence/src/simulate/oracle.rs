//! The simulator's rules, written as plainly as possible: every instruction is an event, every copy a state.
//!
//! It joins no stretches, treats no line as private and packs no bits. So it is slow, and the engine must equal it.

mod early;
mod grant;

use super::cpu::{Cpu, Waiting, hit_time, stay};
use super::lines::Purpose;
use super::outcome::{Outcome, Tally};
use super::{Error, Prepared, Setup};
use crate::code::{Access, Action, Instruction, Kind};
use crate::layout::FieldId;
use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Modified,
    Exclusive,
    Shared,
    Invalid,
}
use State::{Exclusive, Invalid, Modified, Shared};

struct Asked {
    cpu: usize,
    whose: u32,
    at: u64,
    /// The time at which the request has reached the line.
    ready: u64,
    /// The access that needs it and that is done when it is granted. It is a smaller one if a load and an atomic
    /// asked together.
    access: Access,
    does: Access,
    purpose: Purpose,
}

struct Line {
    copies: Vec<State>,
    asked: Vec<Asked>,
    free_at: u64,
    /// The end of the time in which the atomic that brought it is not final.
    final_at: u64,
    /// Whether an atomic brought it, and its owner has not loaded from it since.
    fresh: bool,
    watchers: Vec<usize>,
    wanting: Vec<usize>,
    spoiler: Option<FieldId>,
    random: Random,
}

pub(super) fn run(setup: &Setup) -> Result<Outcome, Error> {
    let prepared = Prepared::new(setup)?;
    let cpus = setup.cpus.len();
    let mut oracle = Oracle {
        prepared: &prepared,
        setup,
        cpus: (0..cpus).map(|cpu| Cpu::new(&prepared, cpu)).collect(),
        clocks: vec![Some(0); cpus],
        lines: (0..prepared.placement.lines.len())
            .map(|line| {
                let mut copies = vec![Invalid; cpus];
                if let Some(owner) = prepared.private[line] {
                    copies[owner as usize] = Modified;
                }
                Line {
                    copies,
                    asked: Vec::new(),
                    free_at: 0,
                    final_at: 0,
                    fresh: false,
                    watchers: Vec::new(),
                    wanting: Vec::new(),
                    spoiler: None,
                    random: Random::stream(setup.seed, (1 << 32) + line as u64),
                }
            })
            .collect(),
        stores: vec![Vec::new(); cpus],
        values: vec![0; prepared.placement.slots],
        tally: Tally::new(&prepared),
    };
    let mut now = 0;
    loop {
        // Takes the earliest event; CPUs come before lines, lower numbers first.
        let cpu_events = oracle
            .clocks
            .iter()
            .enumerate()
            .filter_map(|(cpu, clock)| clock.map(|clock| (clock, cpu)));
        let line_events = oracle.lines.iter().enumerate().filter_map(|(line, state)| {
            let first = state.asked.first()?;
            Some((state.free_at.max(first.ready), cpus + line))
        });
        let Some((time, who)) = cpu_events.chain(line_events).min() else {
            return Err(Error::Stuck { nanosecond: now / 1000 });
        };
        // A request that was made while its line was busy is granted when the line is free, and never before now.
        let time = time.max(now);
        if time >= prepared.to {
            return Ok(oracle.tally.outcome(&prepared));
        }
        now = time;
        if who < cpus { oracle.instruction(who, time) } else { oracle.grant(who - cpus, time) }
    }
}

struct Oracle<'a> {
    prepared: &'a Prepared<'a>,
    setup: &'a Setup,
    cpus: Vec<Cpu>,
    /// The time of each CPU's next instruction; `None` while it waits.
    clocks: Vec<Option<u64>>,
    lines: Vec<Line>,
    /// The slots of each CPU's stores whose lines have not been granted.
    stores: Vec<Vec<usize>>,
    values: Vec<u64>,
    tally: Tally,
}

fn writes(access: &Access) -> bool {
    matches!(access.kind, Kind::Store | Kind::Rmw)
}

impl Oracle<'_> {
    fn current(&self, cpu: usize) -> Instruction {
        self.prepared.codes[self.setup.cpus[cpu]].instructions[self.cpus[cpu].pc as usize]
    }

    fn instruction(&mut self, cpu: usize, time: u64) {
        match self.current(cpu) {
            Instruction::Access(access) => self.access(cpu, access, time),
            Instruction::Ask(access) => self.ask_ahead(cpu, access, time),
            other => {
                let (takes, ended) = self.cpus[cpu].step(other, time, &self.setup.settings);
                self.clocks[cpu] = Some(time + takes);
                if ended {
                    if self.prepared.in_window(time) {
                        self.tally.operations[self.setup.cpus[cpu]] += 1;
                        self.tally.accesses += u64::from(self.cpus[cpu].accesses);
                    }
                    self.cpus[cpu].accesses = 0;
                }
            }
        }
    }

    fn whose(&self, cpu: usize, access: &Access) -> u32 {
        match access.of {
            None => cpu as u32,
            Some(register) => (self.cpus[cpu].registers[usize::from(register)] - 1) as u32,
        }
    }

    /// Returns whether a CPU's copy suffices for an access.
    fn suffices(&self, line: usize, cpu: usize, access: &Access) -> bool {
        match self.lines[line].copies[cpu] {
            Modified | Exclusive => true,
            Shared => !writes(access),
            Invalid => false,
        }
    }

    fn holders(&self, line: usize, but: usize) -> Vec<usize> {
        let copies = &self.lines[line].copies;
        (0..copies.len()).filter(|&cpu| cpu != but && copies[cpu] != Invalid).collect()
    }

    /// Returns whether the other threads of the CPU's core can serve the access.
    fn within_core(&self, line: usize, cpu: usize, access: &Access) -> bool {
        let topology = &self.setup.settings.topology;
        let holders = self.holders(line, cpu);
        let sibling = |other: &usize| topology.core(*other) == topology.core(cpu);
        if writes(access) {
            !holders.is_empty() && holders.iter().all(sibling)
        } else {
            holders.iter().any(sibling)
        }
    }

    fn access(&mut self, cpu: usize, access: Access, time: u64) {
        let settings = &self.setup.settings;
        let whose = self.whose(cpu, &access);
        let line = self.prepared.placement.line(access.field, whose);
        if access.kind == Kind::Rmw {
            let drained = self.cpus[cpu].outstanding == 0 && self.cpus[cpu].drained_at <= time;
            if !drained {
                self.ask_early(line, cpu, whose, time);
            }
            if self.cpus[cpu].outstanding > 0 {
                self.cpus[cpu].waiting = Waiting::Drain;
                self.clocks[cpu] = None;
                return;
            }
            if !drained {
                self.clocks[cpu] = Some(self.cpus[cpu].drained_at);
                return;
            }
        }
        let slot = self.prepared.placement.slot(access.field, whose);
        if self.still_comes(line, cpu, access, slot, time) {
            return;
        }
        if access.kind == Kind::Rmw
            && matches!(self.lines[line].copies[cpu], Modified | Exclusive)
            && let Some(first) = self.lines[line].asked.first()
            && first.cpu != cpu
        {
            // Another CPU's request is granted before the atomic would be done with the line.
            let leaves = first.ready.max(self.lines[line].free_at);
            if leaves >= time && leaves < time + settings.closing {
                self.clocks[cpu] = Some(leaves + 1);
                return;
            }
        }
        let owner = matches!(self.lines[line].copies[cpu], Modified | Exclusive);
        if !writes(&access) && self.prepared.knows_places(cpu) {
            if owner && self.lines[line].fresh {
                // It was done before the atomic that brought the line.
                self.lines[line].fresh = false;
                self.cpus[cpu].undone = true;
            }
        } else if !writes(&access)
            && owner
            && time < self.lines[line].final_at
            && let Some(first) = self.lines[line].asked.first()
            && first.cpu != cpu
            && first.ready <= self.lines[line].final_at
        {
            // The atomic that brought the line is not final when another CPU's request comes, so the load is
            // repeated.
            self.clocks[cpu] = Some(first.ready.max(self.lines[line].free_at).max(time) + 1);
            return;
        }
        let plain_load = !writes(&access) && access.action == Action::Nothing;
        if !self.suffices(line, cpu, &access) && plain_load && self.stores[cpu].contains(&slot) {
            // A store of this CPU has the value.
            self.finish(cpu, time + hit_time(&access, settings));
        } else if self.suffices(line, cpu, &access) {
            if writes(&access) {
                self.lines[line].copies[cpu] = Modified;
            }
            self.finish_or_watch(cpu, line, access, whose, time, hit_time(&access, settings));
        } else if self.within_core(line, cpu, &access) {
            let sibling = settings.transfer[0][0];
            let wait = if access.kind == Kind::Store { settings.cycle } else { sibling };
            let atomic = if access.kind == Kind::Rmw { settings.waits_for_atomic() } else { 0 };
            if self.prepared.in_window(time) {
                self.tally.lines[line][0] += 1;
                self.tally.lines[line][2] += wait;
                if access.kind != Kind::Store {
                    self.tally.stall(self.lines[line].spoiler, access.field, wait);
                }
            }
            self.move_line(line, cpu, &access, Modified, time);
            self.finish_or_watch(cpu, line, access, whose, time, wait + atomic);
        } else if access.kind == Kind::Store {
            if self.cpus[cpu].outstanding == settings.store_buffer {
                self.cpus[cpu].waiting = Waiting::Room;
                self.clocks[cpu] = None;
            } else {
                self.cpus[cpu].outstanding += 1;
                let slot = self.prepared.placement.slot(access.field, whose);
                self.stores[cpu].push(slot);
                self.ask(line, cpu, whose, time, access, Purpose::Access);
                self.finish(cpu, time + settings.cycle);
            }
        } else {
            self.clocks[cpu] = None;
            self.ask(line, cpu, whose, time, access, Purpose::Access);
        }
    }

    fn ask(
        &mut self,
        line: usize,
        cpu: usize,
        whose: u32,
        at: u64,
        access: Access,
        purpose: Purpose,
    ) {
        let mut ready = at;
        if !self.suffices(line, cpu, &access) && !self.within_core(line, cpu, &access) {
            let latency = self.price(line, cpu, &access).0;
            ready += (latency as f64 * self.setup.settings.request).round() as u64;
        }
        self.lines[line].asked.push(Asked { cpu, whose, at, ready, access, does: access, purpose });
    }

    fn finish(&mut self, cpu: usize, clock: u64) {
        self.cpus[cpu].waiting = Waiting::No;
        self.clocks[cpu] = Some(self.cpus[cpu].passed(clock));
    }

    fn finish_or_watch(
        &mut self,
        cpu: usize,
        line: usize,
        access: Access,
        whose: u32,
        time: u64,
        takes: u64,
    ) {
        if access.kind == Kind::Rmw {
            let done = time + takes + self.setup.settings.ahead;
            self.cpus[cpu].drained_at = self.cpus[cpu].drained_at.max(done);
        }
        if self.act(cpu, access, whose) {
            self.finish(cpu, time + takes);
        } else {
            self.clocks[cpu] = None;
            self.lines[line].watchers.push(cpu);
        }
    }

    fn act(&mut self, cpu: usize, access: Access, whose: u32) -> bool {
        let slot = self.prepared.placement.slot(access.field, whose);
        self.cpus[cpu].act(access.action, cpu, &mut self.values[slot])
    }

    /// Changes the copies as a CPU's access demands.
    fn move_line(&mut self, line: usize, cpu: usize, access: &Access, written: State, time: u64) {
        let others = self.holders(line, cpu);
        self.lines[line].final_at = 0;
        self.lines[line].fresh = false;
        if writes(access) {
            for &other in &others {
                self.lines[line].copies[other] = Invalid;
            }
            self.lines[line].copies[cpu] = written;
            self.lines[line].spoiler = Some(access.field);
            if self.prepared.in_window(time) {
                self.tally.lines[line][1] += others.len() as u64;
            }
            self.wake(line, time);
        } else if self.migrates(line) {
            for &other in &others {
                self.lines[line].copies[other] = Invalid;
            }
            self.lines[line].copies[cpu] = Exclusive;
            if self.prepared.in_window(time) {
                self.tally.lines[line][1] += others.len() as u64;
            }
            self.wake(line, time);
        } else if others.is_empty() {
            self.lines[line].copies[cpu] = Exclusive;
        } else {
            for other in others.into_iter().chain([cpu]) {
                self.lines[line].copies[other] = Shared;
            }
        }
        self.ask_again(line, time);
    }

    /// Returns whether a CPU that reads a line takes it away.
    fn migrates(&self, line: usize) -> bool {
        self.setup.settings.migratory && self.lines[line].copies.contains(&Modified)
    }

    fn wake(&mut self, line: usize, time: u64) {
        for watcher in std::mem::take(&mut self.lines[line].watchers) {
            let Instruction::Access(access) = self.current(watcher) else { panic!("it watched") };
            let whose = self.whose(watcher, &access);
            self.ask(line, watcher, whose, time, access, Purpose::Access);
        }
    }

    /// Returns the latency of a transfer, and the time for which the transfer alone keeps the line busy.
    fn price(&self, line: usize, cpu: usize, access: &Access) -> (u64, u64) {
        let settings = &self.setup.settings;
        let topology = &settings.topology;
        let home = self.prepared.placement.lines[line].home;
        let socket = topology.socket(cpu);
        let holders = self.holders(line, cpu);
        let copies = &self.lines[line].copies;
        let latencies: Vec<u64> = holders
            .iter()
            .map(|&from| {
                let modified = copies[from] == Modified;
                settings.transfer(topology.distance(from, cpu), modified, home, socket)
            })
            .collect();
        let shared = holders.iter().any(|&from| copies[from] == Shared);
        if holders.is_empty() {
            let latency = settings.memory[usize::from(home != socket)];
            (latency, settings.occupied(latency))
        } else if writes(access) {
            let latency = *latencies.iter().max().unwrap();
            (latency, settings.occupied(latency))
        } else {
            let latency = *latencies.iter().min().unwrap();
            (latency, if shared { settings.read_service } else { settings.occupied(latency) })
        }
    }

    /// Returns the time for which the line is busy beyond the transfer.
    fn stay(&mut self, line: usize, cpu: usize, access: &Access) -> u64 {
        let settings = &self.setup.settings;
        let mut busy = 0;
        if writes(access) || self.migrates(line) {
            let had_copy = self.lines[line].copies[cpu] != Invalid;
            busy += stay(settings, had_copy, &mut self.lines[line].random);
        }
        if access.kind == Kind::Rmw {
            busy += settings.atomic;
        }
        busy
    }
}
