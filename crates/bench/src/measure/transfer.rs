//! The cost of moving a cache line from one CPU to another and back.
//!
//! Structures that CPUs share cost a few such transfers per operation, and on many machines a transfer's cost is not a
//! constant: it depends on which cores share a cache and, in a virtual machine, on where the host runs the CPUs at the
//! moment. So it is measured next to the figures that it explains.

use super::padded::Padded;
use super::stats::median;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The blocks of a measurement; the median block counts, so that one interrupt has no effect.
const BLOCKS: usize = 9;
/// The round trips of the line in a block.
const TRIPS: u32 = 200;

/// A line that two threads pass back and forth.
#[derive(Debug, Default)]
pub struct Line {
    /// The side whose turn it is: false for the first, true for the second.
    second: Padded<AtomicBool>,
}

impl Line {
    /// Plays one side of a game and returns the nanoseconds of one transfer: the median over the
    /// blocks of half a there-and-back. Both sides must be called at about the same time, by
    /// threads on two CPUs; they spin for each other.
    ///
    /// Each side takes the line by compare-and-swap, as a contended counter does: a load and then
    /// a store would move it twice.
    pub fn play(&self, second: bool) -> f64 {
        let mut blocks = [0.0; BLOCKS];
        for block in &mut blocks {
            let start = Instant::now();
            for _ in 0..TRIPS {
                while self
                    .second
                    .compare_exchange(second, !second, Ordering::AcqRel, Ordering::Relaxed)
                    .is_err()
                {}
            }
            *block = start.elapsed().as_nanos() as f64 / f64::from(2 * TRIPS);
        }
        median(&blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn games_end_and_leave_the_line_as_it_was() {
        let line = Line::default();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| (line.play(true), line.play(true)));
            let first = (line.play(false), line.play(false));
            let second = second.join().unwrap();
            for ns in [first.0, first.1, second.0, second.1] {
                assert!(ns > 0.0 && ns.is_finite());
            }
        });
        assert!(!line.second.load(Ordering::Relaxed));
    }
}
