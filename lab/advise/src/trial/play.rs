//! Executes lists of acts on real memory.
//!
//! ```text
//! token     the value of the last awaited access: the next work begins with it, and the next address contains it, as
//!           a zero that the compiler does not know. So no step begins before the one it waits for, as in the simulation
//! work      a chain of multiplications, each of which needs the one before
//! load      not awaited: no step depends on its value
//! outgrow   reads as many lines of the thread's own as crowd a line out of the first cache: those that differ from its
//!           address by whole pages, more than a set of the cache holds
//! ```
//!
//! Every access is a relaxed atomic one to a single byte: threads race for them, and fields may have any offset.

use std::hint::black_box;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::trial::acts::Act;

/// Work of fewer multiplications has a fixed length.
const SPREAD_FROM: f64 = 32.0;

/// An act, prepared for execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// At least `least` multiplications, and up to `more` further ones.
    Work { least: u32, more: u32 },
    /// Reads, and waits for the value.
    Await(u32),
    /// Reads, and does not wait.
    Load(u32),
    /// Writes.
    Store(u32),
    /// Adds.
    Add(u32),
    /// Evicts the line of a byte from the first cache; `flip` selects another line instead.
    Outgrow { at: u32, flip: u32 },
    /// Skips this many, unless a random number is below this.
    Unless { below: u32, skip: u32 },
}

/// Distance of lines that share a set of the first cache: a page, on every processor that indexes the cache before it
/// knows the physical address.
const PAGE: usize = 4096;
/// More lines than a set has ways.
const CROWD: usize = 16;

/// Prepares a list, with `per_ns` multiplications for a nanosecond of work. If `leaves` is false, other lines are
/// evicted in place of the touched ones.
pub(crate) fn ready(acts: &[Act], per_ns: f64, leaves: bool) -> Vec<Op> {
    let op = |act: &Act| match *act {
        Act::Work { ns, spread } => {
            let turns = (ns * per_ns).max(0.0);
            // If the end of a short chain is mispredicted, the penalty exceeds the length of the chain.
            let spread = if turns < SPREAD_FROM { 0.0 } else { spread };
            let least = (turns * (1.0 - spread)).round() as u32;
            Op::Work { least, more: (2.0 * turns * spread).round() as u32 }
        }
        Act::Load { at, awaited: true } => Op::Await(at),
        Act::Load { at, .. } => Op::Load(at),
        Act::Store { at } => Op::Store(at),
        Act::Add { at } => Op::Add(at),
        Act::Outgrow { at } => Op::Outgrow { at, flip: if leaves { 0 } else { PAGE as u32 / 2 } },
        Act::Sometimes { chance, count } => {
            Op::Unless { below: (chance * 2f64.powi(32)) as u32, skip: count }
        }
    };
    acts.iter().map(op).collect()
}

/// A block of memory that begins a page.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Vec<AtomicU8>,
    start: usize,
}

impl Block {
    pub(crate) fn new(size: usize) -> Block {
        let mut bytes = Vec::new();
        bytes.resize_with(size + PAGE - 1, AtomicU8::default);
        let start = bytes.as_ptr().addr().wrapping_neg() % PAGE;
        Block { bytes, start }
    }

    fn bytes(&self) -> &[AtomicU8] {
        &self.bytes[self.start..]
    }
}

/// A thread that repeats a list.
#[derive(Debug)]
pub(crate) struct Actor {
    /// The begins of the objects that it uses in turn.
    objects: Vec<u32>,
    turn: usize,
    random: u64,
    /// Zero; the compiler does not know the value.
    zero: u64,
    token: u64,
    sink: u64,
    /// Lines of its own.
    crowd: Block,
}

impl Actor {
    pub(crate) fn new(number: usize, objects: Vec<u32>) -> Actor {
        assert!(!objects.is_empty(), "an actor uses an object at least");
        // Any odd multiplier works: streams differ, and no stream begins with zero.
        let random = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Actor {
            objects,
            turn: 0,
            random,
            zero: black_box(0),
            token: 0,
            sink: 0,
            crowd: Block::new(CROWD * PAGE),
        }
    }

    /// Executes the list `passes` times.
    pub(crate) fn play(&mut self, ops: &[Op], block: &Block, passes: u64) {
        let (bytes, crowd) = (block.bytes(), self.crowd.bytes());
        let &mut Actor { zero, mut random, mut token, mut sink, mut turn, .. } = self;
        for _ in 0..passes {
            let object = self.objects[turn] as usize;
            turn += 1;
            if turn == self.objects.len() {
                turn = 0;
            }
            let mut index = 0;
            while let Some(&op) = ops.get(index) {
                index += 1;
                let byte = |at: u32| &bytes[object + at as usize + (token & zero) as usize];
                match op {
                    Op::Work { least, more } => {
                        random = next(random);
                        let turns = least + (((random >> 32) * u64::from(more)) >> 32) as u32;
                        token = chain(token, turns);
                    }
                    Op::Await(at) => token = u64::from(byte(at).load(Ordering::Relaxed)),
                    Op::Load(at) => {
                        sink = sink.wrapping_add(u64::from(byte(at).load(Ordering::Relaxed)));
                    }
                    Op::Store(at) => byte(at).store(1, Ordering::Relaxed),
                    Op::Add(at) => {
                        token = u64::from(byte(at).fetch_add(1, Ordering::Relaxed));
                    }
                    Op::Outgrow { at, flip } => {
                        let set = ((object + at as usize) ^ flip as usize) % PAGE;
                        let set = set + (token & zero) as usize;
                        for page in 0..CROWD {
                            let byte = crowd[page * PAGE + set].load(Ordering::Relaxed);
                            sink = sink.wrapping_add(u64::from(byte));
                        }
                    }
                    Op::Unless { below, skip } => {
                        random = next(random);
                        if (random >> 32) as u32 >= below {
                            index += skip as usize;
                        }
                    }
                }
            }
        }
        (self.random, self.token, self.sink, self.turn) = (random, token, black_box(sink), turn);
    }
}

/// Does a chain of multiplications, each of which needs the product before.
#[inline(always)]
pub(crate) fn chain(mut token: u64, turns: u32) -> u64 {
    for _ in 0..turns {
        token = token.wrapping_mul(token);
    }
    token
}

/// Returns the next number of a random stream (Marsaglia's xorshift). The upper half is used.
#[inline(always)]
fn next(mut random: u64) -> u64 {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    random
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_done_as_it_says() {
        let block = Block::new(256);
        assert_eq!(block.bytes().as_ptr().addr() % PAGE, 0);
        assert!(block.bytes().len() >= 256);
        let ops = [
            Op::Work { least: 3, more: 2 },
            Op::Await(9),
            Op::Load(9),
            Op::Store(64),
            Op::Unless { below: u32::MAX, skip: 1 },
            Op::Add(0),
            Op::Unless { below: 0, skip: 1 },
            Op::Add(1),
        ];
        Actor::new(0, vec![0, 128]).play(&ops, &block, 7);
        let read = |at: usize| block.bytes()[at].load(Ordering::Relaxed);
        // Objects are taken in turn: four passes on the first, three on the second.
        assert_eq!([0, 1, 64, 128, 129, 192].map(read), [4, 0, 1, 3, 0, 1]);
    }

    #[test]
    fn chances_come_as_often_as_they_should_and_differ_by_thread() {
        let acts = [Act::Sometimes { chance: 0.25, count: 1 }, Act::Add { at: 0 }];
        let counts = [0, 1].map(|number| {
            let block = Block::new(1);
            let mut actor = Actor::new(number, vec![0]);
            let mut count = 0;
            // A byte holds only small counts, so it is read often.
            for _ in 0..1000 {
                actor.play(&ready(&acts, 1.0, true), &block, 100);
                count += u32::from(block.bytes()[0].swap(0, Ordering::Relaxed));
            }
            assert!((24_000..26_000).contains(&count), "{count}");
            count
        });
        assert_ne!(counts[0], counts[1]);
    }

    #[test]
    fn work_is_as_long_as_it_says_and_never_below_nothing() {
        let work = |ns| ready(&[Act::Work { ns, spread: 0.1 }], 2.0, true)[0];
        assert_eq!(work(50.0), Op::Work { least: 90, more: 20 });
        assert_eq!(work(10.0), Op::Work { least: 20, more: 0 });
        assert_eq!(work(-3.0), Op::Work { least: 0, more: 0 });
    }
}
