//! A small generator of random numbers: a seed gives the same numbers on every machine.

/// SplitMix64: one word of state, so that a thousand CPUs and lines each have their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the stream of a seed for `which`; each has its own.
    pub(crate) fn stream(seed: u64, which: u64) -> Random {
        let mut random = Random(seed ^ which.wrapping_mul(0xA24B_AED4_963E_E407));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to below 1, evenly distributed.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns true with a probability in units of 2^-32.
    pub(crate) fn happens(&mut self, probability: u64) -> bool {
        (self.next() >> 32) < probability
    }

    /// Returns a number from 0 to below `bound`, evenly distributed; `bound` is not zero.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_even_and_their_own() {
        let mut random = Random::stream(1, 7);
        let mean = (0..10_000).map(|_| random.unit()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_ne!(Random::stream(1, 7).next(), Random::stream(1, 8).next());
        assert_eq!(Random::stream(1, 7).next(), Random::stream(1, 7).next());
    }
}
