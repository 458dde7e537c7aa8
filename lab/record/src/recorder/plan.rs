//! The plan: the types, objects and functions that this process is to record. It is read once, when the library
//! starts.

use crate::format::{self, Heap, Shape};
use ledgerline_interpose::find_object;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The request to this process.
pub(crate) struct Plan {
    /// The number of a [`Heap`].
    pub(crate) heap: u64,
    /// The functions whose calls are operations; if empty, operations are not distinguished.
    pub(crate) operations: Vec<Range<usize>>,
    /// Objects that exist from the start: address and type.
    pub(crate) globals: Vec<(usize, usize)>,
    /// The functions that allocate objects; if empty, any function does.
    pub(crate) sites: Vec<Range<usize>>,
    /// Sizes of blocks and their type, ascending.
    sizes: Vec<(u64, u64)>,
    pub(crate) types: Vec<Type>,
    /// The range of the plan's file in this process.
    pub(crate) image: Range<usize>,
    pub(crate) bias: usize,
}

/// A type that is wanted.
pub(crate) struct Type {
    name: &'static [u8],
    pub(crate) size: usize,
    pub(crate) shape: Shape,
    /// The cell of each byte.
    pub(crate) map: &'static [u16],
}

static PLAN: OnceLock<Plan> = OnceLock::new();

/// Whether this process is recorded.
static RECORDING: AtomicBool = AtomicBool::new(false);

/// Returns the plan, while this process is recorded.
#[inline(always)]
pub(crate) fn recording() -> Option<&'static Plan> {
    // Acquire, partner of the Release in `record`.
    if RECORDING.load(Ordering::Acquire) { PLAN.get() } else { None }
}

/// Starts or ends the recording of this process.
pub(crate) fn record(whether: bool) {
    RECORDING.store(whether, Ordering::Release);
}

/// Reads the plan in a folder; returns `None` if this process does not contain the plan's file.
pub(crate) fn open(folder: &[u8]) -> Result<Option<&'static Plan>, &'static str> {
    let words = map(folder)?;
    let mut words = Words(words);
    if words.next()? != format::PLAN_MAGIC || words.next()? != format::VERSION {
        return Err("the plan is of another version than this library; build both together");
    }
    let file = (words.next()?, words.next()?);
    let Some((image, bias)) = image_of(file) else { return Ok(None) };
    let heap = words.next()?;
    let at = |address: u64| bias.wrapping_add(address as usize);
    let operations = words.list(|words| Ok(at(words.next()?)..at(words.next()?)))?;
    let globals = words.list(|words| Ok((at(words.next()?), words.next()? as usize)))?;
    let sites = words.list(|words| Ok(at(words.next()?)..at(words.next()?)))?;
    let sizes = words.list(|words| Ok((words.next()?, words.next()?)))?;
    let types = words.list(Type::read)?;
    let known = |ty: u64| ty == format::AMBIGUOUS || ty < types.len() as u64;
    if types.len() > format::MOST_TYPES
        || !globals.iter().all(|&(_, ty)| ty < types.len())
        || !sizes.iter().all(|&(size, ty)| size > 0 && known(ty))
    {
        return Err(DAMAGED);
    }
    let plan = Plan { heap, operations, globals, sites, sizes, types, image, bias };
    Ok(Some(PLAN.get_or_init(|| plan)))
}

/// The interpretation of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// No wanted type has its size.
    Unwanted,
    /// Several wanted types have this size.
    Ambiguous,
    /// It holds values of a type: the type, and their number.
    Of(usize, usize),
    /// It may hold values of a type, and the user did not request arrays: the type, and their number.
    Unasked(usize, usize),
    /// It holds one value of a type, and bytes up to its alignment behind it.
    Rounded(usize),
}

impl Plan {
    /// Interprets a block of `count` elements of `size` bytes; `count` and `align` are 1 if the program did not state
    /// them.
    pub(crate) fn block(&self, count: usize, size: usize, align: usize) -> Block {
        let Some(bytes) = count.checked_mul(size) else { return Block::Unwanted };
        let found = self.exactly(bytes).map_or(Block::Unwanted, |ty| of(ty, 1));
        if found != Block::Unwanted {
            return found;
        }
        if count > 1
            && let Some(ty) = self.exactly(size)
        {
            return of(ty, count);
        }
        let (asked, several) = (self.heap == Heap::Arrays as u64, self.several(bytes));
        if asked && several != Block::Unwanted {
            return several;
        }
        match (self.rounded(bytes, align), several) {
            (Block::Unwanted, Block::Of(ty, count)) => Block::Unasked(ty, count),
            (found, _) => found,
        }
    }

    /// Interprets a block as several adjacent values of a type.
    fn several(&self, bytes: usize) -> Block {
        let sizes = self.sizes.iter().map(|&(size, ty)| (size as usize, ty));
        let smaller = sizes.take_while(|&(size, _)| size <= bytes);
        let fits = smaller.filter(|&(size, _)| bytes.is_multiple_of(size));
        only(fits.map(|(size, ty)| of(ty, bytes / size)))
    }

    /// Interprets a block as one value that begins cache lines and has the last of them for itself. C asks for a
    /// multiple of the alignment, and so does C++'s `new`.
    fn rounded(&self, bytes: usize, align: usize) -> Block {
        if align == 1 || align > format::WIDEST_ALIGN || !bytes.is_multiple_of(align) {
            return Block::Unwanted;
        }
        let fits =
            |size: u64| bytes.checked_sub(size as usize).is_some_and(|behind| behind < align);
        let found = self.sizes.iter().filter(|&&(size, _)| fits(size));
        only(found.map(|&(_, ty)| match of(ty, 1) {
            Block::Of(ty, _) => Block::Rounded(ty),
            other => other,
        }))
    }

    fn exactly(&self, size: usize) -> Option<u64> {
        let at = self.sizes.binary_search_by_key(&(size as u64), |entry| entry.0).ok()?;
        Some(self.sizes[at].1)
    }

    /// Returns the type of a name.
    pub(crate) fn named(&self, name: &[u8]) -> Option<usize> {
        let name = [b"struct ".as_slice(), b"class ", b"union "]
            .iter()
            .find_map(|keyword| name.strip_prefix(*keyword))
            .unwrap_or(name);
        self.types.iter().position(|ty| ty.name == name)
    }
}

/// Returns the only one found; several are ambiguous.
fn only(mut found: impl Iterator<Item = Block>) -> Block {
    match (found.next(), found.next()) {
        (None, _) => Block::Unwanted,
        (Some(one), None) => one,
        (Some(_), Some(_)) => Block::Ambiguous,
    }
}

fn of(ty: u64, count: usize) -> Block {
    if ty == format::AMBIGUOUS { Block::Ambiguous } else { Block::Of(ty as usize, count) }
}

const DAMAGED: &str = "the plan is damaged; nothing is recorded";

/// The rest of a plan.
struct Words(&'static [u64]);

impl Words {
    fn next(&mut self) -> Result<u64, &'static str> {
        let (first, rest) = self.0.split_first().ok_or(DAMAGED)?;
        self.0 = rest;
        Ok(*first)
    }

    fn take(&mut self, bytes: usize) -> Result<&'static [u64], &'static str> {
        let (taken, rest) = self.0.split_at_checked(bytes.div_ceil(8)).ok_or(DAMAGED)?;
        self.0 = rest;
        Ok(taken)
    }

    fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Words) -> Result<T, &'static str>,
    ) -> Result<Vec<T>, &'static str> {
        let count = self.next()? as usize;
        // A wrong count ends at the end of the words.
        (0..count).map(|_| read(self)).collect()
    }
}

impl Type {
    fn read(words: &mut Words) -> Result<Type, &'static str> {
        let (size, cells, length) = (words.next()?, words.next()? as usize, words.next()? as usize);
        if size == 0 || size > format::LARGEST_TYPE || cells >= usize::from(format::NO_CELL) {
            return Err(DAMAGED);
        }
        let size = size as usize;
        let name = words.take(length)?;
        let map = words.take(2 * size)?;
        // SAFETY: both were cut to this many words; any bytes are valid bytes, any two a valid number.
        let (name, map) = unsafe {
            (
                std::slice::from_raw_parts(name.as_ptr().cast::<u8>(), length),
                std::slice::from_raw_parts(map.as_ptr().cast::<u16>(), size),
            )
        };
        if !map.iter().all(|&cell| cell == format::NO_CELL || usize::from(cell) < cells) {
            return Err(DAMAGED);
        }
        Ok(Type { name, size, shape: Shape { cells }, map })
    }
}

/// Returns the plan's words, mapped for good.
fn map(folder: &[u8]) -> Result<&'static [u64], &'static str> {
    const CANNOT: &str = "the plan cannot be read; nothing is recorded";
    let file = File::open(Path::new(OsStr::from_bytes(folder)).join(format::PLAN));
    let file = file.map_err(|_| CANNOT)?;
    let length = file.metadata().map_or(0, |found| found.len() as usize);
    let (access, kind) = (libc::PROT_READ, libc::MAP_PRIVATE);
    // SAFETY: a new mapping, as large as the file.
    unsafe {
        let at = libc::mmap(null_mut(), length.max(1), access, kind, file.as_raw_fd(), 0);
        if length == 0 || at == libc::MAP_FAILED {
            return Err(CANNOT);
        }
        Ok(std::slice::from_raw_parts(at.cast(), length / 8))
    }
}

/// Returns the range of a file in this process, by device and inode, and the offset to add to its addresses.
fn image_of(file: (u64, u64)) -> Option<(Range<usize>, usize)> {
    find_object(|object| {
        let path = if object.path.is_empty() { c"/proc/self/exe" } else { object.path };
        // SAFETY: the path ends in zero, and the call writes the structure.
        let (found, status) = unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            (libc::stat(path.as_ptr(), &raw mut status) == 0, status)
        };
        if !found || (status.st_dev, status.st_ino) != file {
            return None;
        }
        object.span().map(|(start, end)| (start..end, object.base))
    })
}
