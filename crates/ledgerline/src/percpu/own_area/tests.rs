//! Tests that ask the kernel about registrations, each in separate threads.

use super::*;
use crate::percpu::{Array, Mode, detect};
use crate::{Ledger, percpu::registration};
use std::sync::atomic::AtomicI32;
use std::sync::{Barrier, mpsc};

/// Returns whether this library's area is registered for the calling thread: the kernel answers that exactly this
/// area is busy.
fn is_registered() -> bool {
    match rseq(mine(), 0) {
        Err(libc::EBUSY) => true,
        Ok(()) => {
            assert_eq!(rseq(mine(), UNREGISTER), Ok(()));
            false
        }
        Err(libc::EINVAL) => false,
        Err(error) => panic!("rseq: {error}"),
    }
}

/// Returns whether there are sections here, so that there is something to test.
fn sections() -> bool {
    let there = detect() == Mode::Rseq;
    if !there {
        eprintln!("skipped: no restartable sequences here");
    }
    there
}

fn in_a_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(act).join().unwrap())
}

/// An area of other code, registered for the calling thread.
#[repr(align(32))]
struct Others([u8; AREA]);

impl Others {
    fn call(&self, flags: libc::c_int) -> libc::c_long {
        // SAFETY: the area outlives its registration, in the tests below.
        unsafe { libc::syscall(libc::SYS_rseq, self.0.as_ptr(), AREA as u32, flags, SIGNATURE) }
    }
}

#[test]
fn the_kernel_aborts_sections_where_the_library_registered_them() {
    // Checked only if the environment forces no mode. Without kernel support `adopt` fails.
    if std::env::var_os("LEDGERLINE_PERCPU").is_none() && registration::adopt().is_ok() {
        assert_eq!(detect(), Mode::Rseq);
    }
}

#[test]
fn a_thread_is_registered_by_its_first_charge_and_fast_from_then_on() {
    if !sections() {
        return;
    }
    let ledger = Ledger::new().unwrap();
    let group = ledger.root().create("g").unwrap();
    in_a_thread(|| {
        assert!(!is_registered() && fast() == 0);
        drop(group.try_charge(100).unwrap());
        assert!(is_registered());
        assert_eq!(fast(), registration::adopt().unwrap().compact_area());
    });
    in_a_thread(|| {
        let array = Array::new(1).unwrap();
        array.add(0, 7);
        assert!(is_registered());
        assert_eq!(array.sum(0), 7);
    });
    assert_eq!(group.precise(), 0);
}

/// Uses a key's destructor that runs after this library's, since its key was made later.
#[test]
fn a_thread_that_ends_is_unregistered_before_its_memory_goes() {
    static SEEN: AtomicI32 = AtomicI32::new(-1);
    static CHARGES: OnceLock<Ledger> = OnceLock::new();
    extern "C" fn later(_: *mut c_void) {
        let group = CHARGES.get().unwrap().root();
        let charged: u64 = (0..1000).map(|_| u64::from(group.try_charge_units(64).is_ok())).sum();
        let registered = is_registered() || fast() != 0;
        SEEN.store(i32::from(registered) + 2 * i32::from(charged == 1000), Ordering::SeqCst);
    }
    if !sections() {
        return;
    }
    let ledger = CHARGES.get_or_init(|| Ledger::new().unwrap());
    let mut key = 0;
    // SAFETY: writes the key; the destructor is a function.
    unsafe { assert_eq!(libc::pthread_key_create(&raw mut key, Some(later)), 0) };
    in_a_thread(|| {
        drop(ledger.root().try_charge(100).unwrap());
        // SAFETY: the key was made above.
        unsafe { libc::pthread_setspecific(key, ptr::from_ref(ledger).cast()) };
        assert!(is_registered());
    });
    // A scope waits for a thread's closure, not for the thread's end.
    let began = std::time::Instant::now();
    while SEEN.load(Ordering::SeqCst) == -1 && began.elapsed().as_secs() < 30 {
        std::thread::yield_now();
    }
    assert_eq!(SEEN.load(Ordering::SeqCst), 2, "unregistered, and it charges all the same");
    assert_eq!(ledger.root().precise(), 64_000);
    ledger.root().uncharge_units(64_000);
    assert_eq!(ledger.root().precise(), 0);
}

/// Strangers and registered threads at the same time lose nothing: neither charges, nor sums, nor counters.
#[test]
fn what_others_registered_stays_and_its_thread_adds_by_atomics() {
    if !sections() {
        return;
    }
    let ledger = Ledger::builder().items(&["rows"]).anonymous().unwrap();
    let group = ledger.root().create("g").unwrap();
    let rows = ledger.item("rows").unwrap();
    let array = Array::new(1).unwrap();
    let sum = crate::stat::tree::Sum::new(32).unwrap();
    let (start, kept) = (Barrier::new(6), mpsc::channel());
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (start, array, sum, kept) = (&start, &array, &sum, kept.0.clone());
            scope.spawn(move || {
                let others = Box::leak(Box::new(Others([0; AREA])));
                let stranger = thread % 2 == 1;
                assert!(!stranger || others.call(0) == 0);
                start.wait();
                for turn in 0..20_000u64 {
                    let charge = group.try_charge_units(1 + turn % 7);
                    assert!(charge.is_ok());
                    if turn % 3 > 0 {
                        group.uncharge_units(1 + turn % 7);
                    } else {
                        kept.send(1 + turn % 7).unwrap();
                    }
                    array.add(0, 1);
                    sum.add(1);
                    group.add_stat(rows, 1);
                }
                assert_eq!(fast() == 0, stranger);
                assert_eq!(others.call(UNREGISTER) == 0, stranger, "his area was left alone");
            });
        }
    });
    drop(kept.0);
    let held: u64 = kept.1.iter().sum();
    assert_eq!(group.precise(), held);
    assert_eq!((array.sum(0), sum.precise()), (120_000, 120_000));
    assert_eq!(group.stat().get("rows").unwrap().subtree, 120_000);
    group.uncharge_units(held);
    assert_eq!(ledger.root().precise(), 0);
}

#[test]
fn a_forked_child_keeps_its_registration() {
    if !sections() {
        return;
    }
    in_a_thread(|| {
        assert!(join());
        // SAFETY: the child asks the kernel and ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(rseq(mine(), 0) == Err(libc::EBUSY)));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 1));
        }
    });
}

/// Thousands of threads come and go, including detached ones, whose memory is freed while they run.
#[test]
fn ten_thousand_threads_end_and_nothing_is_written_to_their_memory() {
    if !sections() {
        return;
    }
    let ledger = Ledger::new().unwrap();
    let group = ledger.root().create("g").unwrap();
    static ENDED: AtomicI32 = AtomicI32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2500 {
                    // The thread is detached: no thread joins it.
                    let (sent, done) = mpsc::channel();
                    let array = Array::new(1).unwrap();
                    drop(std::thread::spawn(move || {
                        array.add(0, 1);
                        sent.send(is_registered()).unwrap();
                    }));
                    assert_eq!(done.recv(), Ok(true));
                    drop(group.try_charge(64).unwrap());
                    ENDED.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(ENDED.load(Ordering::Relaxed), 10_000);
    assert_eq!(group.precise(), 0);
}
