use super::*;
use crate::percpu::registration::{self, Registration};

const GROUP: u64 = 5;
const NUMBER: u64 = 6;

/// Returns an open thread cache of 1000 units, of 2000 at most.
fn thread_cache() -> ThreadCache {
    let thread_cache = ThreadCache::new();
    thread_cache.open(GROUP, NUMBER, 0, 2000);
    assert!(thread_cache.change(1000).is_some());
    thread_cache
}

/// Returns the area that the sections need, or `None` if this machine has no sections.
fn area() -> Option<isize> {
    match registration::adopt() {
        Ok(Registration::Compact { area }) => Some(area),
        _ => None,
    }
}

fn take_from(thread_cache: &ThreadCache, group: u64, units: u64) -> Option<bool> {
    let area = area()?;
    let label = AtomicU16::new(u16::MAX);
    let label_at = label.as_ptr();
    // SAFETY: the thread is registered, and the thread cache and the label belong to this test.
    let done = mine::with(thread_cache, || unsafe {
        sections::take(area, mine::distance(), group, taken(units), label_at)
    });
    let labelled = u64::from(label.into_inner());
    assert_eq!(labelled, if done { NUMBER } else { u16::MAX.into() });
    Some(done)
}

fn put_into(thread_cache: &ThreadCache, number: u64, units: u64) -> Option<bool> {
    let area = area()?;
    // SAFETY: as above.
    let put = || unsafe { sections::put(area, mine::distance(), number, put_back(units)) };
    Some(mine::with(thread_cache, put))
}

#[test]
fn a_thread_cache_gives_what_it_has_and_no_more() {
    let thread_cache = thread_cache();
    let Some(taken) = take_from(&thread_cache, GROUP, 999) else { return };
    assert!(taken && units(thread_cache.word()) == 1);
    for more in [2, MOST / 2, MOST] {
        assert_eq!(take_from(&thread_cache, GROUP, more), Some(false), "{more}");
    }
    assert_eq!(take_from(&thread_cache, GROUP, 1), Some(true));
    assert_eq!(take_from(&thread_cache, GROUP, 1), Some(false));
    assert_eq!((units(thread_cache.word()), counts(thread_cache.word())), (0, (2, 0)));
}

#[test]
fn a_thread_cache_takes_what_it_may_hold_and_no_more() {
    let thread_cache = thread_cache();
    let Some(put) = put_into(&thread_cache, NUMBER, 1000) else { return };
    assert!(put && units(thread_cache.word()) == 2000);
    for more in [1, MOST / 2, MOST] {
        assert_eq!(put_into(&thread_cache, NUMBER, more), Some(false), "{more}");
    }
    assert_eq!((units(thread_cache.word()), counts(thread_cache.word())), (2000, (0, 1)));
}

#[test]
fn a_thread_cache_serves_its_own_group_alone_and_nobody_when_a_drain_has_it() {
    let thread_cache = thread_cache();
    if take_from(&thread_cache, NUMBER, 1) != Some(false) {
        return;
    }
    assert_eq!(put_into(&thread_cache, GROUP, 1), Some(false));
    thread_cache.freeze();
    assert_eq!(
        (take_from(&thread_cache, GROUP, 1), put_into(&thread_cache, NUMBER, 1)),
        (Some(false), Some(false))
    );
    assert!(thread_cache.change(1).is_none() && thread_cache.change(-1).is_none());
    thread_cache.thaw();
    assert_eq!(
        (take_from(&thread_cache, GROUP, 1), put_into(&thread_cache, NUMBER, 2)),
        (Some(true), Some(true))
    );
    thread_cache.freeze();
    let (word, most) = thread_cache.close();
    assert_eq!((units(word), counts(word), most), (1001, (1, 1), 2000));
    assert_eq!(
        (take_from(&thread_cache, GROUP, 1), put_into(&thread_cache, NUMBER, 1)),
        (Some(false), Some(false))
    );
}

#[test]
fn what_moves_between_thread_cache_and_cell_leaves_neither_too_few_nor_too_many() {
    let thread_cache = thread_cache();
    assert!(thread_cache.change(-1001).is_none() && thread_cache.change(1001).is_none());
    assert!(thread_cache.change(-1000).is_some() && thread_cache.change(2000).is_some());
    assert_eq!((units(thread_cache.word()), counts(thread_cache.word())), (2000, (0, 0)));
}

/// For a thread without a thread cache, the section finds a thread cache that matches no group, not even group 0.
#[test]
fn a_thread_without_a_thread_cache_takes_and_puts_nothing() {
    let Some(area) = area() else { return };
    let label = AtomicU16::new(7);
    // SAFETY: as above.
    unsafe {
        assert!(!sections::take(area, mine::distance(), 0, taken(1), label.as_ptr()));
        assert!(!sections::take(area, mine::distance(), GROUP, taken(1), label.as_ptr()));
        assert!(!sections::put(area, mine::distance(), NUMBER, put_back(1)));
    }
    assert_eq!(label.into_inner(), 7);
}

/// Each section uses the thread cache of the thread that runs it, whichever threads ran before with the same distance.
#[test]
fn threads_take_from_their_own_thread_caches() {
    if area().is_none() {
        return;
    }
    let thread_caches = [(); 4].map(|()| thread_cache());
    std::thread::scope(|scope| {
        for (own, thread_cache) in thread_caches.iter().enumerate() {
            scope.spawn(move || {
                for _ in 0..100 * (own + 1) {
                    assert_eq!(take_from(thread_cache, GROUP, 1), Some(true));
                }
            });
        }
    });
    let left = thread_caches.each_ref().map(|thread_cache| units(thread_cache.word()));
    assert_eq!(left, [900, 800, 700, 600]);
}

/// Makes more operations than a thread cache can count: the counts are taken out whenever units are fetched or brought back.
#[test]
fn no_count_runs_into_the_next() {
    for most in [2000, MOST] {
        let thread_cache = ThreadCache::new();
        thread_cache.open(GROUP, NUMBER, 0, most);
        let (mut counted, mut pairs) = ((0, 0), 0);
        for turn in 0..400_000u64 {
            // Pairs fill the counts; runs of single units give the longest possible sequence of takes.
            let taking = turn / 20_000 % 4 == 0 || turn % 2 == 0;
            let done = if taking {
                take_from(&thread_cache, GROUP, 1)
            } else {
                put_into(&thread_cache, NUMBER, 1)
            };
            match done {
                None => return,
                Some(true) if taking => counted.0 += 1,
                Some(true) => (counted.1, pairs) = (counted.1 + 1, pairs + 1),
                Some(false) => {
                    // Like `fetch` and `bring`: to half of `most`, or to all of it.
                    let half = if turn % 3 == 0 { most } else { most / 2 };
                    let change = half as i64 - units(thread_cache.word()) as i64;
                    assert_eq!(thread_cache.change(change), Some(counted), "after {turn}");
                    counted = (0, 0);
                }
            }
            assert_eq!(counts(thread_cache.word()), counted);
        }
        assert!(pairs > 100_000);
        thread_cache.freeze();
        assert_eq!(counts(thread_cache.close().0), counted);
    }
}

#[test]
fn a_frozen_thread_cache_takes_no_block_however_large() {
    let thread_cache = thread_cache();
    thread_cache.freeze();
    let before = thread_cache.word();
    for more in [1, MOST / 2, MOST] {
        let Some(put) = put_into(&thread_cache, NUMBER, more) else { return };
        assert!(!put && take_from(&thread_cache, GROUP, more) == Some(false), "{more}");
        assert_eq!(thread_cache.word(), before);
    }
}
