//! What happens when a limit says no.

use crate::process;
use crate::say::write;
use crate::text::Text;
use ledgerline::{Group, Refusal};
use ledgerline_protocol::{OnMax, alive};

/// Settles the rows of dead processes after a refusal, and charges if there is room then.
#[cold]
#[inline(never)]
pub(crate) fn try_again(group: Group<'_>, mut refusal: Refusal) -> bool {
    group.ledger().settle_dead(&alive);
    // This process or another may have made room. (The usage is looked at first, since a second refusal would count.)
    let usage = group.ledger().group(refusal.group).approximate().value;
    if usage.saturating_add(refusal.requested) <= refusal.limit {
        match group.try_charge_units(refusal.requested) {
            Ok(()) => return true,
            Err(again) => refusal = again,
        }
    }
    if process::on_max() == OnMax::Kill {
        kill(&refusal);
    }
    false
}

/// [`OnMax::Kill`]: says who refused and why, and ends the process.
fn kill(refusal: &Refusal) -> ! {
    let mut line = Text::line();
    line.push(b"killed: max of ").push_number(refusal.limit);
    line.push(b" bytes reached, ").push_number(refusal.usage);
    line.push(b" in use, ").push_number(refusal.requested);
    write(line.push(b" requested"));
    // SAFETY: signals this process; nothing runs after it.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
        libc::abort()
    }
}
