//! A part of a limit.

/// A part of a limit, in units of 1 / [`WHOLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u64);

/// A power of two: each `try_grow` takes some parts, and a shift is quicker than a division of 128 bits.
const WHOLE: u64 = 1 << 32;

impl Share {
    /// Returns a fraction from 0 to 1. Values outside count as the nearer end, and NaN as 0.
    pub(crate) fn of(fraction: f64) -> Share {
        // Rounded up: 0.85 of 1000 is 850. The cast saturates, and turns NaN into zero.
        Share((fraction.clamp(0.0, 1.0) * WHOLE as f64).ceil() as u64)
    }

    /// Returns that part of a number of bytes, rounded down, or at most one byte in four thousand million too much.
    pub(crate) fn part(self, bytes: u64) -> u64 {
        // At most `bytes`, so it fits.
        (u128::from(bytes) * u128::from(self.0) / u128::from(WHOLE)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_at_most_the_whole_and_at_least_nothing() {
        assert_eq!(Share::of(0.125).part(800), 100);
        for hundredths in 0..=100_u32 {
            let share = Share::of(f64::from(hundredths) / 100.0);
            let hundredths = u64::from(hundredths);
            assert_eq!(share.part(1_000_000), hundredths * 10_000, "what people write is exact");
            let exact = u64::MAX / 100 * hundredths;
            assert!(share.part(u64::MAX) - exact <= u64::MAX / WHOLE + 100);
        }
        assert_eq!(Share::of(7.0).part(u64::MAX), u64::MAX);
        assert_eq!(Share::of(-1.0).part(800), 0);
        assert_eq!(Share::of(f64::NAN).part(800), 0);
    }
}
