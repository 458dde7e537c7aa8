//! A debugger that steps through the library, by the trap flag of x86-64: each step is a signal, and restarts the section that
//! the thread is in.

use crate::common::ran_alone;
use ledgerline::{Ledger, Limit};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// More steps than any call here takes that makes progress at all.
const MOST: usize = 300_000;
static STEPS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn step(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if STEPS.fetch_add(1, Relaxed) + 1 >= MOST {
        // SAFETY: the kernel's context of this signal, from which the thread continues without steps.
        unsafe {
            let context = &mut *context.cast::<libc::ucontext_t>();
            context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !0x100;
        }
    }
}

/// Runs `work` with a trap after each of its instructions. Returns the number of traps.
#[inline(never)]
fn steps_of(work: impl FnOnce()) -> usize {
    STEPS.store(0, Relaxed);
    // SAFETY: the trap flag is set and cleared; its handler is installed.
    unsafe {
        std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        work();
        std::arch::asm!("pushfq", "and qword ptr [rsp], 0xfffffffffffffeff", "popfq");
    }
    STEPS.load(Relaxed)
}

fn hear_steps() {
    // SAFETY: the handler touches only an atomic and its context.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn charges_and_all_that_groups_do_go_on_under_a_debugger_that_steps() {
    // On machines without sections nothing is restarted.
    if ran_alone("charges_and_all_that_groups_do_go_on_under_a_debugger_that_steps") {
        return;
    }
    hear_steps();
    let ledger = Ledger::builder().capacity(16).items(&["rows"]).anonymous().unwrap();
    let item = ledger.item("rows").unwrap();
    let tenant = ledger.root().create("tenant").unwrap();
    let group = tenant.create("query").unwrap();
    group.set_max(Limit::units(1 << 20)).unwrap();
    // The cells serve the group before stepping begins.
    for _ in 0..10 {
        group.try_charge_units(64).unwrap();
        group.uncharge_units(64);
        group.add_stat(item, 1);
    }
    let works: [(&str, &dyn Fn()); 4] = [
        ("charge", &|| group.try_charge_units(64).unwrap()),
        ("uncharge", &|| group.uncharge_units(64)),
        ("refusal", &|| drop(group.try_charge(2 << 20).unwrap_err())),
        ("add_stat", &|| group.add_stat(item, 1)),
    ];
    for (name, work) in works {
        let steps = steps_of(work);
        assert!(0 < steps && steps < MOST, "{name} took {steps} steps");
    }
    let steps = steps_of(|| {
        let other = tenant.create("other").unwrap();
        drop(other.try_charge(5000).unwrap());
        assert_eq!(other.destroy().unwrap().leftover, 0);
    });
    assert!(steps < MOST, "a group's life took {steps} steps");
    let stat = group.stat();
    let of = |name: &str| stat.get(name).unwrap().own;
    assert_eq!((of("rows"), of("refused"), of("blocks_live")), (11, 1, 0));
    assert_eq!((group.precise(), ledger.mistakes().underflows), (0, 0));
}
