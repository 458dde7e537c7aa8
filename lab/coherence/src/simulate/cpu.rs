//! A CPU between two accesses that other CPUs could notice: it computes, branches and uses its own lines.
//!
//! No other CPU can change this work, so the CPU runs ahead of simulated time to its next shared access.

use super::Prepared;
use crate::code::{Access, Action, Code, Instruction, Kind, Operand, REGISTERS};
use crate::layout::{FieldId, Scope};
use crate::machine::Settings;
use crate::program::Spread;
use crate::random::Random;

/// The event that a CPU waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waiting {
    /// It waits for nothing: its next access is in the schedule.
    #[default]
    No,
    /// It waits for a line that it has requested.
    Line,
    /// It waits for all its stores, before an atomic.
    Drain,
    /// It waits for room for another store.
    Room,
    /// It waits for a write to the line that it reads over and over.
    Write,
}

/// A line that was requested before the turn of the access that needs it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Early {
    pub line: u32,
    /// The instruction that the request names.
    pub pc: u32,
    pub to_write: bool,
    /// Whether the CPU requests the line again each time it loses it before that turn.
    pub again: bool,
    /// Whether the CPU has lost it once.
    pub lost: bool,
    /// The arrival of the line, and the field whose write took the copies away; `None` while the request is under
    /// way.
    pub comes: Option<(u64, Option<FieldId>)>,
}

/// An instruction as the engine runs it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// A stretch of known length: fixed computing and hits on the CPU's own lines.
    Run {
        time: u64,
        accesses: u32,
        next: u32,
    },
    /// A computation of evenly varying length, in picoseconds.
    Evenly {
        mean: f64,
        share: f64,
    },
    Every {
        counter: u16,
        period: u32,
        otherwise: u32,
    },
    Access(Access),
    /// Requests the line of a later access.
    Ask(Access),
    /// A load whose value nothing depends on, and its time if the CPU has the line.
    Read {
        access: Access,
        hit: u64,
    },
    Other(Instruction),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cpu {
    pub pc: u32,
    pub waiting: Waiting,
    /// Stores whose lines have not been granted.
    pub outstanding: u32,
    /// The slots they go to.
    pub stored: Vec<u32>,
    /// Whether the CPU's prefetcher waits for a line.
    pub prefetching: bool,
    /// The lines that it has requested for accesses whose turn has not come.
    pub early: Vec<Early>,
    /// The arrival of the last granted store.
    pub drained_at: u64,
    /// Accesses of the operation so far.
    pub accesses: u32,
    /// Operations that ended in the window; next, their accesses.
    pub operations: u64,
    pub counted: u64,
    pub registers: [u64; REGISTERS],
    /// The end of the work beside accesses so far.
    worked: u64,
    /// The rest of a computation after it has requested lines.
    rest: u64,
    /// Whether the work behind the next access is to be repeated.
    pub undone: bool,
    /// The extra time of that access, since it was once done too early.
    pub flush: u64,
    random: Random,
    counters: Vec<u32>,
}

impl Cpu {
    pub(super) fn new(prepared: &Prepared<'_>, cpu: usize) -> Cpu {
        let mut random = Random::stream(prepared.setup.seed, cpu as u64);
        let periods = &prepared.codes[prepared.setup.cpus[cpu]].periods;
        let counters = periods.iter().map(|&period| random.below(period)).collect();
        Cpu { random, counters, ..Cpu::default() }
    }

    /// Goes to the place in the program where `other` stands. Pending requests and stores of this CPU stay.
    #[inline]
    pub(super) fn follow(&mut self, other: &Cpu) {
        self.pc = other.pc;
        self.accesses = other.accesses;
        self.operations = other.operations;
        self.counted = other.counted;
        self.worked = other.worked;
        self.rest = other.rest;
        self.random = other.random.clone();
        self.counters.copy_from_slice(&other.counters);
    }

    /// Returns the number of its counters of occasions.
    pub(super) fn counters(&self) -> usize {
        self.counters.len()
    }

    /// Computes for a time that varies evenly about `mean` picoseconds, by up to `share` of it.
    #[inline]
    pub(super) fn compute(&mut self, mean: f64, share: f64) -> u64 {
        evenly(mean, share, &mut self.random)
    }

    /// Notes work from `clock` on. A CPU does work beside accesses while it waits, as far as the window reaches;
    /// other work takes its time out of the rest of the window.
    #[inline]
    pub(super) fn works(&mut self, clock: u64, time: u64, window: u64) {
        self.worked = self.worked.max(clock.saturating_sub(window)) + time;
    }

    /// Counts an occasion, and returns whether the counter has come round.
    #[inline]
    pub(super) fn count(&mut self, counter: u16, period: u32) -> bool {
        let count = &mut self.counters[usize::from(counter)];
        *count += 1;
        if *count < period {
            return false;
        }
        *count = 0;
        true
    }

    /// Notes that the CPU went on at `at` behind an atomic that is done `ahead` later. Until then it begins no other
    /// atomic.
    #[inline]
    pub(super) fn done_ahead(&mut self, at: u64, ahead: u64) {
        self.drained_at = self.drained_at.max(at + ahead);
    }

    /// Returns the index of the line among those requested before their turn.
    #[inline]
    pub(super) fn early_of(&self, line: usize) -> Option<usize> {
        self.early.iter().position(|early| early.line as usize == line)
    }

    /// Notes that an access is done at `clock`, and returns when the CPU goes on.
    #[inline]
    pub(super) fn passed(&mut self, clock: u64) -> u64 {
        self.pc += 1;
        self.accesses += 1;
        let clock = clock + std::mem::take(&mut self.flush);
        if std::mem::take(&mut self.undone) {
            self.worked = self.worked.max(clock);
        }
        clock
    }

    /// Notes that a store to a slot has got its line.
    pub(super) fn stored_no_more(&mut self, slot: u32) {
        let position = self.stored.iter().position(|&stored| stored == slot);
        self.stored.swap_remove(position.expect("a store that waits for its line is remembered"));
    }

    /// Returns the value of an operand when the slot holds `value`.
    pub(super) fn operand(&self, operand: Operand, cpu: usize, value: u64) -> u64 {
        match operand {
            Operand::Constant(constant) => constant,
            Operand::Register(register) => self.registers[usize::from(register)],
            Operand::Incremented => value + 1,
            Operand::Name => cpu as u64 + 1,
        }
    }

    /// Performs an access's action on the value of its slot; returns false if the access has to be repeated.
    pub(super) fn act(&mut self, action: Action, cpu: usize, value: &mut u64) -> bool {
        match action {
            Action::Nothing => {}
            Action::Get(register) => self.registers[usize::from(register)] = *value,
            Action::AwaitEqual(operand) => return *value == self.operand(operand, cpu, *value),
            Action::AwaitOther(operand) => return *value != self.operand(operand, cpu, *value),
            Action::AwaitEven(register) => {
                self.registers[usize::from(register)] = *value;
                return (*value).is_multiple_of(2);
            }
            Action::Swap(new, register) => {
                let new = self.operand(new, cpu, *value);
                self.registers[usize::from(register)] = std::mem::replace(value, new);
            }
            Action::Put(new) => *value = self.operand(new, cpu, *value),
            Action::SwapIf { expected, new, succeeded } => {
                let same = *value == self.operand(expected, cpu, *value);
                if same {
                    *value = self.operand(new, cpu, *value);
                }
                self.registers[usize::from(succeeded)] = u64::from(same);
            }
        }
        true
    }

    /// Runs the instruction at `pc`, which is not an access, at `clock`. Returns its time, and whether an operation
    /// ended.
    pub(super) fn step(
        &mut self,
        instruction: Instruction,
        clock: u64,
        settings: &Settings,
    ) -> (u64, bool) {
        let mut time = 0;
        // Whether it goes on with the next instruction, and its target otherwise.
        let (goes_on, otherwise) = match instruction {
            Instruction::Compute { cycles, spread, asks } => {
                time = duration(cycles, spread, settings, &mut self.random);
                self.works(clock, time, settings.window);
                if let Spread::Beside(_) = spread {
                    time = self.worked.saturating_sub(clock);
                }
                if asks {
                    self.rest = time.min(settings.lead);
                    time -= self.rest;
                }
                (true, 0)
            }
            Instruction::Rest => {
                time = self.rest;
                (true, 0)
            }
            Instruction::Chance { probability, otherwise } => {
                (self.random.happens(probability), otherwise)
            }
            Instruction::Every { counter, period, otherwise } => {
                (self.count(counter, period), otherwise)
            }
            Instruction::JumpIfZero { register, to } => {
                (self.registers[usize::from(register)] != 0, to)
            }
            Instruction::JumpIfOther { one, other, to } => {
                (self.registers[usize::from(one)] == self.registers[usize::from(other)], to)
            }
            Instruction::End => (false, 0),
            Instruction::Access(_) | Instruction::Ask(_) => {
                unreachable!("accesses take their own way")
            }
        };
        self.pc = if goes_on { self.pc + 1 } else { otherwise };
        (time, matches!(instruction, Instruction::End))
    }
}

/// Returns the length of a computation this time.
pub(super) fn duration(
    cycles: f64,
    spread: Spread,
    settings: &Settings,
    random: &mut Random,
) -> u64 {
    let mean = settings.cycles(cycles);
    match spread {
        Spread::Fixed => mean,
        Spread::Uniform(share) | Spread::Beside(share) => evenly(mean as f64, share, random),
        Spread::Exponential => (mean as f64 * -(1.0 - random.unit()).ln()).round() as u64,
    }
}

/// Returns the owner's hold time; `had_copy` means that it had a copy before.
pub(super) fn stay(settings: &Settings, had_copy: bool, random: &mut Random) -> u64 {
    let share = if had_copy { settings.upgrade_keep } else { 1.0 };
    let mean = settings.keep as f64 * share;
    match settings.keep_spread {
        0.0 => mean.round() as u64,
        spread => evenly(mean, spread, random),
    }
}

/// Draws a time that varies evenly about `mean`.
#[inline]
fn evenly(mean: f64, share: f64, random: &mut Random) -> u64 {
    // Adds a half and truncates, since proper rounding is a call into the C library.
    (mean * (1.0 + share * (2.0 * random.unit() - 1.0)) + 0.5) as u64
}

/// Returns the time for which a hit keeps the CPU.
pub(super) fn hit_time(access: &Access, settings: &Settings) -> u64 {
    let load = if access.second_cache { settings.second_cache } else { settings.first_cache };
    match access.kind {
        Kind::Load { overlapping: true } | Kind::Store => settings.cycle,
        Kind::Load { overlapping: false } => load,
        Kind::Rmw => load + settings.waits_for_atomic(),
    }
}

/// Translates a program for the engine, and joins neighbouring stretches of known length.
pub(super) fn fuse(prepared: &Prepared<'_>, code: &Code) -> Vec<Op> {
    let settings = &prepared.setup.settings;
    let layout = &prepared.setup.layout;
    let private = |access: &Access| {
        layout.scope(access.field) == Scope::Cpu
            && prepared.private[prepared.placement.line(access.field, 0)].is_some()
    };
    let mut ops: Vec<Op> = Vec::with_capacity(code.instructions.len());
    for (pc, instruction) in code.instructions.iter().enumerate().rev() {
        let known = match instruction {
            Instruction::Compute { cycles, spread: Spread::Fixed, asks: false }
                if settings.window == 0 =>
            {
                Some((settings.cycles(*cycles), 0))
            }
            // An atomic drains the store buffer. Other CPUs can notice that.
            Instruction::Access(access)
                if access.kind != Kind::Rmw
                    && access.action == Action::Nothing
                    && private(access) =>
            {
                Some((hit_time(access, settings), 1))
            }
            Instruction::Ask(access) if private(access) || settings.lead == 0 => Some((0, 0)),
            _ => None,
        };
        ops.push(match (known, ops.last()) {
            (None, _) => plain(*instruction, settings),
            (Some((time, count)), Some(&Op::Run { time: rest, accesses, next })) => {
                Op::Run { time: time + rest, accesses: count + accesses, next }
            }
            (Some((time, accesses)), _) => Op::Run { time, accesses, next: pc as u32 + 1 },
        });
    }
    ops.reverse();
    ops
}

fn plain(instruction: Instruction, settings: &Settings) -> Op {
    match instruction {
        Instruction::Compute { cycles, spread: Spread::Uniform(share), asks: false } => {
            Op::Evenly { mean: settings.cycles(cycles) as f64, share }
        }
        Instruction::Every { counter, period, otherwise } => {
            Op::Every { counter, period, otherwise }
        }
        Instruction::Access(
            access @ Access { kind: Kind::Load { .. }, action: Action::Nothing, of: None, .. },
        ) => Op::Read { access, hit: hit_time(&access, settings) },
        Instruction::Access(access) => Op::Access(access),
        Instruction::Ask(access) => Op::Ask(access),
        other => Op::Other(other),
    }
}
