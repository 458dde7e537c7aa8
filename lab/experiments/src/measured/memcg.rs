//! The report against Linux e27be240df53 (2018): how long the accounting of a fault and of unmapping its page takes,
//! with the group's fields in each of the mail's layouts, and on ours.

use super::row::{Measured, Note};
use super::variants::{Session, in_bursts, row};
use crate::history::MemCgroup;
use ledgerline::stat::{Counters, Places};
use ledgerline_bench::measure::harness::{Body, Case};
use ledgerline_coherence::experiments::memcg_layout::{Offsets, VARIANTS};
use std::error::Error;

/// Pages that a thread maps before it unmaps them.
const BURST: u64 = 128;

ledgerline::items! {
    /// The counted items of the group.
    enum Item {
        /// Faults.
        Faults = "pgfault",
        /// Pages of files that are mapped.
        Mapped = "file_mapped",
    }
}

pub(super) fn measure(session: &Session<'_>) -> Result<Vec<Measured>, Box<dyn Error>> {
    let mut cases: Vec<Case<'_>> = VARIANTS
        .into_iter()
        .map(|(name, offsets, ..)| Case {
            name,
            granule: BURST,
            body: theirs(session.cpus.len(), offsets),
        })
        .collect();
    cases.push(Case { name: "ours", granule: BURST, body: ours()? });
    let timed = session.time(&cases);
    let (ours, variants) = timed.split_last().expect("ours is the last");
    let about = format!(
        "ns of accounting a fault and the unmapping of its page on each CPU; {}; where the prefetcher \
         does not complete pairs of lines (AMD), the layouts should not differ",
        session.few()
    );
    let rows =
        VARIANTS.iter().zip(variants).enumerate().map(|(at, ((name, ..), timed))| match at {
            0 => row(name, Some(&variants[0]), None, Some(ours), Some(Note::Table(about.clone()))),
            _ => row(name, Some(&variants[0]), Some(timed), Some(ours), None),
        });
    Ok(rows.collect())
}

fn theirs(threads: usize, offsets: Offsets) -> Body<'static> {
    let memcg = MemCgroup::new(threads, offsets);
    Box::new(move |thread, n| in_bursts(n, BURST, || memcg.fault(thread), || memcg.unmap(thread)))
}

fn ours() -> Result<Body<'static>, Box<dyn Error>> {
    let mut tree = Places::builder("memcg");
    let node = tree.node("0")?;
    // The threshold is the batch of the group's statistics.
    let counters = Counters::<Item, i8>::builder(&tree.build()?).threshold(32).anonymous()?;
    Ok(Box::new(move |_, n| {
        let fault = || {
            counters.inc(node, Item::Faults);
            counters.inc(node, Item::Mapped);
        };
        in_bursts(n, BURST, fault, || counters.dec(node, Item::Mapped));
    }))
}
