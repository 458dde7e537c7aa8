//! The work of a case that fills a round.

/// The most chunks of a round, which is the precision with which threads agree on its end.
const CHUNKS: u64 = 64;

/// The work of a thread in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// The operations of a call of the body.
    pub(crate) chunk: u64,
    pub(crate) chunks: u64,
}

impl Size {
    /// Returns the work of a round of about this many operations, in multiples of the granule.
    pub(crate) fn of(operations: f64, granule: u64) -> Size {
        let chunk = ((operations / CHUNKS as f64) as u64).max(1).next_multiple_of(granule);
        Size { chunk, chunks: ((operations / chunk as f64) as u64).clamp(1, CHUNKS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_made_of_chunks_that_are_multiples_of_the_granule() {
        let size = |operations, granule| {
            let Size { chunk, chunks } = Size::of(operations, granule);
            (chunk, chunks)
        };
        assert_eq!(size(0.1, 1), (1, 1));
        assert_eq!(size(0.1, 1000), (1000, 1));
        assert_eq!(size(64.0 * 1001.0, 1000), (2000, 32));
        assert_eq!(size(6.4e6, 8), (100_000, 64));
    }
}
