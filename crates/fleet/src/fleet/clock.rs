//! A clock that never jumps and goes on while the machine sleeps.

/// Milliseconds since some moment.
#[cfg(target_os = "linux")]
pub(super) fn now() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000
        + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Milliseconds since some moment. (On some of these systems it stands still while the machine sleeps: there the grace has
/// to be longer than the sleep.)
#[cfg(not(target_os = "linux"))]
pub(super) fn now() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_millis() as u64
}
