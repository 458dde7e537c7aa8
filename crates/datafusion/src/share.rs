//! A part of a limit.

/// A part of a limit, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u32);

const WHOLE: u32 = 1_000_000;

impl Share {
    /// A fraction from 0 to 1. What lies outside counts as the nearer end, and what is no number as 0.
    pub(crate) fn of(fraction: f64) -> Share {
        // The cast saturates, and takes what is no number as zero.
        Share((fraction.clamp(0.0, 1.0) * f64::from(WHOLE)) as u32)
    }

    /// That part of so many bytes, rounded down.
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
        assert_eq!(Share::of(7.0).part(u64::MAX), u64::MAX);
        assert_eq!(Share::of(-1.0).part(800), 0);
        assert_eq!(Share::of(f64::NAN).part(800), 0);
    }
}
