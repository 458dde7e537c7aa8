//! The numbers that random tests begin with. In ordinary runs each test has its own fixed one, so that a test that fails
//! fails for what was changed. With `LEDGERLINE_SOAK=long` there is a new one for each process, which says so;
//! `LEDGERLINE_SEED=…` has that one again.

#![allow(dead_code, reason = "every test binary uses a part of this")]

use std::io::Write;
use std::ops::Range;
use std::sync::OnceLock;

/// Whether the long runs were asked for.
pub fn long() -> bool {
    std::env::var_os("LEDGERLINE_SOAK").is_some_and(|value| value == "long")
}

/// The seed that `LEDGERLINE_SEED` names.
fn named() -> Option<u64> {
    let text = std::env::var("LEDGERLINE_SEED").ok()?;
    Some(text.parse().expect("LEDGERLINE_SEED is a number"))
}

/// The seed of this process that was named, or else one that no process has had.
pub fn new() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        named().unwrap_or_else(|| {
            let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
            // Small, so that a test may multiply it.
            let seed = spread(now ^ u64::from(std::process::id()) << 40) >> 32;
            // Past what catches a test's output: one line for all tests of the process.
            let _ = writeln!(std::io::stderr(), "LEDGERLINE_SEED={seed}");
            seed
        })
    })
}

/// The seed of this process; `None` in an ordinary run.
pub fn of_run() -> Option<u64> {
    (long() || named().is_some()).then(new)
}

/// A test's own fixed seed, or in another run one that comes of both.
pub fn seed(fixed: u64) -> u64 {
    of_run().map_or(fixed, |run| spread(fixed ^ spread(run)))
}

/// Seeds of a test that tries several: `few` fixed ones from `first` on, or `many` new ones in a long run, or the one that
/// is named.
pub fn seeds(first: u64, few: u64, many: u64) -> Range<u64> {
    match named() {
        Some(seed) => seed..seed + 1,
        None if long() => new()..new() + many,
        None => first..first + few,
    }
}

/// Has each bit of a number decide about all.
fn spread(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ mixed >> 32
}
