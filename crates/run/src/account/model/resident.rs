//! What the kernel says of a process that goes on.

use std::fs;

use ledgerline_protocol::Identity;

/// A field of `/proc/PID/status` that is a size, in bytes. `None` of a process that has ended, of one in another PID
/// namespace than this one, and where `/proc` does not show it.
pub fn of(owner: u32, field: &str) -> Option<u64> {
    let process = Identity::from_owner(owner);
    if process.distance() != 0 {
        return None;
    }
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    // ("  1234 kB")
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_resident_and_one_that_is_not_there_is_not() {
        let now = of(std::process::id(), "VmRSS:").unwrap();
        let most = of(std::process::id(), "VmHWM:").unwrap();
        assert!((100 << 10..1 << 40).contains(&now) && most >= 100 << 10);
        assert_eq!(of((1 << 22) - 1, "VmRSS:"), None);
        assert_eq!(of(std::process::id(), "NoSuchField:"), None);
        // Process 1 of another namespace is somebody else here.
        assert_eq!(of(Identity::new(1, 7).unwrap().owner(), "VmRSS:"), None);
    }
}
