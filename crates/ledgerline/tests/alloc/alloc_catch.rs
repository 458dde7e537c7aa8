//! `Group::catch` without the feature `unwind`: an overdraft, and a refusal that is raised at a checkpoint.

use crate::common::again;
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
    assert!(peak.value <= MAX + alloc::OVERDRAFT, "{peak:?}");
    // The group goes on.
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
    // Who dealt with nothing has no refusal; nor has the next.
    assert!(group.catch(|| ()).is_ok());
}

#[test]
fn beyond_the_overdraft_an_allocation_is_null() {
    let group = group();
    let result = group.catch_within(1000, || {
        let all = vec![0u8; MAX as usize];
        let over = vec![0u8; 600];
        let mut more = Vec::<u8>::new();
        assert!(more.try_reserve_exact(401).is_err(), "401 of 400");
        assert!(more.try_reserve_exact(400).is_ok());
        assert!(Vec::<u8>::new().try_reserve_exact(1).is_err());
        assert_eq!(group.precise(), MAX + 1000);
        drop((all, over, more));
    });
    assert_eq!(result.unwrap_err().requested, 600, "the first");
    let result = group.catch_within(0, || {
        assert!(Vec::<u8>::new().try_reserve_exact(MAX as usize + 1).is_err());
    });
    assert!(result.is_ok(), "the work dealt with it");
}

#[test]
fn destructors_allocate_over_the_limit_while_it_unwinds() {
    struct Says(Vec<u8>);
    impl Drop for Says {
        fn drop(&mut self) {
            // More than any overdraft.
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
    // Outside the limit holds as ever.
    group.scope(|| assert!(Vec::<u8>::new().try_reserve_exact(MAX as usize + 1).is_err()));
}

#[test]
fn catches_nest_and_other_panics_pass_through() {
    let [outer, inner] = [group(), group()];
    let result = outer.catch(|| {
        let refused = inner.catch(too_much).unwrap_err();
        assert_eq!(refused.refusal.group, inner.id());
        alloc::checkpoint();
        // Outside of the inner one this is the outer group's again.
        vec![0u8; MAX as usize / 2].len()
    });
    assert_eq!(result.unwrap(), MAX as usize / 2);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        outer.catch(|| std::panic::resume_unwind(Box::new("other")))
    }));
    assert_eq!(*panic.map(|_: Result<(), _>| ()).unwrap_err().downcast::<&str>().unwrap(), "other");
    assert_eq!((outer.precise(), current::group()), (0, None));
    // Nobody is in a catch: a checkpoint does nothing.
    alloc::checkpoint();
}

#[test]
fn outside_of_a_catch_the_process_aborts_as_documented() {
    const CHILD: &str = "LEDGERLINE_TEST_ABORTS";
    const NAME: &str = "outside_of_a_catch_the_process_aborts_as_documented";
    if std::env::var_os(CHILD).is_some() {
        // SAFETY: no core is to be written.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 }) };
        group().scope(|| drop(vec![0u8; MAX as usize + 1]));
        return;
    }
    let output = again(NAME).env(CHILD, "1").output().unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(signal, Some(libc::SIGABRT), "{stderr}");
    assert!(stderr.contains("memory allocation of 1048577 bytes failed"), "{stderr}");
}
