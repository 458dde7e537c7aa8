//! Adopts the registration that glibc made for every thread.
//!
//! Three parties take part. The **kernel** writes the thread's CPU and compact id into the area whenever
//! the thread returns to user space on another CPU, and moves it out of a section that was interrupted.
//! **glibc** (2.35 and later) owns the one registration a thread may have, made at thread start. **This
//! library** reads the ids and writes the one field that a program may write, `rseq_cs`.

/// How the calling process finds its running column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// Not registered: the fallback.
    None,
    /// The kernel fills `mm_cid`, the compact id: dense numbers for the threads that really run.
    /// `area` is the offset of `rseq_cs` from the thread pointer.
    Compact { area: isize },
    /// An older kernel: the CPU's number.
    Cpu { area: isize },
}

/// Where the column index lies, relative to `rseq_cs`: `mm_cid` and `cpu_id_start` in the kernel's
/// `struct rseq` (uapi/linux/rseq.h), where `rseq_cs` itself is at offset 8. (`cpu_id_start` always
/// holds a possible CPU; `cpu_id` is negative in a thread that is not registered.)
pub(crate) const COMPACT: isize = 24 - 8;
/// See [`COMPACT`].
pub(crate) const CPU: isize = 0 - 8;

impl Registration {
    pub(crate) fn is_some(self) -> bool {
        self != Registration::None
    }
}

#[cfg(rseq)]
mod glibc {
    use super::Registration;

    /// Offset of `rseq_cs` in the area.
    const RSEQ_CS: isize = 8;
    /// Offset of `cpu_id`, from `rseq_cs`.
    const CPU_ID: isize = 4 - RSEQ_CS;
    /// Bytes of the area up to and with `mm_cid`.
    const SIZE_WITH_MM_CID: u64 = 28;
    /// `AT_RSEQ_FEATURE_SIZE` of the auxiliary vector: how many bytes the *kernel* fills. glibc's
    /// own `__rseq_size` can say less than that.
    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;

    /// Finds glibc's registration; `None` without one (old glibc, musl, the tunable
    /// `glibc.pthread.rseq=0`, a kernel or sandbox without the system call, valgrind).
    pub(crate) fn adopt() -> Registration {
        // SAFETY: looks two data symbols up by their NUL-terminated names. glibc exports them as
        // `const unsigned int` and `const ptrdiff_t` and never changes them after start-up.
        let (size, offset) = unsafe {
            let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
            let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
            if size.is_null() || offset.is_null() {
                return Registration::None;
            }
            (*size, *offset)
        };
        if size == 0 {
            return Registration::None;
        }
        let area = offset + RSEQ_CS;
        // SAFETY: reads four bytes of the calling thread's area, which glibc says is registered.
        let cpu = unsafe { super::super::rseq::index::<CPU_ID>(area) };
        if (cpu as i32) < 0 {
            return Registration::None;
        }
        // SAFETY: getauxval takes any number and has no preconditions.
        let filled = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
        if filled >= SIZE_WITH_MM_CID {
            Registration::Compact { area }
        } else {
            Registration::Cpu { area }
        }
    }
}

#[cfg(rseq)]
pub(crate) use glibc::adopt;

/// Other systems use the fallback.
#[cfg(not(rseq))]
pub(crate) fn adopt() -> Registration {
    Registration::None
}
