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

/// The policy of a plain `catch`. With the feature `unwind` an allocation fails at once, since it unwinds by itself.
pub(super) const CATCH: Policy =
    if cfg!(feature = "unwind") { Policy::NULL } else { Policy::OVERRUN };

thread_local! {
    // A constant without a destructor: it is there before `main`, and until the thread's last instruction.
    static LAST: Cell<Option<(Group<'static>, Refusal)>> = const { Cell::new(None) };
}

/// Whether a charge that a limit refused is granted over the limit.
pub(super) enum Granted {
    Yes,
    No,
    /// It would be, but the group ended meanwhile.
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
        // (An audit allocates. That is nobody's.)
        match nobody(|| slow_path::ask_units(self.group, self.units, at, site)) {
            Ok(()) => Granted::Yes,
            Err(Refusal { reason: Reason::Gone, .. }) => Granted::Gone,
            Err(_) => Granted::No,
        }
    }

    fn count(&self) {
        nobody(|| attempt::count_refusal(self.group.ledger(), &self.refusal));
    }

    /// Ends the work that is to give way, and grants what is wanted as long as the root has room.
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

    /// Waits for room where the root is full, as long as somebody else is to give way.
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

/// Whether the thread may sleep here: a reclaimer makes the room that others wait for.
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

/// No limit refused what the allocator beneath could not give.
pub(super) fn forget() {
    LAST.set(None);
}

/// Why the last allocation of this thread that was refused was refused; `None` if none was, or if since then the
/// allocator beneath had no memory.
///
/// Under [`Policy::NULL`] an allocation that a limit refuses is null, of which `try_reserve` makes an error that does not say why:
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
    /// Returns the policy for allocations outside of any [`catch`](Group::catch) at a limit of this ledger: [`Policy::OVERRUN`]
    /// unless another was set.
    pub fn alloc_policy(&self) -> Policy {
        self.control().policy.get()
    }

    /// Sets the policy for allocations outside of any [`catch`](Group::catch) at a limit of this ledger, in this process.
    ///
    /// With [`Policy::NULL`] an allocation that does not fit is null: code that asked by `try_reserve` gets an error, and all
    /// other code aborts the process.
    pub fn set_alloc_policy(&self, policy: Policy) {
        self.control().policy.set(policy);
    }
}

impl Group<'static> {
    /// Runs `work` with this as the thread's current group, and returns what it returned, or the first [`Refused`] of
    /// an allocation in it: so that the query fails and not the process.
    ///
    /// An allocation that a limit refuses is granted over the limit, and the work is *marked*: it unwinds at its next
    /// [`checkpoint`](super::checkpoint), or its result is dropped at its end. So does whatever was handed to other threads
    /// from inside of it, by [`current::spawn`](crate::current::spawn), `current::tokio`, `current::rayon`, `charged_to` or
    /// `inherit`: it is a part of the same work. Work of others that this thread runs meanwhile, like a job that rayon steals
    /// while it waits, is not. A `catch` inside of this one is a part of it if its group is this one or lies below; a `catch`
    /// of another group begins work of its own, since nothing tells it from a stolen job.
    ///
    /// Beyond 1 MiB over the limit ([`catch_within`](Self::catch_within) sets another allowance) each allocation is slowed
    /// down, by at most 10 ms. Nothing on stable Rust can end a loop that neither polls nor calls `checkpoint`; it grows, ever
    /// more slowly, until the root's limit is reached. That limit holds: then allocations wait up to a second for others
    /// that are over their own limits, and fail with a line on standard error, which ends a process that does not deal with
    /// null.
    ///
    /// **With the feature `unwind`** an allocation that a limit refuses is null for whoever can deal with that; for all
    /// others the `Refused` unwinds from the very place. Such a build needs a nightly compiler, or on a stable one
    /// `RUSTC_BOOTSTRAP = "ledgerline"` under `[env]` in `.cargo/config.toml`, since the hook of std that it takes
    /// (`alloc_error_hook`) is not stable.
    ///
    /// While a thread unwinds, what it allocates is nobody's, so that destructors and backtraces can work. A process built with
    /// `panic = "abort"` aborts at the checkpoint, and so does one whose refusal would unwind through foreign frames
    /// (`extern "C"`).
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
    /// The first refusal of an allocation in `work`, also where the work asked by `try_reserve`: nobody can tell who asks.
    ///
    /// # Panics
    /// If `work` panics with anything else than a [`Refused`] and was not refused.
    pub fn catch<R>(self, work: impl FnOnce() -> R) -> Result<R, Refused> {
        self.catch_with(CATCH, work)
    }

    /// As [`catch`](Self::catch), with so many bytes over the limit at full speed.
    ///
    /// # Errors
    /// As `catch`.
    ///
    /// # Panics
    /// As `catch`.
    pub fn catch_within<R>(self, allowance: u64, work: impl FnOnce() -> R) -> Result<R, Refused> {
        self.catch_with(CATCH.within(allowance), work)
    }

    /// As [`catch`](Self::catch), with a policy at the limit. Under [`Policy::NULL`] every allocation that a limit refuses is
    /// null, and code that asked by `try_reserve` goes on.
    ///
    /// # Errors
    /// As `catch`; under [`Policy::NULL`] only with the feature `unwind`.
    ///
    /// # Panics
    /// As `catch`.
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

/// Begins the scope of a `catch`; `None` where there are too many.
pub(super) fn begin(group: Group<'static>, policy: Policy) -> Option<Held> {
    #[cfg(feature = "unwind")]
    hook::install();
    let outer = outer(Some(group.pack()));
    nobody(|| Held::begin(Some(group.pack()), outer, policy))
}

/// The refusal that unwound, or that the work had met when it panicked: code that unwraps the result of a part panics for the
/// refusal of that part. Any other panic goes on.
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
    // From here on the thread panics, so that destructors have what they ask for.
    resume_unwind(payload)
}

/// The hook that std calls when an allocation failed and nobody deals with that.
#[cfg(feature = "unwind")]
mod hook {
    use super::{LAST, raise};
    use crate::whose;
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
