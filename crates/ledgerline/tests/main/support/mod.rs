//! Shared by the modules of this binary, beyond `common`.

pub mod control;
pub mod oracle;
pub mod public;
pub mod stage;
pub mod tasks;

use crate::common::{Random, Run, in_modes, long, unique};
use ledgerline::{Group, Ledger, LedgerBuilder, Limit, Mistakes};
use std::time::Duration;

/// Longer than any wait takes. A waiter that exceeds it was forgotten.
pub const LONG: Duration = Duration::from_secs(100);

/// Like [`in_both_modes`](crate::common::in_both_modes), and also without thread registration by glibc.
#[track_caller]
pub fn in_all_modes(test: &str, body: impl FnOnce()) {
    // musl registers none of them, so there is nothing to switch off.
    let modes = if cfg!(target_env = "musl") { &Run::ALL[..3] } else { &Run::ALL };
    in_modes(test, modes, body);
}

/// Creates a group that may use so much.
pub fn limited<'l>(parent: Group<'l>, name: &str, max: u64) -> Group<'l> {
    let group = parent.create(name).or_else(|_| parent.create(&unique(name))).unwrap();
    group.set_max(Limit::units(max)).unwrap();
    group
}

/// Returns a duration: in every CI run, or in a long one.
pub fn seconds(ci: f64, in_long: f64) -> Duration {
    Duration::from_secs_f64(if long() { in_long } else { ci })
}

impl Random {
    /// Returns `true` with a chance of one in so many.
    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    /// Returns a size between 1 and 2^bits, small ones as likely as large ones.
    pub fn size(&mut self, bits: u64) -> u64 {
        let shift = self.below(bits + 1);
        1 + self.below(1 << shift)
    }
}

/// Returns the CPUs that this process may run on.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: the call fills the mask on the stack, which is plain bits.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Moves the calling thread to these CPUs.
pub fn pin(cpus: &[usize]) {
    // SAFETY: the call reads a mask on the stack, which is plain bits.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
    }
}

/// Returns whether a process exists.
pub fn alive(pid: u32) -> bool {
    // SAFETY: signal 0 asks only whether the process exists.
    unsafe { libc::kill(pid as i32, 0) == 0 }
}

/// Creates an audited ledger.
pub fn audited() -> Ledger {
    audited_builder().anonymous().unwrap()
}

pub fn audited_builder() -> LedgerBuilder {
    Ledger::builder().capacity(64).audit(true)
}

/// Returns the underflows, the strays, and the audit's findings.
pub fn mistakes(ledger: &Ledger) -> [u64; 3] {
    let Mistakes { underflows, strays, audited, .. } = ledger.mistakes();
    [underflows, strays, audited]
}
