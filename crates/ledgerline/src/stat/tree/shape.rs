//! The shape of a tree: its words, the multiple that each passes on, and the resulting bounds.

use std::fmt;

/// The most CPUs of a shape.
const CPUS_MAX: u32 = 1 << 16;
/// The largest batch.
const BATCH_MAX: u64 = 1 << 20;
/// The largest multiple.
const MULTIPLE_MAX: u64 = 1 << 40;
/// How many CPUs share a node of the first level, as a power of two.
const FIRST: u32 = 3;
/// How many nodes share a node above them, as a power of two.
const ABOVE: u32 = 2;

/// The number of words of a tree, and when they pass on their values.
///
/// [`Shape::new`] chooses a shape with a small bound and no busy line: if all CPUs add at the same pace, a
/// node is written once for each `batch / 8` units that each of them adds, and the top no more often. The
/// table compares shapes for 256 CPUs, a batch of 32 and pages of 4 KiB, with the kernel's hierarchical
/// counter first. `atomics` is the number of additions to nodes and top per page. `busiest` is how often
/// the busiest line is written for a page on each CPU, `top` how often the top is:
///
/// | CPUs a node: multiples           | bound           | lines | atomics | busiest | top  |
/// |----------------------------------|-----------------|-------|---------|---------|------|
/// | 8: 256, 64: 2048 (truncated)     | 0 .. 87 MiB     | 293   | 0.036   | 0.25    | 0.13 |
/// | the same, rounded                | ±43.5 MiB       | 293   | 0.036   | 0.25    | 0.13 |
/// | 8: 128, 32: 512, 128: 2048       | ±33.5 MiB       | 299   | 0.042   | 0.25    | 0.13 |
/// | 8: 128, 32: 512, 128: 1024 (ours)| ±29.5 MiB       | 299   | 0.042   | 0.25    | 0.25 |
/// | 8: 64, 16: 128, 32: 256, 64: 512, 128: 1024 | ±25.5 MiB | 319 | 0.062 | 0.25   | 0.25 |
/// | none                             | ±15.5 MiB       | 257   | 0.031   | 8       | 8    |
///
/// ```
/// use ledgerline::stat::tree::Shape;
///
/// let shape = Shape::new(256, 32)?;
/// assert_eq!((shape.below(), shape.above()), (7552, 7552)); // pages: 29.5 MiB
/// # Ok::<(), ledgerline::stat::tree::BadShape>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The CPUs' cells, and the nodes from the lowest to those below the top.
    pub(super) levels: Box<[Level]>,
    below: u64,
    above: u64,
}

/// One level of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// CPUs below each word, as a power of two.
    pub(super) shift: u32,
    /// How many words.
    pub(super) words: u32,
    /// The index of this level's first word among the words of all levels.
    pub(super) first: usize,
    /// The words pass on multiples of this.
    pub(super) multiple: u64,
    /// The words receive multiples of this.
    step: u64,
    /// Words with this parity start at half a multiple, the others a step lower.
    parity: u32,
}

impl Level {
    /// Returns the start value of the word, with which truncating it rounds to the nearest multiple. The
    /// word can be that far below a multiple.
    pub(super) fn start(self, word: u32) -> u64 {
        match self.multiple == self.step {
            true => 0,
            false if word & 1 == self.parity => self.multiple / 2,
            false => self.multiple / 2 - self.step,
        }
    }

    /// Returns how far above a multiple the word can be.
    pub(super) fn above(self, word: u32) -> u64 {
        self.multiple - self.step - self.start(word)
    }
}

/// Why a shape is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadShape {
    /// There are no CPUs, or more than 65 536.
    Cpus {
        /// How many.
        cpus: u32,
    },
    /// The batch is not a power of two up to 2^20.
    Batch {
        /// The batch.
        batch: u64,
    },
    /// The numbers of a level of nodes do not fit. The CPUs below a node must be a power of two, and more
    /// than in the level below. The multiple must be a power of two up to 2^40, and not smaller than in
    /// the level below.
    Level {
        /// CPUs below a node.
        cpus: u32,
        /// The multiple that it passes on.
        multiple: u64,
    },
}

impl fmt::Display for BadShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadShape::Cpus { cpus } => write!(f, "a tree has 1 to {CPUS_MAX} CPUs, not {cpus}"),
            BadShape::Batch { batch } => {
                write!(f, "a batch is a power of two up to {BATCH_MAX}, not {batch}")
            }
            BadShape::Level { cpus, multiple } => write!(
                f,
                "a level of {cpus} CPUs a node and multiples of {multiple} does not fit: both are \
                 powers of two, and grow from the level below"
            ),
        }
    }
}

impl std::error::Error for BadShape {}

impl Shape {
    /// Makes the shape for this many CPUs and a batch: eight CPUs share a node, and four nodes share the
    /// node above. From level to level the multiple is multiplied by the number of nodes that share the
    /// one above.
    ///
    /// # Errors
    /// When there are no CPUs or more than 65 536, or the batch is not a power of two up to 2^20.
    pub fn new(cpus: u32, batch: u64) -> Result<Shape, BadShape> {
        if cpus > CPUS_MAX {
            return Err(BadShape::Cpus { cpus });
        }
        let mut levels = Vec::new();
        let mut multiple = batch;
        let mut shift = FIRST;
        while cpus.div_ceil(1 << shift) > 1 {
            let words = cpus.div_ceil(1 << shift);
            multiple = multiple.saturating_mul(words.next_power_of_two().min(1 << ABOVE).into());
            levels.push((1 << shift, multiple));
            shift += ABOVE;
        }
        Shape::with_levels(cpus, batch, &levels)
    }

    /// Makes a custom shape. `levels` has, for each level of nodes from the CPUs up, the CPUs below a node
    /// and the multiple that it passes on.
    ///
    /// # Errors
    /// As for [`new`](Self::new), and if a level does not fit on the one below.
    pub fn with_levels(cpus: u32, batch: u64, levels: &[(u32, u64)]) -> Result<Shape, BadShape> {
        if !(1..=CPUS_MAX).contains(&cpus) {
            return Err(BadShape::Cpus { cpus });
        }
        if !batch.is_power_of_two() || batch > BATCH_MAX {
            return Err(BadShape::Batch { batch });
        }
        let cells = Level { shift: 0, words: cpus, first: 0, multiple: batch, step: 1, parity: 0 };
        let mut all = vec![cells];
        for (&(under, multiple), parity) in levels.iter().zip([1, 0].into_iter().cycle()) {
            let last = all[all.len() - 1];
            let fits = under.is_power_of_two()
                && under > 1 << last.shift
                && multiple.is_power_of_two()
                && (last.multiple..=MULTIPLE_MAX).contains(&multiple);
            if !fits {
                return Err(BadShape::Level { cpus: under, multiple });
            }
            all.push(Level {
                shift: under.trailing_zeros(),
                words: cpus.div_ceil(under),
                first: last.first + last.words as usize,
                multiple,
                step: last.multiple,
                parity,
            });
        }
        let words = || all.iter().flat_map(|level| (0..level.words).map(move |n| (level, n)));
        let below = words().map(|(level, n)| level.start(n)).sum();
        let above = words().map(|(level, n)| level.above(n)).sum();
        Ok(Shape { levels: all.into(), below, above })
    }

    /// Returns the number of CPUs.
    pub fn cpus(&self) -> u32 {
        self.levels[0].words
    }

    /// Returns the batch: a CPU's cell passes on multiples of it.
    pub fn batch(&self) -> u64 {
        self.levels[0].multiple
    }

    /// Returns the multiple that the highest level passes on to the top.
    pub fn top_multiple(&self) -> u64 {
        self.levels[self.levels.len() - 1].multiple
    }

    /// Returns the number of lines in memory: cells, nodes, and the top.
    pub fn lines(&self) -> usize {
        self.levels.iter().map(|level| level.words as usize).sum::<usize>() + 1
    }

    /// Returns the most by which the sum can be below the top if no update is in flight. The bound is
    /// tight.
    ///
    /// A word of level *l* keeps a multiple of `m[l-1]` between `-m[l]/2` and `m[l]/2 - m[l-1]`. Every
    /// other word has the same range with the signs changed. So the range of a whole level is
    /// `words[l] * (m[l] - m[l-1])`.
    pub fn below(&self) -> u64 {
        self.below
    }

    /// Returns the most by which the sum can be above the top if no update is in flight. The bound is
    /// tight.
    pub fn above(&self) -> u64 {
        self.above
    }

    /// Returns the most by which the top can be off in addition, on either side, while `writers` threads
    /// are in the middle of adding at most `largest`, up or down. The bound is tight. Each thread has one
    /// carry in flight, and the largest carry is `largest` rounded up to the multiple that reaches the
    /// top. Clamped at `u64::MAX`.
    pub fn in_flight_bound(&self, writers: u64, largest: u64) -> u64 {
        let multiple = self.top_multiple();
        let carry = u128::from(largest.div_ceil(multiple)) * u128::from(multiple);
        u64::try_from(carry.saturating_mul(writers.into())).unwrap_or(u64::MAX)
    }
}
