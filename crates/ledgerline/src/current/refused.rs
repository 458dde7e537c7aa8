//! Ends work whose scope was refused: raises the refusal at a point where the work can safely end.

use super::{Current, peek};
use crate::charge::explain;
use crate::error::Refused;
use crate::group::Group;
use crate::scope::{self, Held};
use crate::table::handle::Packed;
use crate::table::path::leads_through;
use crate::whose;
use std::panic::resume_unwind;
#[cfg(feature = "rayon")]
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Raises the refusal of the work that runs here, if one of its allocations was refused, in any of its parts. Unwinds
/// with a [`Refused`] to the [`catch`](Group::catch) around it, or to the end of the thread, task or job that is a
/// part of it. Call it where a query can safely end: at the top of a loop over batches. Does nothing outside of a
/// `catch`, or while the thread already unwinds. Costs two loads.
///
/// # Panics
/// If the work was refused. No message is printed.
#[inline]
pub fn checkpoint() {
    let scope = whose::scope();
    if scope.is_named()
        && let Some(refused) = scope::refused(scope)
    {
        raise(&refused);
    }
}

#[cold]
#[inline(never)]
fn raise(scope: &Held) {
    if std::thread::panicking() {
        return;
    }
    if let Some(refused) = told(scope) {
        // From here on the thread panics, so allocations in destructors are not accounted.
        resume_unwind(whose::nobody(|| Box::new(refused)));
    }
}

/// Returns the refusal of a scope, with its text.
pub(crate) fn told(scope: &Held) -> Option<Refused> {
    let (group, refusal) = scope.refused()?;
    Some(explain(Group::<'static>::unpack(group), &refusal))
}

/// Returns a handle to the scope of the work that is made here.
pub(crate) fn held() -> Option<Held> {
    Held::new(peek().scope)
}

/// Runs a part of some work whose panics are not caught. A refusal ends this part and nothing else, since the work
/// itself is refused.
#[cfg(feature = "rayon")]
pub(crate) fn contained(part: impl FnOnce()) {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        checkpoint();
        part();
    }));
    if let Err(payload) = ended
        && !payload.is::<Refused>()
    {
        resume_unwind(payload);
    }
}

/// Gives a polled future without a scope of its own the scope of its poller, if that is of the same group or of one
/// above. So a task in a group may be awaited inside of a `catch` of that group. A task of another group that a
/// runtime polls on top of a `catch` is not part of that `catch`.
#[inline]
pub(crate) fn joined(current: Current) -> Current {
    let around = peek().scope;
    if !current.scope.is_unsaid() || around.is_unsaid() {
        return current;
    }
    current.within(join(current.group, around))
}

/// Returns the scope in which work of a group begins: the one around it, if that is of the same group or of one
/// above. Rayon's workers run other jobs while they wait, so a job that begins with a `catch` may lie on top of an
/// unrelated one. A reclaimer has no group of its own, and the work that it begins stays inside of it.
pub(crate) fn outer(group: Option<Packed>) -> scope::ScopeId {
    let around = peek().scope;
    match scope::group(around) {
        Some(_) => join(group, around),
        None => around,
    }
}

#[cold]
#[inline(never)]
fn join(own: Option<Packed>, around: scope::ScopeId) -> scope::ScopeId {
    let Some(own) = own.filter(|_| around.is_named()) else { return around };
    let Some(top) = scope::group(around) else { return scope::ScopeId::NONE };
    if own == top {
        return around;
    }
    let (own, top) = (Group::<'static>::unpack(own), Group::<'static>::unpack(top));
    let (row, top_row) = (own.id().index(), top.id().index());
    let is_below = own.ledger().is(top.ledger()) && leads_through(own.table(), row, top_row);
    if is_below { around } else { scope::ScopeId::NONE }
}
