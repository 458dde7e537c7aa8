//! Thresholds: how large a difference may grow before it goes to the total. The formulas are the
//! kernel's.
//!
//! Source of all four: `mm/vmstat.c` of Linux (`calculate_normal_threshold`,
//! `calculate_pressure_threshold`, `refresh_zone_stat_thresholds`).

/// The largest threshold of an 8-bit difference, with which it never overflows.
pub const MOST: u32 = 125;

/// The threshold of a 16-bit difference: the largest that leaves room for an addition (Linux commit
/// 1d90ca897cb0, "mm: update NUMA counter threshold size").
pub const MOST_U16: u32 = u16::MAX as u32 - 2;

/// Returns the threshold for a zone of `memory` bytes on a machine of `cpus`:
/// `min(125, 2 * fls(cpus) * (1 + fls(memory in units of 128 MiB)))`, where `fls` is the number of the
/// highest bit set, counted from 1, and 0 for 0.
///
/// The threshold grows slowly with both: more CPUs make the total more expensive, and more memory makes
/// the error matter less.
///
/// ```
/// # use ledgerline::stat::threshold;
/// assert_eq!(threshold::normal(4, 3 << 30), 36);
/// ```
pub fn normal(cpus: u32, memory: u64) -> u32 {
    let units = memory >> 27;
    (2 * fls(cpus.into()) * (1 + fls(units))).min(MOST)
}

/// Returns the threshold while memory is short: `min(125, max(1, (low - min) / cpus))`, so that all CPUs
/// together hide no more pages than lie between the two watermarks. A `low` below `min` counts as equal,
/// and zero CPUs count as one.
pub fn pressure(low: u64, min: u64, cpus: u32) -> u32 {
    let each = low.saturating_sub(min) / u64::from(cpus.max(1));
    each.clamp(1, MOST.into()) as u32
}

/// Returns the value below which the approximation is not good enough for a decision. It is
/// `high + cpus * threshold` if all CPUs together can hide more than lies between the watermarks,
/// otherwise `None`. It saturates at `u64::MAX`.
pub fn drift_mark(low: u64, min: u64, high: u64, cpus: u32, threshold: u32) -> Option<u64> {
    let hidden = u64::from(cpus) * u64::from(threshold);
    (hidden > low.saturating_sub(min)).then(|| high.saturating_add(hidden))
}

/// Returns the threshold of a node: the largest of its zones, or 0 without zones.
pub fn node(zones: impl IntoIterator<Item = u32>) -> u32 {
    zones.into_iter().max().unwrap_or(0)
}

/// Returns the number of the highest bit set, from 1; 0 for 0.
fn fls(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the formula again, by counting.
    fn counted(cpus: u64, units: u64) -> u32 {
        let bits = |mut value: u64| {
            let mut bits = 0;
            while value > 0 {
                value /= 2;
                bits += 1;
            }
            bits
        };
        let mut threshold = 0;
        for _ in 0..2 * bits(cpus) {
            threshold += 1 + bits(units);
        }
        if threshold > 125 { 125 } else { threshold }
    }

    #[test]
    fn the_threshold_is_the_formula_for_every_machine() {
        for cpus in (0..=64).chain([100, 127, 128, 255, 256, 1000, 1024, 4096, u32::MAX]) {
            for units in (0..=64).chain([100, 511, 512, 1000, 1023, 1024, 8191, 8192, 1 << 36]) {
                let expected = counted(cpus.into(), units);
                assert_eq!(normal(cpus, units << 27), expected, "{cpus} CPUs, {units} units");
                // Memory counts by whole units.
                assert_eq!(normal(cpus, (units << 27) + (1 << 27) - 1), expected);
            }
        }
    }

    /// The rows of the sample table in the kernel's comment: CPUs, memory in MiB (the lower end of the
    /// comment's range), the threshold in the comment, and the result of the formula beside it. Five of
    /// the eighteen contradict the formula: in four `fls(memory)` is one too small, and the last takes 9
    /// for `fls(512)` as well. The kernel and this code both compute the formula.
    const SAMPLES: [(u32, u64, u32, u32); 18] = [
        (1, 922, 8, 8),
        (2, 922, 16, 16),
        (2, 1 << 10, 20, 20),
        (2, 2 << 10, 24, 24),
        (2, 4 << 10, 28, 28),
        (2, 8 << 10, 32, 32),
        (2, 127, 4, 4),
        (4, 2 << 10, 30, 36),
        (4, 8 << 10, 48, 48),
        (8, 1 << 10, 32, 40),
        (8, 922, 32, 32),
        (16, 127, 10, 10),
        (16, 900, 40, 40),
        (64, 2 << 10, 70, 84),
        (64, 4 << 10, 84, 98),
        (512, 4 << 10, 108, 125),
        (1024, 8 << 10, 125, 125),
        (1024, 16 << 10, 125, 125),
    ];

    #[test]
    fn five_of_the_eighteen_samples_differ_from_the_formula_and_the_formula_is_followed() {
        for (cpus, memory, _, formula) in SAMPLES {
            assert_eq!(normal(cpus, memory << 20), formula, "{cpus} CPUs, {memory} MiB");
            assert_eq!(counted(cpus.into(), memory / 128), formula);
        }
        assert_eq!(SAMPLES.iter().filter(|(_, _, said, formula)| said != formula).count(), 5);
    }

    #[test]
    fn under_pressure_all_cpus_together_hide_no_more_than_the_watermarks_distance() {
        for cpus in [1, 2, 3, 16, 125, 1000] {
            for distance in 0..3000u64 {
                let threshold = pressure(7 + distance, 7, cpus);
                assert!((1..=125).contains(&threshold));
                let hidden = u64::from(cpus * threshold);
                assert!(hidden <= distance || threshold == 1, "{cpus} CPUs, {distance}");
                // And no smaller than it needs to be.
                let more = u64::from(cpus * (threshold + 1));
                assert!(more > distance || threshold == 125, "{cpus} CPUs, {distance}");
            }
        }
        assert_eq!(pressure(5, 9, 4), 1, "watermarks the wrong way round");
        assert_eq!(pressure(1000, 0, 0), 125, "no CPU counts as one");
    }

    #[test]
    fn a_drift_mark_is_set_where_the_hidden_could_bridge_the_watermarks() {
        assert_eq!(drift_mark(1000, 800, 1200, 4, 50), None, "200 hidden, 200 between");
        assert_eq!(drift_mark(1000, 800, 1200, 4, 51), Some(1404));
        assert_eq!(drift_mark(800, 1000, 1200, 1, 1), Some(1201));
        assert_eq!(drift_mark(1000, 800, 1200, 0, 125), None);
        assert_eq!(drift_mark(0, 0, u64::MAX, 2, 3), Some(u64::MAX));
    }

    #[test]
    fn a_node_takes_the_largest_threshold_of_its_zones() {
        assert_eq!(node([12, 125, 36]), 125);
        assert_eq!(node([]), 0);
    }
}
