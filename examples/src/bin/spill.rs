//! A sort that holds at most half of its data in memory, and spills the rest to files.
//!
//! Rayon's workers sort pieces. A piece needs room first; if there is none, the charge asks the reclaimer, which
//! writes a sorted run to a file and gives its memory back. No worker counts bytes, and none can go over the limit.

use ledgerline::{Charge, Group, Ledger};
use rayon::prelude::*;
use std::error::Error;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::sync::{Arc, Mutex};

const PIECES: u64 = 32;
const NUMBERS: usize = 1 << 17;
const PIECE: u64 = (NUMBERS * size_of::<u64>()) as u64;

/// Sorted numbers, in memory that the charge accounts for.
struct Run {
    numbers: Vec<u64>,
    _charge: Charge<'static>,
}

/// The runs sorted so far.
#[derive(Default)]
struct Runs {
    kept: Vec<Run>,
    spilled: Vec<std::fs::File>,
}

impl Runs {
    /// Writes one run to a file; returns the bytes that came back.
    fn spill(&mut self) -> std::io::Result<u64> {
        let Some(run) = self.kept.pop() else { return Ok(0) };
        let mut file = BufWriter::new(tempfile::tempfile()?);
        run.numbers.iter().try_for_each(|number| file.write_all(&number.to_le_bytes()))?;
        self.spilled.push(file.into_inner()?);
        Ok(PIECE)
    }
}

/// Returns a piece of the input, the same on every call for a number.
fn piece(number: u64) -> Vec<u64> {
    let mut state = number + 1;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 16
    };
    (0..NUMBERS).map(next).collect()
}

/// Sorts a piece once there is room for it.
fn sort(group: Group<'static>, number: u64, runs: &Mutex<Runs>) -> Result<(), ledgerline::Refused> {
    let charge = group.try_charge(PIECE)?; // asks the reclaimer below before it refuses
    let mut numbers = piece(number);
    numbers.sort_unstable();
    runs.lock().expect("no panic inside").kept.push(Run { numbers, _charge: charge });
    Ok(())
}

/// Returns the numbers of a spilled run, through a small buffer.
fn read(mut file: std::fs::File) -> std::io::Result<Box<dyn Iterator<Item = u64>>> {
    file.rewind()?;
    let mut bytes = BufReader::with_capacity(4096, file);
    Ok(Box::new(std::iter::from_fn(move || {
        let mut number = [0; 8];
        bytes.read_exact(&mut number).ok().map(|()| u64::from_le_bytes(number))
    })))
}

fn main() -> Result<(), Box<dyn Error>> {
    let ledger = Ledger::new()?.into_static();
    let sorting = ledger.root().create("sort")?;
    sorting.set_max((PIECES / 2 * PIECE).to_string().parse()?)?;

    let runs = Arc::new(Mutex::new(Runs::default()));
    let spills = runs.clone();
    let _reclaimer = sorting.add_reclaimer(0, move |wanted| {
        let mut freed = 0;
        while freed < wanted {
            match spills.lock().expect("no panic inside").spill() {
                Ok(more) if more > 0 => freed += more,
                _ => break,
            }
        }
        freed
    });
    (0..PIECES).into_par_iter().try_for_each(|number| sort(sorting, number, &runs))?;

    let mut runs = runs.lock().expect("no panic inside");
    let (kept, spilled) = (runs.kept.len(), runs.spilled.len());
    let peak = sorting.peak();
    println!(
        "{kept} runs kept in memory, {spilled} spilled; at most {} of {} in use",
        peak.value,
        sorting.max()
    );
    assert!(spilled > 0 && kept + spilled == PIECES as usize && peak.value <= PIECES / 2 * PIECE);

    // The merge takes the smallest head of all runs.
    let mut heads: Vec<Box<dyn Iterator<Item = u64>>> = Vec::new();
    heads.extend(runs.kept.drain(..).map(|run| Box::new(run.numbers.into_iter()) as Box<_>));
    for file in runs.spilled.drain(..) {
        heads.push(read(file)?);
    }
    let mut queue: std::collections::BinaryHeap<_> = (0..heads.len())
        .filter_map(|run| heads[run].next().map(|number| std::cmp::Reverse((number, run))))
        .collect();
    let (mut count, mut sum, mut last) = (0u64, 0u64, 0);
    while let Some(std::cmp::Reverse((number, run))) = queue.pop() {
        assert!(number >= last, "the merge is sorted");
        (count, sum, last) = (count + 1, sum.wrapping_add(number), number);
        queue.extend(heads[run].next().map(|number| std::cmp::Reverse((number, run))));
    }
    let all = (0..PIECES).flat_map(piece).fold(0, u64::wrapping_add);
    assert_eq!((count, sum), (PIECES * NUMBERS as u64, all));
    println!("{count} numbers in order; {} still charged", sorting.precise());
    println!("ok");
    Ok(())
}
