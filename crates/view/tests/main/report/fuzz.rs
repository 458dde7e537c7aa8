//! Reading a recording of arbitrary bytes neither panics nor hangs, and the result can be drawn.
//!
//! Runs for a second, or for `LEDGERLINE_FUZZ_SECONDS`. With a nightly compiler there is `cargo fuzz run recording`.

use super::support::{look, settings};
use crate::seed;
use ledgerline_view::report::{Recorder, Recording, page, picture, summary};
use std::time::{Duration, Instant};

fn below(state: &mut u64, bound: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % bound.max(1) as u64) as usize
}

/// Corrects all checksums that can be, so that the data behind them is reached.
fn mended(bytes: &mut [u8]) {
    let mut at = 16;
    while let Some(length) = bytes.get(at + 1..at + 5) {
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        let Some(end) = at.checked_add(5 + length).filter(|&end| end + 4 <= bytes.len()) else {
            return;
        };
        let sum = crc32fast::hash(&bytes[at..end]);
        bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        at = end + 4;
    }
}

#[test]
fn any_bytes_are_read_or_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.rec");
    let mut recorder = Recorder::create(&path, settings(0)).unwrap();
    let mut whole = Vec::new();
    for number in 0..4000 {
        recorder.push(&look(number)).unwrap();
        // A recording that only grew, and one that was made anew.
        if number == 30 || number == 3999 {
            whole.push(std::fs::read(&path).unwrap());
        }
    }
    let seconds = std::env::var("LEDGERLINE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until =
        Instant::now() + Duration::from_secs(seconds.unwrap_or(if seed::long() { 60 } else { 1 }));
    let mut state = seed::seed(1_234_567);
    let (mut read, mut refused) = (0, 0);
    while Instant::now() < until || read == 0 || refused == 0 {
        let from = below(&mut state, 5) / 4;
        let mut bytes = whole[from].clone();
        for _ in 0..=below(&mut state, 8) {
            let at = below(&mut state, bytes.len());
            // Mostly near the beginning, with the frames that others depend on.
            let at = if below(&mut state, 3) > 0 { at % 400.min(bytes.len()) } else { at };
            match below(&mut state, 6) {
                0 => bytes[at] ^= 1 << below(&mut state, 8),
                1 => bytes[at] = below(&mut state, 256) as u8,
                2 => bytes.truncate(at + 1),
                3 => bytes[at] = [0, 0x7f, 0x80, 0xff][below(&mut state, 4)],
                4 => {
                    let end = bytes.len().min(at + 12);
                    bytes[at..end].fill([0xff, 0x80][below(&mut state, 2)]);
                }
                _ => {
                    let end = bytes.len().min(at + 40);
                    let part = bytes[at..end].to_vec();
                    let to = below(&mut state, bytes.len());
                    bytes.splice(to..to, part);
                }
            }
        }
        if below(&mut state, 8) > 0 {
            mended(&mut bytes);
        }
        match Recording::parse(&bytes) {
            Ok(recording) => {
                assert!(recording.groups.len() <= bytes.len());
                let _ = (summary::text(&recording), summary::json(&recording).unwrap());
                let _ = picture::svg(&recording);
                // A page takes longer.
                if read % 16 == 0 {
                    page::html(&recording).unwrap();
                }
                read += 1;
            }
            Err(error) => {
                assert!(!error.contains('\n'), "{error}");
                refused += 1;
            }
        }
    }
}

#[test]
fn what_is_no_recording_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes");
    for (bytes, says) in [
        (&b""[..], "no recording"),
        (b"ledgrec", "no recording"),
        (b"ledgrec\n", "no recording"),
        (b"ledgrec\n\x02\0\0\0\0\0\0\0", "version 2"),
        (b"ledgrec\n\x01\0\0\0\0\0\0\0", "nothing stands yet"),
        (b"some text\n", "no recording"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let error = Recording::open(&file).unwrap_err();
        assert!(
            error.contains(says) && error.contains("notes") && !error.contains('\n'),
            "{error}"
        );
    }
    assert!(Recording::open(folder.path()).is_err());
    assert!(Recording::open(&folder.path().join("none")).is_err());
}
