//! `Group::catch` with the feature `unwind`: a refusal unwinds from the allocation itself.

use ledgerline::{Group, Ledger, Limit, Refused, alloc, current};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MAX: u64 = 1 << 20;

fn group() -> Group<'static> {
    let ledger = Ledger::new().unwrap().into_static();
    let group = ledger.root().create("query").unwrap();
    group.set_max(Limit::units(MAX)).unwrap();
    group
}

fn refused<R>(result: Result<R, Refused>) -> Refused {
    result.map(|_| ()).expect_err("a limit was in the way")
}

#[test]
fn vectors_boxes_and_strings_unwind_at_the_limit_and_nothing_stays_charged() {
    let group = group();
    let works: [fn(); 4] = [
        || drop(vec![0u8; MAX as usize + 1]),
        || loop {
            std::mem::forget(Box::new([0u8; 4096]));
        },
        || {
            let mut text = String::new();
            loop {
                text.push_str("some text");
            }
        },
        || drop((0..1 << 20).map(|n| n.to_string()).collect::<Vec<String>>()),
    ];
    for work in works {
        let refused = refused(group.catch(work));
        assert_eq!((&*refused.group, refused.limit), ("/query", MAX));
        assert_eq!(current::group(), None);
        if group.precise() != 0 {
            // The forgotten boxes remain.
            assert!(group.precise() <= MAX);
            let ledger = group.ledger();
            group.destroy().unwrap();
            return assert_leaks(ledger);
        }
    }
}

fn assert_leaks(ledger: &Ledger) {
    assert_eq!(ledger.leaks().len(), 1);
}

#[test]
fn the_work_never_passes_the_limit_and_destructors_may() {
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    struct Says;
    impl Drop for Says {
        fn drop(&mut self) {
            let words = vec![1u8; 2 << 20];
            DROPPED.fetch_add(words.len() as u64, Relaxed);
        }
    }
    let group = group();
    refused(group.catch(|| {
        let mut kept = Vec::new();
        loop {
            kept.push(vec![0u8; 1000]);
        }
    }));
    // The unwinding starts in an allocation itself.
    assert!(group.peak().value <= MAX + 200, "{:?}", group.peak());
    refused(group.catch(|| {
        let _says = Says;
        drop(vec![0u8; 1 << 30]);
    }));
    assert_eq!((DROPPED.load(Relaxed), group.precise()), (2 << 20, 0));
}

#[test]
fn who_asks_by_try_reserve_is_told_and_goes_on() {
    let group = group();
    let told = group.catch(|| Vec::<u8>::new().try_reserve_exact(2 << 20).is_err());
    assert!(told.unwrap());
    assert_eq!(alloc::last_refusal().unwrap().group, group.id());
}

#[test]
fn each_thread_has_its_own_catch() {
    let group = group();
    group.set_max(Limit::units(64 << 20)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for _ in 0..20 {
                    let sub = group.create(&format!("sub{thread}")).unwrap();
                    sub.set_max(Limit::units(MAX)).unwrap();
                    let refused = refused(sub.catch(|| {
                        let mut all = Vec::new();
                        loop {
                            all.push([0u64; 32]);
                        }
                    }));
                    assert_eq!(refused.refusal.group, sub.id());
                    assert_eq!(sub.destroy().unwrap().leftover, 0);
                }
            });
        }
    });
    assert_eq!(group.precise(), 0);
}

#[test]
fn outside_of_a_catch_an_allocation_goes_over_the_limit() {
    let group = group();
    // The hook is installed by now.
    group.catch(|| ()).unwrap();
    group.scope(|| assert_eq!(vec![0u8; MAX as usize + 1].len(), MAX as usize + 1));
    assert_eq!((group.precise(), group.max_events()), (0, 1));
}

#[test]
fn with_the_policy_null_the_process_aborts_outside_of_a_catch_as_ever() {
    const CHILD: &str = "LEDGERLINE_TEST_ABORTS";
    if std::env::var_os(CHILD).is_some() {
        let group = group();
        // The hook is installed by now.
        group.catch(|| ()).unwrap();
        group.ledger().set_alloc_policy(alloc::Policy::NULL);
        group.scope(|| drop(vec![0u8; MAX as usize + 1]));
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "unwind::with_the_policy_null_the_process_aborts_outside_of_a_catch_as_ever",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(6));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("memory allocation of 1048577 bytes failed"), "{stderr}");
}
