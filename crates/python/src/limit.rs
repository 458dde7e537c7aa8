//! Decides about a request at a limit.
//!
//! ```text
//! a large block    is refused: NULL, which Python makes a MemoryError of, there and then
//! a small one      is granted from an overdraft, since few places expect that it fails; an error is raised at the next place where
//!                  Python looks for signals, if it is still in that group (`raise.rs`)
//! after the error  the handler may go over the limit by a little more, also in larger blocks
//! beyond all that  an error is raised for each small block; 16 MiB over the limit each is refused
//! ```

use crate::account::{Account, Fetched};
use crate::{raise, seen};
use ledgerline::Refusal;

/// The result of a request for units.
pub enum Taken {
    /// They were taken from this account.
    From(&'static Account),
    Nobody,
    /// A limit refused.
    Refused,
}

/// Takes units for a block of `size` bytes from an account.
#[inline(always)]
pub fn take(account: &'static Account, size: u64) -> Taken {
    match account.take(size) {
        Fetched::From(payer) => Taken::From(payer),
        Fetched::Nobody => Taken::Nobody,
        Fetched::Limited(payer, refusal) => decide(payer, refusal, size),
    }
}

/// Decides about a block that a limit refused to `payer`.
#[cold]
#[inline(never)]
fn decide(payer: &'static Account, refusal: Refusal, size: u64) -> Taken {
    let standing = &payer.standing;
    let may = standing.refused(refusal, size);
    raise::note(payer);
    let leaves = seen::is_leaving();
    if (leaves || may) && payer.take_over(size) {
        if !leaves {
            standing.granted(size);
            if standing.is_due(raise::is_main_thread()) {
                raise::ring(payer);
            }
        }
        return Taken::From(payer);
    }
    standing.refuse();
    Taken::Refused
}
