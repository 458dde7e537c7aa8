//! Queries of the machine: how many CPUs it may have, and which thread this is.

use crate::os;
use std::sync::OnceLock;

static POSSIBLE: OnceLock<u32> = OnceLock::new();

/// Returns how many CPUs this machine may ever have. All CPU numbers and compact ids are below it.
///
/// The number is read from `/sys/devices/system/cpu/possible` without allocating. If that is missing, as in many
/// sandboxes, it is read from `/proc/softirqs`, which has a column for each CPU. Otherwise it is the larger of the
/// configured CPUs and 1 024: address space is cheap, an index out of range is not.
pub fn possible_cpus() -> u32 {
    *POSSIBLE.get_or_init(|| {
        listed().or_else(headed).map_or_else(
            // Without sections an index is derived from the thread, modulo this number.
            || os::configured_cpus().max(if cfg!(rseq) { 1024 } else { 1 }),
            |last| last.saturating_add(1),
        )
    })
}

/// Sets how many CPUs this machine may ever have, so that this process need not read it: that takes ten microseconds,
/// and some sandboxes forbid it. The first value counts, whether set or read.
///
/// # Safety
/// `count` is the result of [`possible_cpus`] in another process of this machine. Columns are found by CPU: with too
/// small a number they lie outside of a table.
pub unsafe fn tell_possible_cpus(count: u32) {
    let _ = POSSIBLE.set(count);
}

/// Returns the last CPU according to `/sys`.
fn listed() -> Option<u32> {
    let mut text = [0u8; 256];
    let length = os::read_start(c"/sys/devices/system/cpu/possible", &mut text);
    last_cpu(&text[..length])
}

/// Returns the last CPU according to `/proc`, if there are no more than some seven hundred.
#[inline(never)]
fn headed() -> Option<u32> {
    let mut text = [0u8; 8192];
    let length = os::read_start(c"/proc/softirqs", &mut text);
    last_column(&text[..length])
}

/// The number of columns behind those of the CPUs in which no section ever runs. Threads that cannot use sections
/// although their process does add there by atomics (`own_area.rs`). With glibc there are no such threads.
const STRANGERS: u32 = if cfg!(own_area) { 1 } else { 0 };

/// Returns how many columns are needed if threads add by CPU.
pub(crate) fn columns_of_cpus() -> u32 {
    possible_cpus() + STRANGERS
}

/// Returns how many columns a new file has. A process with strangers may open it, too, whatever the maker's C library.
pub(crate) fn columns_in_files() -> u32 {
    possible_cpus() + 1
}

/// Returns the column of a thread that cannot use sections: that of strangers if other threads use sections, otherwise
/// one chosen by thread.
pub(crate) fn shared_column(others_use_sections: bool) -> u32 {
    if others_use_sections { possible_cpus() } else { stripe() % possible_cpus() }
}

/// Returns the last number of a list like `0-3,8-11`.
fn last_cpu(list: &[u8]) -> Option<u32> {
    let list = list.trim_ascii_end();
    let start = list.iter().rposition(|b| !b.is_ascii_digit()).map_or(0, |at| at + 1);
    std::str::from_utf8(&list[start..]).ok()?.parse().ok()
}

/// Returns the last number of a first line like `   CPU0       CPU1   `, if the line is complete.
fn last_column(table: &[u8]) -> Option<u32> {
    let head = &table[..table.iter().position(|&byte| byte == b'\n')?];
    let last = head.split(|byte| byte.is_ascii_whitespace()).rfind(|word| !word.is_empty())?;
    std::str::from_utf8(last.strip_prefix(b"CPU")?).ok()?.parse().ok()
}

/// Returns the calling thread's stripe in the fallback: a hash of its thread pointer.
pub(crate) fn stripe() -> u32 {
    // Fibonacci hashing: thread control blocks lie a stack apart, so their low bits are equal.
    ((thread_pointer() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

/// Returns the calling thread's thread pointer: no other living thread has it, and it is never zero. Needs no
/// thread-local variable, so it works in the first and the last instruction of a thread's life. It is `readonly`, and
/// not `nomem`, so that the compiler reads it again after a call that may have moved a fiber to another thread.
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
    fn the_last_cpu_of_a_tables_head_is_found() {
        assert_eq!(last_column(b"          CPU0       CPU11      \n  HI:  0  0\n"), Some(11));
        assert_eq!(last_column(b"          CPU0       CPU1"), None);
        assert_eq!(last_column(b"          CPU0       CPU1x\n"), None);
        assert_eq!(last_column(b"\n"), None);
        assert_eq!(last_column(b""), None);
    }

    #[test]
    fn proc_and_sys_say_the_same_of_this_machine() {
        match (listed(), headed()) {
            (Some(listed), Some(headed)) => assert_eq!(listed, headed),
            (listed, headed) => eprintln!("skipped: /sys says {listed:?}, /proc {headed:?}"),
        }
    }

    #[test]
    fn the_current_column_is_always_below_the_count() {
        assert!(possible_cpus() >= 1);
        assert!(std::thread::available_parallelism().unwrap().get() <= possible_cpus() as usize);
    }
}
