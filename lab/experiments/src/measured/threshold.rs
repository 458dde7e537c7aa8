//! "Separate NUMA statistics from zone statistics" (2017): how long it takes to count an allocation, by the threshold
//! of the per-CPU differences, and on ours.

use super::row::{Measured, Note};
use super::variants::{Session, Timed, row};
use crate::history::{BareZone, Difference, Zone};
use ledgerline::stat::numa::{Numa, NumaItem};
use ledgerline::stat::{Counters, Places};
use ledgerline_bench::measure::harness::{Body, Case};
use ledgerline_coherence::experiments::numa_threshold::ROWS;
use std::error::Error;
use std::sync::atomic::{AtomicI8, AtomicI16, AtomicU16};

/// The least number of allocations of a call.
const GRANULE: u64 = 64;
/// The default row of systems.
const DEFAULT: u32 = 125;

pub(super) fn measure(session: &Session<'_>) -> Result<Vec<Measured>, Box<dyn Error>> {
    let threads = session.cpus.len();
    let mut cases = Vec::new();
    for (threshold, ..) in ROWS {
        let body = theirs(threads, threshold);
        cases.push(Case { name: "as in the document", granule: GRANULE, body });
        let body = ours(threads, threshold)?;
        cases.push(Case { name: "ours", granule: GRANULE, body });
    }
    let timed = session.time(&cases);
    let pairs: Vec<(&Timed, &Timed)> = timed.chunks(2).map(|pair| (&pair[0], &pair[1])).collect();
    let default = ROWS.iter().position(|row| row.0 == Some(DEFAULT)).expect("the mail has it");
    let about = format!(
        "ns of counting an allocation on each CPU, with reading the zone's free pages (a clock of the \
         document's machine makes 2.19 cycles a ns); {}",
        session.few()
    );
    let rows =
        ROWS.iter().zip(&pairs).enumerate().map(|(at, ((threshold, ..), &(theirs, ours)))| {
            let name = threshold.map_or("none".to_owned(), |threshold| threshold.to_string());
            let before = Some(pairs[default].0);
            let about = (at == 0).then(|| Note::Table(about.clone()));
            match threshold {
                Some(DEFAULT) => row(&name, before, None, Some(ours), about),
                Some(_) => row(&name, before, Some(theirs), Some(ours), about),
                None => {
                    let says = Note::Row("no statistics: what is left".to_owned());
                    row(&name, before, Some(theirs), None, Some(says))
                }
            }
        });
    Ok(rows.collect())
}

/// Returns the body for a threshold, with the types of the series: bytes to 125, signed 16 bits to 30 000, unsigned
/// above.
fn theirs(threads: usize, threshold: Option<u32>) -> Body<'static> {
    match threshold {
        None => bare(threads),
        Some(threshold) if threshold <= AtomicI8::MOST => zone::<AtomicI8>(threads, threshold),
        Some(threshold) if threshold <= AtomicI16::MOST => zone::<AtomicI16>(threads, threshold),
        Some(threshold) => zone::<AtomicU16>(threads, threshold),
    }
}

fn zone<D: Difference + 'static>(threads: usize, threshold: u32) -> Body<'static> {
    let zone = Zone::<D>::new(threads, threshold);
    Box::new(move |thread, n| {
        for _ in 0..n {
            assert!(zone.allocate_and_free(thread), "free pages do not run out");
        }
    })
}

fn bare(threads: usize) -> Body<'static> {
    let zone = BareZone::new(threads);
    Box::new(move |thread, n| {
        for _ in 0..n {
            assert!(zone.allocate_and_free(thread, || ()), "free pages do not run out");
        }
    })
}

fn ours(threads: usize, threshold: Option<u32>) -> Result<Body<'static>, Box<dyn Error>> {
    let Some(threshold) = threshold else { return Ok(bare(threads)) };
    let mut tree = Places::builder("machine");
    let node = tree.node("0")?;
    let place = tree.zone(node, "Normal")?;
    let counters =
        Counters::<NumaItem, u16>::builder(&tree.build()?).threshold(threshold).anonymous()?;
    let numa = Numa::from(counters);
    numa.zone(place)?;
    let pages = BareZone::new(threads);
    Ok(Box::new(move |thread, n| {
        let zone = numa.zone(place).expect("looked up before");
        for _ in 0..n {
            // From the wanted node: a hit, and local, like in the document's test.
            let above = pages.allocate_and_free(thread, || {
                zone.count_on(zone.node(), zone);
            });
            assert!(above, "free pages do not run out");
        }
    }))
}
