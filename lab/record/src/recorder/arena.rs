//! The recording: a mapped file, so that the counts outlive the process, however it ends.
//!
//! The address space for all of it is reserved at once. The file grows as memory is handed out. The library asks the
//! file system for the room first, so that a full disk loses counts and does not kill the program.

use crate::format::{self, header};
use crate::recorder::say::Path;
use ledgerline_interpose::anonymous;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

const BYTES: usize = format::ARENA_AT + format::ARENA_BYTES;
/// Bytes by which the file grows.
const STEP: usize = 1 << 20;
/// Bytes that exist from the start: header, sites and folds.
const HEAD: usize = format::OBJECTS_AT;

static BASE: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
/// The used part of the arena, and the part of the file with room for objects and for the arena, in bytes.
static USED: AtomicUsize = AtomicUsize::new(format::ARENA_AT);
static ROOM: AtomicUsize = AtomicUsize::new(format::ARENA_AT);
static OBJECT_ROOM: AtomicUsize = AtomicUsize::new(format::OBJECTS_AT);

/// The file's path. A process keeps it instead of a descriptor, which the program might close.
static mut PATH: Path = Path::new();

/// Returns the recording's word at an offset in bytes. It exists only while the process is recorded.
#[inline(always)]
pub(crate) fn at(offset: usize) -> *mut u64 {
    BASE.load(Ordering::Relaxed).wrapping_byte_add(offset)
}

/// Returns a word of the header.
fn header_word(word: usize) -> &'static AtomicU64 {
    // SAFETY: R1; the header exists from the start.
    unsafe { AtomicU64::from_ptr(at(8 * word)) }
}

/// Adds to a word of the header, from any thread. Returns the value before.
pub(crate) fn add(word: usize, number: u64) -> u64 {
    header_word(word).fetch_add(number, Ordering::Relaxed)
}

/// Sets a word of the header. The caller holds the lock, or nothing is counted yet.
pub(crate) fn set(word: usize, number: u64) {
    header_word(word).store(number, Ordering::Relaxed);
}

/// Returns a word of the header.
pub(crate) fn get(word: usize) -> u64 {
    header_word(word).load(Ordering::Relaxed)
}

/// Makes this process's file in a folder and maps it. Nothing is counted yet, or this is a child that has one thread.
pub(crate) fn create(folder: &[u8]) -> Result<(), &'static str> {
    const CANNOT: &str = "no file for what is counted; nothing is recorded";
    // SAFETY: getpid has no preconditions.
    let process = unsafe { libc::getpid() } as u64;
    for attempt in 0..1000 {
        // Before it executed this program, the process may have run another one.
        let path = match attempt {
            0 => Path::below(folder, format_args!("{}{process}", format::RECORDING)),
            _ => Path::below(folder, format_args!("{}{process}-{attempt}", format::RECORDING)),
        };
        let path = path.ok_or(CANNOT)?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: the path ends in zero.
        let file = unsafe { libc::open(path.as_c().as_ptr(), flags, 0o600) };
        if file < 0 {
            if std::io::Error::last_os_error().raw_os_error() == Some(libc::EEXIST) {
                continue;
            }
            return Err(CANNOT);
        }
        // SAFETY: the file is this process's own. An earlier mapping is replaced by one of the same size, and no
        // other code uses it at that time.
        let mapped = unsafe {
            let before = BASE.load(Ordering::Relaxed);
            let fixed = if before.is_null() { 0 } else { libc::MAP_FIXED };
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | fixed;
            let mapped = if allowed(HEAD) && libc::posix_fallocate(file, 0, HEAD as i64) == 0 {
                libc::mmap(before.cast(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, file, 0)
            } else {
                libc::MAP_FAILED
            };
            libc::close(file);
            PATH = path;
            mapped
        };
        if mapped == libc::MAP_FAILED {
            return Err(CANNOT);
        }
        BASE.store(mapped.cast(), Ordering::Relaxed);
        USED.store(format::ARENA_AT, Ordering::Relaxed);
        ROOM.store(format::ARENA_AT, Ordering::Relaxed);
        OBJECT_ROOM.store(format::OBJECTS_AT, Ordering::Relaxed);
        set(header::MAGIC, format::RECORDING_MAGIC);
        set(header::VERSION, format::VERSION);
        set(header::PROCESS, process);
        // Object 0 stands for no object.
        set(header::OBJECTS, 1);
        return Ok(());
    }
    Err(CANNOT)
}

/// Allocates zeroed words. Returns their offset in bytes, or `None` if there is no room. The caller holds the lock.
pub(crate) fn allocate(words: usize) -> Option<usize> {
    let start = USED.load(Ordering::Relaxed);
    let end = start + (words * 8).next_multiple_of(64);
    extend(&ROOM, end, BYTES).then(|| {
        USED.store(end, Ordering::Relaxed);
        start
    })
}

/// Ensures that the file has room for an object's words, which end at an offset. The caller holds the lock.
pub(crate) fn room_for_object(end: usize) -> bool {
    extend(&OBJECT_ROOM, end, format::ARENA_AT)
}

/// Ensures that a part of the file has room up to an offset; it may have room up to `most`.
fn extend(room: &AtomicUsize, end: usize, most: usize) -> bool {
    let before = room.load(Ordering::Relaxed);
    if end > before {
        let more = end.next_multiple_of(STEP).min(most);
        if end > more || !grow(before, more) {
            return false;
        }
        room.store(more, Ordering::Relaxed);
    }
    true
}

/// Returns whether files may be this large. A request for more would end the program by a signal.
fn allowed(bytes: usize) -> bool {
    // SAFETY: the call writes the structure.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) != 0 || bytes as u64 <= limit.rlim_cur
    }
}

/// Asks the file system for room.
fn grow(from: usize, to: usize) -> bool {
    if !allowed(to) {
        return false;
    }
    // SAFETY: the path was written before anything was counted, or by the one thread of a child. The file is this
    // process's own, opened only for this.
    unsafe {
        let path = &raw const PATH;
        let file = libc::open((*path).as_c().as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if file < 0 {
            return false;
        }
        let done = libc::posix_fallocate(file, from as i64, (to - from) as i64) == 0;
        libc::close(file);
        done
    }
}

/// Copies the objects into a file of the child's own, in which no thread has used them yet.
pub(crate) fn leave_parent(folder: &[u8]) -> Result<(), &'static str> {
    const CANNOT: &str = "a forked child has no room for its objects; it is not recorded";
    let [objects, free] = [header::OBJECTS, header::FREE].map(get);
    let bytes = objects as usize * format::ROW * 8;
    // SAFETY: a mapping of this function's own, of the size that is copied into it and out of it.
    unsafe {
        let kept = anonymous(bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_NORESERVE)
            .ok_or(CANNOT)?;
        std::ptr::copy_nonoverlapping(at(format::OBJECTS_AT).cast::<u8>(), kept.cast(), bytes);
        let done = create(folder).and_then(|()| {
            if !room_for_object(format::OBJECTS_AT + bytes) {
                return Err(CANNOT);
            }
            std::ptr::copy_nonoverlapping(kept.cast::<u8>(), at(format::OBJECTS_AT).cast(), bytes);
            set(header::OBJECTS, objects);
            set(header::FREE, free);
            Ok(())
        });
        libc::munmap(kept, bytes);
        done
    }
}
