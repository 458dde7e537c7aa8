//! Why a program's allocations cannot be seen, as far as its file shows.
//!
//! `run` asks before it starts a program, and the preloaded library before an accounted process executes one. The
//! library asks within `execve`, even in a child that shares its parent's memory. For that reason nothing here
//! allocates, locks or keeps a descriptor.

use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;

named! {
    /// Why a process is not accounted. Ledgers store the numbers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    Blind,
    /// Returns the reason in a few words.
    {
        /// Nothing can be preloaded into it.
        Static = 1: "statically linked",
        /// It would gain a user, a group or capabilities, so the loader drops the preload.
        Privileged = 2: "gains privileges",
        /// Its architecture is not that of the preloaded library.
        OtherArchitecture = 3: "another architecture",
        /// The preloaded library does not serve programs of its C library ([`Serves`]).
        OtherLibc = 4: "another C library",
        /// A sanitizer's runtime must be the allocator, and ends a program in which it is not.
        Sanitizer = 5: "a sanitizer",
        /// The process that executed it dropped the environment that the library needs, or changed a value in it.
        Environment = 6: "environment cleared",
        /// It brings its own malloc, which its libraries call too.
        OwnMalloc = 7: "a malloc of its own",
        /// The process has too little address space for the ledger.
        AddressSpace = 8: "too little address space",
        /// The process became another user, and that user cannot open the ledger.
        OtherUser = 9: "another user",
        /// The process was under a seccomp filter when it executed the program. The program cannot open the ledger
        /// then.
        Filter = 10: "a seccomp filter",
        /// The process went where the ledger, or the library, has no path: into a chroot, or to another `/proc`.
        Elsewhere = 11: "another root or /proc",
        /// The ledger had no row left for it.
        NoRow = 12: "no row left",
        /// A run within the run executed it and accounts it.
        OtherRun = 13: "a run of its own",
        /// The supervisor found it without the library, or with another order than the run's (`--strict`).
        Unseen = 20: "without the library",
        /// Its allocator does not report the sizes of blocks, or lacks a function of malloc's family.
        Allocator = 14: "an allocator that tells no sizes",
        /// It loads libraries into a second namespace (`dlmopen`), which has its own C library.
        Namespace = 15: "a second namespace (dlmopen)",
        /// It loads a library that calls the C library's malloc past any preload (`RTLD_DEEPBIND`).
        OwnScope = 16: "a library bound to itself (RTLD_DEEPBIND)",
        /// The kernel cannot wipe memory on fork, so a child would write its parent's cells.
        Kernel = 17: "a kernel that wipes nothing on fork",
    }
}

impl Blind {
    /// Returns the reason with this number in a ledger.
    #[must_use]
    pub fn from_number(number: i64) -> Option<Blind> {
        Blind::ALL.into_iter().find(|one| *one as i64 == number)
    }

    /// Returns whether the program would fail to start with the preload in its environment. Loaders ignore a library of
    /// another machine. They fail if a library lacks functions of its C library, and so does a sanitizer's runtime.
    #[must_use]
    pub const fn breaks_preload(self) -> bool {
        matches!(self, Blind::OtherLibc | Blind::Sanitizer)
    }
}

impl fmt::Display for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the program ")?;
        f.write_str(match self {
            Blind::Static => "is statically linked, so nothing can be preloaded into it",
            Blind::Privileged => {
                "gains a user, a group or capabilities, so the loader drops the preload"
            }
            Blind::OtherArchitecture => "is of another architecture than the preload library",
            Blind::OtherLibc => {
                "uses another C library than the preload library is for (glibc, musl)"
            }
            Blind::Sanitizer => "brings a sanitizer, which must be its allocator",
            Blind::Environment => "was started without the environment that the library needs",
            Blind::OwnMalloc => "brings a malloc of its own",
            Blind::AddressSpace => "has too little address space for the ledger (ulimit -v)",
            Blind::OtherUser => "runs as another user, who cannot open the ledger",
            Blind::Filter => "is under a seccomp filter, which may forbid to open the ledger",
            Blind::Elsewhere => "runs where the ledger has no path (a chroot, another /proc)",
            Blind::NoRow => "found no row left in the ledger",
            Blind::OtherRun => "has a run of its own, which accounts and limits it",
            Blind::Unseen => "has no library, or another order than the run's",
            Blind::Allocator => "has an allocator that does not tell how large its blocks are",
            Blind::Namespace => "loads libraries into a second namespace (dlmopen)",
            Blind::OwnScope => "loads a library that is bound to itself (RTLD_DEEPBIND)",
            Blind::Kernel => "runs on a kernel that cannot wipe memory on fork",
        })?;
        f.write_str("; its allocations cannot be seen or limited")
    }
}

/// The C libraries whose programs a preloaded library serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// glibc alone.
    Glibc,
    /// musl alone.
    Musl,
    /// glibc and musl.
    Both,
}

impl Serves {
    /// Returns the C libraries that the accounting library serves. It is built for glibc or for musl; on x86-64 the
    /// build for glibc needs nothing that musl lacks.
    #[must_use]
    pub const fn built_for(glibc: bool) -> Serves {
        match glibc {
            true if cfg!(target_arch = "x86_64") => Serves::Both,
            true => Serves::Glibc,
            false => Serves::Musl,
        }
    }

    /// Returns whether a program that names this loader is served.
    fn has(self, loader: &[u8]) -> bool {
        match self {
            Serves::Both => true,
            Serves::Glibc => !contains(loader, b"ld-musl"),
            Serves::Musl => contains(loader, b"ld-musl"),
        }
    }
}

/// The file cannot be read, so nothing is known of it. It may be a program nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread;

/// Returns what keeps the preloaded library out of a program, by the program's file. For a script, that is the file of
/// its interpreter. Returns `None` for an ordinary program, and for a file that the kernel will refuse anyway.
///
/// # Errors
/// [`Unread`].
pub fn of(path: &CStr, serves: Serves) -> Result<Option<Blind>, Unread> {
    let (mut first, mut second, mut name) = ([0; 4096], [0; 4096], [0; 256]);
    let mut file = File::open(path).ok_or(Unread)?;
    let mut start = file.read(&mut first, 0);
    // Set-user-ID bits on a script are ignored; those of its interpreter count.
    if let Some(word) = interpreter(start) {
        name.get_mut(..word.len()).ok_or(Unread)?.copy_from_slice(word);
        let name = CStr::from_bytes_until_nul(&name).map_err(|_| Unread)?;
        file = File::open(name).ok_or(Unread)?;
        start = file.read(&mut second, 0);
    }
    Ok(privileged(&file).or_else(|| inside(&file, start, serves)))
}

/// Returns the interpreter that the first line of a script names.
fn interpreter(start: &[u8]) -> Option<&[u8]> {
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    line.split(|byte| b" \t".contains(byte)).find(|word| !word.is_empty())
}

/// Returns whether the program would gain privileges, and so run in the loader's secure mode.
fn privileged(file: &File) -> Option<Blind> {
    let status = file.status()?;
    // SAFETY: these have no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let gains = gains(&status, user, group) || user != 0 && file.has_capabilities();
    gains.then_some(Blind::Privileged)
}

/// Returns whether a file's bits give the process another user or group. A set-user-ID program of the same user gains
/// nothing, and is seen.
fn gains(status: &libc::stat, user: libc::uid_t, group: libc::gid_t) -> bool {
    let set_group = libc::S_ISGID | libc::S_IXGRP;
    status.st_mode & libc::S_ISUID != 0 && status.st_uid != user
        || status.st_mode & set_group == set_group && status.st_gid != group
}

const OUR_MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    libc::EM_X86_64
} else if cfg!(target_arch = "aarch64") {
    libc::EM_AARCH64
} else {
    libc::EM_NONE
};

/// Inspects an ELF file. A file that is not well-formed is left to the kernel.
fn inside(file: &File, start: &[u8], serves: Serves) -> Option<Blind> {
    if start.get(..4)? != b"\x7fELF" || OUR_MACHINE == libc::EM_NONE {
        return None;
    }
    // A 32-bit header has the machine in the same place.
    let is_ours = start.get(4..6)? == [2, 1] && number::<2>(start, 18)? == u64::from(OUR_MACHINE);
    if !is_ours {
        return Some(Blind::OtherArchitecture);
    }
    let (at, size, count) =
        (number::<8>(start, 32)?, number::<2>(start, 54)?, number::<2>(start, 56)?);
    let mut segments = [0; 56 * MOST_SEGMENTS];
    let length = (size as usize).checked_mul((count as usize).min(MOST_SEGMENTS))?;
    let segments = file.read_after(start, segments.get_mut(..length)?, at);
    let segments = || segments.chunks_exact((size as usize).max(1)).filter_map(Segment::read);
    let Some(loader) = segments().find(|segment| segment.kind == libc::PT_INTERP) else {
        return Some(Blind::Static);
    };
    let mut name = [0; 256];
    let name = name.get_mut(..(loader.length as usize).min(256))?;
    let name = file.read_after(start, name, loader.offset);
    if !serves.has(name) {
        return Some(Blind::OtherLibc);
    }
    let dynamic = segments().find(|segment| segment.kind == libc::PT_DYNAMIC)?;
    let (address, length) = strings(file, &dynamic)?;
    let holder = segments().find(|segment| {
        segment.kind == libc::PT_LOAD
            && (segment.address..segment.address.saturating_add(segment.length)).contains(&address)
    })?;
    let offset = holder.offset.checked_add(address - holder.address)?;
    names_sanitizer(file, start, offset, length).then_some(Blind::Sanitizer)
}

/// More program headers than any program has.
const MOST_SEGMENTS: usize = 64;
/// Larger tables of names are not searched.
const MOST_STRINGS: u64 = 16 << 20;

/// A program header of the 64-bit class.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    length: u64,
}

impl Segment {
    fn read(bytes: &[u8]) -> Option<Segment> {
        Some(Segment {
            kind: number::<4>(bytes, 0)? as u32,
            offset: number::<8>(bytes, 8)?,
            address: number::<8>(bytes, 16)?,
            length: number::<8>(bytes, 32)?,
        })
    }
}

/// Returns the address and the length of the dynamic segment's table of names.
fn strings(file: &File, dynamic: &Segment) -> Option<(u64, u64)> {
    /// Tags of the dynamic segment (elf.h).
    const STRTAB: u64 = 5;
    const STRSZ: u64 = 10;
    let mut entries = [0; 2048];
    let length = (dynamic.length as usize).min(entries.len());
    let entries = file.read(&mut entries[..length], dynamic.offset);
    let find = |tag| {
        let entry = entries.chunks_exact(16).find(|entry| number::<8>(entry, 0) == Some(tag));
        number::<8>(entry?, 8)
    };
    Some((find(STRTAB)?, find(STRSZ)?.min(MOST_STRINGS)))
}

/// The runtimes of sanitizers, as libraries that a program names (gcc).
const RUNTIMES: [&[u8]; 5] =
    [b"libasan.so", b"libtsan.so", b"liblsan.so", b"libhwasan.so", b"libclang_rt."];
/// A function of each runtime. A program that was linked with one names it (clang).
const FUNCTIONS: [&[u8]; 5] =
    [b"__asan_init", b"__tsan_init", b"__msan_init", b"__hwasan_init", b"__lsan_init"];
/// The library of `ledgerline layout record` has such a function, but replaces no allocator.
const RECORDER: &[u8] = b"libledgerline_record.so";

fn names_sanitizer(file: &File, start: &[u8], mut offset: u64, mut length: u64) -> bool {
    /// The longest name that is recognized. Consecutive pieces overlap by that much.
    const NAME: usize = 32;
    let mut piece = [0; 4096];
    let (mut has_function, mut has_recorder) = (false, false);
    while length > 0 {
        let want = (length as usize).min(piece.len());
        let read = file.read_after(start, &mut piece[..want], offset);
        let names = read.split(|&byte| byte == 0);
        for name in names.filter(|name| matches!(name.first(), Some(b'l' | b'_'))) {
            let is_one = |those: &[&[u8]]| those.iter().any(|one| name.starts_with(one));
            if is_one(&RUNTIMES) {
                return true;
            }
            has_function |= is_one(&FUNCTIONS);
            has_recorder |= name == RECORDER;
        }
        // The end of a piece is searched again with the next one.
        if read.len() < want || read.len() as u64 == length || read.len() <= NAME {
            break;
        }
        let step = (read.len() - NAME) as u64;
        (offset, length) = (offset + step, length - step);
    }
    has_function && !has_recorder
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Returns a number of `BYTES` bytes, least significant first.
fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(BYTES)?)?;
    Some(part.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

/// An open file, closed on drop.
pub(crate) struct File(libc::c_int);

impl File {
    pub(crate) fn open(path: &CStr) -> Option<File> {
        // Opening a terminal, or a pipe without a writer, must neither wait nor have an effect.
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the path ends in zero.
        let descriptor = unsafe { libc::open(path.as_ptr(), flags) };
        (descriptor >= 0).then_some(File(descriptor))
    }

    /// Reads at an offset, as much as there is and fits.
    pub(crate) fn read<'b>(&self, into: &'b mut [u8], offset: u64) -> &'b [u8] {
        let offset = libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX);
        // SAFETY: writes at most the slice's length to it.
        let read = unsafe { libc::pread(self.0, into.as_mut_ptr().cast(), into.len(), offset) };
        &into[..usize::try_from(read).unwrap_or(0)]
    }

    /// Like [`read`](Self::read), but takes the bytes from `start` if they lie there: most of what matters does.
    fn read_after<'b>(&self, start: &[u8], into: &'b mut [u8], offset: u64) -> &'b [u8] {
        let end = (offset as usize).saturating_add(into.len());
        match start.get(offset as usize..end) {
            Some(known) => {
                into.copy_from_slice(known);
                into
            }
            None => self.read(into, offset),
        }
    }

    fn status(&self) -> Option<libc::stat> {
        let mut status = MaybeUninit::uninit();
        // SAFETY: the call fills the record where it returns 0.
        unsafe { (libc::fstat(self.0, status.as_mut_ptr()) == 0).then(|| status.assume_init()) }
    }

    fn has_capabilities(&self) -> bool {
        // SAFETY: no buffer asks for the length alone.
        unsafe {
            libc::fgetxattr(self.0, c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: this value opened it and is its only owner.
        unsafe { libc::close(self.0) };
    }
}

#[cfg(test)]
mod tests;
