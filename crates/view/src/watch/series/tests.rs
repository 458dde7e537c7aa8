//! Series compared with one that keeps every sample.

use super::*;
use proptest::prelude::*;

/// A sample as it was pushed.
#[derive(Clone, Copy, Debug)]
struct Sample {
    clock: u64,
    current: u64,
    raised: u64,
    refused: u64,
    reclaimed: u64,
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    // Mostly close together, sometimes a long gap, sometimes a clock that goes back.
    let passed = prop_oneof![8 => 0..4_i64, 1 => 0..100_000_i64, 1 => -50..0_i64];
    let count = prop_oneof![4 => Just(0), 1 => 0..1000_u64];
    let sample = (passed, 0..1000_u64, 0..1200_u64, count.clone(), count);
    prop::collection::vec(sample, 1..2000).prop_map(|samples| {
        let mut clock = 0_i64;
        let samples = samples.into_iter().map(|(passed, current, raised, refused, reclaimed)| {
            clock = (clock + passed).max(0);
            Sample { clock: clock.unsigned_abs(), current, raised, refused, reclaimed }
        });
        samples.collect()
    })
}

fn series_of(samples: &[Sample], step: u64, points: usize) -> Series {
    let mut series = Series::new(Duration::from_nanos(step), points);
    for sample in samples {
        let clock = Duration::from_nanos(sample.clock);
        series.push(clock, sample.current, sample.refused, sample.reclaimed);
        series.raise(sample.raised);
    }
    series
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 400))]

    /// Each point agrees with all samples in its span; each sample is in one; and no more memory is used than promised.
    #[test]
    fn points_say_what_all_samples_of_their_span_say(
        samples in samples(),
        step in 1..20_u64,
        points in 0..120_usize,
    ) {
        let series = series_of(&samples, step, points);
        let said = series.points();
        prop_assert!(said.len() <= points.max(40));
        prop_assert!(series.footprint() <= 48 * points.max(40));
        for pair in said.windows(2) {
            prop_assert!(pair[0].start + pair[0].length <= pair[1].start, "{pair:?}");
        }
        // The clock that stands still if the real one went back. Within a step it may go back.
        let mut now = 0;
        let mut in_point: Vec<Vec<Sample>> = vec![Vec::new(); said.len()];
        for sample in &samples {
            now = sample.clock.max(now / step * step);
            let at = Duration::from_nanos(now);
            let place = said.partition_point(|point| point.start <= at).checked_sub(1);
            prop_assert!(place.is_some_and(|place| at < said[place].start + said[place].length));
            in_point[place.unwrap()].push(*sample);
        }
        for (point, samples) in said.iter().zip(&in_point) {
            let most = samples.iter().map(|sample| sample.current.max(sample.raised)).max();
            prop_assert_eq!(Some(point.most), most);
            prop_assert_eq!(Some(point.least), samples.iter().map(|sample| sample.current).min());
            prop_assert_eq!(Some(point.last), samples.last().map(|sample| sample.current));
            prop_assert_eq!(point.refused, samples.iter().map(|sample| sample.refused).sum::<u64>());
            prop_assert_eq!(point.reclaimed, samples.iter().map(|sample| sample.reclaimed).sum::<u64>());
        }
        prop_assert_eq!(series.most(), said.iter().map(|point| point.most).max().unwrap());
    }
}

#[test]
fn the_newest_steps_are_kept_one_by_one_and_older_ones_get_coarser_by_fours() {
    let mut series = Series::new(Duration::from_secs(1), 100);
    for second in 0..3600 {
        series.push(Duration::from_secs(second), second, 0, 0);
    }
    let points = series.points();
    let lengths: Vec<u64> = points.iter().map(|point| point.length.as_secs()).collect();
    let of = |length| lengths.iter().filter(|&&other| other == length).count();
    assert!(of(1) >= 16 && of(4) >= 16 && of(16) >= 16 && of(64) >= 16, "{lengths:?}");
    let newest = points[points.len() - 1];
    assert_eq!((newest.start, newest.last), (Duration::from_secs(3599), 3599));
    assert_eq!(points[0].start, Duration::ZERO);
}

#[test]
fn years_of_samples_keep_their_sums_in_the_same_memory() {
    let mut series = Series::new(Duration::from_secs(1), 50);
    for day in 0..20_000 {
        series.push(Duration::from_secs(day * 86_400), day % 97, 1, 3);
    }
    let points = series.points();
    assert!(points.len() <= 50 && series.footprint() <= 50 * 48);
    assert_eq!(points.iter().map(|point| point.refused).sum::<u64>(), 20_000);
    assert_eq!(points.iter().map(|point| point.reclaimed).sum::<u64>(), 60_000);
}

#[test]
fn the_latest_clock_and_the_longest_step_are_no_trouble() {
    for step in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let mut series = Series::new(step, 0);
        series.raise(7);
        assert!(series.is_empty() && series.points().is_empty());
        for at in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            series.push(Duration::from_nanos(at), at, u64::MAX, 0);
        }
        series.push(Duration::MAX, 1, 1, 0);
        let points = series.points();
        assert_eq!(points.last().map(|point| point.last), Some(1));
        assert_eq!(series.most(), u64::MAX);
    }
}
