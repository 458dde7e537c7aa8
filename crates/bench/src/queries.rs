//! The loops of the suite `charge` that do what query engines do: they charge buffers of 64 KiB and more, hold a thousand of
//! them, run short queries, move buffers between queries, and meet limits. Their alternatives are three atomics and a mutex,
//! which check a limit and keep a peak at each level.

use super::loops::refused;
use super::peers::{AtomicPeaks, Locked, Peer};
use super::rounds::{Made, Work};
use ledgerline::{Charge, Group, Ledger, Limit};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

const KIB_64: u64 = 64 << 10;
const MIB_1: u64 = 1 << 20;
/// The limits of the tenant and of each query.
const TENANT_MAX: u64 = 64 << 30;
const QUERY_MAX: u64 = 32 << 30;
/// Buffers that a query holds at a time.
const HELD: usize = 1000;
/// Charges of a short query.
const SHORT: usize = 20;

/// Returns the cases that a case is to be judged by.
pub(super) fn beside(case: &str) -> &'static [&'static str] {
    match case {
        "large_64k" | "large_1m" => &["atomics_peaks", "mutex_depth3"],
        "grow_shrink" | "grow_shrink_1m" | "own_query" | "short_query" => {
            &["atomics_grow", "mutex_grow"]
        }
        "refusal" => &["atomics_refusal"],
        _ => &[],
    }
}

fn tenant(ledger: &Ledger) -> Made<Group<'_>> {
    let tenant = ledger.root().create("tenant")?;
    tenant.set_max(Limit::units(TENANT_MAX))?;
    Ok(tenant)
}

fn query<'l>(tenant: Group<'l>, name: &str) -> Made<Group<'l>> {
    let query = tenant.create(name)?;
    query.set_max(Limit::units(QUERY_MAX))?;
    Ok(query)
}

#[inline(always)]
fn charged(group: Group<'_>, units: u64) -> Charge<'_> {
    match group.try_charge(units) {
        Ok(charge) => charge,
        Err(_) => refused(),
    }
}

/// Charges a buffer and drops it, in one query.
pub(super) fn large(ledger: &Ledger, units: u64) -> Made<Work<'_>> {
    let query = query(tenant(ledger)?, "query")?;
    Ok((1, Box::new(move |_, n| (0..n).for_each(|_| drop(charged(query, black_box(units)))))))
}

pub(super) fn large_64k(ledger: &Ledger, _: usize) -> Made<Work<'_>> {
    large(ledger, KIB_64)
}

pub(super) fn large_1m(ledger: &Ledger, _: usize) -> Made<Work<'_>> {
    large(ledger, MIB_1)
}

/// Holds a thousand buffers and then drops them.
fn hold(query: Group<'_>, units: u64, n: u64) {
    let mut held = Vec::with_capacity(HELD);
    for _ in 0..n / HELD as u64 {
        held.extend((0..HELD).map(|_| charged(query, black_box(units))));
        held.clear();
    }
}

/// All threads hold buffers in one query.
pub(super) fn grow_shrink(ledger: &Ledger, _: usize) -> Made<Work<'_>> {
    let query = query(tenant(ledger)?, "query")?;
    Ok((HELD as u64, Box::new(move |_, n| hold(query, KIB_64, n))))
}

/// The same with larger buffers.
pub(super) fn grow_shrink_1m(ledger: &Ledger, _: usize) -> Made<Work<'_>> {
    let query = query(tenant(ledger)?, "query")?;
    Ok((HELD as u64, Box::new(move |_, n| hold(query, MIB_1, n))))
}

/// Each thread holds buffers in a query of its own, below one tenant.
pub(super) fn own_query(ledger: &Ledger, threads: usize) -> Made<Work<'_>> {
    let tenant = tenant(ledger)?;
    let queries = (0..threads).map(|at| query(tenant, &format!("query{at}")));
    let queries = queries.collect::<Made<Vec<_>>>()?;
    Ok((HELD as u64, Box::new(move |thread, n| hold(queries[thread], KIB_64, n))))
}

/// Each thread creates a query, charges it twenty times, returns all of it and destroys it. An operation is one charge.
pub(super) fn short_query(ledger: &Ledger, threads: usize) -> Made<Work<'_>> {
    let tenant = tenant(ledger)?;
    let names: Vec<String> = (0..threads).map(|thread| format!("query{thread}")).collect();
    let body = move |thread: usize, n: u64| {
        let mut held = Vec::with_capacity(SHORT);
        for _ in 0..n / SHORT as u64 {
            let query = tenant.create(&names[thread]).expect("a ledger of a few groups has room");
            held.extend((0..SHORT).map(|_| charged(query, black_box(KIB_64))));
            held.clear();
            query.destroy().expect("a group without children can be destroyed");
        }
    };
    Ok((SHORT as u64, Box::new(body)))
}

/// Moves a buffer to a sibling and back. An operation is one move.
pub(super) fn transfer_cells(ledger: &Ledger, threads: usize) -> Made<Work<'_>> {
    let tenant = tenant(ledger)?;
    let pair = |at: usize| -> Made<[Group<'_>; 2]> {
        Ok([query(tenant, &format!("from{at}"))?, query(tenant, &format!("to{at}"))?])
    };
    let pairs = (0..threads).map(pair).collect::<Made<Vec<_>>>()?;
    let body = move |thread: usize, n: u64| {
        let [from, to] = pairs[thread];
        let mut moved = charged(from, KIB_64);
        for _ in 0..n / 2 {
            for next in [to, from] {
                moved = match moved.transfer(next) {
                    Ok(moved) => moved,
                    Err(_) => refused(),
                };
            }
        }
        drop(moved);
    };
    Ok((2, Box::new(body)))
}

/// Asks a full query for a buffer.
pub(super) fn refusal(ledger: &Ledger, threads: usize) -> Made<Work<'_>> {
    let tenant = tenant(ledger)?;
    let full = (0..threads).map(|at| -> Made<Group<'_>> {
        let full = query(tenant, &format!("query{at}"))?;
        full.set_max(Limit::units(KIB_64))?;
        Ok(full)
    });
    let queries = full.collect::<Made<Vec<_>>>()?;
    let body = move |thread: usize, n: u64| {
        let query = queries[thread];
        let held = charged(query, KIB_64);
        for _ in 0..n {
            assert!(black_box(query.try_charge(black_box(KIB_64))).is_err(), "the query is full");
        }
        drop(held);
    };
    Ok((1, Box::new(body)))
}

/// As [`hold`], with an alternative.
fn hold_peer<P: Peer + 'static>(peer: P) -> Made<Work<'static>> {
    let body = move |_, n: u64| {
        for _ in 0..n / HELD as u64 {
            for _ in 0..HELD {
                if !peer.try_charge(black_box(KIB_64)) {
                    refused();
                }
            }
            (0..HELD).for_each(|_| peer.uncharge(black_box(KIB_64)));
        }
    };
    Ok((HELD as u64, Box::new(body)))
}

pub(super) fn atomics_grow(_: &Ledger, _: usize) -> Made<Work<'_>> {
    hold_peer(AtomicPeaks::new(TENANT_MAX))
}

pub(super) fn mutex_grow(_: &Ledger, _: usize) -> Made<Work<'_>> {
    hold_peer(Locked::new(TENANT_MAX))
}

pub(super) fn atomics_refusal(_: &Ledger, _: usize) -> Made<Work<'_>> {
    let full = AtomicPeaks::new(KIB_64 - 1);
    let refusals = AtomicU64::new(0);
    let body = move |_, n: u64| {
        let refused = (0..n).filter(|_| !full.try_charge(black_box(KIB_64))).count();
        refusals.fetch_add(refused as u64, Ordering::Relaxed);
    };
    Ok((1, Box::new(body)))
}
