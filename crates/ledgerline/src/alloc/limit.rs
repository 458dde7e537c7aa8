//! Decides about an allocation that a limit refuses: a grant over the limit that marks the work, or null.
//!
//! ```text
//! a limit refuses an allocation
//!   the ledger's own work, or the end of refused work           granted
//!   policy null                                                 counted, null
//!   the level is an ancestor's: the work that is to give way
//!     ends (control/culprit.rs); if it is other work            granted below the root's limit
//!   else: the scope is marked; the first refusal is counted     granted below the root's limit, slowly beyond the allowance
//!   the root is full: waits while other work is to give way,
//!     at most the time of a victim                              granted, or from the allowance, or a line on stderr and null
//! ```

#[cfg(feature = "unwind")]
use crate::charge::explain;
use crate::control::{attempt, culprit, overrun, slow_path, throttle};
use crate::current::Current;
use crate::current::refused::{outer, told};
use crate::error::Refused;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::scope::{self, Held, OnLimit, Policy};
use crate::stock::AtLimit;
use crate::stock::refusal::{Reason, Refusal};
use crate::sync::are_calls_forbidden;
use crate::whose::{self, granting, nobody};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// The policy of a plain `catch`. With the feature `unwind` an allocation fails at once, since the failure unwinds by
/// itself.
pub(super) const CATCH: Policy =
    if cfg!(feature = "unwind") { Policy::NULL } else { Policy::OVERRUN };

thread_local! {
    // A constant without a destructor: usable before `main` and until the thread's last instruction.
    static LAST: Cell<Option<(Group<'static>, Refusal)>> = const { Cell::new(None) };
}

/// Whether a charge that a limit refused is granted over the limit.
pub(super) enum Granted {
    Yes,
    No,
    /// It would be granted, but the group ended meanwhile.
    Gone,
}

/// A charge that a limit refused.
struct Wanted {
    group: Group<'static>,
    units: u64,
    refusal: Refusal,
}

impl Wanted {
    #[track_caller]
    fn over(&self, at: AtLimit) -> Granted {
        let site = Location::caller();
        // An audit allocates, and that must not be charged.
        match nobody(|| slow_path::ask_units(self.group, self.units, at, site)) {
            Ok(()) => Granted::Yes,
            Err(Refusal { reason: Reason::Gone, .. }) => Granted::Gone,
            Err(_) => Granted::No,
        }
    }

    fn count(&self) {
        nobody(|| attempt::count_refusal(self.group.ledger(), &self.refusal));
    }

    /// Ends the work that is to give way, and grants the units as long as the root has room.
    fn overrun(&self, scope: Option<&Held>, allowance: u64) -> Granted {
        let Wanted { group, units, refusal } = self;
        let mut beyond = 0;
        if culprit::end_one(*group, scope, *refusal) {
            let over = match scope {
                Some(scope) => scope.grant(*units),
                None => refusal.usage.saturating_add(*units).saturating_sub(refusal.limit),
            };
            beyond = over.saturating_sub(allowance);
        }
        let granted = match self.over(AtLimit::OverrunBelowRoot) {
            Granted::No => self.at_root(scope.is_some() && beyond == 0),
            other => other,
        };
        if matches!(granted, Granted::Yes) && beyond > 0 && may_wait() {
            throttle::slow_down(*group, *units, beyond, refusal.limit);
        }
        granted
    }

    /// Waits for room in a full root as long as other work is to give way.
    fn at_root(&self, within_allowance: bool) -> Granted {
        const TURN: Duration = Duration::from_millis(1);
        let ledger = self.group.ledger();
        let until = Instant::now() + ledger.control().times.victim;
        let will_give_way = || {
            let (root, group) = (ledger.root(), self.group);
            nobody(|| overrun::is_anothers(root, group, 1) || culprit::is_ending(root, group, 1))
        };
        while may_wait() && Instant::now() < until && will_give_way() {
            std::thread::sleep(TURN);
            match self.over(AtLimit::OverrunBelowRoot) {
                Granted::No => {}
                other => return other,
            }
        }
        if within_allowance {
            return self.over(AtLimit::Overrun);
        }
        if !are_calls_forbidden() {
            nobody(|| overrun::say_full(self.group, self.units));
        }
        Granted::No
    }
}

/// Returns whether the thread may sleep here. A reclaimer may not: it makes the room that other threads wait for.
fn may_wait() -> bool {
    !are_calls_forbidden() && !scope::reclaims(whose::scope(), None)
}

/// Decides about a charge that a limit refused. Allocates nothing that is charged.
pub(super) fn grants(group: Group<'static>, units: u64, refusal: Refusal) -> Granted {
    let wanted = Wanted { group, units, refusal };
    if whose::is_granting() {
        return wanted.over(AtLimit::Overrun);
    }
    LAST.set(Some((group, refusal)));
    let scope = Held::new(whose::scope());
    let policy = scope.as_ref().map_or_else(|| group.ledger().alloc_policy(), Held::policy);
    match policy.on_limit {
        OnLimit::Overrun => wanted.overrun(scope.as_ref(), policy.allowance),
        OnLimit::Null => {
            wanted.count();
            Granted::No
        }
    }
}

/// Clears the last refusal: the allocator beneath failed, not a limit.
pub(super) fn forget() {
    LAST.set(None);
}

/// Returns why this thread's last refused allocation was refused; `None` if none was, or if the allocator beneath has
/// run out of memory since.
///
/// Under [`Policy::NULL`] an allocation that a limit refuses returns null. `try_reserve` turns that into an error
/// without a reason:
///
/// ```
/// use ledgerline::alloc::{self, Policy};
/// use ledgerline::{Alloc, Ledger, Limit};
///
/// #[global_allocator]
/// static ALLOC: Alloc = Alloc::system();
///
/// let ledger = Ledger::new()?.into_static();
/// let query = ledger.root().create("q42")?;
/// query.set_max(Limit::units(1 << 20))?;
/// let work = || {
///     let mut rows: Vec<u8> = Vec::new();
///     assert!(rows.try_reserve(2 << 20).is_err());
/// };
/// query.catch_with(Policy::NULL, work)?;
/// let refusal = alloc::last_refusal().expect("a limit refused it");
/// assert_eq!((refusal.group, refusal.limit), (query.id(), 1 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Allocates nothing.
pub fn last_refusal() -> Option<Refusal> {
    LAST.get().map(|(_, refusal)| refusal)
}

impl Ledger {
    /// Returns the policy at a limit of this ledger for allocations outside of any [`catch`](Group::catch):
    /// [`Policy::OVERRUN`] by default.
    pub fn alloc_policy(&self) -> Policy {
        self.control().policy.get()
    }

    /// Sets the policy at a limit of this ledger for allocations outside of any [`catch`](Group::catch), in this
    /// process.
    ///
    /// With [`Policy::NULL`] an allocation that does not fit returns null. `try_reserve` then returns an error; all
    /// other code aborts the process.
    pub fn set_alloc_policy(&self, policy: Policy) {
        self.control().policy.set(policy);
    }
}

impl Group<'static> {
    /// Runs `work` with this as the thread's current group. Returns its result, or the first [`Refused`] of an
    /// allocation in it. So the query fails and not the process.
    ///
    /// An allocation that a limit refuses is granted over the limit, and the work is *marked*: it unwinds at its next
    /// [`checkpoint`](super::checkpoint), or its result is dropped at its end. The work includes everything that it
    /// hands to other threads by [`current::spawn`](crate::current::spawn), `current::tokio`, `current::rayon`,
    /// `charged_to` or `inherit`. It does not include other work that this thread runs meanwhile, like a job that
    /// rayon steals while it waits. A `catch` inside of this one is a part of it if its group is this one or lies
    /// below. A `catch` of another group begins work of its own, since it cannot be told from a stolen job.
    ///
    /// Beyond 1 MiB over the limit ([`catch_within`](Self::catch_within) sets another allowance) each allocation is
    /// slowed down, by at most 10 ms. Nothing on stable Rust can end a loop that neither polls nor calls
    /// `checkpoint`. It grows, ever more slowly, until the root's limit is reached. That limit holds: allocations
    /// wait up to a second for other groups that are over their own limits. Then they print a line to standard error
    /// and fail, which ends a process that does not handle null.
    ///
    /// **With the feature `unwind`** an allocation that a limit refuses returns null. For code that does not handle
    /// null, the `Refused` unwinds from the place of the allocation. Such a build needs a nightly compiler, or on a
    /// stable one `RUSTC_BOOTSTRAP = "ledgerline"` under `[env]` in `.cargo/config.toml`, since the hook of std that
    /// it uses (`alloc_error_hook`) is not stable.
    ///
    /// While a thread unwinds, its allocations are not accounted, so that destructors and backtraces can work. A
    /// process built with `panic = "abort"` aborts at the checkpoint. So does a process whose refusal would unwind
    /// through foreign frames (`extern "C"`).
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
    /// The first refusal of an allocation in `work`. This includes allocations by `try_reserve`, which cannot be told
    /// from those by `reserve`.
    ///
    /// # Panics
    /// If `work` panics with another payload than a [`Refused`] and was not refused.
    pub fn catch<R>(self, work: impl FnOnce() -> R) -> Result<R, Refused> {
        self.catch_with(CATCH, work)
    }

    /// Like [`catch`](Self::catch), but allows `allowance` bytes over the limit at full speed.
    ///
    /// # Errors
    /// Those of `catch`.
    ///
    /// # Panics
    /// Under the conditions of `catch`.
    pub fn catch_within<R>(self, allowance: u64, work: impl FnOnce() -> R) -> Result<R, Refused> {
        self.catch_with(CATCH.within(allowance), work)
    }

    /// Like [`catch`](Self::catch), with a policy at the limit. Under [`Policy::NULL`] every allocation that a limit
    /// refuses returns null, and code that allocates by `try_reserve` continues.
    ///
    /// # Errors
    /// Those of `catch`; under [`Policy::NULL`] only with the feature `unwind`.
    ///
    /// # Panics
    /// Under the conditions of `catch`.
    pub fn catch_with<R>(self, policy: Policy, work: impl FnOnce() -> R) -> Result<R, Refused> {
        let Some(scope) = begin(self, policy) else { return Ok(self.scope(work)) };
        let current = Current::from(self).within(scope.id());
        match catch_unwind(AssertUnwindSafe(|| current.scope(work))) {
            Ok(value) => match told(&scope) {
                None => Ok(value),
                Some(refused) => {
                    granting(|| self.scope(|| drop(value)));
                    Err(refused)
                }
            },
            Err(payload) => Err(refusal_of(payload, Some(&scope))),
        }
    }
}

/// Begins the scope of a `catch`; `None` if there are too many.
pub(super) fn begin(group: Group<'static>, policy: Policy) -> Option<Held> {
    #[cfg(feature = "unwind")]
    hook::install();
    let outer = outer(Some(group.pack()));
    nobody(|| Held::begin(Some(group.pack()), outer, policy))
}

/// Returns the refusal that unwound, or the one that the work had met when it panicked: code that unwraps the result
/// of a part panics for the refusal of that part. Any other panic goes on.
pub(super) fn refusal_of(payload: Box<dyn Any + Send>, scope: Option<&Held>) -> Refused {
    match payload.downcast::<Refused>() {
        Ok(refused) => *refused,
        Err(other) => scope.and_then(told).unwrap_or_else(|| resume_unwind(other)),
    }
}

/// Unwinds with a refusal.
#[cfg(feature = "unwind")]
fn raise(group: Group<'static>, refusal: &Refusal) -> ! {
    let payload = nobody(|| Box::new(explain(group, refusal)));
    // From here on the thread panics, so allocations in destructors are granted.
    resume_unwind(payload)
}

/// The hook that std calls after a failed allocation that the code does not handle.
#[cfg(feature = "unwind")]
mod hook {
    use super::{LAST, raise};
    use crate::whose;
    use std::alloc::{Layout, set_alloc_error_hook, take_alloc_error_hook};
    use std::sync::OnceLock;

    static BEFORE: OnceLock<fn(Layout)> = OnceLock::new();

    /// Installs the hook, once per process. The previous hook is called for failures that no limit caused.
    pub(super) fn install() {
        BEFORE.get_or_init(|| {
            let before = take_alloc_error_hook();
            set_alloc_error_hook(on_failure);
            before
        });
    }

    fn on_failure(layout: Layout) {
        if whose::scope().is_named()
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
