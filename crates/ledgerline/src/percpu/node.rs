//! The NUMA node that the calling thread runs on.

use super::{probe, rseq};

/// The offset of the node from `rseq_cs`: `node_id` in the kernel's `struct rseq`. It lies before `mm_cid`,
/// so a kernel that fills compact ids fills it.
const NODE: isize = 20 - 8;

/// Returns the running node. Takes one load if compact ids are in use, otherwise the system call `getcpu`;
/// 0 if a sandbox forbids that. It is right when it is read, but the thread may have moved when it is used.
/// Async-signal-safe.
#[inline]
pub(crate) fn running_node() -> u32 {
    let area = probe::fast_area();
    if area != 0 {
        // SAFETY: a glibc that registered one thread registers all of them, and the kernel fills the area
        // beyond the node (guarded by `the_running_node_is_what_the_system_says_on_every_cpu`).
        return unsafe { rseq::index::<NODE>(area) };
    }
    asked()
}

#[cold]
fn asked() -> u32 {
    #[cfg(target_os = "linux")]
    {
        let (mut cpu, mut node) = (0u32, 0u32);
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the call writes two integers on the stack; its third argument has had no meaning since
        // Linux 2.6.24.
        let done = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, nothing) };
        if done == 0 { node } else { 0 }
    }
    #[cfg(not(target_os = "linux"))]
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_node_is_what_the_system_says_on_every_cpu() {
        super::super::detect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: masks on the stack are filled and read, for the calling thread.
                unsafe {
                    let mut allowed: libc::cpu_set_t = std::mem::zeroed();
                    libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed);
                    for cpu in (0..1024).filter(|&cpu| libc::CPU_ISSET(cpu, &allowed)) {
                        let mut one: libc::cpu_set_t = std::mem::zeroed();
                        libc::CPU_SET(cpu, &mut one);
                        assert_eq!(
                            libc::sched_setaffinity(0, size_of_val(&one), &raw const one),
                            0
                        );
                        assert_eq!(running_node(), asked(), "on CPU {cpu}");
                        let of_cpu = format!("/sys/devices/system/cpu/cpu{cpu}/node{}", asked());
                        let numa = std::path::Path::new("/sys/devices/system/node/node0").exists();
                        assert!(!numa || std::path::Path::new(&of_cpu).exists(), "{of_cpu}");
                    }
                }
            });
        });
    }
}
