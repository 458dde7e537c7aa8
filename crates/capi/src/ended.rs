//! Processes that shared a ledger and ended: their units are returned, and their groups make room.

use crate::border::{self, existing, run, set_if_asked};
use crate::types::ledgerline_code_t;
use crate::types::{ledgerline_group_t, ledgerline_ledger_t};
use ledgerline::Group;
use ledgerline_protocol::Identity;

/// Returns whether the owner of a row may still hold memory. An owner that is no process id of this namespace may:
/// the ledger of `ledgerline run` names processes of other namespaces in that way.
fn alive(owner: u32) -> bool {
    let own = std::process::id();
    let here = Identity::new(own, 0).expect("a process can tell itself from others");
    owner == own || Identity::from_owner(owner).may_live(here)
}

/// Settles the units that ended processes still hold in a ledger in a file, whether they exited or were killed. The
/// units go back to the groups above, and their number is stored in `units`, which may be NULL. Until then they
/// count, also towards limits, and the groups of those processes are like those of living ones. Nothing settles
/// automatically: call this after a charge was refused, before the next try, or every few seconds. Any process that
/// has the ledger open may call it, attached or not, and each unit goes back once. If another process is settling,
/// this waits a fifth of a second at most, and then settles nothing.
///
/// The groups of those processes no longer exist. Snapshots have them as LEDGERLINE_STATE_EXITED, until
/// ledgerline_fold_ended takes them out. Groups of no process stay as they are: those that the process which made the
/// file creates below the root without ledgerline_ledger_attach. A process that is killed in the middle of a charge
/// may leave the groups above too full by that charge, for good.
///
/// A process has ended when the kernel has no process of its number, or only a zombie of which no thread runs. So all
/// processes that attach must be in one PID namespace: the units of a process in another one are settled while it
/// lives. Zombies are recognised by /proc; without it, a process has ended when its parent has waited for it. If
/// another process has got the number, the units go back when that one ends, or attaches to this ledger itself.
///
/// Costs a pass over the groups, and a few system calls for each process.
///
/// Errors: LEDGERLINE_ERROR_HANDLE. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_settle_dead(
    ledger: ledgerline_ledger_t,
    units: *mut u64,
) -> ledgerline_code_t {
    run(|| {
        let visit = border::ledger(ledger)?;
        let settled = visit.ledger().settle_dead(&alive);
        // SAFETY: as the header asks of the caller.
        unsafe { set_if_asked(units, || settled) }
    })
}

/// Folds the groups of processes that ended and were settled (ledgerline_settle_dead) into a group with the same
/// parent, so that a ledger has room for any number of processes in succession. For processes that attached, that is
/// a group right below the root. It gets their counts, the units that they held at their ends, and their highest
/// peak. Their own groups are gone from snapshots. The number of folded processes is stored in `processes`, which may
/// be NULL: none while another process folds or settles.
///
/// Costs a pass over the groups, and memory for a list.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_fold_ended(
    into: ledgerline_group_t,
    processes: *mut u64,
) -> ledgerline_code_t {
    run(|| {
        let named = existing(into)?;
        let ledger = named.visit.ledger();
        let ended: Vec<Group<'_>> = ledger.ended().collect();
        let folded = ledger.fold_ended(&ended, named.group()).len() as u64;
        // SAFETY: as the header asks of the caller.
        unsafe { set_if_asked(processes, || folded) }
    })
}
