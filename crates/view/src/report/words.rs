//! Times and dates for people.

use crate::terminal::calendar::utc;
use std::time::{Duration, SystemTime};

/// Returns a length of time, to three digits: `4.12 s`, `12.3 min`.
pub(crate) fn length(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (number, unit) = match seconds {
        ..0.0995 => (seconds * 1000.0, "ms"),
        ..599.5 => (seconds, "s"),
        ..35_970.0 => (seconds / 60.0, "min"),
        _ => (seconds / 3600.0, "h"),
    };
    match number {
        ..9.995 => format!("{number:.2} {unit}"),
        ..99.95 => format!("{number:.1} {unit}"),
        _ => format!("{number:.0} {unit}"),
    }
}

/// Returns a date and time, like `2026-11-23 01:30:05 UTC`.
pub(crate) fn date(at: SystemTime) -> String {
    let (date, time) = utc(at);
    format!("{date} {time} UTC")
}

/// Returns `1 refusal`, `2 refusals`.
pub(crate) fn times(many: u64, one: &str, more: &str) -> String {
    format!("{many} {}", if many == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn dates_are_the_calendars() {
        let of = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(of(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(of(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(of(1_735_689_599), "2024-12-31 23:59:59 UTC");
        assert_eq!(of(1_795_397_405), "2026-11-23 01:30:05 UTC");
        assert_eq!(of(4_107_542_400), "2100-03-01 00:00:00 UTC");
        // The greatest time is a valid time.
        assert!(of(i64::MAX.unsigned_abs()).ends_with("UTC"));
    }

    #[test]
    fn lengths_have_three_digits() {
        let of = |ms| length(Duration::from_millis(ms));
        assert_eq!([of(4), of(99), of(100), of(4120)], ["4.00 ms", "99.0 ms", "0.10 s", "4.12 s"]);
        assert_eq!([of(61_000), of(738_000), of(86_400_000)], ["61.0 s", "12.3 min", "24.0 h"]);
    }
}
