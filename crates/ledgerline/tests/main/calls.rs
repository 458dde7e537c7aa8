//! A process with filtered system calls charges without any system call.

use crate::common::{fork, ran_alone, times, wait};
use crate::support::{allowed_cpus, pin};
use ledgerline::percpu::{self, Mode};
use ledgerline::{Ledger, Limit};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Installs a filter for one system call: it gets the action `with`, and all others get `without`.
fn filter(call: libc::c_long, with: u32, without: u32) {
    let instruction =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The number of the call, which comes first.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, with),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, without),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which lives through the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

/// From here on each system call but `exit_group` ends the process.
fn forbid_all() {
    filter(libc::SYS_exit_group, libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS);
}

/// Leaves prepaid units in the cells of several CPUs.
fn leave_stock(ledger: &Ledger, cpus: &[usize]) {
    let meet = Barrier::new(cpus.len());
    std::thread::scope(|scope| {
        for cpu in cpus {
            let meet = &meet;
            scope.spawn(move || {
                pin(&[*cpu]);
                meet.wait();
                let group = ledger.root();
                for _ in 0..100_000 {
                    group.charge_units(1000).unwrap();
                    group.uncharge_units(1000);
                }
            });
        }
    });
}

#[test]
fn a_refusal_under_a_filter_leaves_the_stock_of_other_cpus_where_it_is() {
    if ran_alone("a_refusal_under_a_filter_leaves_the_stock_of_other_cpus_where_it_is") {
        return;
    }
    if percpu::detect() == Mode::Fallback {
        return eprintln!("left out: nothing is fenced in the fallback");
    }
    let cpus = allowed_cpus();
    let [one, other, ..] = cpus[..] else {
        return eprintln!("left out: there is one CPU, and so one cell");
    };
    const MAX: u64 = 1 << 20;
    let ledger = Ledger::builder().capacity(16).batch(64 << 10).anonymous().unwrap();
    ledger.root().set_max(Limit::units(MAX)).unwrap();
    let group = ledger.root().create("a").unwrap();
    // The child's copy has the stock that its parent's threads left.
    let charge = |forbidden: bool| {
        wait(fork(|| {
            Ledger::forbid_system_calls(forbidden);
            forbid_all();
            let refused = group.try_charge_units(MAX).is_err();
            if group.try_charge_units(1000).is_err() {
                return 3;
            }
            group.uncharge_units(1000);
            i32::from(refused)
        }))
    };
    // Without the restriction it takes the stock back. That needs fences if both threads ran at the same time, and so left
    // stock in two cells.
    let fences = |_| {
        leave_stock(&ledger, &[one, other]);
        charge(false) == -libc::SIGSYS
    };
    assert!((0..50).any(fences), "no stock lies in another CPU's cell");
    // Otherwise it leaves the stock where it is, and refuses for lack of it.
    assert_eq!(charge(true), 1);
    assert_eq!(ledger.root().try_charge(MAX).map(|charge| charge.units()).ok(), Some(MAX));
}

/// Ends threads when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Imitates a server that installs a filter some time after its start, and has a group for each query.
#[test]
fn groups_end_and_stock_is_drained_where_membarrier_is_refused_after_the_start() {
    if ran_alone("groups_end_and_stock_is_drained_where_membarrier_is_refused_after_the_start") {
        return;
    }
    let ledger = Ledger::builder().capacity(16).anonymous().unwrap();
    let tenant = ledger.root().create("tenant").unwrap();
    if ledger.mode() == Mode::Owned {
        return eprintln!(
            "skipped: this is for restartable sequences, and a mode that needs no fence"
        );
    }
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    filter(libc::SYS_membarrier, refuse, libc::SECCOMP_RET_ALLOW);
    let (queries, charges) = (times(200, 5_000), 50);
    // A group that stays in use on all CPUs while the others end.
    let long = tenant.create("long").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for cpu in allowed_cpus() {
            let over = &over;
            scope.spawn(move || {
                pin(&[cpu]);
                while !over.load(Relaxed) {
                    drop(long.try_charge(500).unwrap());
                }
            });
        }
        // Also if an assertion fails.
        let _over = Over(&over);
        for n in 0..queries {
            let query = tenant.create(&format!("q{n}")).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| (0..charges).for_each(|_| drop(query.try_charge(500).unwrap())));
                }
            });
            let settled = query.destroy().unwrap();
            let counts = (settled.charges, settled.uncharges, settled.leftover);
            assert_eq!(counts, (2 * charges, 2 * charges, 0));
            if n % 8 == 0 {
                long.drain();
            }
        }
    });
    let settled = long.destroy().unwrap();
    assert_eq!((settled.charges, settled.leftover), (settled.uncharges, 0));
    assert_eq!((tenant.children().count(), tenant.precise()), (0, 0));
    assert_eq!(
        tenant.stat().get("blocks_total").unwrap().subtree as u64,
        settled.charges + queries * 2 * charges
    );
    ledger.root().drain();
    assert_eq!((ledger.root().precise(), ledger.mistakes().underflows), (0, 0));
}
