//! `Group::catch` without the feature `unwind`: an allocation goes over the limit, and a refusal is raised at a checkpoint.

use crate::common::again;
use ledgerline::alloc::Policy;
use ledgerline::{Group, Ledger, Limit, Mistakes, Refused, alloc, current};
use std::panic::{AssertUnwindSafe, catch_unwind};

const MAX: u64 = 1 << 20;

fn group() -> Group<'static> {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    let group = ledger.root().create("query").unwrap();
    group.set_max(Limit::units(MAX)).unwrap();
    group
}

/// Fills the group, and asks for a little more than that.
fn too_much() -> [Vec<u8>; 2] {
    [vec![0; MAX as usize], vec![0; 100]]
}

#[test]
fn the_query_fails_and_not_the_process_and_nothing_stays_charged() {
    let group = group();
    let result = group.catch(|| {
        let mut rows = Vec::new();
        for _ in 0..1_000_000 {
            alloc::checkpoint();
            rows.push(vec![0u8; 4096]);
        }
        rows.len()
    });
    let refused: Refused = result.unwrap_err();
    assert_eq!((&*refused.group, refused.limit), ("/query", MAX));
    assert!(refused.to_string().starts_with("/query is full: "), "{refused}");
    assert_eq!((group.precise(), current::group()), (0, None));
    let peak = group.peak();
    assert!(peak.value <= MAX + Policy::OVERRUN.allowance, "{peak:?}");
    // The group continues.
    assert_eq!(group.catch(|| vec![0u8; 100].len()).unwrap(), 100);
    assert_eq!(group.ledger().mistakes(), Mistakes::default());
}

#[test]
fn a_refusal_is_pending_until_the_end_and_its_result_is_dropped() {
    let group = group();
    let mut reached = false;
    let result = group.catch(|| {
        let rows = too_much();
        reached = true;
        rows
    });
    assert!(reached && result.is_err());
    assert_eq!(group.precise(), 0);
    // Without an overrun there is no refusal, neither here nor in the next catch.
    assert!(group.catch(|| ()).is_ok());
}

#[test]
fn one_allocation_that_is_larger_than_any_allowance_ends_the_query_and_not_the_process() {
    let group = group();
    let text = group.catch(|| "x".repeat(20 << 20).len());
    assert_eq!(text.unwrap_err().requested, 20 << 20);
    let grown = group.catch(|| {
        let mut bytes = Vec::new();
        loop {
            alloc::checkpoint();
            bytes.push(1u8);
        }
    });
    let _: Refused = grown.unwrap_err();
    assert_eq!((group.precise(), group.max_events()), (0, 2), "each is refused once");
}

#[test]
fn with_the_policy_null_whoever_asks_is_told_and_the_work_goes_on() {
    let group = group();
    let result = group.catch_with(Policy::NULL, || {
        let all = vec![0u8; MAX as usize];
        assert!(Vec::<u8>::new().try_reserve_exact(1).is_err());
        assert_eq!(alloc::last_refusal().unwrap().usage, MAX);
        alloc::checkpoint();
        all.len()
    });
    assert_eq!(result.unwrap(), MAX as usize, "the work dealt with it");
    assert_eq!(group.max_events(), 1);
}

#[test]
fn beyond_its_allowance_work_is_slowed_down_and_that_is_counted() {
    let group = group();
    let paid = |allowance| {
        let before = group.stat().get("throttled").unwrap().subtree;
        let result = group.catch_within(allowance, || vec![0u8; 3 * MAX as usize].len());
        assert!(result.is_err());
        group.stat().get("throttled").unwrap().subtree - before
    };
    assert_eq!((paid(4 * MAX), paid(MAX)), (0, 1));
}

#[test]
fn destructors_allocate_over_the_limit_while_it_unwinds() {
    struct Says(Vec<u8>);
    impl Drop for Says {
        fn drop(&mut self) {
            // More than the allowance.
            self.0 = vec![1; 3 << 20];
            assert!(std::thread::panicking());
        }
    }
    let group = group();
    let result: Result<(), Refused> = group.catch(|| {
        let _says = Says(Vec::new());
        let _all = too_much();
        alloc::checkpoint();
        unreachable!("the checkpoint raises it");
    });
    assert!(result.is_err());
    assert_eq!(group.precise(), 0);
}

#[test]
fn catches_nest_and_other_panics_pass_through() {
    let [outer, inner] = [group(), group()];
    let result = outer.catch(|| {
        let refused = inner.catch(too_much).unwrap_err();
        assert_eq!(refused.refusal.group, inner.id());
        alloc::checkpoint();
        // Outside the inner catch this belongs to the outer group again.
        vec![0u8; MAX as usize / 2].len()
    });
    assert_eq!(result.unwrap(), MAX as usize / 2);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        outer.catch(|| std::panic::resume_unwind(Box::new("other")))
    }));
    assert_eq!(*panic.map(|_: Result<(), _>| ()).unwrap_err().downcast::<&str>().unwrap(), "other");
    assert_eq!((outer.precise(), current::group()), (0, None));
    // Outside of any catch, a checkpoint does nothing.
    alloc::checkpoint();
}

#[test]
fn outside_of_a_catch_a_group_goes_over_its_limit_and_the_process_lives() {
    let group = group();
    group.scope(|| {
        let rows: Vec<Vec<u8>> = (0..300).map(|_| vec![0u8; 8192]).collect();
        assert!(group.over() > MAX && group.try_charge(1).is_err());
        drop(rows);
    });
    // It was refused once before it was within its limit again, and once by hand.
    assert_eq!((group.over(), group.precise(), group.max_events()), (0, 0, 2));
}

/// The root's limit also applies to work that was refused.
#[test]
fn a_full_root_fails_what_nothing_gives_way_to_with_a_line_that_says_who_holds_it() {
    const CHILD: &str = "LEDGERLINE_TEST_ABORTS";
    const NAME: &str =
        "a_full_root_fails_what_nothing_gives_way_to_with_a_line_that_says_who_holds_it";
    if std::env::var_os(CHILD).is_some() {
        // SAFETY: no core is to be written.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 }) };
        let group = group();
        group.ledger().root().set_max(Limit::units(4 * MAX)).unwrap();
        group.scope(|| drop(vec![0u8; 5 * MAX as usize]));
        return;
    }
    let output = again(NAME).env(CHILD, "1").output().unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(signal, Some(libc::SIGABRT), "{stderr}");
    assert!(stderr.contains("ledgerline: / is full (max 4M): /query was refused 5.0M"), "{stderr}");
}

/// The runaway fills the root, and ends while another group waits for room there.
#[test]
fn an_allocation_waits_at_a_full_root_while_another_group_is_to_give_way() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    let [runaway, small] = ["runaway", "small"].map(|name| ledger.root().create(name).unwrap());
    runaway.set_max(Limit::units(MAX)).unwrap();
    let held = runaway.scope(|| vec![1u8; 4 * MAX as usize]);
    ledger.root().set_max(Limit::units(4 * MAX)).unwrap();
    assert_eq!(runaway.over(), 3 * MAX);
    let before = ledger.root().peak().value;
    let begun = std::sync::Barrier::new(2);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            begun.wait();
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(held);
        });
        begun.wait();
        assert_eq!(small.catch(|| vec![0u8; 4096].len()).unwrap(), 4096);
    });
    assert!(
        ledger.root().peak().value <= before,
        "it waited, and did not go over the root's limit"
    );
    assert_eq!((ledger.root().precise(), small.max_events()), (0, 0));
}

#[test]
fn a_neighbour_of_a_runaway_is_granted_what_the_tenant_has_no_room_for() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    let tenant = ledger.root().create("acme").unwrap();
    tenant.set_max(Limit::units(4 * MAX)).unwrap();
    let [runaway, small] = ["runaway", "small"].map(|name| tenant.create(name).unwrap());
    runaway.set_max(Limit::units(MAX)).unwrap();
    let held = runaway.scope(|| vec![1u8; 5 * MAX as usize]);
    assert!(tenant.over() > 0);
    // Within its own limits, as it has none.
    assert_eq!(small.catch(|| vec![0u8; 4096].len()).unwrap(), 4096);
    assert_eq!(small.stat().get("refused").unwrap().subtree, 0);
    // By no more than the runaway's excess.
    let greedy = small.catch(|| vec![0u8; 4 * MAX as usize].len());
    assert_eq!(greedy.unwrap_err().group, "/acme");
    drop(held);
    // If no other group is over its limit, the requesting one is refused.
    let alone = small.catch(|| vec![0u8; 5 * MAX as usize].len());
    assert_eq!(alone.unwrap_err().group, "/acme");
}
