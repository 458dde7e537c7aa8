//! One description of a CPU's accesses to shared data, for two worlds: real memory, and the simulation.
//!
//! A pattern is a function over a [`World`]. [`Real`] runs it; [`Told`] writes it down as the steps of a simulated
//! program. So the two cannot drift apart.

use super::work::{MULTIPLICATION, multiply, work, zero_after};
use ledgerline_coherence::layout::{FieldId, Layout, ObjectId, PAIR, Scope};
use ledgerline_coherence::program::{Lock, Spread, Step};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A word of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Field {
    /// Its pair of lines.
    pub(super) pair: usize,
    /// Its first byte there, a multiple of eight.
    pub(super) offset: usize,
}

impl Field {
    /// Returns the word at the beginning of a pair of lines.
    pub(super) const fn first_of(pair: usize) -> Field {
        Field { pair, offset: 0 }
    }
}

/// The steps of a pattern.
pub(super) trait World {
    /// Returns the number of this CPU, from zero.
    fn cpu(&self) -> usize;
    /// Adds one atomically, and waits for it.
    fn add(&mut self, field: Field);
    /// Reads, and waits for it.
    fn load(&mut self, field: Field);
    /// Writes one more than the last value that it read.
    fn store(&mut self, field: Field);
    /// Takes a ticket lock.
    fn lock(&mut self, next: Field, serving: Field);
    /// Releases the lock.
    fn unlock(&mut self, next: Field, serving: Field);
    /// Reads under a sequence lock, until no writer came between.
    fn read_sequence(&mut self, sequence: Field, steps: impl Fn(&mut Self));
    /// Writes under a sequence lock, as its one writer.
    fn write_sequence(&mut self, sequence: Field, steps: impl Fn(&mut Self));
    /// Does private work on the last value that it read.
    fn work(&mut self);
    /// Like `work`, for this many multiplications.
    fn work_for(&mut self, multiplications: usize);
}

/// Real memory: a few pairs of lines.
#[derive(Debug)]
pub(super) struct Memory {
    words: Box<[AtomicU64]>,
    /// The index of the first word that begins a pair.
    begins: usize,
}

const WORD: usize = size_of::<u64>();
const WORDS_A_PAIR: usize = PAIR as usize / WORD;

impl Memory {
    pub(super) fn new(pairs: usize) -> Memory {
        Memory::beyond(0, pairs)
    }

    /// Returns the pairs that follow `skipped` ones: the distance of a line from its CPUs differs by line.
    pub(super) fn beyond(skipped: usize, pairs: usize) -> Memory {
        let words: Box<[AtomicU64]> =
            (0..(skipped + pairs + 1) * WORDS_A_PAIR).map(|_| AtomicU64::new(0)).collect();
        let begins = words.as_ptr().align_offset(PAIR as usize) + skipped * WORDS_A_PAIR;
        Memory { words, begins }
    }
}

/// A CPU in the real world that works for `N` multiplications at a time.
///
/// If it is chained, each access needs the value of the one before, like in the simulation. Otherwise the processor
/// overlaps as much as it can.
#[derive(Debug)]
pub(super) struct Real<'a, const N: usize, const CHAINED: bool> {
    words: &'a [AtomicU64],
    cpu: usize,
    /// The value of the last read.
    token: u64,
    /// Zero, available when the preceding step is done.
    zero: usize,
    ticket: u64,
    sequence: u64,
}

impl<'a, const N: usize, const CHAINED: bool> Real<'a, N, CHAINED> {
    pub(super) fn new(memory: &'a Memory, cpu: usize) -> Self {
        let words = &memory.words[memory.begins..];
        Real { words, cpu, token: 0, zero: 0, ticket: 0, sequence: 0 }
    }

    #[inline(always)]
    fn word(&self, field: Field) -> &'a AtomicU64 {
        &self.words[field.pair * WORDS_A_PAIR + field.offset / WORD + self.zero]
    }

    /// Returns zero, available after the value of the last read.
    #[inline(always)]
    fn known(&self) -> usize {
        if CHAINED { self.zero } else { zero_after(self.token) }
    }

    /// Takes the value of a read, and returns it.
    #[inline(always)]
    fn took(&mut self, value: u64) -> u64 {
        self.token = value;
        if CHAINED {
            self.zero = zero_after(value);
        }
        value
    }
}

// Orderings: patterns move lines about and communicate nothing else. Acquire and Release stand at the places of a
// real lock or sequence lock, and cost nothing on x86-64.
impl<const N: usize, const CHAINED: bool> World for Real<'_, N, CHAINED> {
    #[inline(always)]
    fn cpu(&self) -> usize {
        self.cpu
    }

    #[inline(always)]
    fn add(&mut self, field: Field) {
        let value = self.word(field).fetch_add(1, Ordering::AcqRel);
        self.took(value);
    }

    #[inline(always)]
    fn load(&mut self, field: Field) {
        let value = self.word(field).load(Ordering::Acquire);
        self.took(value);
    }

    #[inline(always)]
    fn store(&mut self, field: Field) {
        self.word(field).store(self.token.wrapping_add(1), Ordering::Release);
    }

    #[inline(always)]
    fn lock(&mut self, next: Field, serving: Field) {
        self.add(next);
        self.ticket = self.token;
        loop {
            self.load(serving);
            if self.token == self.ticket {
                break;
            }
        }
    }

    #[inline(always)]
    fn unlock(&mut self, _: Field, serving: Field) {
        self.word(serving).store(self.ticket + 1, Ordering::Release);
    }

    #[inline(always)]
    fn read_sequence(&mut self, sequence: Field, steps: impl Fn(&mut Self)) {
        loop {
            self.load(sequence);
            let before = self.token;
            if before.is_multiple_of(2) {
                steps(self);
                self.load(sequence);
                if self.token == before {
                    return;
                }
            }
        }
    }

    #[inline(always)]
    fn write_sequence(&mut self, sequence: Field, steps: impl Fn(&mut Self)) {
        let word = self.word(sequence);
        word.store(self.sequence + 1, Ordering::Release);
        steps(self);
        self.sequence += 2;
        word.store(self.sequence, Ordering::Release);
    }

    #[inline(always)]
    fn work(&mut self) {
        // A store brings no value, so the work after it continues from the work before.
        self.zero = work::<N>(self.known());
    }

    #[inline(always)]
    fn work_for(&mut self, multiplications: usize) {
        self.zero = multiply(self.known(), multiplications);
    }
}

/// The data of all CPUs in the simulation: a pair of lines is an object.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) layout: Layout,
    pairs: Vec<ObjectId>,
    fields: BTreeMap<Field, FieldId>,
}

impl Data {
    pub(super) fn new(pairs: usize) -> Data {
        let mut layout = Layout::new();
        let pairs =
            (0..pairs).map(|pair| layout.object(&format!("pair {pair}"), Scope::Machine)).collect();
        Data { layout, pairs, fields: BTreeMap::new() }
    }

    /// Returns the simulated field, which is made on first use.
    fn field(&mut self, field: Field) -> FieldId {
        *self.fields.entry(field).or_insert_with(|| {
            let name = format!("at {}", field.offset);
            self.layout.field(self.pairs[field.pair], &name, field.offset as u64)
        })
    }
}

/// A CPU in the simulated world, whose steps are recorded.
#[derive(Debug)]
pub(super) struct Told<'a> {
    pub(super) cpu: usize,
    /// The length of its work, in cycles of the simulated clock.
    pub(super) cycles: f64,
    /// The length of a multiplication.
    pub(super) multiplication: f64,
    pub(super) data: &'a mut Data,
    pub(super) steps: Vec<Step>,
}

/// Cycles by which an access's address depends on the value before: the cost of [`zero_after`].
const LINK: f64 = 1.0;

impl<'a> Told<'a> {
    pub(super) fn new(cpu: usize, data: &'a mut Data) -> Told<'a> {
        Told { cpu, cycles: 0.0, multiplication: MULTIPLICATION as f64, data, steps: Vec::new() }
    }

    /// Adds a link of a chain, which always takes the same time.
    fn link(&mut self) {
        self.steps.push(Step::Compute { cycles: LINK, spread: Spread::Fixed });
    }

    /// Returns the steps that `steps` would record.
    fn aside(&mut self, steps: impl Fn(&mut Self)) -> Vec<Step> {
        let before = std::mem::take(&mut self.steps);
        steps(self);
        std::mem::replace(&mut self.steps, before)
    }
}

impl World for Told<'_> {
    fn cpu(&self) -> usize {
        self.cpu
    }

    fn add(&mut self, field: Field) {
        let field = self.data.field(field);
        self.steps.push(Step::Rmw(field));
        self.link();
    }

    fn load(&mut self, field: Field) {
        let field = self.data.field(field);
        self.steps.push(Step::load(field));
        self.link();
    }

    fn store(&mut self, field: Field) {
        let field = self.data.field(field);
        self.steps.push(Step::Store(field));
    }

    fn lock(&mut self, next: Field, serving: Field) {
        let lock = Lock::Ticket { next: self.data.field(next), serving: self.data.field(serving) };
        self.steps.push(Step::Acquire(lock));
    }

    fn unlock(&mut self, next: Field, serving: Field) {
        let lock = Lock::Ticket { next: self.data.field(next), serving: self.data.field(serving) };
        self.steps.push(Step::Release(lock));
    }

    fn read_sequence(&mut self, sequence: Field, steps: impl Fn(&mut Self)) {
        let sequence = self.data.field(sequence);
        let steps = self.aside(steps);
        self.steps.push(Step::ReadSequence { sequence, steps });
    }

    fn write_sequence(&mut self, sequence: Field, steps: impl Fn(&mut Self)) {
        let sequence = self.data.field(sequence);
        let steps = self.aside(steps);
        self.steps.push(Step::WriteSequence { sequence, steps });
    }

    /// Adds work of varying length. The real chain always takes the same time, but real transfers differ from one to
    /// the next. Without variation, two simulated CPUs fall into one step for ever, while real ones fall in and out
    /// of several.
    fn work(&mut self) {
        if self.cycles > 0.0 {
            self.steps.push(Step::compute(self.cycles));
        }
    }

    fn work_for(&mut self, multiplications: usize) {
        if multiplications > 0 {
            let cycles = self.multiplication * multiplications as f64;
            self.steps.push(Step::compute(cycles));
        }
    }
}
