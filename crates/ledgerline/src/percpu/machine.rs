//! What is asked of the machine: how many CPUs it may have, and which thread this is.

/// How many CPUs this machine may ever have: no CPU number and no compact id reaches it.
///
/// Read from `/sys/devices/system/cpu/possible` without allocating; where that cannot be read, the
/// larger of the configured CPUs and 1 024 (address space is cheap, a wild index is not).
pub(crate) fn possible_cpus() -> u32 {
    static FOUND: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut text = [0u8; 256];
        // SAFETY: opens a NUL-terminated path, reads at most the buffer's length into it, closes.
        let length = unsafe {
            let file = libc::open(
                c"/sys/devices/system/cpu/possible".as_ptr(),
                libc::O_RDONLY | libc::O_CLOEXEC,
            );
            if file < 0 {
                0
            } else {
                let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
                libc::close(file);
                length.max(0) as usize
            }
        };
        last_cpu(&text[..length]).map_or_else(
            || {
                // SAFETY: sysconf takes a constant and has no preconditions.
                let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
                u32::try_from(configured).unwrap_or(1).max(1024)
            },
            |last| last.saturating_add(1),
        )
    })
}

/// The last number of a list like `0-3,8-11`.
fn last_cpu(list: &[u8]) -> Option<u32> {
    let list = list.trim_ascii_end();
    let start = list.iter().rposition(|b| !b.is_ascii_digit()).map_or(0, |at| at + 1);
    std::str::from_utf8(&list[start..]).ok()?.parse().ok()
}

/// The calling thread's stripe in the fallback: its thread pointer, mixed.
pub(crate) fn stripe() -> u32 {
    // Fibonacci hashing: thread control blocks lie a stack apart, so the low bits say nothing.
    ((thread_pointer() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

/// The calling thread's thread pointer: no other living thread has it, and it is never zero. Needs
/// no thread-local variable, so it works in the first and the last instruction of a thread's life. (`readonly`, and not
/// `nomem`: so the compiler asks again after a call that may have moved a fiber to another thread.)
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    // SAFETY: the first word of the thread control block points to itself on x86-64 ELF systems.
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags, pure));
    }
    #[cfg(all(target_arch = "aarch64", target_os = "linux"))]
    // SAFETY: reads the thread pointer register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, readonly, preserves_flags, pure));
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
    {
        thread_local!(static HERE: u8 = const { 0 });
        pointer = HERE.with(|here| std::ptr::from_ref(here) as usize);
    }
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_of_a_list_is_found() {
        assert_eq!(last_cpu(b"0-1\n"), Some(1));
        assert_eq!(last_cpu(b"0\n"), Some(0));
        assert_eq!(last_cpu(b"0-3,8-11"), Some(11));
        assert_eq!(last_cpu(b""), None);
        assert_eq!(last_cpu(b"0-\n"), None);
    }

    #[test]
    fn the_current_column_is_always_below_the_count() {
        assert!(possible_cpus() >= 1);
        assert!(std::thread::available_parallelism().unwrap().get() <= possible_cpus() as usize);
    }
}
