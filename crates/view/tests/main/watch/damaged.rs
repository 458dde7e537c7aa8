//! A ledger of arbitrary bytes is attached and looked at without a crash, a hang or a wrong claim, even while the bytes
//! change and the file becomes shorter. Longer with `LEDGERLINE_SOAK=long`; one seed again with `LEDGERLINE_SEED=…`.

use crate::seed;
use ledgerline_view::watch::State;
use ledgerline_view::watch::fuzz::{self, Sample};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// xorshift64*: good enough to choose words.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a value that may mislead a program.
    fn value(&mut self) -> u64 {
        let number = self.next();
        match number >> 61 {
            0 => number & 0xff,
            1 => 1 << (number & 63),
            2 => (1 << (number & 63)) - 1,
            3 => u64::MAX - (number & 0xffff),
            4 => (number & 0xffff_ffff) << 32 | (number & 7),
            5 => number & 0x1ff_ffff,
            _ => number,
        }
    }

    /// Returns patches: many words in few places, few anywhere; now and then a shorter file.
    fn patches(&mut self) -> Vec<u8> {
        let mut patches = Vec::new();
        let many = 1 << (self.next() % 9);
        let from = self.next() as u32;
        let near = self.next().is_multiple_of(2);
        for _ in 0..many {
            let place =
                if near { from.wrapping_add(self.next() as u32 % 600) } else { self.next() as u32 };
            // The first words are the header's: half of the patches are there or in the rows.
            let place = if self.next().is_multiple_of(2) { place % 10_000 } else { place };
            patches.extend(place.min(u32::MAX - 300).to_le_bytes());
            patches.extend(self.value().to_le_bytes());
        }
        if self.next().is_multiple_of(8) {
            patches.extend(u32::MAX.to_le_bytes());
            patches.extend(self.next().to_le_bytes());
        }
        patches
    }
}

fn rounds(ci: u32, in_long: u32) -> u32 {
    if seed::long() { in_long } else { ci }
}

/// Runs the body of the calling test in a separate process, which is killed if it hangs: after far more time than any
/// body takes, for each round.
fn bounded(rounds: u32, body: impl FnOnce()) {
    /// The file that the other process makes when it has finished.
    const INSIDE: &str = "LEDGERLINE_TEST_INSIDE";
    if let Some(done) = std::env::var_os(INSIDE) {
        body();
        return std::fs::write(done, "").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let thread = std::thread::current();
    let test = thread.name().expect("the name of a test");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, &done)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let patience = Duration::from_secs(120) + Duration::from_secs(1) * rounds;
    let start = Instant::now();
    loop {
        match child.try_wait().unwrap() {
            Some(status) => {
                return assert!(status.success() && done.exists(), "{test}: {status}");
            }
            None if start.elapsed() > patience => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("it hangs");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[test]
fn whatever_the_bytes_a_look_ends_and_tells_no_number_of_a_damaged_row() {
    let rounds = rounds(300, 100_000);
    bounded(rounds, || {
        let mut random = Random(seed::seed(1));
        for _ in 0..rounds {
            fuzz::look(&random.patches());
        }
    });
}

#[test]
fn whatever_is_written_meanwhile_a_look_ends_and_tells_no_number_of_a_damaged_row() {
    let rounds = rounds(60, 20_000);
    bounded(rounds, || {
        let sample = Sample::new().unwrap();
        let (mut random, mut other) = (Random(seed::seed(2)), Random(seed::seed(3)));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    sample.patch(&other.patches()).unwrap();
                    if other.next().is_multiple_of(64) {
                        sample.mend().unwrap();
                    }
                }
            });
            let mut damaged = 0;
            for _ in 0..rounds {
                sample.mend().unwrap();
                for _ in 0..4 {
                    let Ok(source) = sample.attach() else { continue };
                    sample.patch(&random.patches()).unwrap();
                    for _ in 0..4 {
                        let look = source.look();
                        fuzz::check(&look);
                        damaged +=
                            look.rows.iter().filter(|row| row.state == State::Damaged).count();
                    }
                }
            }
            stop.store(true, Relaxed);
            println!("{damaged} damaged rows");
        });
    });
}

#[test]
fn a_whole_sample_has_no_damage_and_a_word_that_makes_no_sense_is_found() {
    let sample = Sample::new().unwrap();
    let source = sample.attach().unwrap();
    let look = source.look();
    fuzz::check(&look);
    assert!(!look.damaged && look.rows.len() > 40 && source.is_run());
    // The rows begin on the second page; the usage is the second word of each.
    let place = 512 + 32 * 3 + 1u32;
    sample.patch(&[&place.to_le_bytes()[..], &(1u64 << 61).to_le_bytes()].concat()).unwrap();
    assert!(source.look().damaged);
    sample.mend().unwrap();
    assert_eq!(source.look().rows, look.rows);
}
