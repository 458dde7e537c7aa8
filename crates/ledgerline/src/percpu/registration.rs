//! Adopts the registration that glibc made for every thread. If the C library makes none, this library does
//! (`own_area.rs`).
//!
//! Three parties take part. The **kernel** writes the thread's CPU and compact id into the area whenever the
//! thread returns to user space on another CPU, and moves the thread out of a section that was interrupted.
//! **glibc** (2.35 and later) owns the one registration a thread may have, made at thread start. **This library**
//! reads the ids and writes the one field that a program may write, `rseq_cs`.

use super::Without;
#[cfg(own_area)]
use super::own_area;

/// Offset of `rseq_cs` in the area.
#[cfg(rseq)]
const RSEQ_CS: isize = 8;

/// How the calling process finds its running column.
#[cfg_attr(not(rseq), allow(dead_code, reason = "there are no sections"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// Not registered: the fallback.
    None,
    /// The kernel fills `mm_cid`, the compact id: dense numbers for the threads that are running. `area` is the
    /// offset of `rseq_cs` from the thread pointer.
    Compact { area: isize },
    /// An older kernel: the CPU's number.
    Cpu { area: isize },
}

/// The offset of the column index from `rseq_cs`: `mm_cid` and `cpu_id_start` in the kernel's `struct rseq`
/// (uapi/linux/rseq.h), where `rseq_cs` itself is at offset 8. `cpu_id_start` always holds a possible CPU;
/// `cpu_id` is negative in a thread that is not registered.
#[cfg_attr(not(rseq), allow(dead_code, reason = "there are no sections"))]
pub(crate) const COMPACT: isize = 24 - 8;
/// See [`COMPACT`].
#[cfg_attr(not(rseq), allow(dead_code, reason = "there are no sections"))]
pub(crate) const CPU: isize = 0 - 8;

impl Registration {
    pub(crate) fn is_some(self) -> bool {
        self != Registration::None
    }

    /// Returns the offset of `rseq_cs` if compact ids are in use; otherwise zero.
    pub(crate) fn compact_area(self) -> isize {
        if let Registration::Compact { area } = self { area } else { 0 }
    }

    /// Returns the registration that the calling thread may use: with glibc always this one, and `None` in a
    /// thread that this library could not register. Registers the thread if that was not tried before.
    /// Async-signal-safe.
    #[inline(always)]
    pub(crate) fn of_this_thread(self) -> Registration {
        #[cfg(own_area)]
        if self.is_some() {
            if !own_area::join() {
                return Registration::None;
            }
            if let Registration::Compact { area } = self {
                own_area::quicken(area);
            }
        }
        self
    }
}

/// Runs a section by the index of a registration. Returns `None` if the calling thread may not use sections.
macro_rules! by_index {
    ($registration:expr, |$INDEX:ident, $area:ident| $run:expr) => {{
        use $crate::percpu::registration::{self, Registration};
        match $registration.of_this_thread() {
            Registration::Compact { area: $area } => {
                const $INDEX: isize = registration::COMPACT;
                Some($run)
            }
            Registration::Cpu { area: $area } => {
                const $INDEX: isize = registration::CPU;
                Some($run)
            }
            Registration::None => None,
        }
    }};
}

pub(crate) use by_index;

/// Finds glibc's registration. There is none in old versions and with the tunable `glibc.pthread.rseq=0`, and it
/// is unusable if a kernel, a sandbox or valgrind refuses the system call.
#[cfg(all(rseq, not(own_area)))]
pub(crate) fn adopt() -> Result<Registration, Without> {
    // SAFETY: looks two data symbols up by their NUL-terminated names. glibc exports them as
    // `const unsigned int` and `const ptrdiff_t` and never changes them after start-up.
    let (size, offset) = unsafe {
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        if size.is_null() || offset.is_null() {
            return Err(Without::Library);
        }
        (*size, *offset)
    };
    if size == 0 {
        return Err(Without::Registration);
    }
    filled(offset + RSEQ_CS)
}

/// Returns the registration at `area`, if the kernel fills it.
#[cfg(rseq)]
fn filled(area: isize) -> Result<Registration, Without> {
    /// Offset of `cpu_id`, from `rseq_cs`.
    const CPU_ID: isize = 4 - RSEQ_CS;
    /// Bytes of the area up to and including `mm_cid`.
    const SIZE_WITH_MM_CID: libc::c_ulong = 28;
    /// `AT_RSEQ_FEATURE_SIZE` of the auxiliary vector: how many bytes the *kernel* fills. glibc's own
    /// `__rseq_size` can be smaller.
    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;

    // SAFETY: reads four bytes of the calling thread's area, which was registered.
    let cpu = unsafe { super::rseq::index::<CPU_ID>(area) };
    if (cpu as i32) < 0 {
        return Err(Without::Registration);
    }
    // SAFETY: getauxval takes any number and has no preconditions.
    let filled = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
    Ok(if filled >= SIZE_WITH_MM_CID {
        Registration::Compact { area }
    } else {
        Registration::Cpu { area }
    })
}

/// Registers the calling thread, if the kernel allows it.
#[cfg(own_area)]
pub(crate) fn adopt() -> Result<Registration, Without> {
    if !own_area::begin() {
        return Err(Without::Key);
    }
    if !own_area::join() {
        return Err(Without::Registration);
    }
    filled(own_area::distance() + RSEQ_CS)
}

/// Fails: other systems have no sections.
#[cfg(not(rseq))]
pub(crate) fn adopt() -> Result<Registration, Without> {
    Err(Without::Machine)
}
