//! Runs each section once, over prepared columns.

use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering::SeqCst};

use crate::percpu::narrow::{self, Lane};
use crate::percpu::thread_cache::{self, ThreadCache, mine};
use crate::percpu::word::{self, Cell};
use crate::percpu::{Lent, lent, possible_cpus, rseq, sums};
use crate::region::Region;

const UNITS: u64 = 64;
const ID: u64 = word::empty(1) | 5;
/// The initial word of the cells: some stock, and the mark of a marked word in the lowest bit.
const BEFORE: u64 = word::empty(1) | 1001;
const CAP: u32 = 1 << 20;
/// Like `ID`, but of the row whose cell is there.
const FIRST_ROW: u64 = word::empty(1);

/// The offset of a block in each column, for the sections of `narrow.rs`. `LANES` is that of a word in it.
pub(super) const BLOCK: usize = 64;
/// See [`BLOCK`].
pub(super) const LANES: usize = BLOCK + 8;
/// The offset of a thread cache, in the first column.
const THREAD_CACHE: usize = 256;
/// The group of the thread cache, and the allocator's number of it.
const GROUP: u64 = 11;
/// See [`GROUP`].
const OWNERS_NUMBER: u64 = 12;
/// Limits that leave room for the amounts added here, in both widths.
pub(super) const LIMITS: u16 = u16::from_le_bytes([253, 3]);
/// All 8-bit lanes are zero; the 16-bit ones have some value.
pub(super) const ZEROS: u64 = 0x0080_0080_0080_0080;

#[derive(Clone, Copy, Debug)]
pub(super) enum Section {
    Add,
    Take,
    Put,
    CompareStore,
    TakeFirst,
    PutFirst,
    AddTagged,
    AddReturn,
    AddMarked,
    UpU8,
    DownU8,
    IncU8,
    DecU8,
    UpU16,
    AddI64,
    CompareStoreLane,
    TakeLent,
    PutLent,
    ThreadCacheTake,
    ThreadCachePut,
}

/// An addition to memory is one instruction on x86-64; elsewhere a thread can be held in the middle of it.
const ADDITION: u32 = if cfg!(target_arch = "x86_64") { 3 } else { 4 };

impl Section {
    /// Each section, and its number of points.
    pub(super) const ALL: [(Section, u32); 20] = [
        (Section::Add, ADDITION),
        (Section::Take, 5),
        (Section::Put, 5),
        (Section::CompareStore, 3),
        (Section::TakeFirst, 5),
        (Section::PutFirst, 5),
        (Section::AddTagged, ADDITION),
        (Section::AddReturn, 4),
        (Section::AddMarked, 4),
        (Section::UpU8, 5),
        (Section::DownU8, 5),
        (Section::IncU8, 5),
        (Section::DecU8, 5),
        (Section::UpU16, 5),
        (Section::AddI64, 5),
        (Section::CompareStoreLane, 4),
        (Section::TakeLent, 5),
        (Section::PutLent, 5),
        (Section::ThreadCacheTake, 5),
        (Section::ThreadCachePut, 5),
    ];

    /// Returns whether the section may rightly do nothing after a migration.
    pub(super) fn is_bound_to_a_column(self) -> bool {
        matches!(self, Section::CompareStore | Section::CompareStoreLane)
    }

    /// Runs the section once over the columns of [`prepared`]. Returns whether it took effect.
    pub(super) fn run<const INDEX: isize>(self, area: isize, region: &Region) -> bool {
        let cell = region.at::<Cell>(0);
        let lane = |shift| {
            let (block, word) = (region.at(BLOCK), region.at(LANES));
            Lane { block, word, shift, stride: 1 << 25 }
        };
        let n = UNITS as i32;
        // SAFETY: the region has a cell and a block in each column, and the calling thread is registered.
        unsafe {
            match self {
                Section::Add => {
                    rseq::add::<INDEX>(area, cell.cast(), 1 << 25, UNITS as i64);
                    true
                }
                Section::Take => {
                    let delta = word::CHARGE.wrapping_sub(UNITS);
                    rseq::take::<INDEX>(area, cell, ID, delta)
                }
                Section::Put => rseq::put::<INDEX>(area, cell, ID, word::UNCHARGE + UNITS),
                Section::TakeFirst => {
                    let delta = word::CHARGE.wrapping_sub(UNITS);
                    rseq::take_first::<INDEX>(area, cell, delta)
                }
                Section::PutFirst => rseq::put_first::<INDEX>(area, cell, word::UNCHARGE + UNITS),
                Section::AddTagged => {
                    // The tag is the word with the cap, and the sum is the word before it.
                    let tagged = cell.byte_add(8).cast();
                    let (tag, sum) = (u64::from(CAP), 0usize.wrapping_sub(8));
                    rseq::add_tagged::<INDEX>(area, tagged, 1 << 25, tag, sum, UNITS as i64)
                }
                Section::CompareStore => {
                    let column = rseq::index::<INDEX>(area);
                    let cell = &*cell.byte_add((column as usize) << 25);
                    rseq::compare_store::<INDEX>(area, cell, column, BEFORE, BEFORE - UNITS)
                }
                Section::TakeLent | Section::PutLent => {
                    self.run_lent::<INDEX>(area, &lend(region), Section::NUMBER)
                }
                Section::AddReturn => {
                    let n = UNITS as i64;
                    let (sum, at) = sums::add_return::<INDEX>(area, cell.cast(), 1 << 25, n);
                    assert_eq!(sum as u64, BEFORE + UNITS, "the sum that was stored");
                    let cell = &*cell.byte_add(at);
                    assert_eq!(cell.word.load(SeqCst), BEFORE + UNITS, "where it was stored");
                    true
                }
                Section::AddMarked => {
                    sums::add_marked::<INDEX>(area, cell.cast(), 1 << 25, UNITS as i64)
                }
                Section::ThreadCacheTake => {
                    let label = AtomicU16::new(0);
                    let done = mine::with(thread_cache(region), || {
                        let delta = thread_cache::taken(UNITS);
                        thread_cache::sections::take(
                            area,
                            mine::distance(),
                            GROUP,
                            delta,
                            label.as_ptr(),
                        )
                    });
                    assert_eq!(u64::from(label.into_inner()), OWNERS_NUMBER * u64::from(done));
                    done
                }
                Section::ThreadCachePut => mine::with(thread_cache(region), || {
                    let delta = thread_cache::put_back(UNITS);
                    thread_cache::sections::put(area, mine::distance(), OWNERS_NUMBER, delta)
                }),
                Section::UpU8 => narrow::up_u8::<INDEX>(area, lane(16), n),
                Section::DownU8 => narrow::down_u8::<INDEX>(area, lane(16), -n),
                Section::IncU8 => narrow::inc_u8::<INDEX>(area, lane(16)),
                Section::DecU8 => narrow::dec_u8::<INDEX>(area, lane(16)),
                Section::UpU16 => narrow::up_u16::<INDEX>(area, lane(16), n),
                Section::AddI64 => narrow::add_i64::<INDEX>(area, lane(0).word, 1 << 25, n.into()),
                Section::CompareStoreLane => {
                    let column = rseq::index::<INDEX>(area);
                    let [block, word] =
                        [BLOCK, LANES].map(|at| region.at(at + ((column as usize) << 25)));
                    let change = (ZEROS, ZEROS + UNITS);
                    narrow::compare_store::<INDEX>(area, block, word, column, LIMITS, change)
                }
            }
        }
    }

    /// The number under which [`lend`] lends.
    pub(super) const NUMBER: u64 = 7;

    /// Runs one of the two sections that check a number, once.
    ///
    /// # Safety
    /// As for `lent::take`.
    pub(super) unsafe fn run_lent<const INDEX: isize>(
        self,
        area: isize,
        lent: &Lent,
        number: u64,
    ) -> bool {
        // SAFETY: as the caller says.
        unsafe {
            if matches!(self, Section::TakeLent) {
                let delta = word::CHARGE.wrapping_sub(UNITS);
                lent::take::<INDEX>(area, lent, number, FIRST_ROW, delta)
            } else {
                lent::put::<INDEX>(area, lent, number, FIRST_ROW, word::UNCHARGE + UNITS)
            }
        }
    }

    /// Returns by how much the sum over all columns must have changed.
    pub(super) fn effect(self) -> u64 {
        match self {
            Section::Add | Section::AddTagged | Section::AddReturn | Section::AddMarked => UNITS,
            Section::Take | Section::TakeFirst | Section::TakeLent => {
                word::CHARGE.wrapping_sub(UNITS)
            }
            Section::Put | Section::PutFirst | Section::PutLent => word::UNCHARGE + UNITS,
            Section::ThreadCacheTake => thread_cache::taken(UNITS).wrapping_neg(),
            Section::ThreadCachePut => thread_cache::put_back(UNITS),
            Section::CompareStore => UNITS.wrapping_neg(),
            Section::UpU8 | Section::UpU16 => UNITS << 16,
            Section::DownU8 => (UNITS << 16).wrapping_neg(),
            Section::IncU8 => 1 << 16,
            Section::DecU8 => (1u64 << 16).wrapping_neg(),
            Section::AddI64 | Section::CompareStoreLane => UNITS,
        }
    }
}

/// Makes a column for each CPU: a cell, and behind it a block with its lanes.
pub(super) fn prepared() -> Region {
    let region = Region::anonymous((possible_cpus() as usize) << 25).unwrap();
    for cell in cells(&region) {
        cell.cap.store(CAP, SeqCst);
        cell.open(BEFORE);
    }
    words(&region, BLOCK).for_each(|limits| limits.store(LIMITS.into(), SeqCst));
    words(&region, LANES).for_each(|lanes| lanes.store(ZEROS, SeqCst));
    let thread_cache = thread_cache(&region);
    thread_cache.open(GROUP, OWNERS_NUMBER, 0, 2 * UNITS);
    assert!(thread_cache.change(UNITS as i64).is_some());
    region
}

fn thread_cache(region: &Region) -> &ThreadCache {
    // SAFETY: all zeros are a valid thread cache.
    unsafe { &*region.at::<ThreadCache>(THREAD_CACHE) }
}

/// Lends the columns' cells.
pub(super) fn lend(region: &Region) -> Lent {
    let cells = region.at::<Cell>(0).addr();
    Lent { number: AtomicU64::new(Section::NUMBER), cells: AtomicUsize::new(cells) }
}

fn cells(region: &Region) -> impl Iterator<Item = &Cell> {
    (0..possible_cpus() as usize)
        // SAFETY: each column of the region begins with a cell.
        .map(|column| unsafe { &*region.at::<Cell>(column << 25) })
}

/// Iterates over the words of all columns at an offset.
pub(super) fn words(region: &Region, at: usize) -> impl Iterator<Item = &AtomicU64> {
    (0..possible_cpus() as usize)
        // SAFETY: each column of the region has words there.
        .map(move |column| unsafe { &*region.at::<AtomicU64>(at + (column << 25)) })
}

/// Returns the sum of the words of all columns that sections may change. It includes those that the
/// section under test must not change.
pub(super) fn sum(region: &Region) -> u64 {
    let all = words(region, 0).chain(words(region, LANES)).chain(words(region, THREAD_CACHE));
    all.fold(0, |sum, word| sum.wrapping_add(word.load(SeqCst)))
}
