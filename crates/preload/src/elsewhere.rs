//! Processes that leave the ledger's path: they mount another `/proc`, or change their root.
//!
//! ```text
//! unshare, clone, setns, mount, chroot, pivot_root, by the functions of these names or by `syscall`:
//!   keep descriptors of the ledgers and of this library, while they have paths; an exec closes them
//!   then make the program's call
//! exec, if the ledger has no path any more (`exec.rs`):
//!   everything kept is reached as /proc/self/fd/N: an exec leaves those open, and the environment has these paths
//!   otherwise the program is not accounted, and named
//! ```
//!
//! A process in a user namespace of its own also needs the descriptors: it may not follow the ledger's path, which
//! leads through another process. In another root they serve only if `/proc` is mounted there. A program that is
//! reached so has two or three descriptors more than without the library, with numbers that programs do not use by
//! themselves. It may close them: the programs that it executes then are not accounted, and named.

use crate::behind;
use crate::filter;
use crate::objects::own_path;
use crate::process;
use ledgerline_interpose::{errno, find, set_errno};
use ledgerline_protocol::{DESCRIPTORS, Which, path_of};
use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// The lowest numbers for kept descriptors: the first that the process may have.
const NUMBERS: [c_int; 3] = [1000, 200, 20];

/// A kept descriptor, and the identity of its file, since a program may close any descriptor.
struct Kept {
    number: AtomicI32,
    device: AtomicU64,
    file: AtomicU64,
}

/// The descriptors of the ledger, the second one, and this library.
static KEPT: [Kept; 3] = [const {
    Kept { number: AtomicI32::new(-1), device: AtomicU64::new(0), file: AtomicU64::new(0) }
}; 3];

/// Returns the identity of a descriptor's file.
fn identity(descriptor: c_int) -> Option<(u64, u64)> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills the record where it returns zero.
    unsafe {
        (libc::fstat(descriptor, status.as_mut_ptr()) == 0)
            .then(|| (status.assume_init_ref().st_dev, status.assume_init_ref().st_ino))
    }
}

impl Kept {
    /// Returns the descriptor if it still leads to the kept file.
    fn number(&self) -> Option<c_int> {
        let number = self.number.load(Ordering::Relaxed);
        let is = identity(number)?;
        let was = (self.device.load(Ordering::Relaxed), self.file.load(Ordering::Relaxed));
        (number >= 0 && is == was).then_some(number)
    }

    /// Opens a descriptor and keeps it, unless there is one. It may be read-only: a writer opens the file again. Only
    /// the supervisor has the ledger open for writing, by which other commands find it.
    fn keep(&self, open: impl FnOnce() -> Option<c_int>) {
        if self.number().is_some() {
            return;
        }
        let Some(low) = open() else { return };
        // SAFETY: this function owns the descriptors.
        unsafe {
            let high = NUMBERS
                .into_iter()
                .map(|least| libc::fcntl(low, libc::F_DUPFD_CLOEXEC, least))
                .find(|&high| high >= 0);
            libc::close(low);
            let Some((number, (device, file))) = high.and_then(|it| Some((it, identity(it)?)))
            else {
                return;
            };
            self.device.store(device, Ordering::Relaxed);
            self.file.store(file, Ordering::Relaxed);
            self.number.store(number, Ordering::Relaxed);
        }
    }
}

/// Keeps the descriptors that a program needs if it is executed where the files have no path.
fn prepare() {
    let Some(run) = process::run().filter(|_| !filter::is_on()) else { return };
    let failure = errno();
    for (kept, which) in KEPT.iter().zip([Which::Ledger, Which::Heap]) {
        if let Some(path) = process::path(which) {
            kept.keep(|| run.given.open(path, which, libc::O_RDONLY).ok());
        }
    }
    KEPT[2].keep(|| {
        // SAFETY: the path ends in zero.
        let opened = unsafe { libc::open(own_path().as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (opened >= 0).then_some(opened)
    });
    set_errno(failure);
}

/// The kept descriptors, open over an exec until this is dropped. If an exec fails, or after a child was started, they
/// are as before.
pub(crate) struct Reached([Option<c_int>; 3]);

/// The greatest length of such a path, with its zero.
pub(crate) const LONGEST: usize = 32;

/// Returns the path that opens a descriptor again, in any `/proc`.
pub(crate) fn descriptor_path(descriptor: c_int, buffer: &mut [u8; LONGEST]) -> &CStr {
    use std::io::Write;
    // The longest number fits, and the rest are zeros.
    let _ = write!(&mut buffer[..LONGEST - 1], "{DESCRIPTORS}{descriptor}");
    CStr::from_bytes_until_nul(buffer).unwrap_or(c"/")
}

impl Reached {
    /// Leaves the kept descriptors open for the program that is executed next. `None` if one is missing.
    pub(crate) fn new() -> Option<Reached> {
        let needed = [true, process::path(Which::Heap).is_some(), true];
        let numbers = KEPT.each_ref().map(Kept::number);
        if needed.iter().zip(&numbers).any(|(&needed, number)| needed && number.is_none()) {
            return None;
        }
        let reached = Reached(numbers);
        // There may be another `/proc`, or none, and the process may have become another user.
        let can_be_opened = |(&number, how): (&Option<c_int>, c_int)| {
            let mut buffer = [0; LONGEST];
            number.is_none_or(|it| process::access(descriptor_path(it, &mut buffer), how).is_ok())
        };
        let changed = libc::R_OK | libc::W_OK;
        let all = [changed, changed, libc::R_OK];
        if !reached.0.iter().zip(all).all(can_be_opened) {
            return None;
        }
        reached.set(0);
        Some(reached)
    }

    fn set(&self, flags: c_int) {
        for &number in self.0.iter().flatten() {
            // SAFETY: changes a flag of a descriptor that this library keeps.
            unsafe { libc::fcntl(number, libc::F_SETFD, flags) };
        }
    }

    /// Returns the descriptor of this library.
    pub(crate) fn library(&self) -> Option<c_int> {
        self.0[2]
    }

    /// Returns the descriptor of the ledger whose path is in a string of the order.
    pub(crate) fn instead_of(&self, string: &CStr) -> Option<c_int> {
        match path_of(string)?.0 {
            Which::Ledger => self.0[0],
            Which::Heap => self.0[1],
        }
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        self.set(libc::FD_CLOEXEC);
    }
}

/// Returns whether a process with these flags may lose the ledger's path: it gets its own mounts or its own users.
fn leads_away(flags: c_int) -> bool {
    flags & (libc::CLONE_NEWNS | libc::CLONE_NEWUSER) != 0
}

/// Handles a system call that a program makes by `syscall`, with its first two arguments.
///
/// # Safety
/// The arguments are valid for the call.
pub(crate) unsafe fn called(number: c_long, first: usize, second: usize) {
    let leads_away = match number {
        libc::SYS_unshare | libc::SYS_clone => leads_away(first as c_int),
        // The kernel refuses a record in the first page, or one that is too short.
        libc::SYS_clone3 if first >= 4096 && second >= size_of::<u64>() => {
            // SAFETY: the first argument is a record that begins with the flags, and the second one its size.
            leads_away(unsafe { *(first as *const u64) } as c_int)
        }
        libc::SYS_setns | libc::SYS_chroot | libc::SYS_pivot_root | libc::SYS_mount => true,
        _ => return,
    };
    if leads_away {
        prepare();
    }
}

/// The C library's `clone`, or a function that fails.
static CLONE: AtomicPtr<c_void> = AtomicPtr::new(behind::missing as *mut c_void);

/// Looks `clone` up. Called once, before the program's first instruction.
pub(crate) fn start() {
    let found = find(c"clone");
    if found != 0 {
        CLONE.store(found as *mut c_void, Ordering::Relaxed);
    }
}

extern "C" fn before_clone(flags: c_int) {
    if leads_away(flags) {
        prepare();
    }
}

/// Replaces GNU's `clone`. The child may run on another stack, so this function leaves its frame before it calls the
/// next one.
///
/// # Safety
/// As for the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone() -> c_int {
    // keep the arguments; before_clone(the third); restore them; jump
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
        "mov edi, edx",
        "call {before}",
        "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "jmp qword ptr [rip + {behind}]",
        before = sym before_clone,
        behind = sym CLONE,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-80]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "str x6, [sp, #64]",
        "mov w0, w2",
        "bl {before}",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldr x6, [sp, #64]",
        "ldp x29, x30, [sp], #80",
        "adrp x16, {behind}",
        "ldr x16, [x16, :lo12:{behind}]",
        "br x16",
        before = sym before_clone,
        behind = sym CLONE,
    );
}

/// Replaces Linux's `unshare`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    if leads_away(flags) {
        prepare();
    }
    // SAFETY: the caller's contract, passed on.
    unsafe { behind::unshare(flags) }
}

/// Exports functions by which a process may leave the ledger's path, whatever their arguments.
macro_rules! export_leaving {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        #[doc = concat!("Linux's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As for the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            prepare();
            // SAFETY: the caller's contract, passed on.
            unsafe { behind::$name($($argument),*) }
        }
    )*};
}

export_leaving! {
    setns(descriptor: c_int, kind: c_int);
    chroot(path: *const c_char);
    pivot_root(root: *const c_char, old: *const c_char);
    mount(what: *const c_char, place: *const c_char, kind: *const c_char, flags: c_ulong, data: *const c_void);
}
