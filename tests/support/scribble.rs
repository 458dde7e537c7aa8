//! Writes over a ledger's file, as a program with a wild pointer does, or one that means harm.

use super::Random;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Where the parts of a ledger's file lie (`table/plan.rs`).
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    capacity: usize,
    columns: usize,
    items: usize,
}

/// One kind of word: where the first lies, how far apart they are, how many there are.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "the name is printed in some of the tests")]
pub struct Kind {
    pub name: &'static str,
    first: usize,
    stride: usize,
    count: usize,
    wide: bool,
}

const PAGE: usize = 4096;
const STRIDE: usize = 1 << 25;
const LOCAL: usize = 1 << 16;
/// Rows that are written over: those in use, and a few more.
const ROWS: usize = 40;

impl Parts {
    /// Reads the numbers that decide it from the file.
    pub fn of(file: &File) -> Parts {
        let memory = Memory::map(file, PAGE);
        let number = |offset: usize| memory.half(offset).load(Relaxed) as usize;
        Parts { columns: number(12), capacity: number(16), items: number(20) }
    }

    fn sets(self) -> usize {
        PAGE + (self.capacity * 256).next_multiple_of(PAGE)
    }

    fn set_size(self) -> usize {
        let zero = self.capacity.div_ceil(64);
        let one = zero.div_ceil(64);
        ((zero + one + one.div_ceil(64)) * 8).next_multiple_of(PAGE)
    }

    fn first_column(self) -> usize {
        (self.sets() + 2 * self.columns * self.set_size()).next_multiple_of(LOCAL) + LOCAL
    }

    fn statistics(self) -> usize {
        self.first_column() + self.columns * STRIDE
    }

    fn totals(self) -> usize {
        let width = ((11 + self.items) * 8).next_multiple_of(64);
        self.statistics() + self.columns * (self.capacity * width).next_multiple_of(PAGE)
    }

    fn totals_width(self) -> usize {
        (2 * (15 + self.items) * 8).next_multiple_of(64)
    }

    fn names(self) -> usize {
        self.totals() + (self.capacity * self.totals_width()).next_multiple_of(PAGE)
    }

    fn name_lists(self) -> usize {
        (self.capacity / 16).next_power_of_two().min(1 << 15)
    }

    fn name_links(self) -> usize {
        self.names() + (self.name_lists() * 4).next_multiple_of(PAGE)
    }

    fn size(self) -> usize {
        self.name_links() + (self.capacity * 4).next_multiple_of(PAGE)
    }

    /// Every kind of word that a ledger shares.
    pub fn kinds(self) -> Vec<Kind> {
        let header = |name, offset, wide| Kind { name, first: offset, stride: 8, count: 1, wide };
        let row = |name, offset, wide| Kind {
            name,
            first: PAGE + offset,
            stride: 256,
            count: ROWS.min(self.capacity),
            wide,
        };
        let mut kinds = vec![
            header("high water", 128, false),
            header("free list", 136, true),
            header("transfers begun", 256, true),
            header("transfers ended", 264, true),
            header("collections begun", 384, true),
            header("collections ended", 392, true),
            Kind { name: "header", first: 0, stride: 8, count: 8, wide: true },
            Kind { name: "mistakes", first: 512, stride: 8, count: 15, wide: true },
            row("reserved", 0, true),
            row("usage", 8, true),
            row("lower watermark", 16, true),
            row("least before", 24, true),
            row("stuck", 32, true),
            row("stuck in flight", 40, true),
            row("watermark", 64, true),
            row("most before", 72, true),
            row("max events", 80, true),
            row("high events", 88, true),
            row("prepaid", 96, true),
            row("draining", 104, false),
            row("cap shift", 108, false),
            row("in flight", 112, true),
            row("statistics", 120, true),
            row("max", 128, true),
            row("high", 136, true),
            row("low", 144, true),
            row("min", 152, true),
            row("parent", 160, false),
            row("generation", 164, false),
            row("state", 168, false),
            row("depth", 172, false),
            row("owner", 176, false),
            row("children", 180, false),
            row("columns", 184, true),
            row("at exit", 192, true),
            row("name", 200, true),
            Kind {
                name: "list of names",
                first: self.names(),
                stride: 4,
                count: self.name_lists(),
                wide: false,
            },
            Kind {
                name: "link of names",
                first: self.name_links(),
                stride: 4,
                count: ROWS.min(self.capacity),
                wide: false,
            },
        ];
        let (sets, set_size) = (self.sets(), self.set_size());
        // The first words of each level of the columns' sets.
        let zero = self.capacity.div_ceil(64);
        let one = zero.div_ceil(64);
        for word in [0, 1, zero, zero + one] {
            let (count, first) = (2 * self.columns.min(64), sets + word * 8);
            kinds.push(Kind { name: "set", first, stride: set_size, count, wide: true });
        }
        for column in 0..self.columns.min(4) {
            let cells = self.first_column() + column * STRIDE;
            let counts = cells + (1 << 24);
            let rows = ROWS.min(self.capacity);
            let in_column = |name, first, wide| Kind { name, first, stride: 16, count: rows, wide };
            kinds.push(in_column("charge word", cells, true));
            kinds.push(in_column("cap", cells + 8, false));
            kinds.push(in_column("charges", counts, true));
            kinds.push(in_column("uncharges", counts + 8, true));
            let width = ((11 + self.items) * 8).next_multiple_of(64);
            let statistics =
                self.statistics() + column * (self.capacity * width).next_multiple_of(PAGE);
            let cell = |name, first, count| Kind { name, first, stride: width, count, wide: true };
            kinds.push(cell("tag", statistics, rows));
            kinds.push(cell("sum", statistics + 8 * (1 + column % 10), rows));
        }
        let (totals, stride) = (self.totals(), self.totals_width());
        for word in [0, 1, 2, 6, 15 + self.items] {
            let first = totals + word * 8;
            kinds.push(Kind {
                name: "total",
                first,
                stride,
                count: ROWS.min(self.capacity),
                wide: true,
            });
        }
        kinds
    }
}

/// A second mapping of the file.
pub struct Memory {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping is shared memory that is only touched through atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn map(file: &File, size: usize) -> Memory {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), size, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert!(base != libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Memory { base: NonNull::new(base.cast()).expect("not zero"), size }
    }

    /// All of the ledger that is in a file.
    pub fn whole(file: &File, parts: Parts) -> Memory {
        let length = file.metadata().unwrap().len() as usize;
        assert_eq!(parts.size(), length, "the parts lie as described: {parts:?}");
        Memory::map(file, length)
    }

    fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= self.size && offset.is_multiple_of(4));
        // SAFETY: inside the mapping, as just checked, which lives as long as the borrow.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.size && offset.is_multiple_of(8));
        // SAFETY: as above.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }

    /// Writes over one word of a kind.
    pub fn scribble(&self, kind: Kind, random: &mut Random) {
        let at = kind.first + random.below(kind.count as u64) as usize * kind.stride;
        let value = value(random);
        if kind.wide {
            let word = self.word(at);
            match random.below(4) {
                0 => drop(word.fetch_xor(1 << random.below(64), Relaxed)),
                1 => drop(word.fetch_add(value, Relaxed)),
                _ => word.store(value, Relaxed),
            }
        } else {
            let word = self.half(at);
            match random.below(4) {
                0 => drop(word.fetch_xor(1 << random.below(32), Relaxed)),
                1 => drop(word.fetch_add(value as u32, Relaxed)),
                _ => word.store(value as u32, Relaxed),
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and every borrow of it has ended.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
    }
}

/// Anything, and often what lies at an edge.
fn value(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << random.below(64),
        3 => (1u64 << random.below(64)).wrapping_sub(1),
        4 => random.below(64),
        5 => (1 << 63) | random.below(1 << 20),
        6 => (1 << 62) - random.below(1 << 20),
        7 => (1 << 48) | random.below(1 << 31),
        _ => random.next(),
    }
}
