//! The global allocator in places where little works: before `main`, in destructors of threads, inside the ledger's own
//! calls and inside reclaimers. The re-entrancy test of `tracking-allocator` checks that code which runs around an
//! allocation may itself allocate; here that is checked for all of these places.

use crate::common::{again, ran_alone, unique};
use ledgerline::alloc::Policy;
use ledgerline::{Group, Ledger, Limit, Mistakes, Victim, alloc, current};
use std::cell::RefCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

static EARLY: OnceLock<(Group<'static>, Box<[u8; 1000]>)> = OnceLock::new();

/// Set in the process that the first test starts: there is a group before `main`.
const BEFORE: &CStr = c"LEDGERLINE_TEST_BEFORE_MAIN";

extern "C" fn before_main() {
    // The C library's function, since std's one allocates first.
    // SAFETY: the name is NUL-terminated, and there is one thread.
    if unsafe { libc::getenv(BEFORE.as_ptr()) }.is_null() {
        return;
    }
    // There is neither a current group nor a ledger.
    drop(vec![0u8; 100]);
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    ledger.set_alloc_policy(Policy::NULL);
    let group = ledger.root().create("early").unwrap();
    let block = group.scope(|| Box::new([0u8; 1000]));
    EARLY.set((group, block)).unwrap();
}

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = before_main;

#[test]
fn a_block_from_before_main_is_charged_to_its_group() {
    const NAME: &str = "a_block_from_before_main_is_charged_to_its_group";
    let Some((group, block)) = EARLY.get() else {
        let variable = BEFORE.to_str().unwrap();
        assert!(std::env::var_os(variable).is_none(), "it did not run before the tests");
        let output = again(NAME).env(variable, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        return assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    };
    assert_eq!((group.precise(), block.len()), (1000, 1000));
}

fn group() -> Group<'static> {
    let ledger = Ledger::builder().capacity(64).anonymous().unwrap().into_static();
    ledger.set_alloc_policy(Policy::NULL);
    ledger.root().create("query").unwrap()
}

#[test]
fn destructors_of_a_thread_allocate_and_free_in_its_group() {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    static KEPT: Mutex<Option<Box<[u8; 300]>>> = Mutex::new(None);

    struct AtEnd(Group<'static>, Vec<u8>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let block = Box::new([0u8; 300]);
            // The current group's, as long as the thread runs any code.
            SEEN.store(self.0.precise(), SeqCst);
            self.1 = vec![1; 50];
            *KEPT.lock().unwrap() = Some(block);
        }
    }
    thread_local! {
        static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
        static LATER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let group = group();
    std::thread::spawn(move || {
        // It stays entered for good.
        std::mem::forget(group.enter());
        AT_END.set(Some(AtEnd(group, vec![0; 2000])));
        LATER.with_borrow_mut(|later| later.resize(700, 0));
    })
    .join()
    .unwrap();
    let seen = SEEN.load(SeqCst);
    assert!((2300..=3000 + 300).contains(&seen), "{seen}");
    // Only the memory that the destructor kept outlives the thread. The thread's own result and name may be freed later.
    let kept = KEPT.lock().unwrap().take();
    let start = Instant::now();
    while group.precise() != 300 {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", group.precise());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(kept);
    assert_eq!(group.precise(), 0);
}

#[test]
fn reclaimers_allocate_and_free_in_the_very_group_that_they_reclaim_for() {
    let group = group();
    group.set_max(Limit::units(1 << 20)).unwrap();
    static CACHE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    *CACHE.lock().unwrap() = Vec::with_capacity(64);
    group.scope(|| CACHE.lock().unwrap().extend((0..30).map(|_| vec![0u8; 32 << 10])));
    let _reclaimer = group.add_reclaimer(0, move |wanted| {
        let _entered = group.enter();
        // This may be refused, and does not re-enter this reclaimer.
        let note = format!("{wanted} {:?}", Vec::<u8>::new().try_reserve_exact(1 << 20).is_err());
        let freed = current::unattributed(|| {
            let mut freed = 0;
            while freed < wanted
                && let Some(block) = CACHE.lock().unwrap().pop()
            {
                freed += block.len() as u64;
            }
            freed
        });
        drop(note);
        freed
    });
    let charge = group.scope(|| group.try_charge(500 << 10)).unwrap();
    assert!(CACHE.lock().unwrap().len() < 30);
    // An allocation asks no reclaimer.
    let left = CACHE.lock().unwrap().len();
    group.scope(|| assert!(Vec::<u8>::new().try_reserve_exact(900 << 10).is_err()));
    assert_eq!(CACHE.lock().unwrap().len(), left);
    drop(charge);
    CACHE.lock().unwrap().clear();
    assert_eq!(group.precise(), 0);
}

/// The ledger's own allocations in its calls are charged to the caller's group, and walk to the totals of the very tree that
/// the call reads.
#[test]
fn the_ledgers_own_calls_allocate_in_a_group_of_it_at_its_limit_while_others_do() {
    if ran_alone("the_ledgers_own_calls_allocate_in_a_group_of_it_at_its_limit_while_others_do") {
        return;
    }
    let ledger = Ledger::builder().batch(64).capacity(256).anonymous().unwrap().into_static();
    ledger.set_alloc_policy(Policy::NULL);
    let tenant = ledger.root().create("tenant").unwrap();
    tenant.set_max(Limit::units(3 << 20)).unwrap();
    let full = tenant.create("full").unwrap();
    full.set_max(Limit::units(1 << 20)).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        for seed in 0..2usize {
            scope.spawn(move || {
                let query = full.create(&unique("others")).unwrap();
                let mut kept: Vec<Vec<u8>> = Vec::with_capacity(100);
                let _entered = query.enter();
                for turn in 0.. {
                    if done.load(SeqCst) {
                        break;
                    }
                    let mut block = Vec::new();
                    if block.try_reserve_exact((turn * 7919 + seed) % (64 << 10) + 1).is_ok() {
                        kept.push(block);
                    } else {
                        kept.clear();
                    }
                    if kept.len() == 100 {
                        kept.truncate(30);
                    }
                }
            });
        }
        scope.spawn(move || {
            let query = tenant.create("calls").unwrap();
            let _entered = query.enter();
            let token = ledgerline::CancelToken::new();
            for _ in 0..60 {
                let _: Victim<'_> = query.add_victim(&token);
                let _reclaimer = query.add_reclaimer(0, |_| 0);
                let _watch = tenant.watch().unwrap();
                assert!(ledger.snapshot().groups.len() >= 3);
                assert!(!query.path().is_empty() && ledger.find("/tenant/calls").is_some());
                let _ = (ledger.leaks(), tenant.diagnose(), tenant.stat(), tenant.events());
                let _ = query.request(1).wait(Duration::from_micros(1)).charge();
                let short = query.create("short").unwrap();
                let block = short.scope(|| vec![0u8; 10]);
                short.set_mode(ledgerline::ControlMode::Measure);
                short.destroy_tree().unwrap();
                let _ = (tenant.drain(), tenant.precise());
                drop(block);
                let refused = tenant.try_charge(4 << 20).map(drop).unwrap_err();
                assert!(refused.to_string().contains("/tenant is full"));
            }
            done.store(true, SeqCst);
        });
    });
    // The ledger's own lists of victims and watches were allocated in a group.
    let kept = tenant.precise();
    assert!(kept < 4096, "{kept}");
    assert_eq!(ledger.mistakes(), Mistakes::default());
    assert_eq!(alloc::counts(), alloc::Counts::default());
}
