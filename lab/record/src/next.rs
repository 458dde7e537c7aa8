//! The allocator behind this library, and a little memory for before it is found.

use crate::say::say;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whether the next allocator is known; looks it up on the first call.
#[inline(always)]
pub(crate) fn ready() -> bool {
    // Acquire, partner of the Release in `find`.
    FOUND[Function::usable_size as usize].1.load(Ordering::Acquire) != 0 || find()
}

#[cold]
fn find() -> bool {
    static LOOKING: AtomicBool = AtomicBool::new(false);
    if LOOKING.swap(true, Ordering::Acquire) {
        // `dlsym` itself allocates, or another thread is here in these first microseconds.
        return false;
    }
    for (name, slot) in &FOUND {
        let address = look_up(name, "the next allocator lacks a function of malloc's family");
        slot.store(address, Ordering::Release);
    }
    true
}

/// Looks a function up in the libraries behind this one, which could not go on without it.
pub(crate) fn look_up(name: &CStr, lacking: &str) -> usize {
    // SAFETY: the name ends in zero.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    if address == 0 {
        say(lacking);
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
    address
}

/// The next allocator's functions, each called as what it is.
macro_rules! forward {
    ($($name:ident = $symbol:literal($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        #[expect(non_camel_case_types, reason = "named as the functions are")]
        enum Function {
            $($name),*
        }

        /// Each function's name, and where it is once it is found. Once the last is there, all are.
        static FOUND: [(&CStr, AtomicUsize); [$($symbol),*].len()] =
            [$(($symbol, AtomicUsize::new(0))),*];

        $(
            /// The next allocator's function.
            ///
            /// # Safety
            /// As the C function; [`ready`] said yes.
            #[inline(always)]
            pub(crate) unsafe fn $name($($argument: $kind),*) $(-> $result)? {
                let address = FOUND[Function::$name as usize].1.load(Ordering::Relaxed);
                // SAFETY: found under the name of a C function of this type; what is passed is the caller's word.
                unsafe {
                    let function: unsafe extern "C" fn($($kind),*) $(-> $result)? =
                        std::mem::transmute(address);
                    function($($argument),*)
                }
            }
        )*
    };
}

forward! {
    malloc = c"malloc"(size: usize) -> *mut c_void;
    calloc = c"calloc"(count: usize, size: usize) -> *mut c_void;
    realloc = c"realloc"(block: *mut c_void, size: usize) -> *mut c_void;
    free = c"free"(block: *mut c_void);
    aligned_alloc = c"aligned_alloc"(align: usize, size: usize) -> *mut c_void;
    posix_memalign = c"posix_memalign"(into: *mut *mut c_void, align: usize, size: usize) -> c_int;
    memalign = c"memalign"(align: usize, size: usize) -> *mut c_void;
    usable_size = c"malloc_usable_size"(block: *mut c_void) -> usize;
}

/// Memory for before the next allocator is known: `dlsym` asks for some hundred bytes. Never given back.
pub(crate) mod early {
    use std::cell::UnsafeCell;
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SIZE: usize = 64 << 10;

    #[repr(C, align(4096))]
    struct Buffer(UnsafeCell<[u8; SIZE]>);
    // SAFETY: each part is handed out once, by an atomic addition.
    unsafe impl Sync for Buffer {}

    static BUFFER: Buffer = Buffer(UnsafeCell::new([0; SIZE]));
    static USED: AtomicUsize = AtomicUsize::new(0);

    /// Zeroed memory with its size in the word before it; null when it is used up.
    pub(crate) fn allocate(size: usize, align: usize) -> *mut c_void {
        let align = align.max(16);
        let Some(room) = size.checked_add(align + 16).filter(|&room| room <= SIZE) else {
            return std::ptr::null_mut();
        };
        let room = room.next_multiple_of(16);
        let start = USED.fetch_add(room, Ordering::Relaxed);
        if start > SIZE - room {
            USED.fetch_sub(room, Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        let block = (BUFFER.0.get() as usize + start + 16).next_multiple_of(align);
        // SAFETY: `room` bytes from `start` are this caller's; the word and the block lie in them.
        unsafe { (block as *mut usize).sub(1).write(size) };
        block as *mut c_void
    }

    /// Whether a block came from here.
    #[inline(always)]
    pub(crate) fn owns(block: *const c_void) -> bool {
        (block as usize).wrapping_sub(BUFFER.0.get() as usize) < SIZE
    }

    /// The size of a block from here.
    pub(crate) fn size(block: *const c_void) -> usize {
        // SAFETY: `allocate` wrote it.
        unsafe { (block as *const usize).sub(1).read() }
    }
}
