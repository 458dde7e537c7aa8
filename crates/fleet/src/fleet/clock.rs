//! A monotonic clock that continues while the machine sleeps.

/// Returns the milliseconds since a fixed moment.
#[cfg(target_os = "linux")]
pub(super) fn now() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000
        + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Returns the milliseconds since a fixed moment. On some of these systems the clock stands still while the machine sleeps: the
/// grace must be longer than the sleep there.
#[cfg(not(target_os = "linux"))]
pub(super) fn now() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_millis() as u64
}
