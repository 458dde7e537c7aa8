//! How many cases of a property are tried, and from which seed ([`seed`](super::seed)). A case that fails is kept in a
//! file, and tried first from then on.

#![allow(dead_code, reason = "every test binary uses a part of this")]

use super::seed;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed};

/// A long run tries so many times as many cases.
const MORE: u32 = 20;

/// So many cases in an ordinary run. `file` is `file!()`, where the test stands.
pub fn few(file: &'static str, few: u32) -> Config {
    few_or_many(file, few, few.saturating_mul(MORE))
}

/// `few` cases in an ordinary run, `many` in a long one.
pub fn few_or_many(file: &'static str, few: u32, many: u32) -> Config {
    let ordinary = Config::default();
    // Beside a file of tests, so that both are moved together; for a crate's own code in a folder outside of it.
    let kept = FileFailurePersistence::WithSource("proptest-regressions");
    let of_source = file.split(['/', '\\']).any(|part| part == "src");
    Config {
        cases: if seed::long() { many } else { few },
        rng_seed: RngSeed::Fixed(seed::of_run().unwrap_or(1)),
        source_file: Some(file),
        failure_persistence: if of_source {
            ordinary.failure_persistence
        } else {
            Some(Box::new(kept))
        },
        ..ordinary
    }
}
