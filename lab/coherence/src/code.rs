//! Compiles programs into flat instructions: locks, sequence locks and compare-and-swaps become loads, stores and
//! atomics.

use crate::layout::{FieldId, Layout, ObjectId, Scope};
use crate::program::{Lock, Program, Spread, Step, When};
use std::collections::HashSet;
use std::fmt;

/// How many registers a CPU has: one for locks, the others for nested sequence locks.
pub(crate) const REGISTERS: usize = 8;
const LOCKS: u8 = 0;

/// A load that the next instruction waits for.
const WAIT: Kind = Kind::Load { overlapping: false };

/// A value that an instruction uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    Constant(u64),
    Register(u8),
    /// The slot's own value plus one, as in a counter.
    Incremented,
    /// The CPU's number plus one; zero names no CPU.
    Name,
}

/// The use of the value once the line has arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    Nothing,
    /// A load that keeps the value.
    Get(u8),
    /// A load after which the CPU goes on if the value is this one, and otherwise waits for a write.
    AwaitEqual(Operand),
    /// A load after which the CPU goes on if the value differs from this one, and otherwise waits for a write.
    AwaitOther(Operand),
    /// A load that keeps an even value and lets the CPU go on. After an odd value the CPU waits for a write.
    AwaitEven(u8),
    /// A store or an atomic that writes this value and keeps the old one.
    Swap(Operand, u8),
    /// A store that writes this value.
    Put(Operand),
    /// An atomic that writes `new` if the value is `expected`; the register receives whether it was.
    SwapIf {
        expected: Operand,
        new: Operand,
        succeeded: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Load { overlapping: bool },
    Store,
    Rmw,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Access {
    pub field: FieldId,
    pub kind: Kind,
    pub action: Action,
    /// The instance of the CPU that this register names, instead of the CPU's own.
    pub of: Option<u8>,
    /// A hit comes from the second cache.
    pub second_cache: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Instruction {
    Compute {
        cycles: f64,
        spread: Spread,
        /// Whether lines are requested before the computation is done: then [`Instruction::Ask`] follows, and the
        /// rest of the time.
        asks: bool,
    },
    Access(Access),
    /// Requests the line of a later access.
    Ask(Access),
    /// The rest of a computation after lines have been requested.
    Rest,
    /// Goes on with this probability (in 2^-32), jumps otherwise.
    Chance {
        probability: u64,
        otherwise: u32,
    },
    /// Goes on when the counter has come round, jumps otherwise.
    Every {
        counter: u16,
        period: u32,
        otherwise: u32,
    },
    JumpIfZero {
        register: u8,
        to: u32,
    },
    JumpIfOther {
        one: u8,
        other: u8,
        to: u32,
    },
    /// An operation is complete.
    End,
}

/// A program that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadProgram {
    /// Its name.
    pub program: String,
    /// The mistake, and how to correct it.
    pub reason: String,
}

impl fmt::Display for BadProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program `{}`: {}", self.program, self.reason)
    }
}

impl std::error::Error for BadProgram {}

#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub instructions: Vec<Instruction>,
    /// The period of each counter.
    pub periods: Vec<u32>,
}

pub(crate) fn compile(program: &Program, layout: &Layout) -> Result<Code, BadProgram> {
    let mut compiler = Compiler {
        layout,
        program,
        touched: HashSet::new(),
        depth: 0,
        code: Code { instructions: Vec::new(), periods: Vec::new() },
    };
    let result = compiler.steps(&program.steps).and_then(|()| {
        let works = compiler.code.instructions.iter().any(|instruction| {
            matches!(instruction, Instruction::Access(_))
                || matches!(instruction, Instruction::Compute { cycles, .. } if *cycles >= 1.0)
        });
        if works { Ok(()) } else { Err("an operation takes no time; give it a step".to_owned()) }
    });
    result.map_err(|reason| BadProgram { program: program.name.clone(), reason })?;
    compiler.code.instructions.push(Instruction::End);
    Ok(compiler.code)
}

struct Compiler<'a> {
    layout: &'a Layout,
    program: &'a Program,
    /// Lines that this operation has certainly touched when it gets to the current instruction.
    touched: HashSet<(ObjectId, u64, Option<u8>)>,
    depth: u8,
    code: Code,
}

type Done = Result<(), String>;

impl Compiler<'_> {
    fn steps(&mut self, steps: &[Step]) -> Done {
        for (at, step) in steps.iter().enumerate() {
            self.step(step)?;
            if self.program.knows_places && matches!(step, Step::Compute { .. }) {
                self.ask_ahead(sure(&steps[at + 1..]));
            }
        }
        Ok(())
    }

    /// Makes the last computation request the lines of the accesses that are sure to follow it, each in the state
    /// that is needed in the end.
    fn ask_ahead(&mut self, next: &[Step]) {
        let computation = self.code.instructions.len() - 1;
        let line = |field: &FieldId| {
            (field.index() < self.layout.len()).then(|| self.layout.line_key(*field))
        };
        let mut asked = HashSet::new();
        for step in next {
            let (Step::Load { field, .. } | Step::Rmw(field)) = step else { continue };
            let Some(of) = line(field).filter(|of| asked.insert(*of)) else { continue };
            let changed = matches!(next.last(), Some(Step::Rmw(last)) if line(last) == Some(of));
            let kind = if changed { Kind::Rmw } else { WAIT };
            let (field, action) = (*field, Action::Nothing);
            let access = Access { field, kind, action, of: None, second_cache: false };
            self.code.instructions.push(Instruction::Ask(access));
        }
        if !asked.is_empty()
            && let Instruction::Compute { asks, .. } = &mut self.code.instructions[computation]
        {
            *asks = true;
            self.code.instructions.push(Instruction::Rest);
        }
    }

    fn step(&mut self, step: &Step) -> Done {
        match step {
            Step::Compute { cycles, spread } => self.compute(*cycles, *spread),
            Step::Load { field, overlapping } => {
                self.access(*field, Kind::Load { overlapping: *overlapping }, Action::Nothing)
            }
            Step::Store(field) => self.access(*field, Kind::Store, Action::Nothing),
            Step::Rmw(field) => self.access(*field, Kind::Rmw, Action::Nothing),
            Step::Sometimes { when, steps } => self.sometimes(*when, steps),
            Step::Acquire(lock) => self.acquire(*lock),
            Step::Release(lock) => self.release(*lock),
            Step::CompareSwap { field, cycles } => self.compare_swap(*field, *cycles),
            Step::ReadSequence { sequence, steps } => self.read_sequence(*sequence, steps),
            Step::WriteSequence { sequence, steps } => {
                self.access(*sequence, Kind::Store, Action::Put(Operand::Incremented))?;
                self.steps(steps)?;
                self.access(*sequence, Kind::Store, Action::Put(Operand::Incremented))
            }
        }
    }

    fn compute(&mut self, cycles: f64, spread: Spread) -> Done {
        const MOST: f64 = 1e12;
        if !(0.0..=MOST).contains(&cycles) {
            return Err(format!("computing takes {cycles} cycles; it takes 0 to {MOST}"));
        }
        if let Spread::Uniform(share) | Spread::Beside(share) = spread
            && !(0.0..=1.0).contains(&share)
        {
            return Err(format!("computing varies by {share} of itself; it varies by 0 to 1"));
        }
        self.code.instructions.push(Instruction::Compute { cycles, spread, asks: false });
        Ok(())
    }

    fn access(&mut self, field: FieldId, kind: Kind, action: Action) -> Done {
        self.access_of(field, kind, action, None)
    }

    fn access_of(&mut self, field: FieldId, kind: Kind, action: Action, of: Option<u8>) -> Done {
        if field.index() >= self.layout.len() {
            return Err("it touches a field of another layout".to_owned());
        }
        let (object, line) = self.layout.line_key(field);
        let second_cache =
            self.program.outgrows_first_cache && self.touched.insert((object, line, of));
        let access = Access { field, kind, action, of, second_cache };
        self.code.instructions.push(Instruction::Access(access));
        Ok(())
    }

    fn here(&self) -> u32 {
        self.code.instructions.len() as u32
    }

    /// Reserves a place for a jump whose target is not known yet.
    fn hole(&mut self) -> usize {
        self.code.instructions.push(Instruction::End);
        self.code.instructions.len() - 1
    }

    fn sometimes(&mut self, when: When, steps: &[Step]) -> Done {
        let before = self.touched.clone();
        let hole = self.hole();
        self.steps(steps)?;
        // These steps may be left out, so what they touch is not certain.
        self.touched = before;
        let otherwise = self.here();
        self.code.instructions[hole] = match when {
            When::Chance(chance) if (0.0..=1.0).contains(&chance) => {
                Instruction::Chance { probability: (chance * 2f64.powi(32)) as u64, otherwise }
            }
            When::Every(period) if period > 0 => {
                self.code.periods.push(period);
                let counter = u16::try_from(self.code.periods.len() - 1)
                    .map_err(|_| "it has more than 65 535 counters".to_owned())?;
                Instruction::Every { counter, period, otherwise }
            }
            When::Chance(chance) => return Err(format!("a probability is {chance}; it is 0 to 1")),
            When::Every(_) => {
                return Err("something happens every 0 times; give a period".to_owned());
            }
        };
        Ok(())
    }

    fn acquire(&mut self, lock: Lock) -> Done {
        match lock {
            Lock::Ticket { next, serving } => {
                self.access(next, Kind::Rmw, Action::Swap(Operand::Incremented, LOCKS))?;
                self.access(serving, WAIT, Action::AwaitEqual(Operand::Register(LOCKS)))
            }
            Lock::TestAndSet { word } => {
                let again = self.here();
                self.access(word, WAIT, Action::AwaitEqual(Operand::Constant(0)))?;
                let expected = Operand::Constant(0);
                let new = Operand::Constant(1);
                self.access(word, Kind::Rmw, Action::SwapIf { expected, new, succeeded: LOCKS })?;
                self.code.instructions.push(Instruction::JumpIfZero { register: LOCKS, to: again });
                Ok(())
            }
            Lock::Queue { tail, next, waiting } => {
                if [next, waiting].iter().any(|&node| self.layout.scope(node) != Scope::Cpu) {
                    return Err("a queue lock's `next` and `waiting` are each CPU's own".to_owned());
                }
                self.access(next, Kind::Store, Action::Put(Operand::Constant(0)))?;
                self.access(waiting, Kind::Store, Action::Put(Operand::Constant(1)))?;
                self.access(tail, Kind::Rmw, Action::Swap(Operand::Name, LOCKS))?;
                let alone = self.hole();
                self.access_of(next, Kind::Store, Action::Put(Operand::Name), Some(LOCKS))?;
                self.access(waiting, WAIT, Action::AwaitEqual(Operand::Constant(0)))?;
                let to = self.here();
                self.code.instructions[alone] = Instruction::JumpIfZero { register: LOCKS, to };
                Ok(())
            }
        }
    }

    fn release(&mut self, lock: Lock) -> Done {
        match lock {
            Lock::Ticket { serving, .. } => {
                self.access(serving, Kind::Store, Action::Put(Operand::Incremented))
            }
            Lock::TestAndSet { word } => {
                self.access(word, Kind::Store, Action::Put(Operand::Constant(0)))
            }
            Lock::Queue { tail, next, waiting } => {
                // No CPU comes after this one: the queue becomes empty, unless another CPU is just joining it.
                self.access(next, WAIT, Action::Get(LOCKS))?;
                const DONE: u8 = LOCKS + 1;
                let (expected, new) = (Operand::Name, Operand::Constant(0));
                let somebody = self.hole();
                self.access(tail, Kind::Rmw, Action::SwapIf { expected, new, succeeded: DONE })?;
                let coming = self.hole();
                let end = self.hole();
                let to = self.here();
                self.code.instructions[coming] = Instruction::JumpIfZero { register: DONE, to };
                self.access(next, WAIT, Action::AwaitOther(Operand::Constant(0)))?;
                self.access(next, WAIT, Action::Get(LOCKS))?;
                let to = self.here();
                // Register LOCKS is not zero exactly when another CPU comes after this one.
                self.code.instructions[somebody] =
                    Instruction::JumpIfOther { one: LOCKS, other: ZERO, to };
                let told = Action::Put(Operand::Constant(0));
                self.access_of(waiting, Kind::Store, told, Some(LOCKS))?;
                let to = self.here();
                self.code.instructions[end] = Instruction::JumpIfZero { register: ZERO, to };
                Ok(())
            }
        }
    }

    fn compare_swap(&mut self, field: FieldId, cycles: f64) -> Done {
        const OLD: u8 = LOCKS;
        const DONE: u8 = LOCKS + 1;
        let again = self.here();
        self.access(field, WAIT, Action::Get(OLD))?;
        self.compute(cycles, Spread::Fixed)?;
        let expected = Operand::Register(OLD);
        let swap = Action::SwapIf { expected, new: Operand::Incremented, succeeded: DONE };
        self.access(field, Kind::Rmw, swap)?;
        self.code.instructions.push(Instruction::JumpIfZero { register: DONE, to: again });
        Ok(())
    }

    fn read_sequence(&mut self, sequence: FieldId, steps: &[Step]) -> Done {
        // Each level of nesting has two registers, above those of locks and below the one that stays zero.
        let first = 2 + 2 * self.depth;
        let now = first + 1;
        if now >= ZERO {
            return Err("sequence locks are nested more than two deep".to_owned());
        }
        self.depth += 1;
        let again = self.here();
        self.access(sequence, WAIT, Action::AwaitEven(first))?;
        self.steps(steps)?;
        self.access(sequence, WAIT, Action::Get(now))?;
        self.code.instructions.push(Instruction::JumpIfOther { one: first, other: now, to: again });
        self.depth -= 1;
        Ok(())
    }
}

/// Returns the plain accesses at the start, up to an atomic: no load is requested ahead of it.
fn sure(steps: &[Step]) -> &[Step] {
    let plain = |step: &Step| matches!(step, Step::Load { .. } | Step::Store(_));
    let end = steps.iter().position(|step| !plain(step)).unwrap_or(steps.len());
    let atomic = matches!(steps.get(end), Some(Step::Rmw(_)));
    &steps[..end + usize::from(atomic)]
}

/// A register that nothing writes.
pub(crate) const ZERO: u8 = REGISTERS as u8 - 1;
