//! The suite `quota` measures a limit of a whole node, kept in one atomic, beside a ledger's.

use super::cases::{chain, pair, shared};
use super::guards;
use super::loops::{UNROLLED, four_times, refused};
use super::peers::Peer;
use super::rounds::{Made, Run, Work};
use super::row::{Row, Rows};
use super::suite::{Suite, names};
use crate::measure::padded::Padded;
use ledgerline::Ledger;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) static QUOTA: Suite =
    Suite { name: "quota", help: HELP, cases: &names(&CASES), measure, remark };

const HELP: &str = "\
Cases (figures are nanoseconds for a charge and its return, and thread):
  quota_exchange      one atomic for the whole node, by compare-and-swap, as TiKV's
                      MemoryQuota has it
  quota_add           the same by addition, taken back above the limit
  quota_guard         quota_exchange, held by a guard
  group_units         ours: units of the root, which has a limit
  group_guard         ours, held by a guard (Group::try_charge)
  tenant_guard        ours: the guard of a tenant's query, with a limit at each of
                      the three levels, which one atomic cannot have

With several threads all of them use the same quota, or the same group.

Examples:
  ledgerline bench quota
  ledgerline bench quota --threads 1,2 --mode rseq --json";

/// The units of each operation.
const UNITS: u64 = 64;
/// A limit that is never met.
const MAX: u64 = 1 << 40;

/// Makes a case, whose groups live in the ledger.
type Make = for<'l> fn(&'l Ledger) -> Made<Work<'l>>;

const CASES: [(&str, Make); 6] = [
    ("quota_exchange", |_| shared(Exchange(Word::new(MAX)))),
    ("quota_add", |_| shared(Add(Word::new(MAX)))),
    ("quota_guard", |_| {
        let quota = Exchange(Word::new(MAX));
        Ok((UNROLLED, Box::new(move |_, n| guard(&quota, black_box(UNITS), n))))
    }),
    ("group_units", |ledger| chain(ledger, 1, pair)),
    ("group_guard", |ledger| chain(ledger, 1, guards::guard)),
    ("tenant_guard", |ledger| chain(ledger, 3, guards::guard)),
];

fn measure(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let cases = &run.options.cases;
    run.in_rounds(&run.options.threads, cases, |turn| {
        // Each case has a ledger of its own.
        let ledgers = cases.iter().map(|_| Ledger::new()).collect::<Result<Vec<_>, _>>()?;
        turn.time(&CASES, |at, make| make(&ledgers[at]))
    })
}

/// Returns the quota's case that a ledger's is compared with.
fn beside(case: &str) -> Option<&'static str> {
    match case {
        "group_units" => Some("quota_exchange"),
        "group_guard" | "tenant_guard" => Some("quota_guard"),
        _ => None,
    }
}

fn remark(row: &Row, rows: Rows<'_>) -> String {
    let mut remarks = Vec::new();
    if let Some(quota) = beside(&row.case) {
        remarks.extend(rows.times(row, quota).map(|ratio| format!("{ratio:.2}x {quota}")));
    }
    remarks.extend(rows.times_one_thread(row));
    remarks.join(", ")
}

/// The usage of the whole node, in one word, and its limit.
#[derive(Debug)]
struct Word {
    in_use: Padded<AtomicU64>,
    max: AtomicU64,
}

impl Word {
    fn new(max: u64) -> Word {
        Word { in_use: Padded::default(), max: AtomicU64::new(max) }
    }
}

/// A quota that exchanges the word: units that do not fit are never visible in it.
#[derive(Debug)]
struct Exchange(Word);

impl Peer for Exchange {
    #[inline(always)]
    fn try_charge(&self, units: u64) -> bool {
        // Relaxed: only the sum matters; so it is below.
        let max = self.0.max.load(Ordering::Relaxed);
        let within = |used: u64| used.checked_add(units).filter(|&sum| sum <= max);
        self.0.in_use.try_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    #[inline(always)]
    fn uncharge(&self, units: u64) {
        // By exchange, too: returning more than there is must not wrap.
        let less = |used: u64| used.saturating_sub(units);
        self.0.in_use.update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// A quota that adds the units to the word first.
#[derive(Debug)]
struct Add(Word);

impl Peer for Add {
    #[inline(always)]
    fn try_charge(&self, units: u64) -> bool {
        // Relaxed: only the sum matters; so it is below.
        if self.0.in_use.fetch_add(units, Ordering::Relaxed) + units
            <= self.0.max.load(Ordering::Relaxed)
        {
            return true;
        }
        self.uncharge(units);
        false
    }

    #[inline(always)]
    fn uncharge(&self, units: u64) {
        self.0.in_use.fetch_sub(units, Ordering::Relaxed);
    }
}

/// Units of a quota, returned on drop.
struct Held<'q> {
    quota: &'q Exchange,
    units: u64,
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.quota.uncharge(self.units);
    }
}

#[inline(always)]
fn held(quota: &Exchange, units: u64) -> Held<'_> {
    if !quota.try_charge(units) {
        refused();
    }
    Held { quota, units }
}

#[inline(never)]
fn guard(quota: &Exchange, units: u64, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!(drop(held(quota, units)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_quota_holds(quota: &impl Peer, in_use: &AtomicU64) {
        assert!(quota.try_charge(64) && !quota.try_charge(64) && quota.try_charge(36));
        assert_eq!(in_use.load(Ordering::Relaxed), 100);
        quota.uncharge(100);
        assert_eq!(in_use.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn quotas_refuse_above_their_limit() {
        let (exchange, add) = (Exchange(Word::new(100)), Add(Word::new(100)));
        a_quota_holds(&exchange, &exchange.0.in_use);
        a_quota_holds(&add, &add.0.in_use);
        assert!(!exchange.try_charge(u64::MAX));
        let held = held(&exchange, 100);
        assert!(!exchange.try_charge(1));
        drop(held);
        exchange.uncharge(1);
        assert_eq!(exchange.0.in_use.load(Ordering::Relaxed), 0, "no return takes it below zero");
    }

    #[test]
    fn every_case_returns_what_it_charges() {
        for (name, make) in CASES {
            let ledger = Ledger::new().unwrap();
            let (granule, body) = make(&ledger).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let body = &body;
                    scope.spawn(move || body(thread, 2 * granule));
                }
            });
            assert_eq!(ledger.root().precise(), 0, "{name}");
            assert_eq!(ledger.root().peak().value > 0, !name.starts_with("quota_"), "{name}");
        }
    }
}
