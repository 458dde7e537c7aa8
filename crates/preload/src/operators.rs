//! C++'s `operator new` and `operator delete`.
//!
//! libstdc++'s and libc++'s operators call malloc and free, which count. For them, `new` only notes its caller here.
//! Allocators such as jemalloc, tcmalloc and mimalloc bring their own operators, which call neither. Then the block is
//! charged and returned here:
//!
//! ```text
//! operator new(n):      the next one is the allocator's?   p = next.new(n); charge(my row, size(p))
//!                         there is none, or a limit refuses: call the new handler, or throw bad_alloc
//!                       otherwise: note the caller, next.new(n) (and malloc counts)
//! operator delete(p):   the next one is the allocator's?   uncharge(the block's owner); next.delete(p)
//!                       otherwise: next.delete(p) (and free counts)
//! ```
//!
//! The allocator is called by its operator that does not throw. An exception that crosses a frame of this library with
//! a cleanup would be handled by two unwinders: the program's, and the one that this library contains.
//!
//! # Matching operators
//!
//! A block belongs to the library whose `operator new` made it, and must go to that library's `operator delete`. The
//! loader follows that rule without this library: it binds each object's calls by that object's scope. So each call
//! must end at the function that the loader would have chosen. There are two cases:
//!
//! * **A library that was loaded at the start has the operator.** The loader searches those first for every object, so
//!   all objects share that operator, and it is never unloaded. Each operator here is one jump to it.
//! * **No such library has it**, as in a program in C. Then each object that `dlopen` loads has its own: from its C++
//!   library, which no other object sees, or one that it defines itself. A return address does not identify the caller:
//!   a destructor jumps to `operator delete` as its last step, and leaves its own caller's address. So this library
//!   takes its own operator out of its table of symbols before the first `dlopen` continues, and the loader binds as it
//!   would without it. libstdc++'s operators then call malloc and free, which count. The memory of other operators
//!   counts where it comes from.
//!
//! The decision is made for each operator separately: an allocator may have some of them, and leave the rest to the C++
//! library. It is made before the first object is loaded by `dlopen` or `dlmopen`, and is final. The C library may load
//! an object for itself before, such as a module for host names. If such an object is bound to an operator here and no
//! library has another, `malloc` and `free` serve, as they do in libstdc++ and libc++.
//!
//! | tested in `tests/main/plugins.rs` | |
//! |---|---|
//! | scope | `RTLD_LOCAL`, `RTLD_GLOBAL`, `RTLD_DEEPBIND` |
//! | binding | `RTLD_NOW`, `RTLD_LAZY` |
//! | operators | of the shared C++ library, of one that is linked statically, of the plug-in itself, of two plug-ins side by side |
//! | end | `dlclose` and a second load, or none |
//! | beneath | glibc's malloc, jemalloc, tcmalloc, mimalloc |

use crate::expected::Expected;
use crate::next::{NEXT, WINDOW};
use crate::thread::{self, Busy, Word};
use crate::{alloc, objects};
use ledgerline_interpose::{find, find_each, own_entry, symbol};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Any `operator new`: at most three arguments, in registers.
type New = unsafe extern "C-unwind" fn(usize, usize, usize) -> *mut c_void;
/// An `operator new` that does not throw.
type Quiet = unsafe extern "C" fn(usize, usize, usize) -> *mut c_void;
/// Any `operator delete`, likewise.
type Delete = unsafe extern "C" fn(*mut c_void, usize, usize);

/// One of the operators.
#[derive(Clone, Copy)]
struct Operator {
    name: &'static CStr,
    /// The operator that is called instead if the next one is an allocator's: it does not throw.
    quiet: &'static CStr,
    /// The address of that operator.
    real: &'static AtomicUsize,
    /// The address that this operator jumps to.
    next: &'static AtomicPtr<()>,
    /// That address if the next operator is an allocator's.
    counted: *const (),
    alone: *const (),
}

impl Operator {
    /// Chooses the target: `counted` if the next operator is an allocator's, another one directly, and `alone` if there
    /// is none.
    fn resolve(&self, found: usize) {
        let quiet = match found {
            found if found == 0 || !objects::is_allocators(found) => 0,
            found if self.quiet == self.name => found,
            _ => Some(find(self.quiet)).filter(|&quiet| objects::is_allocators(quiet)).unwrap_or(0),
        };
        self.real.store(quiet, Ordering::Relaxed);
        let goes_on = match (found, quiet) {
            (0, _) => self.alone,
            (found, 0) => found as *const (),
            _ => self.counted,
        };
        // Release: a thread that jumps to `counted` also sees the real operator's address.
        self.next.store(goes_on.cast_mut(), Ordering::Release);
    }

    /// Runs at the operator's first call.
    fn resolve_first(&self) -> *mut () {
        // The loader may allocate for itself during the look-up. That is not the request of the operator's caller.
        let caller = thread::get(Word::Caller);
        thread::set(Word::Caller, 0);
        self.resolve(find(self.name));
        thread::set(Word::Caller, caller);
        self.next.load(Ordering::Acquire)
    }

    /// Removes the operator from this library's table of symbols: objects that are loaded from now on find the next
    /// one.
    fn hide(&self) {
        let Some(entry) = own_entry(self.name) else { return };
        // SAFETY: an entry of this library's own table, which stays loaded.
        let value = unsafe { &raw const (*entry).st_value };
        // SAFETY: takes a constant.
        let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let page = value as usize & !(size - 1);
        // SAFETY: the page is this library's own, private to the process, and holds no code. A direct system call,
        // since `mprotect` is a function of this library. If it fails the operator stays, and `alone` serves.
        let may_write = unsafe {
            libc::syscall(libc::SYS_mprotect, page, size, libc::PROT_READ | libc::PROT_WRITE) == 0
        };
        if may_write {
            // SAFETY: the word is aligned and writable by now. The loader skips an entry without an address; a
            // concurrent reader sees the old or the new word. Guarded by `tests/main/plugins.rs`.
            unsafe { AtomicU64::from_ptr(value.cast_mut()).store(0, Ordering::Relaxed) };
        }
    }
}

/// Decides for each operator which library has it. Called once, before the first object is loaded by `dlopen`. Two
/// threads that decide at the same time come to the same result.
pub(crate) fn settle() {
    static SETTLED: AtomicBool = AtomicBool::new(false);
    // Acquire and Release: a thread that sees true sees the table without the removed entries.
    if SETTLED.load(Ordering::Acquire) {
        return;
    }
    let found = [const { AtomicUsize::new(0) }; ALL.len()];
    find_each(&ALL.map(|operator| operator.name), &found);
    for (operator, found) in ALL.iter().zip(found) {
        let found = found.into_inner();
        operator.resolve(found);
        if found == 0 {
            operator.hide();
        }
    }
    SETTLED.store(true, Ordering::Release);
}

/// Handles a `new` that is not granted: the program's handler makes room for another attempt, or there is none.
fn make_room(throws: bool) -> bool {
    if !throws {
        return false;
    }
    let handler = find(c"_ZSt15get_new_handlerv");
    if handler != 0 {
        // SAFETY: libstdc++'s function of that name: it takes nothing and returns a function, or null.
        let handler = unsafe {
            let get: extern "C" fn() -> Option<extern "C-unwind" fn()> =
                std::mem::transmute(handler);
            get()
        };
        if let Some(handler) = handler {
            handler();
            return true;
        }
    }
    let throw = find(c"_ZSt17__throw_bad_allocv");
    if throw != 0 {
        // SAFETY: libstdc++'s function of that name, which takes nothing and does not return.
        unsafe {
            let throw: extern "C-unwind" fn() -> ! = std::mem::transmute(throw);
            throw();
        }
    }
    // Without a C++ library nothing can be thrown: the program gets a null pointer.
    false
}

/// The functions that the program calls by these names, which may be its own. They are called by address: the compiler
/// takes a function of this library's for granted, and inlines it.
struct Plain {
    malloc: AtomicUsize,
    aligned_alloc: AtomicUsize,
    free: AtomicUsize,
}

static PLAIN: Plain = Plain {
    malloc: AtomicUsize::new(0),
    aligned_alloc: AtomicUsize::new(0),
    free: AtomicUsize::new(0),
};

/// Returns one of them.
fn plain(known: &AtomicUsize, name: &CStr) -> usize {
    // Relaxed: each thread finds the same address.
    match known.load(Ordering::Relaxed) {
        0 => {
            let found = objects::called(name);
            known.store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

/// Does the work of libstdc++'s `operator delete` for a program in which no library has one: the counterpart of
/// [`plain_new`].
unsafe extern "C" fn plain_delete(block: *mut c_void) {
    // SAFETY: C's `free`; the block came from the program's `malloc`.
    unsafe {
        let free: unsafe extern "C" fn(*mut c_void) =
            std::mem::transmute(plain(&PLAIN.free, c"free"));
        free(block);
    }
}

/// Does the work of libstdc++'s `operator new` for a program in which no library has one: calls `malloc`, which counts.
/// `align` is 0 for an operator that takes none.
///
/// # Safety
///
/// As for the C++ operator.
unsafe fn plain_new(size: usize, align: usize, throws: bool) -> *mut c_void {
    let size = size.max(1);
    loop {
        let block = if align == 0 {
            // SAFETY: C's `malloc`, which takes any size.
            unsafe {
                let malloc: unsafe extern "C" fn(usize) -> *mut c_void =
                    std::mem::transmute(plain(&PLAIN.malloc, c"malloc"));
                malloc(size)
            }
        } else {
            // SAFETY: C++ passes a power of two; a size that would overflow is refused like any that is too large.
            unsafe {
                let aligned_alloc: unsafe extern "C" fn(usize, usize) -> *mut c_void =
                    std::mem::transmute(plain(&PLAIN.aligned_alloc, c"aligned_alloc"));
                aligned_alloc(align, size.checked_next_multiple_of(align).unwrap_or(usize::MAX))
            }
        };
        if !block.is_null() || !make_room(throws) {
            return block;
        }
    }
}

/// Calls the allocator's `operator new` and charges the block.
///
/// # Safety
/// `real` is such an operator that does not throw, with these arguments.
unsafe fn counted_new(real: usize, a: usize, b: usize, c: usize, throws: bool) -> *mut c_void {
    let caller = thread::get(Word::Caller);
    loop {
        thread::set(Word::Caller, 0);
        let mut block = {
            // Some operators call malloc or its family themselves, which must not count as well.
            let _busy = Busy::enter();
            // SAFETY: by the caller's contract; a block may be larger than requested.
            unsafe {
                let real: Quiet = std::mem::transmute(real);
                real(a.max(WINDOW), b, c)
            }
        };
        if !block.is_null() {
            // SAFETY: fresh from the allocator; a refused block is freed by `free`, which accepts the blocks of the
            // allocator's operators.
            block = unsafe { alloc::adopt(block, caller, Expected::NOTHING) };
        }
        if !block.is_null() || !make_room(throws) {
            return block;
        }
    }
}

/// An object of C++'s `std::nothrow_t`, which has no content.
static NOTHROW: u8 = 0;

/// Returns the units of a block that the allocator's `operator delete` is about to free.
fn uncounted(block: *mut c_void) {
    if !block.is_null() && NEXT.ready() {
        // SAFETY: a block of the allocator's.
        unsafe { alloc::forget(block) };
    }
}

/// Exports an `operator new`. If the next one calls malloc, this is a jump and not a call, so that an exception unwinds
/// as if this library were absent.
macro_rules! export_new {
    ($($symbol:literal $name:ident $throws:literal $aligned:literal $quiet:literal;)*) => {$(
        mod $name {
            use super::*;

            const NAME: &CStr = symbol(concat!($symbol, "\0"));
            const QUIET: &CStr = symbol(concat!($quiet, "\0"));
            static NEXT: AtomicPtr<()> = AtomicPtr::new(first as *const () as *mut ());
            static REAL: AtomicUsize = AtomicUsize::new(0);
            pub(super) const OPERATOR: Operator = Operator {
                name: NAME,
                quiet: QUIET,
                real: &REAL,
                next: &NEXT,
                counted: counted as *const (),
                alone: alone as *const (),
            };

            /// Runs at the first call: looks for the next operator.
            unsafe extern "C-unwind" fn first(a: usize, b: usize, c: usize) -> *mut c_void {
                // SAFETY: an operator new with at most three arguments in registers.
                unsafe {
                    let goes_on: New = std::mem::transmute(OPERATOR.resolve_first());
                    goes_on(a, b, c)
                }
            }

            unsafe extern "C-unwind" fn alone(a: usize, b: usize, _: usize) -> *mut c_void {
                // SAFETY: the arguments of such an operator.
                unsafe { plain_new(a, if $aligned { b } else { 0 }, $throws) }
            }

            unsafe extern "C-unwind" fn counted(a: usize, b: usize, _: usize) -> *mut c_void {
                let nothrow = &raw const NOTHROW as usize;
                let (b, c) = if $aligned { (b, nothrow) } else { (nothrow, 0) };
                // SAFETY: `resolve` stored it: the operator without exceptions, which takes the size, an alignment if
                // it has one, and an object without content.
                unsafe { counted_new(REAL.load(Ordering::Relaxed), a, b, c, $throws) }
            }

            #[doc = concat!("C++'s `", $symbol, "`.")]
            ///
            /// # Safety
            /// As for the C++ operator.
            #[unsafe(naked)]
            #[unsafe(export_name = $symbol)]
            pub unsafe extern "C" fn operator() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!(
                    "mov rax, qword ptr [rip + ledgerline_thread_words@GOTTPOFF]",
                    // One operator new may call another: that of arrays calls the plain one. The first caller counts.
                    "cmp qword ptr fs:[rax + {caller}], 0",
                    "jne 2f",
                    "mov r11, [rsp]",
                    "mov qword ptr fs:[rax + {caller}], r11",
                    "2:",
                    "jmp qword ptr [rip + {next}]",
                    caller = const Word::Caller as usize,
                    next = sym NEXT,
                );
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!(
                    "adrp x16, :gottprel:ledgerline_thread_words",
                    "ldr x16, [x16, #:gottprel_lo12:ledgerline_thread_words]",
                    "mrs x17, tpidr_el0",
                    "add x16, x16, x17",
                    "ldr x17, [x16, #{caller}]",
                    "cbnz x17, 2f",
                    "str x30, [x16, #{caller}]",
                    "2:",
                    "adrp x16, {next}",
                    "add x16, x16, :lo12:{next}",
                    "ldar x16, [x16]",
                    "br x16",
                    caller = const Word::Caller as usize,
                    next = sym NEXT,
                );
            }
        }
    )*};
}

export_new! {
    "_Znwm" new true false "_ZnwmRKSt9nothrow_t";
    "_Znam" new_array true false "_ZnamRKSt9nothrow_t";
    "_ZnwmRKSt9nothrow_t" new_nothrow false false "_ZnwmRKSt9nothrow_t";
    "_ZnamRKSt9nothrow_t" new_array_nothrow false false "_ZnamRKSt9nothrow_t";
    "_ZnwmSt11align_val_t" new_aligned true true "_ZnwmSt11align_val_tRKSt9nothrow_t";
    "_ZnamSt11align_val_t" new_array_aligned true true "_ZnamSt11align_val_tRKSt9nothrow_t";
    "_ZnwmSt11align_val_tRKSt9nothrow_t" new_aligned_nothrow false true "_ZnwmSt11align_val_tRKSt9nothrow_t";
    "_ZnamSt11align_val_tRKSt9nothrow_t" new_array_aligned_nothrow false true "_ZnamSt11align_val_tRKSt9nothrow_t";
}

/// Exports an `operator delete`.
macro_rules! export_delete {
    ($($symbol:literal $name:ident $sized:literal;)*) => {$(
        mod $name {
            use super::*;

            const NAME: &CStr = symbol(concat!($symbol, "\0"));
            static NEXT: AtomicPtr<()> = AtomicPtr::new(first as *const () as *mut ());
            static REAL: AtomicUsize = AtomicUsize::new(0);

            pub(super) const OPERATOR: Operator = Operator {
                name: NAME,
                quiet: NAME,
                real: &REAL,
                next: &NEXT,
                counted: counted as *const (),
                alone: plain_delete as *const (),
            };

            /// Runs at the first call: looks for the next operator.
            unsafe extern "C" fn first(block: *mut c_void, b: usize, c: usize) {
                // SAFETY: an operator delete with at most three arguments in registers.
                unsafe {
                    let goes_on: Delete = std::mem::transmute(OPERATOR.resolve_first());
                    goes_on(block, b, c);
                }
            }

            unsafe extern "C" fn counted(block: *mut c_void, b: usize, c: usize) {
                uncounted(block);
                // `new` asked for at least that, and an allocator relies on this argument.
                let b = if $sized { b.max(WINDOW) } else { b };
                // Some operators call free themselves, which must not return the units again.
                let _busy = Busy::enter();
                // SAFETY: `first` stored it; such an operator delete.
                unsafe {
                    let real: Delete = std::mem::transmute(REAL.load(Ordering::Relaxed));
                    real(block, b, c);
                }
            }

            #[doc = concat!("C++'s `", $symbol, "`.")]
            ///
            /// # Safety
            /// As for the C++ operator.
            #[unsafe(naked)]
            #[unsafe(export_name = $symbol)]
            pub unsafe extern "C" fn operator() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!("jmp qword ptr [rip + {next}]", next = sym NEXT);
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!(
                    "adrp x16, {next}",
                    "add x16, x16, :lo12:{next}",
                    "ldar x16, [x16]",
                    "br x16",
                    next = sym NEXT,
                );
            }
        }
    )*};
}

export_delete! {
    "_ZdlPv" delete false;
    "_ZdaPv" delete_array false;
    "_ZdlPvm" delete_sized true;
    "_ZdaPvm" delete_array_sized true;
    "_ZdlPvRKSt9nothrow_t" delete_nothrow false;
    "_ZdaPvRKSt9nothrow_t" delete_array_nothrow false;
    "_ZdlPvSt11align_val_t" delete_aligned false;
    "_ZdaPvSt11align_val_t" delete_array_aligned false;
    "_ZdlPvmSt11align_val_t" delete_sized_aligned true;
    "_ZdaPvmSt11align_val_t" delete_array_sized_aligned true;
    "_ZdlPvSt11align_val_tRKSt9nothrow_t" delete_aligned_nothrow false;
    "_ZdaPvSt11align_val_tRKSt9nothrow_t" delete_array_aligned_nothrow false;
}

/// All operators.
const ALL: [Operator; 20] = [
    new::OPERATOR,
    new_array::OPERATOR,
    new_nothrow::OPERATOR,
    new_array_nothrow::OPERATOR,
    new_aligned::OPERATOR,
    new_array_aligned::OPERATOR,
    new_aligned_nothrow::OPERATOR,
    new_array_aligned_nothrow::OPERATOR,
    delete::OPERATOR,
    delete_array::OPERATOR,
    delete_sized::OPERATOR,
    delete_array_sized::OPERATOR,
    delete_nothrow::OPERATOR,
    delete_array_nothrow::OPERATOR,
    delete_aligned::OPERATOR,
    delete_array_aligned::OPERATOR,
    delete_sized_aligned::OPERATOR,
    delete_array_sized_aligned::OPERATOR,
    delete_aligned_nothrow::OPERATOR,
    delete_array_aligned_nothrow::OPERATOR,
];
