//! The suite `numa`: measures the thresholds that "mm: Update NUMA counter threshold size" (2017) swept, beside the
//! figures that it reported.

use ledgerline::stat::numa::{Numa, NumaItem, Zone};
use ledgerline::stat::{Counters, Places};
use ledgerline_bench::loops::UNROLLED;
use ledgerline_bench::measure::harness::Body;
use ledgerline_bench::rounds::{Made, Run, Work, of};
use ledgerline_bench::row::{Row, Rows};
use ledgerline_bench::suite::{Suite, names};
use std::hint::black_box;

pub(super) static NUMA: Suite =
    Suite { name: "numa", help: HELP, cases: &names(&SWEEP), measure, remark };

/// A threshold (`None`: no statistics), and the figures that "mm: Update NUMA counter threshold size" reported for it
/// on 2 sockets with 88 CPUs: cycles for an allocation and its free, and how many of both 88 threads did.
type Threshold = (Option<u32>, u64, u64);

const SWEEP: [(&str, Threshold); 10] = [
    ("threshold_32", (Some(32), 799, 241_760_478)),
    ("threshold_64", (Some(64), 640, 301_628_829)),
    ("threshold_125", (Some(125), 537, 358_906_028)),
    ("threshold_256", (Some(256), 468, 412_397_590)),
    ("threshold_512", (Some(512), 428, 450_550_704)),
    ("threshold_4096", (Some(4096), 399, 482_520_943)),
    ("threshold_20000", (Some(20_000), 394, 489_009_617)),
    ("threshold_30000", (Some(30_000), 395, 488_017_817)),
    ("threshold_65533", (Some(65_533), 369, 521_661_345)),
    ("none", (None, 342, 562_900_157)),
];

const HELP: &str = "\
Cases (figures are nanoseconds for the statistics of one allocation: where it came
from, and where it was wanted):
  threshold_32 ...    counters of 16 bits that go to the shared total above so many
  threshold_65533     the most that 16 bits hold
  none                no statistics: the empty loop

Beside each stands what the commit that raised the threshold from 125 to 65 533
reported on 2 sockets with 88 CPUs: CPU cycles for an allocation and its free, and
how many of them 88 threads did. Most of those cycles are the allocator's; what can
be compared is what the statistics add to `none`, and how it falls with the
threshold. With few CPUs the shared total costs little, so expect it to fall less.

Examples:
  ledgerline bench numa
  ledgerline bench numa --threads 2 --cases threshold_125,threshold_65533,none";

fn measure(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let mut rows = run.in_rounds(&run.options.threads, &run.options.cases, |turn| {
        turn.time(&SWEEP, |_, (threshold, ..)| work(threshold))
    })?;
    for row in &mut rows {
        if let Some((threshold, cycles, allocations)) = of(&SWEEP, &row.case) {
            row.threshold = threshold;
            row.published_cycles = Some(cycles);
            row.published_allocations = Some(allocations);
        }
    }
    Ok(rows)
}

fn work(threshold: Option<u32>) -> Made<Work<'static>> {
    let body: Body<'static> = match threshold {
        Some(threshold) => {
            let mut tree = Places::builder("machine");
            let node = tree.node("0")?;
            let zone = tree.zone(node, "Normal")?;
            let builder = Counters::<NumaItem, u16>::builder(&tree.build()?).threshold(threshold);
            let numa = Numa::from(builder.anonymous()?);
            numa.zone(zone)?;
            Box::new(move |_, n| {
                let zone = numa.zone(zone).expect("looked up before");
                allocations(zone, n);
            })
        }
        None => Box::new(|_, n| nothing(n)),
    };
    Ok((UNROLLED, body))
}

#[inline(never)]
fn allocations(zone: Zone<'_, u16>, n: u64) {
    for _ in 0..n / UNROLLED {
        for _ in 0..UNROLLED {
            black_box(zone).count(zone);
        }
    }
}

#[inline(never)]
fn nothing(n: u64) {
    for _ in 0..n / UNROLLED {
        for _ in 0..UNROLLED {
            black_box(n);
        }
    }
}

/// Returns how much longer a count takes than at threshold 125, and the commit's figures.
fn remark(row: &Row, rows: Rows<'_>) -> String {
    let mut remarks = Vec::new();
    let ratio = rows.times(row, "threshold_125");
    if let Some(ratio) = ratio.filter(|_| row.threshold.is_some_and(|threshold| threshold != 125)) {
        remarks.push(format!("{ratio:.2}x threshold 125"));
    }
    if let (Some(cycles), Some(allocations)) = (row.published_cycles, row.published_allocations) {
        let (.., (_, none, _)) = SWEEP[SWEEP.len() - 1];
        remarks.push(format!(
            "published: {cycles} cycles (+{}), {:.1} M allocations",
            cycles - none,
            allocations as f64 / 1e6
        ));
    }
    remarks.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_percentages_follow_from_its_columns() {
        let change = |at: usize, column: fn(&Threshold) -> u64| {
            let (here, default) = (column(&SWEEP[at].1) as f64, column(&SWEEP[2].1) as f64);
            ((here / default - 1.0) * 1000.0).round() / 10.0
        };
        // The mail's figures for 65533 and for no statistics.
        assert_eq!((change(8, |row| row.1), change(9, |row| row.1)), (-31.3, -36.3));
        assert_eq!((change(8, |row| row.2), change(9, |row| row.2)), (45.3, 56.8));
    }
}
