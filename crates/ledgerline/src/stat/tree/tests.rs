//! Tests that bounds hold and are tight, that comparisons are right, and that nothing is lost.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, fence};

/// Returns the kernel's shape for 256 CPUs: each level passes on multiples eight times those of the
/// level below.
fn kernels() -> Shape {
    Shape::with_levels(256, 32, &[(8, 256), (64, 2048)]).unwrap()
}

/// Small trees: without nodes, with one and two levels of them, and with words that keep nothing.
fn small() -> Vec<Shape> {
    let shape =
        |cpus, batch, levels: &[(u32, u64)]| Shape::with_levels(cpus, batch, levels).unwrap();
    vec![
        shape(1, 4, &[]),
        shape(2, 2, &[]),
        shape(3, 2, &[(2, 4)]),
        shape(4, 2, &[(2, 2)]),
        shape(4, 1, &[(2, 4)]),
        shape(4, 2, &[(2, 4), (4, 8)]),
    ]
}

/// Checks the bounds, whether or not updates are in flight.
fn holds(sum: &Sum, held: u64) -> Result<(), TestCaseError> {
    let (truth, about) = (sum.precise(), sum.approximate());
    let least = about.least() - held as i64;
    let most = about.most() + held as i64;
    prop_assert!(least <= truth && truth <= most, "{least} <= {truth} <= {most}");
    Ok(())
}

/// Brings every word of the tree to one of its ends, by one addition on each CPU.
fn push_to_an_end(sum: &Sum, up: bool) {
    for cpu in 0..sum.shape.cpus() {
        let ends =
            sum.shape.levels.iter().filter(|level| cpu % (1 << level.shift) == 0).map(|level| {
                let start = level.start(cpu >> level.shift) as i64;
                if up { (level.multiple - level.step()) as i64 - start } else { -start }
            });
        sum.add_on(cpu, ends.sum());
    }
}

impl shape::Level {
    fn step(self) -> u64 {
        let whole = self.above(0) + self.start(0);
        self.multiple - whole
    }
}

#[test]
fn the_bound_for_256_cpus_is_a_third_of_the_kernels() {
    let kernel = kernels();
    assert_eq!(kernel.below() + kernel.above(), 22_272, "87 MiB, all on one side");
    let ours = Shape::new(256, 32).unwrap();
    assert!(ours.below() < 22_272 / 2 && ours.above() < 22_272 / 2);
    assert_eq!((ours.below(), ours.above()), (7552, 7552));
}

/// The table in the documentation of [`Shape`], from the definition of each column.
#[test]
fn the_trade_is_as_documented() {
    type Row = (&'static [(u32, u64)], f64, usize, f64, f64, f64);
    let rows: [Row; 5] = [
        (&[(8, 256), (64, 2048)], 43.5, 293, 0.036, 0.25, 0.125),
        (&[(8, 128), (32, 512), (128, 2048)], 33.5, 299, 0.042, 0.25, 0.125),
        (&[(8, 128), (32, 512), (128, 1024)], 29.5, 299, 0.042, 0.25, 0.25),
        (&[(8, 64), (16, 128), (32, 256), (64, 512), (128, 1024)], 25.5, 319, 0.062, 0.25, 0.25),
        (&[], 15.5, 257, 0.031, 8.0, 8.0),
    ];
    for (levels, mib, lines, atomics, busiest, top) in rows {
        let shape = Shape::with_levels(256, 32, levels).unwrap();
        let bound = shape.below().max(shape.above()) as f64 / 256.0;
        let passed: Vec<f64> =
            [32].into_iter().chain(levels.iter().map(|l| l.1)).map(|m| m as f64).collect();
        let under: Vec<f64> = levels.iter().map(|l| f64::from(l.0)).chain([256.0]).collect();
        let busy: Vec<f64> = under.iter().zip(&passed).map(|(under, step)| under / step).collect();
        assert_eq!((bound, shape.lines()), (mib, lines), "{levels:?}");
        let all: f64 = passed.iter().map(|m| 1.0 / m).sum();
        assert!((all - atomics).abs() <= 0.000_51, "{levels:?}: {all}");
        assert_eq!(busy.iter().copied().fold(0.0, f64::max), busiest, "{levels:?}");
        assert_eq!(busy[busy.len() - 1], top, "{levels:?}");
        let (counted, counted_top) = traffic(shape);
        assert_eq!((counted, counted_top), (all, top), "{levels:?}: counted");
    }
    let levels = rows[2].0;
    assert_eq!(
        Shape::new(256, 32),
        Shape::with_levels(256, 32, levels),
        "that is what `new` gives"
    );
}

/// Counts the additions to nodes and top per page, and those to the top for a page on each CPU. All
/// CPUs add in turn for one period of the largest multiple.
fn traffic(shape: Shape) -> (f64, f64) {
    let pages = shape.top_multiple();
    let sum = Sum::with_shape(shape);
    let (mut additions, mut at_top) = (0, 0);
    for _ in 0..pages {
        for cpu in 0..sum.shape.cpus() {
            let top = sum.approximate().value;
            let mut update = sum.begin(cpu, 1);
            while update.step() {
                additions += 1;
            }
            at_top += u32::from(sum.approximate().value != top);
        }
    }
    let pages = pages as f64;
    (f64::from(additions) / pages / f64::from(sum.shape.cpus()), f64::from(at_top) / pages)
}

#[test]
fn both_ends_of_the_bound_are_attained() {
    for (cpus, batch) in [
        (1, 2),
        (2, 32),
        (7, 4),
        (8, 32),
        (9, 32),
        (33, 1),
        (100, 64),
        (256, 32),
        (1000, 8),
        (1024, 32),
    ] {
        for up in [true, false] {
            let sum = Sum::with_shape(Shape::new(cpus, batch).unwrap());
            push_to_an_end(&sum, up);
            let about = sum.approximate();
            let end = if up { about.most() } else { about.least() };
            assert_eq!(sum.precise(), end, "{cpus} CPUs, batch {batch}, up: {up}");
        }
    }
}

#[test]
fn the_sides_of_the_bound_differ_by_little() {
    for cpus in 1..=1024 {
        let shape = Shape::new(cpus, 32).unwrap();
        let apart = shape.below().abs_diff(shape.above());
        assert!(apart <= 2 * shape.top_multiple(), "{cpus}: {} {}", shape.below(), shape.above());
    }
}

#[test]
fn the_bound_in_flight_is_attained() {
    for largest in [1i64, 500, 1024, 1025] {
        for up in [true, false] {
            let sum = Sum::with_shape(Shape::new(256, 32).unwrap());
            let writers = 3;
            let mut held = Vec::new();
            for cpu in 0..writers {
                // Every word is at its end, so the next addition passes through all of them.
                bring_to_end(&sum, up);
                let mut update = sum.begin(cpu, if up { largest } else { -largest });
                for _ in 0..sum.shape.levels.len() {
                    assert!(update.step(), "the carry came to an end below the top");
                }
                held.push(update);
            }
            bring_to_end(&sum, up);
            let bound = sum.shape.in_flight_bound(writers.into(), largest as u64) as i64;
            let about = sum.approximate();
            let end = if up { about.most() + bound } else { about.least() - bound };
            assert_eq!(sum.precise(), end, "{largest}, up: {up}");
            for mut update in held {
                while update.step() {}
            }
            assert_eq!(
                sum.precise(),
                if up { sum.approximate().most() } else { sum.approximate().least() }
            );
        }
    }
}

/// Brings every word to its end from wherever it is, the CPUs' cells last.
fn bring_to_end(sum: &Sum, up: bool) {
    for (at, level) in sum.shape.levels.iter().enumerate().rev() {
        for word in 0..level.words {
            let now = sum.lines[level.first + word as usize].get();
            let remainder = now & (level.multiple as i64 - 1);
            let end = if up { (level.multiple - level.step()) as i64 } else { 0 };
            // A multiple of the steps below passes through their words and leaves them as they are.
            sum.add_on(word << level.shift, end - remainder);
            let now = sum.lines[level.first + word as usize].get();
            assert_eq!(now & (level.multiple as i64 - 1), end, "level {at}");
        }
    }
}

#[test]
fn comparisons_are_right_in_every_state_of_small_trees() {
    for shape in small() {
        let reach = if shape.cpus() < 4 { 6i64 } else { 2 };
        let width = (2 * reach + 1) as usize;
        let states: Vec<(Sum, i64)> = (0..width.pow(shape.cpus()))
            .map(|mut number| {
                let sum = Sum::with_shape(shape.clone());
                let mut truth = 0;
                for cpu in 0..shape.cpus() {
                    let n = (number % width) as i64 - reach;
                    number /= width;
                    sum.add_on(cpu, n);
                    truth += n;
                }
                (sum, truth)
            })
            .collect();
        for (a, truth) in &states {
            assert_eq!(a.precise(), *truth);
            assert!(a.approximate().least() <= *truth && *truth <= a.approximate().most());
            for value in -40..=40 {
                assert_eq!(compare_value(a, value), truth.cmp(&value), "{shape:?}");
            }
            for (b, other) in &states {
                assert_eq!(compare(a, b), truth.cmp(other), "{shape:?}: {truth} and {other}");
            }
        }
    }
}

#[test]
fn a_comparison_of_sums_far_apart_asks_the_tops_alone() {
    let (a, b) = (
        Sum::with_shape(Shape::new(64, 32).unwrap()),
        Sum::with_shape(Shape::new(64, 32).unwrap()),
    );
    a.add_on(3, 1 << 20);
    // This cell contradicts the top. Only a precise sum would read it.
    b.lines[9].0.store(1 << 40, Ordering::Relaxed);
    assert_eq!(compare(&a, &b), cmp::Ordering::Greater);
    assert_eq!(compare(&b, &a), cmp::Ordering::Less);
    assert_eq!(compare_value(&b, 1 << 30), cmp::Ordering::Less);
}

#[test]
fn the_bound_holds_at_the_ends_of_the_numbers() {
    let sum = Sum::with_shape(Shape::new(20, 32).unwrap());
    for (cpu, n) in [(0, i64::MAX), (3, -5), (19, i64::MIN), (7, i64::MAX), (7, 9)] {
        sum.add_on(cpu, n);
        let (truth, about) = (sum.precise(), sum.approximate());
        let apart = truth.wrapping_sub(about.value);
        assert!(-(about.below as i64) <= apart && apart <= about.above as i64, "{truth} {about:?}");
    }
    let most = Approximation { value: i64::MAX, below: 1, above: 5 };
    assert_eq!((most.least(), most.most()), (i64::MAX - 1, i64::MAX));
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    assert_eq!(Shape::new(0, 32), Err(BadShape::Cpus { cpus: 0 }));
    assert_eq!(Shape::new(u32::MAX, 32), Err(BadShape::Cpus { cpus: u32::MAX }));
    assert!(Shape::new(1 << 16, 1 << 20).is_ok());
    for batch in [0, 3, 1 << 21, u64::MAX] {
        assert_eq!(Shape::new(2, batch), Err(BadShape::Batch { batch }));
        assert_eq!(Sum::new(batch).err(), Some(BadShape::Batch { batch }));
    }
    let bad = |cpus, multiple| Err(BadShape::Level { cpus, multiple });
    assert_eq!(Shape::with_levels(64, 32, &[(6, 64)]), bad(6, 64));
    assert_eq!(Shape::with_levels(64, 32, &[(1, 64)]), bad(1, 64));
    assert_eq!(Shape::with_levels(64, 32, &[(8, 16)]), bad(8, 16));
    assert_eq!(Shape::with_levels(64, 32, &[(8, 64), (8, 128)]), bad(8, 128));
    assert_eq!(Shape::with_levels(64, 32, &[(8, 1 << 41)]), bad(8, 1 << 41));
    let error = Shape::new(2, 33).unwrap_err().to_string();
    assert_eq!(error, "a batch is a power of two up to 1048576, not 33");
}

#[test]
#[should_panic(expected = "written by its CPU alone")]
fn a_cell_of_a_running_cpu_is_not_written_from_elsewhere() {
    Sum::new(32).unwrap().add_on(0, 1);
}

#[test]
fn threads_lose_nothing_and_stay_within_the_bound_in_flight() {
    const WRITERS: u32 = 4;
    const LARGEST: i64 = 100;
    for sum in [Sum::new(4).unwrap(), Sum::with_shape(Shape::new(64, 4).unwrap())] {
        let done = AtomicBool::new(false);
        let cpus = sum.shape().cpus();
        let in_flight = sum.shape().in_flight_bound(WRITERS.into(), LARGEST as u64) as i64;
        let total: i64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WRITERS)
                .map(|thread| {
                    let sum = &sum;
                    scope.spawn(move || {
                        let amounts = (0..100_000).map(|turn| i64::from(turn * 37 % 101));
                        for (turn, n) in (0..).zip(amounts.clone()) {
                            match sum.running {
                                Some(_) => sum.add(n),
                                None => sum.add_on((turn * 31 + thread) % cpus, n),
                            }
                        }
                        amounts.sum::<i64>()
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // No thread subtracts, so the truth is between the two when the top is read.
                    let before = sum.precise();
                    fence(Ordering::SeqCst);
                    let about = sum.approximate();
                    let after = sum.precise();
                    assert!(before <= about.most() + in_flight, "{before}: {about:?}");
                    assert!(after >= about.least() - in_flight, "{after}: {about:?}");
                }
            });
            let total = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            done.store(true, Ordering::Relaxed);
            total
        });
        assert_eq!(sum.precise(), total);
        let about = sum.approximate();
        assert!(about.least() <= total && total <= about.most(), "{total}: {about:?}");
    }
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    #[test]
    fn bounds_hold_at_every_quiet_state(
        cpus in prop_oneof![1u32..=1024, 1u32..=20],
        batch in 0u32..=7,
        steps in prop::collection::vec((any::<u32>(), -5000i64..5000), 1..200),
    ) {
        let sum = Sum::with_shape(Shape::new(cpus, 1 << batch).unwrap());
        let mut truth = 0;
        for (cpu, n) in steps {
            sum.add_on(cpu % cpus, n);
            truth += n;
            prop_assert_eq!(sum.precise(), truth);
            holds(&sum, 0)?;
        }
    }

    #[test]
    fn bounds_hold_for_the_very_word_of_every_node(
        levels in prop::collection::vec((1u32..=3, 0u32..=3), 0..4),
        cpus in 1u32..=70,
        steps in prop::collection::vec((any::<u32>(), any::<i32>()), 1..100),
    ) {
        let (mut under, mut multiple) = (0, 2);
        let levels: Vec<(u32, u64)> = levels.into_iter().map(|(more, times)| {
            (under, multiple) = (under + more, multiple + times);
            (1 << under, 1 << multiple)
        }).collect();
        let sum = Sum::with_shape(Shape::with_levels(cpus, 4, &levels).unwrap());
        for (cpu, n) in steps {
            sum.add_on(cpu % cpus, n.into());
            holds(&sum, 0)?;
        }
    }

    /// Splits updates of several writers into their steps and interleaves them.
    #[test]
    fn bounds_hold_with_updates_in_flight(
        cpus in 1u32..=300,
        steps in prop::collection::vec((0usize..6, any::<u32>(), -300i64..=300), 1..300),
    ) {
        let sum = Sum::with_shape(Shape::new(cpus, 8).unwrap());
        let mut writers: [Option<Update<'_>>; 6] = [const { None }; 6];
        for (writer, cpu, n) in steps {
            let update = writers[writer].get_or_insert_with(|| sum.begin(cpu % cpus, n));
            if !update.step() {
                writers[writer] = None;
            }
            let busy = writers.iter().flatten().count() as u64;
            holds(&sum, sum.shape().in_flight_bound(busy, 300))?;
        }
        for mut update in writers.into_iter().flatten() {
            while update.step() {}
        }
        holds(&sum, 0)?;
    }
}
