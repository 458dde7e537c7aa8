//! What happens at a limit: null, an overdraft, or an unwinding refusal.

use crate::charge::explain;
use crate::error::Refused;
use crate::group::Group;
use crate::stock::refusal::{Reason, Refusal};
use crate::whose::{self, granting};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// How much a [`Group::catch`] may overdraw.
pub const OVERDRAFT: u64 = if cfg!(feature = "unwind") { 0 } else { 1 << 20 };

/// What a thread knows of the catch that it is in.
#[derive(Clone, Copy)]
struct Catch {
    active: bool,
    /// What may still be granted over the limit.
    overdraft: u64,
    /// The first refusal that was not raised yet.
    pending: Option<(Group<'static>, Refusal)>,
}

impl Catch {
    const NONE: Catch = Catch { active: false, overdraft: 0, pending: None };
}

thread_local! {
    // Constants without destructors: they are there before `main`, and until the thread's last instruction.
    static CATCH: Cell<Catch> = const { Cell::new(Catch::NONE) };
    static LAST: Cell<Option<(Group<'static>, Refusal)>> = const { Cell::new(None) };
}

/// Whether a charge that a limit refused is granted over the limit.
pub(super) enum Granted {
    Yes,
    No,
    /// It would be, but the group ended meanwhile.
    Gone,
}

/// Decides about a charge that a limit refused. Allocates nothing.
pub(super) fn grants(group: Group<'static>, units: u64, refusal: Refusal) -> Granted {
    let over = || match group.charge_units(units) {
        Ok(()) => Granted::Yes,
        Err(Refusal { reason: Reason::Gone, .. }) => Granted::Gone,
        Err(_) => Granted::No,
    };
    if whose::is_granting() {
        return over();
    }
    LAST.set(Some((group, refusal)));
    let mut state = CATCH.get();
    if !state.active {
        return Granted::No;
    }
    // What unwinds must be able to run its destructors: a second panic would abort.
    if std::thread::panicking() {
        return over();
    }
    let Some(left) = state.overdraft.checked_sub(units) else { return Granted::No };
    let granted = over();
    if let Granted::Yes = granted {
        state.overdraft = left;
        state.pending = state.pending.or(Some((group, refusal)));
        CATCH.set(state);
    }
    granted
}

/// No limit refused what the allocator beneath could not give.
pub(super) fn forget() {
    LAST.set(None);
}

/// Why the last allocation of this thread that was refused was refused; `None` if none was, or if since then the
/// allocator beneath had no memory.
///
/// An allocation that a limit refuses is null, of which `try_reserve` makes an error that does not say why:
///
/// ```
/// use ledgerline::{Alloc, Ledger, Limit, alloc};
///
/// #[global_allocator]
/// static ALLOC: Alloc = Alloc::system();
///
/// let ledger = Ledger::new()?.into_static();
/// let query = ledger.root().create("q42")?;
/// query.set_max(Limit::units(1 << 20))?;
/// query.scope(|| {
///     let mut rows: Vec<u8> = Vec::new();
///     assert!(rows.try_reserve(2 << 20).is_err());
/// });
/// let refusal = alloc::last_refusal().expect("a limit refused it");
/// assert_eq!((refusal.group, refusal.limit), (query.id(), 1 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Allocates nothing.
pub fn last_refusal() -> Option<Refusal> {
    LAST.get().map(|(_, refusal)| refusal)
}

/// Raises the refusal that is pending in this thread, if one is: unwinds with a [`Refused`] to the
/// [`catch`](Group::catch) around it. To be called where a query can well end: at the top of a loop over batches. Does
/// nothing outside of a `catch`, and while the thread unwinds already. Costs two loads.
///
/// # Panics
/// If a refusal is pending. (No message is printed.)
#[inline]
pub fn checkpoint() {
    if CATCH.with(|state| state.get().pending.is_some()) {
        raise_pending();
    }
}

#[cold]
#[inline(never)]
fn raise_pending() {
    if std::thread::panicking() {
        return;
    }
    let mut state = CATCH.get();
    if let Some((group, refusal)) = state.pending.take() {
        CATCH.set(state);
        raise(group, &refusal);
    }
}

/// Unwinds with a refusal.
fn raise(group: Group<'static>, refusal: &Refusal) -> ! {
    let payload = whose::nobody(|| Box::new(explain(group, refusal)));
    // From here on the thread panics, so that `grants` lets destructors have what they ask for.
    resume_unwind(payload)
}

impl Group<'static> {
    /// Runs `work` with this as the thread's current group, and returns what it returned, or the first [`Refused`] of
    /// an allocation in it: so that the query fails and not the process.
    ///
    /// A program whose allocation fails aborts (`handle_alloc_error`), unless it asked by `try_reserve`. Within `catch`:
    ///
    /// * **With the feature `unwind`** an allocation that a limit refuses is null for whoever can deal with that; for all
    ///   others the `Refused` unwinds from the very place. Such a build needs a nightly compiler, or on a stable one
    ///   `RUSTC_BOOTSTRAP = "ledgerline"` under `[env]` in `.cargo/config.toml`, since the hook of std that it takes
    ///   (`alloc_error_hook`) is not stable.
    /// * **Without it** an allocation that a limit refuses is granted over the limit, as long as all of those together
    ///   stay within an overdraft of 1 MiB ([`catch_within`](Self::catch_within) sets another). The refusal is
    ///   *pending* then. It is raised at the next [`checkpoint`](super::checkpoint), or at the end of `work` at the
    ///   latest, whose result is dropped. An allocation beyond the overdraft is null, and aborts as ever where nobody
    ///   deals with that.
    ///
    /// While the thread unwinds within `catch`, its allocations are granted over the limit, so that destructors can work.
    /// A process built with `panic = "abort"` aborts, and so does one whose refusal would unwind through foreign frames
    /// (`extern "C"`). Where the machine has no memory left the process aborts as ever.
    ///
    /// ```
    /// use ledgerline::{Alloc, Ledger, Limit, alloc};
    ///
    /// #[global_allocator]
    /// static ALLOC: Alloc = Alloc::system();
    ///
    /// let ledger = Ledger::new()?.into_static();
    /// let query = ledger.root().create("q42")?;
    /// query.set_max(Limit::units(1 << 20))?;
    /// let result = query.catch(|| {
    ///     let mut rows = Vec::new();
    ///     for row in 0..1_000_000u32 {
    ///         alloc::checkpoint();
    ///         rows.push(row.to_string());
    ///     }
    ///     rows.len()
    /// });
    /// assert_eq!(result.unwrap_err().group, "/q42");
    /// assert_eq!(query.precise(), 0, "all was freed while it unwound");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first refusal that `work` did not deal with. (One that `work` was told by `try_reserve` is none, but with an
    /// overdraft it may be: nobody can tell who asks.)
    ///
    /// # Panics
    /// If `work` panics with anything else than a [`Refused`].
    pub fn catch<R>(self, work: impl FnOnce() -> R) -> Result<R, Refused> {
        self.catch_within(OVERDRAFT, work)
    }

    /// As [`catch`](Self::catch) with an overdraft of so many bytes. With 0 every allocation that a limit refuses is
    /// null. (So it is with the feature `unwind`, where `catch` has none.)
    ///
    /// # Errors
    /// As `catch`.
    ///
    /// # Panics
    /// As `catch`.
    pub fn catch_within<R>(self, overdraft: u64, work: impl FnOnce() -> R) -> Result<R, Refused> {
        #[cfg(feature = "unwind")]
        hook::install();
        let before = CATCH.replace(Catch { active: true, overdraft, pending: None });
        let result = catch_unwind(AssertUnwindSafe(|| self.scope(work)));
        let pending = CATCH.replace(before).pending;
        match (result, pending) {
            (Ok(value), None) => Ok(value),
            (Ok(value), Some((group, refusal))) => {
                granting(|| self.scope(|| drop(value)));
                Err(explain(group, &refusal))
            }
            (Err(payload), _) => match payload.downcast::<Refused>() {
                Ok(refused) => Err(*refused),
                Err(other) => resume_unwind(other),
            },
        }
    }
}

/// The hook that std calls when an allocation failed and nobody deals with that.
#[cfg(feature = "unwind")]
mod hook {
    use super::{CATCH, LAST, raise};
    use std::alloc::{Layout, set_alloc_error_hook, take_alloc_error_hook};
    use std::sync::OnceLock;

    static BEFORE: OnceLock<fn(Layout)> = OnceLock::new();

    /// Takes the hook, once a process; who had it before is called where no limit refused anything.
    pub(super) fn install() {
        BEFORE.get_or_init(|| {
            let before = take_alloc_error_hook();
            set_alloc_error_hook(on_failure);
            before
        });
    }

    fn on_failure(layout: Layout) {
        if CATCH.get().active
            && !std::thread::panicking()
            && let Some((group, refusal)) = LAST.get()
        {
            raise(group, &refusal);
        }
        if let Some(before) = BEFORE.get() {
            before(layout);
        }
    }
}
