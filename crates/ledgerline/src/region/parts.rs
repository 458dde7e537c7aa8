//! A region of which only the used parts are mapped. Other mappings may lie between the parts.
//!
//! Columns lie a fixed distance apart, so that a shift finds a column. A table of a few thousand rows uses a hundredth of
//! each. The rest is address space: 32 MiB for each CPU, which a limit on address space (`ulimit -v`) counts.
//!
//! ```text
//! map(parts)
//!   for each place that ends where the kernel would map the largest part now, and ever farther below:
//!     map each part there, unless something lies there        all did: done; one did not: give back those that did
//! ```
//!
//! The reserved address space never exceeds what is mapped in the end, since the limit would count it. If another thread
//! maps something at that moment, the place is taken, and the next one is tried.

use super::Place;
use crate::os::{Found, memory};
use std::fs::File;
use std::io;
use std::iter::once;
use std::ops::Range;

/// The mapped parts of a region: its head, stretches of one length at equal distances, and its tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The end of the head, where the first stretch begins.
    pub(crate) first: usize,
    /// The bytes of a stretch, and the distance between the starts of two stretches.
    pub(crate) length: usize,
    pub(crate) distance: usize,
    pub(crate) count: usize,
    /// The start of the tail, which ends with the region.
    pub(crate) tail: usize,
    pub(crate) size: usize,
}

/// How many places are tried. Each lies twice as far away as the one before, so the last ones are beyond any program.
const TRIES: u32 = 24;

impl Parts {
    /// Returns the parts in order, from the first byte on. The head and the first stretch are one part.
    pub(crate) fn ranges(self) -> impl Iterator<Item = Range<usize>> + Clone {
        let stretch = move |number: usize| self.first + number * self.distance;
        let others = (1..self.count).map(move |it| stretch(it)..stretch(it) + self.length);
        once(0..self.first + self.length).chain(others).chain(once(self.tail..self.size))
    }

    /// Returns the bytes of all parts.
    pub(crate) fn mapped(self) -> usize {
        self.ranges().map(|part| part.len()).sum()
    }

    /// Maps the parts of a file. Returns the start of the region, or `None` if no place was found, or if the system cannot
    /// map at a place only if it is free.
    pub(super) fn map(self, file: &File, place: Place) -> io::Result<Option<*mut u8>> {
        // The place where the kernel would map the largest part now. Most programs have their mappings above it. A smaller
        // part would get a gap between these.
        let most = self.ranges().map(|part| part.len()).max().unwrap_or(super::PAGE);
        let near = memory::reserve(most)?;
        // SAFETY: it was just reserved, and nothing uses it.
        unsafe { memory::unmap(near, most) };
        let end = near.addr() + most;
        for turn in 0..TRIES {
            let below = self.size + (place.alignment << turn) - place.alignment;
            let Some(free) = end.checked_sub(below) else { break };
            // From here on, the stretch that has to be aligned is aligned, and ends below `end`.
            let aligned = (free + place.offset) & !(place.alignment - 1);
            let Some(start) = aligned.checked_sub(place.offset).filter(|&start| start > 0) else {
                break;
            };
            let start = near.with_addr(start);
            match self.lay(file, start)? {
                Found::Mapped => return Ok(Some(start)),
                Found::Taken => {}
                Found::CannotTell => break,
            }
        }
        Ok(None)
    }

    /// Maps all parts of the region that begins at `start`, or none.
    fn lay(self, file: &File, start: *mut u8) -> io::Result<Found> {
        for (number, part) in self.ranges().enumerate() {
            let at = start.wrapping_add(part.start);
            let found = memory::map_where_free(at, part.len(), file, part.start);
            if !matches!(found, Ok(Found::Mapped)) {
                // SAFETY: these parts were mapped just now, and no other code knows them.
                unsafe { self.unmap_some(start, number) };
                return found;
            }
        }
        Ok(Found::Mapped)
    }

    /// Unmaps the parts.
    ///
    /// # Safety
    /// They are mapped for a region that begins at `start`, and no code uses them.
    pub(super) unsafe fn unmap(self, start: *mut u8) {
        // SAFETY: as the caller guarantees.
        unsafe { self.unmap_some(start, usize::MAX) };
    }

    /// # Safety
    /// Same as [`unmap`](Self::unmap), for the first `count` parts.
    unsafe fn unmap_some(self, start: *mut u8, count: usize) {
        for part in self.ranges().take(count) {
            // SAFETY: as the caller guarantees.
            unsafe { memory::unmap(start.wrapping_add(part.start), part.len()) };
        }
    }
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod tests {
    use super::super::Region;
    use super::*;
    use std::os::fd::FromRawFd;

    const PARTS: Parts = Parts {
        first: 3 << 16,
        length: 1 << 14,
        distance: 1 << 25,
        count: 64,
        tail: (3 << 16) + (64 << 25),
        size: (3 << 16) + (64 << 25) + (1 << 20),
    };
    const PLACE: Place = Place { offset: 3 << 16, alignment: 1 << 24 };

    fn memfd() -> File {
        // SAFETY: creates a new file.
        unsafe { File::from_raw_fd(libc::memfd_create(c"parts".as_ptr(), libc::MFD_CLOEXEC)) }
    }

    /// Runs a check in a forked child, which has only this thread. The child's exit code is the result.
    fn holds_in_a_child(check: impl FnOnce() -> bool) -> bool {
        let mut status = 0;
        // SAFETY: the child calls the kernel alone, and leaves without the harness.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(libc::c_int::from(!check()));
            }
            libc::waitpid(child, &raw mut status, 0);
        }
        status == 0
    }

    /// Returns how many bytes of addresses the process has mapped. Takes no heap.
    fn mapped_bytes() -> u64 {
        let mut text = [0u8; 32];
        // SAFETY: plain calls with a live buffer, into which `read` writes at most its length.
        unsafe {
            let file = libc::open(c"/proc/self/statm".as_ptr(), libc::O_RDONLY);
            libc::read(file, text.as_mut_ptr().cast(), text.len());
            libc::close(file);
        }
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
        let pages = digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        pages * crate::os::page_size() as u64
    }

    /// Returns whether a page can be mapped there.
    fn is_free(at: *mut u8, file: &File) -> bool {
        let found = memory::map_where_free(at, 4096, file, 0).unwrap();
        if matches!(found, Found::Mapped) {
            // SAFETY: it was just mapped.
            unsafe { memory::unmap(at, 4096) };
        }
        matches!(found, Found::Mapped)
    }

    #[test]
    fn what_lies_between_parts_is_left_to_others_and_what_lies_in_them_is_one_file() {
        let file = memfd();
        let region = Region::create_in_parts(&file, PARTS, PLACE).unwrap();
        let first = region.at::<u8>(PLACE.offset).cast_mut();
        assert_eq!(first.addr() % PLACE.alignment, 0);
        assert_eq!(region.mapped(), (3 << 16) + (64 << 14) + (1 << 20));
        assert!(is_free(first.wrapping_add(PARTS.length), &file));
        assert!(!is_free(first.wrapping_add(PARTS.distance), &file));
        // A second mapping of the whole file sees the values written into the parts.
        let whole = Region::shared_at(&file, PARTS.size, PLACE).unwrap();
        for (number, part) in PARTS.ranges().enumerate() {
            let last = part.end - 8;
            // SAFETY: inside a part of a mapping that this test alone has.
            unsafe { region.at::<u64>(last).cast_mut().write(number as u64) };
            // SAFETY: inside the other mapping.
            assert_eq!(unsafe { whole.at::<u64>(last).read() }, number as u64);
        }
        assert!(region.resident() >= 65 << 12);
    }

    #[test]
    fn what_others_mapped_between_parts_stays_when_the_region_goes() {
        let file = memfd();
        let region = Region::create_in_parts(&file, PARTS, PLACE).unwrap();
        let between = region.at::<u8>(PLACE.offset + (1 << 20)).cast_mut();
        let found = memory::map_where_free(between, 4096, &file, 0).unwrap();
        assert!(matches!(found, Found::Mapped));
        drop(region);
        // SAFETY: it is still mapped, as this test checks.
        unsafe {
            between.write_volatile(1);
            memory::unmap(between, 4096);
        }
    }

    #[test]
    fn a_region_in_parts_fits_where_a_whole_one_exceeds_the_address_space() {
        let file = memfd();
        file.set_len(PARTS.size as u64).unwrap();
        assert!(holds_in_a_child(|| {
            // Other tests of this process may have mapped any number of ledgers.
            let most = mapped_bytes() + (1 << 30);
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: a plain call with a live structure.
            unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
            let lack =
                Region::shared_at(&file, PARTS.size, PLACE).err().and_then(|it| it.raw_os_error());
            lack == Some(libc::ENOMEM) && Region::shared_in_parts(&file, PARTS, PLACE).is_ok()
        }));
    }

    #[test]
    fn a_place_that_is_taken_is_passed_over() {
        let file = memfd();
        file.set_len(PARTS.size as u64).unwrap();
        let regions = [(); 3].map(|()| Region::shared_in_parts(&file, PARTS, PLACE).unwrap());
        // SAFETY: inside the mappings, which are of one file.
        unsafe { regions[0].at::<u64>(8).cast_mut().write(7) };
        // SAFETY: likewise.
        assert!(regions.iter().all(|region| unsafe { region.at::<u64>(8).read() } == 7));
    }
}
