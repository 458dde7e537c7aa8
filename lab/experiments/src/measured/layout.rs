//! "memcg: optimize charge codepath" (2022): how long the accounting of a message takes on page counters without the
//! series' patches, with them, and on ours.
//!
//! A message of 10 KiB takes three pages from the sending CPU's stock. The receiver puts them into the stock of its own
//! CPU, and asks each group up to the root whether it is short of memory, like Linux 6.0. Each thread plays both ends
//! in turns: it sends many messages, then receives as many. So the stock empties and fills as if sender and receiver
//! ran on different CPUs.

use super::row::{Measured, Note};
use super::variants::{Session, in_bursts, row};
use crate::history::{Charged, Layout, Packed, Propagate, Split, Stock};
use ledgerline::{Ledger, Limit};
use ledgerline_bench::measure::harness::{Body, Case};
use std::error::Error;
use std::hint::black_box;

/// Pages of a message.
const PAGES: i64 = 3;
/// Messages that are sent before as many are received.
const BURST: u64 = 1024;
/// Pages that stay charged: more than are protected, so that protection does not change.
const BASE: i64 = 10_000;
const PROTECTED: i64 = 1_000;
const PAGE: u64 = 4096;

/// The rows of the series, and ours. The first row charges the root only; the other rows are compared with the second.
const NAMES: [&str; 7] = ["all in root", "three levels", "A", "B", "C", "A+B+C", "ours"];

pub(super) fn measure(session: &Session<'_>) -> Result<Vec<Measured>, Box<dyn Error>> {
    let ledger = Ledger::new()?;
    let bodies: [Body<'_>; 7] = [
        Box::new(|_, n| messages(n, |_| (), |_| ())),
        theirs::<Packed>(Propagate::Always, 32),
        theirs::<Packed>(Propagate::Changed, 32),
        theirs::<Split>(Propagate::Always, 32),
        theirs::<Packed>(Propagate::Always, 64),
        theirs::<Split>(Propagate::Changed, 64),
        ours(&ledger)?,
    ];
    let cases: Vec<Case<'_>> = NAMES
        .into_iter()
        .zip(bodies)
        .map(|(name, body)| Case { name, granule: BURST, body })
        .collect();
    let timed = session.time(&cases);
    let about = format!(
        "ns of accounting a message of 10 KiB on each CPU, sent and received (at the rate of the \
         document's root row a message takes 3 776 ns); {}",
        session.few()
    );
    let rows = NAMES[..6].iter().enumerate().map(|(at, name)| match at {
        0 => row(
            name,
            None,
            Some(&timed[0]),
            None,
            Some(Note::Row("nothing is charged: the loop alone".to_owned())),
        ),
        1 => row(name, Some(&timed[1]), None, Some(&timed[6]), Some(Note::Table(about.clone()))),
        _ => row(name, Some(&timed[1]), Some(&timed[at]), Some(&timed[6]), None),
    });
    Ok(rows.collect())
}

/// Sends bursts of messages and receives as many.
#[inline(always)]
fn messages(n: u64, mut send: impl FnMut(i64), mut receive: impl FnMut(i64)) {
    in_bursts(n, BURST, || send(black_box(PAGES)), || receive(black_box(PAGES)));
}

fn theirs<L: Layout + 'static>(propagate: Propagate, batch: i64) -> Body<'static> {
    let counters = Charged::<L>::new(3, PROTECTED, propagate);
    assert!(counters.try_charge(BASE), "there is no limit");
    Box::new(move |_, n| {
        // Sending and receiving use the stock in turns.
        let stock = std::cell::RefCell::new(Stock::new(batch));
        let charge = |pages| assert!(counters.try_charge(pages), "there is no limit");
        let uncharge = |pages| counters.uncharge(pages);
        messages(
            n,
            |pages| stock.borrow_mut().take(pages, charge),
            |pages| {
                stock.borrow_mut().put(pages, uncharge);
                black_box(counters.short_of_memory());
            },
        );
        stock.into_inner().drain(uncharge);
    })
}

fn ours(ledger: &Ledger) -> Result<Body<'_>, Box<dyn Error>> {
    let top = ledger.root().create("top")?;
    top.set_min(Limit::units(PROTECTED as u64 * PAGE));
    top.set_low(Limit::units(PROTECTED as u64 * PAGE));
    let leaf = top.create("middle")?.create("leaf")?;
    leaf.try_charge_units(BASE as u64 * PAGE).map_err(|_| "a charge was refused")?;
    Ok(Box::new(move |_, n| {
        messages(
            n,
            |pages| {
                assert!(leaf.try_charge_units(pages as u64 * PAGE).is_ok(), "there is no limit")
            },
            |pages| leaf.uncharge_units(pages as u64 * PAGE),
        );
    }))
}
