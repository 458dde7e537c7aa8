//! The amounts asked of each reclaimer: in proportion to the unprotected units, like the kernel's reclaim. Also the cost of
//! asking.

use crate::common::{in_both_modes, ran_alone, times, unique};
use crate::support::{LONG, limited};
use ledgerline::{Charge, Group, Ledger, Limit, Mistakes, Reclaimer};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn ledger() -> &'static Ledger {
    let builder = Ledger::builder().capacity(1 << 16).reclaim_time(LONG);
    Box::leak(Box::new(builder.anonymous().unwrap()))
}

/// A cache in a group: it gives back the requested units, in whole grains.
struct Cache {
    group: Group<'static>,
    held: Arc<AtomicU64>,
    _reclaimer: Reclaimer<'static>,
}

impl Cache {
    fn new(group: Group<'static>, grain: u64) -> Cache {
        let held = Arc::new(AtomicU64::new(0));
        let cached = held.clone();
        let reclaimer = group.add_reclaimer(0, move |need| {
            let give = need.next_multiple_of(grain).min(cached.load(SeqCst));
            cached.fetch_sub(give, SeqCst);
            group.uncharge_units(give);
            give
        });
        Cache { group, held, _reclaimer: reclaimer }
    }

    fn fill(&self, units: u64) {
        self.group.try_charge_units(units).unwrap();
        self.held.fetch_add(units, SeqCst);
    }

    /// Returns the remaining units in MiB.
    fn left(&self) -> f64 {
        let left = self.held.load(SeqCst);
        assert_eq!(left, self.group.precise());
        left as f64 / MIB as f64
    }
}

/// A tree of the kernel's own test of protection (`test_memcg_protection`). A may use 200 MiB; B, below it, is protected with
/// 50. In B, C claims 75 of that, D 25, E none and F 500, and all but F have 50 cached.
struct Family {
    b: Group<'static>,
    /// The caches of C, D, E and F.
    caches: [Cache; 4],
    g: Group<'static>,
}

impl Family {
    fn new(protect: impl Fn(Group<'_>, u64), scale: u64, grain: u64) -> Family {
        let a = limited(ledger().root(), "a", 200 * scale);
        let b = a.create(&unique("b")).unwrap();
        protect(b, 50 * scale);
        let caches = [("c", 75, 50), ("d", 25, 50), ("e", 0, 50), ("f", 500, 0)];
        let caches = caches.map(|(name, protected, cached)| {
            let group = b.create(name).unwrap();
            protect(group, protected * scale);
            let cache = Cache::new(group, grain);
            cache.fill(cached * scale);
            cache
        });
        Family { b, caches, g: a.create(&unique("g")).unwrap() }
    }

    fn left(&self, scale: u64) -> [f64; 4] {
        self.caches.each_ref().map(|cache| cache.left() * MIB as f64 / scale as f64)
    }
}

/// Requests so many units in pieces, the last one with the rest, and keeps them.
fn ask(
    group: Group<'static>,
    units: u64,
    piece: u64,
) -> Result<Vec<Charge<'static>>, ledgerline::Refused> {
    let pieces = (0..units.div_ceil(piece)).map(|number| piece.min(units - number * piece));
    pieces.map(|units| group.try_charge(units)).collect()
}

#[track_caller]
fn close(found: f64, published: f64, what: &str) {
    assert!((found - published).abs() <= published * 0.1, "{what}: {found} of {published}");
}

/// Checks the kernel's numbers, which hold within a tenth there: at the end C has 29, D 21, E and F nothing. Above the
/// protected units 2 are left, and a share of those may be E's. Then G's cache frees all its unprotected units.
fn the_kernels_numbers(hard: bool) {
    let protect = |group: Group<'_>, units: u64| match hard {
        true => group.set_min(Limit::units(units)),
        false => group.set_low(Limit::units(units)),
    };
    // At once, in pieces, by pages; with caches that have a grain; and with units that are not bytes.
    let page = MIB / 256;
    let ways = [
        (MIB, 1, 148 * MIB),
        (MIB, page, 148 * MIB),
        (MIB, 1, 4 * MIB),
        (MIB, page, 4 * MIB),
        (MIB, page, MIB / 16),
        (MIB, page, page * times(8, 1)),
        (MIB, 1, page * times(8, 1)),
        (1000, 1, 148_000),
        (1000, 1, 1000),
        (1000, 16, 10),
    ];
    for (scale, grain, piece) in ways {
        let family = Family::new(protect, scale, grain);
        let way = format!("grains of {grain}, pieces of {piece}");
        let held = ask(family.g, 148 * scale, piece).unwrap();
        let [c, d, e, f] = family.left(scale);
        close(c, 29.0, &way);
        close(d, 21.0, &way);
        assert!(e <= 1.5 && f == 0.0, "{way}: {e} {f}");
        // Now that is a cache, too, and unprotected; a charge asks for 170 and keeps them.
        let [cached, greedy] = ["cached", "greedy"].map(|name| family.g.create(name).unwrap());
        held.into_iter().for_each(|charge| std::mem::forget(charge.transfer(cached).unwrap()));
        let cache = Cache::new(cached, grain);
        cache.held.store(148 * scale, SeqCst);
        let piece = if piece == 148 * scale { 170 * scale } else { piece };
        let granted = ask(greedy, 170 * scale, piece);
        let left = family.b.precise() as f64 / scale as f64;
        let low = family.b.events().low;
        if hard {
            assert_eq!(granted.unwrap_err().group, "/a");
            close(left, 50.0, &way);
            assert!(left >= 49.9, "{way}: {left} of min 50");
            assert_eq!(low, 0);
        } else {
            let _granted = granted.unwrap();
            close(left, 30.0, &way);
            assert!(low > 0, "{way}: no low event");
        }
        assert_eq!(family.b.ledger().mistakes(), Mistakes::default());
    }
}

#[test]
fn siblings_below_a_protected_parent_end_where_the_kernels_do_by_min() {
    in_both_modes("siblings_below_a_protected_parent_end_where_the_kernels_do_by_min", || {
        the_kernels_numbers(true);
    });
}

#[test]
fn siblings_below_a_protected_parent_end_where_the_kernels_do_by_low() {
    in_both_modes("siblings_below_a_protected_parent_end_where_the_kernels_do_by_low", || {
        the_kernels_numbers(false);
    });
}

#[test]
fn caches_of_equal_priority_give_in_proportion_also_to_small_requests() {
    in_both_modes("caches_of_equal_priority_give_in_proportion_also_to_small_requests", || {
        for (piece, grain) in [(50_000, 1), (1000, 1), (10, 1), (10, 64), (1, 1)] {
            let tenant = limited(ledger().root(), "tenant", 100_000);
            let caches = [40_000, 30_000, 20_000, 10_000].map(|units| {
                let cache = Cache::new(tenant.create(&unique("cache")).unwrap(), grain);
                cache.fill(units);
                (cache, units)
            });
            let query = tenant.create("query").unwrap();
            let _held = ask(query, 50_000, piece).unwrap();
            for (cache, units) in &caches {
                let (left, half) = (cache.held.load(SeqCst) as f64, *units as f64 / 2.0);
                assert!((left - half).abs() <= 700.0, "{piece} by {grain}: {left} of {units}");
            }
        }
    });
}

/// Returns the time of the fastest of some rounds, in seconds.
fn fastest(mut round: impl FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64()
    };
    (0..15).map(once).fold(f64::INFINITY, f64::min)
}

#[test]
fn a_refusal_costs_by_those_below_what_is_full_and_not_by_others() {
    if ran_alone("a_refusal_costs_by_those_below_what_is_full_and_not_by_others") {
        return;
    }
    let ledger = ledger();
    let tenant = limited(ledger.root(), "tenant", 100);
    tenant.try_charge_units(50).unwrap();
    // It holds units, but gives none.
    let cache = Cache::new(tenant.create("part").unwrap().create("cache").unwrap(), 1);
    cache.group.try_charge_units(50).unwrap();
    // Refused without a reclaimer to ask, and after one was asked without success.
    let alone = limited(ledger.root(), "alone", 100);
    alone.try_charge_units(100).unwrap();
    let refusals = |group: Group<'static>| {
        fastest(|| (0..200).for_each(|_| drop(group.try_charge(1).unwrap_err())))
    };
    let before = [refusals(alone), refusals(tenant)];
    // Elsewhere: many groups, and two thousand reclaimers of groups that hold units.
    let other = limited(ledger.root(), "other", 1 << 40);
    let others: Vec<Cache> = (0..2000)
        .map(|_| {
            let cache = Cache::new(other.create(&unique("cache")).unwrap(), 1);
            cache.fill(1);
            cache
        })
        .collect();
    for _ in 0..60_000 {
        other.create(&unique("group")).unwrap();
    }
    for (group, before) in [(alone, before[0]), (tenant, before[1])] {
        let after = refusals(group);
        assert!(after < before * 4.0, "{}: {before} s, and then {after}", group.path());
    }
    drop((cache, others));
}

#[test]
fn nobody_is_refused_for_room_that_another_thread_took_while_there_is_more_to_reclaim() {
    const ROUNDS: usize = 10_000;
    const HELD: usize = 16;
    let group = ledger().root().create("sort").unwrap();
    group.set_max(Limit::units(HELD as u64 * MIB)).unwrap();
    let kept: Arc<Mutex<Vec<Charge<'static>>>> = Arc::default();
    let pages = kept.clone();
    // One at a time, slowly, like writing a file: others charge and are refused meanwhile.
    let _reclaimer = group.add_reclaimer(0, move |_| {
        let page = pages.lock().unwrap().pop();
        std::thread::yield_now();
        page.map_or(0, |page| page.units())
    });
    // At any time three threads hold a page that cannot be reclaimed, and at least a dozen pages can be.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let page = group
                        .try_charge(MIB)
                        .unwrap_or_else(|error| panic!("round {round}: {error}"));
                    kept.lock().unwrap().push(page);
                }
            });
        }
    });
    kept.lock().unwrap().clear();
    assert_eq!((group.precise(), group.ledger().mistakes()), (0, Mistakes::default()));
}

#[test]
fn a_program_may_ask_for_units_whatever_the_limits_say() {
    in_both_modes("a_program_may_ask_for_units_whatever_the_limits_say", || {
        let ledger = ledger();
        let [kept, cache] = ["kept", "cache"].map(|name| ledger.root().create(name).unwrap());
        kept.set_min(Limit::units(1 << 30));
        let asked = Arc::new(AtomicU64::new(0));
        let hold = |group: Group<'static>, units: u64| {
            group.charge_units(units).unwrap();
            let asked = asked.clone();
            group.add_reclaimer(0, move |need| {
                asked.fetch_add(1, SeqCst);
                let give = need.min(group.precise());
                group.uncharge_units(give);
                // Such calls do not nest.
                assert_eq!(ledger.root().reclaim(1), 0);
                give
            })
        };
        let _reclaimers = [hold(kept, 1000), hold(cache, 5000)];
        assert_eq!(cache.reclaim(100), 100);
        // No limit is met anywhere, and protected units stay.
        assert_eq!(ledger.root().reclaim(1900), 1900);
        assert_eq!((kept.precise(), cache.precise()), (1000, 3000));
        assert_eq!(ledger.root().reclaim(0), 0);
        assert_eq!(ledger.root().reclaim(u64::MAX), 3000);
        assert_eq!((kept.precise(), cache.precise()), (1000, 0));
        let times = asked.load(SeqCst);
        assert_eq!(ledger.root().reclaim(10), 0, "there is nothing left");
        assert_eq!(asked.load(SeqCst), times);
    });
}

#[test]
fn a_reclaimer_that_hangs_is_named_with_the_charge_that_waits_for_it() {
    const NAME: &str = "a_reclaimer_that_hangs_is_named_with_the_charge_that_waits_for_it";
    if ran_alone(NAME) {
        return;
    }
    let time = Duration::from_millis(5);
    let ledger =
        Ledger::builder().capacity(8).reclaim_time(time).anonymous().unwrap().into_static();
    ledger.root().set_max(Limit::units(100)).unwrap();
    let [cache, query] = ["cache", "query"].map(|name| ledger.root().create(name).unwrap());
    let _held = cache.try_charge(100).unwrap();
    let go = Arc::new(Barrier::new(2));
    let waits = go.clone();
    let _reclaimer = cache.add_reclaimer(0, move |_| {
        waits.wait();
        0
    });
    std::thread::scope(|scope| {
        let charge = scope.spawn(|| query.try_charge(10).unwrap_err());
        // No time limit: only the watchdog ends this wait.
        while cache.local_events().reclaimer_hung == 0 {
            std::thread::yield_now();
        }
        let diagnosis = query.diagnose();
        let [hung] = &*diagnosis.hung else { panic!("{diagnosis}") };
        assert_eq!((&*hung.group, &*hung.waiting), ("/cache", "/query"));
        assert!(hung.running >= 10 * time);
        let text = diagnosis.to_string();
        assert!(
            text.contains("The reclaimer of /cache has run for 0 s, and /query waits for it"),
            "{text}"
        );
        go.wait();
        charge.join().unwrap();
    });
    assert!(ledger.root().diagnose().hung.is_empty());
    assert_eq!(ledger.root().events().reclaimer_hung, 1, "once");
}
