//! Following each charge, to name who uncharges wrongly.
//!
//! ```text
//! charge(group, n) at a line          the ledger grants it; then: one more of size n is held in the group
//! uncharge(group, n) at a line        one of size n is held: one less, and the ledger takes it
//!                                     none is: report it, and the ledger takes nothing
//! a guard drops, splits, merges,      as an uncharge and charges, of what guards hold; who made the
//!   or is transferred                   charge stays known
//! ```
//!
//! The cells of an audited ledger bear a generation that no handle has, as where flows are kept
//! (table.rs), so each charge and uncharge comes by the slow path and by here.
//!
//! What is followed is a number for each group, size and line, not an entry for each charge. What is held
//! by a guard and what was charged by hand is kept apart: a guard cannot return twice, so it is never wrong,
//! and nobody else returns what it holds.
//!
//! A size of which nothing is held is kept to tell who returned it, until it was not used between two
//! sweeps; a sweep comes when twice as many sizes (or groups) are known as the last one left. So memory
//! is in proportion to what is held, and to what was used of late.
//!
//! Invariant A1: what is allocated here is freed here. An allocator that charges this very ledger is called
//! from within, and what it charges and uncharges then is not followed ([`Audit::enter`]); so both
//! or neither are. What a caller gets ([`WrongUncharge`]) is allocated before the lock is taken.

use crate::control::audit_report::{AUDIT_REPORTS_MAX, Line, WrongUncharge};
use crate::gate::lock::{self, Gated};
use crate::ledger::Ledger;
use crate::sync::Ordering;
use crate::table::follow;
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::BuildHasherDefault;
use std::panic::Location;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

/// A line of the program.
pub(crate) type Site = &'static Location<'static>;

/// Fewest sizes, or groups, before those out of use are forgotten.
const SWEEP_LEAST: usize = 64;

/// Who charges or uncharges.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// A line that sees to the other half itself.
    Hand(Site),
    /// A line that gets a guard for it.
    Maker(Site),
    /// A guard that drops.
    Guard,
}

/// What the program wants done about a wrong uncharge.
#[derive(Clone)]
pub(crate) struct OnWrong(Arc<dyn Fn(&WrongUncharge) + Send + Sync>);

impl OnWrong {
    pub(crate) fn new(act: impl Fn(&WrongUncharge) + Send + Sync + 'static) -> OnWrong {
        OnWrong(Arc::new(act))
    }
}

impl fmt::Debug for OnWrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnWrong")
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Audit {
    followed: Mutex<Followed>,
    /// The thread that holds it; zero if none does.
    holder: AtomicUsize,
    on_wrong: Option<OnWrong>,
}

/// What is held, by group.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    accounts: HashMap<u64, Account, BuildHasherDefault<DefaultHasher>>,
    sweep_at: usize,
    /// Wrong uncharges, each group, size and line once, the first first.
    pub(crate) wrong: Vec<WrongUncharge>,
    /// How many more there were than these have room for.
    pub(crate) left_out: u64,
}

/// What one group holds.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Of the group when it was first charged: it may be gone when it is asked for.
    pub(crate) path: String,
    pub(crate) charges: u64,
    pub(crate) units: u64,
    pub(crate) sizes: BTreeMap<u64, Size>,
    sweep_at: usize,
    used: bool,
}

/// What a group holds of one size.
#[derive(Debug, Default)]
pub(crate) struct Size {
    pub(crate) tallies: Vec<Tally>,
    used: bool,
}

/// What one line did to one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) site: Site,
    pub(crate) guard: bool,
    /// Charges made here and not returned yet.
    pub(crate) held: u64,
    /// Charges made here, and charges returned here.
    pub(crate) charged: u64,
    pub(crate) returned: u64,
}

impl Size {
    pub(crate) fn is_held(&self) -> bool {
        self.tallies.iter().any(|tally| tally.held > 0)
    }

    fn tally(&mut self, site: Site, guard: bool) -> &mut Tally {
        self.used = true;
        let same = |tally: &Tally| {
            tally.guard == guard && (std::ptr::eq(tally.site, site) || tally.site == site)
        };
        let at = self.tallies.iter().position(same).unwrap_or_else(|| {
            self.tallies.push(Tally { site, guard, held: 0, charged: 0, returned: 0 });
            self.tallies.len() - 1
        });
        &mut self.tallies[at]
    }
}

/// Whether a sweep is due where so many are known, and when the next one is.
fn due(known: usize, sweep_at: usize) -> bool {
    known >= sweep_at.max(SWEEP_LEAST)
}

impl Account {
    fn add(&mut self, units: u64, site: Site, guard: bool) {
        if due(self.sizes.len(), self.sweep_at) {
            self.sizes.retain(|_, size| std::mem::take(&mut size.used) || size.is_held());
            self.sweep_at = self.sizes.len() * 2;
        }
        self.used = true;
        self.charges += 1;
        self.units = self.units.saturating_add(units);
        let tally = self.sizes.entry(units).or_default().tally(site, guard);
        tally.held += 1;
        tally.charged += 1;
    }

    /// Takes one charge of a size out; who made it.
    fn take(&mut self, units: u64, guard: bool) -> Option<Site> {
        let size = self.sizes.get_mut(&units)?;
        let held = |tally: &&mut Tally| tally.guard == guard && tally.held > 0;
        let tally = size.tallies.iter_mut().find(held)?;
        tally.held -= 1;
        size.used = true;
        self.used = true;
        self.charges -= 1;
        self.units = self.units.saturating_sub(units);
        Some(tally.site)
    }
}

impl Followed {
    fn add(&mut self, ledger: &Ledger, id: GroupId, units: u64, site: Site, guard: bool) {
        if due(self.accounts.len(), self.sweep_at) {
            self.accounts
                .retain(|_, account| std::mem::take(&mut account.used) || account.charges > 0);
            self.sweep_at = self.accounts.len() * 2;
        }
        let new = || Account { path: follow::path_of(ledger.table(), id), ..Account::default() };
        self.accounts.entry(id.raw()).or_insert_with(new).add(units, site, guard);
    }

    fn take(&mut self, id: GroupId, units: u64, guard: bool) -> Option<Site> {
        self.accounts.get_mut(&id.raw())?.take(units, guard)
    }

    pub(crate) fn account(&self, id: GroupId) -> Option<&Account> {
        self.accounts.get(&id.raw())
    }

    /// Notes a wrong uncharge, or that there was one more like one before.
    fn note(&mut self, ledger: &Ledger, id: GroupId, units: u64, site: Site) {
        let at = self.wrong.iter().position(|wrong| wrong.is(id, units, site));
        let at = match at {
            Some(at) => at,
            None if self.wrong.len() < AUDIT_REPORTS_MAX => {
                self.wrong.push(WrongUncharge::blank(site));
                self.wrong.len() - 1
            }
            None => {
                self.left_out += 1;
                return;
            }
        };
        let mut wrong = std::mem::replace(&mut self.wrong[at], WrongUncharge::blank(site));
        wrong.times += 1;
        wrong.describe(ledger, self, id, units);
        self.wrong[at] = wrong;
    }

    /// What is held, by group and line; of one group alone if it is named.
    pub(crate) fn lines(&self, only: Option<GroupId>) -> Vec<Line> {
        let mut lines = Vec::new();
        for (&id, account) in &self.accounts {
            if account.charges == 0 || only.is_some_and(|only| only.raw() != id) {
                continue;
            }
            let mut by_site = BTreeMap::<(Site, bool), (u64, u64)>::new();
            for (&units, size) in &account.sizes {
                for tally in size.tallies.iter().filter(|tally| tally.held > 0) {
                    let sum = by_site.entry((tally.site, tally.guard)).or_default();
                    sum.0 += tally.held;
                    sum.1 = sum.1.saturating_add(tally.held.saturating_mul(units));
                }
            }
            let group = GroupId::from_raw(id);
            lines.extend(by_site.into_iter().map(|((site, guard), (charges, units))| Line {
                group,
                site,
                guard,
                charges,
                units,
            }));
        }
        lines
    }
}

/// What is followed, held by this thread.
pub(crate) struct Entered<'a> {
    followed: Gated<'a, Followed>,
    holder: &'a AtomicUsize,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Relaxed: only this thread looks for its own number.
        self.holder.store(0, Ordering::Relaxed);
    }
}

impl std::ops::Deref for Entered<'_> {
    type Target = Followed;

    fn deref(&self) -> &Followed {
        &self.followed
    }
}

impl std::ops::DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut Followed {
        &mut self.followed
    }
}

impl Audit {
    pub(crate) fn new(on_wrong: Option<OnWrong>) -> Audit {
        // (A fork must not find the lock held.)
        lock::guard_forks();
        Audit { followed: Mutex::default(), holder: AtomicUsize::new(0), on_wrong }
    }

    /// `None` if this thread is in here already: an allocator that charges this ledger (A1).
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        let me = lock::thread();
        if self.holder.load(Ordering::Relaxed) == me {
            return None;
        }
        let followed = lock::gated(&self.followed);
        self.holder.store(me, Ordering::Relaxed);
        Some(Entered { followed, holder: &self.holder })
    }

    /// Follows a charge that was granted. (One of nothing holds nothing.)
    pub(crate) fn charged(&self, ledger: &Ledger, id: GroupId, units: u64, by: By) {
        let (By::Hand(site) | By::Maker(site)) = by else { return };
        let guard = matches!(by, By::Maker(_));
        if units > 0
            && let Some(mut followed) = self.enter()
        {
            followed.add(ledger, id, units, site, guard);
        }
    }

    /// Whether an uncharge returns what a charge took; if it does not, reports it.
    pub(crate) fn allows(&self, ledger: &Ledger, id: GroupId, units: u64, by: By) -> bool {
        if units == 0 {
            return true;
        }
        let Some(mut followed) = self.enter() else { return true };
        let By::Hand(site) = by else {
            // (One that was made in here is not known, and right all the same.)
            let _maker = followed.take(id, units, true);
            return true;
        };
        if followed.take(id, units, false).is_some() {
            if let Some(size) = followed
                .accounts
                .get_mut(&id.raw())
                .and_then(|account| account.sizes.get_mut(&units))
            {
                size.tally(site, false).returned += 1;
            }
            return true;
        }
        let gone = RowPath::of(ledger.table(), id).is_none();
        if !gone
            && ledger.table().row(id.index()).owner.load(Ordering::Relaxed)
                != ledger.table().process()
        {
            return true;
        }
        followed.note(ledger, id, units, site);
        drop(followed);
        if gone {
            ledger.table().count_stray();
        } else {
            ledger.table().header().audited.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(OnWrong(act)) = &self.on_wrong {
            let mut wrong = WrongUncharge::blank(site);
            if let Some(followed) = self.enter() {
                wrong.times = 1;
                match followed.wrong.iter().find(|wrong| wrong.is(id, units, site)) {
                    Some(known) => wrong.copy(known),
                    None => wrong.describe(ledger, &followed, id, units),
                }
            }
            act(&wrong);
        }
        false
    }

    /// A guard was given up: its units are returned by hand.
    #[cold]
    pub(crate) fn gave_up(&self, ledger: &Ledger, id: GroupId, units: u64, site: Site) {
        if self.allows(ledger, id, units, By::Guard) {
            self.charged(ledger, id, units, By::Hand(site));
        }
    }

    /// Whether a guard may be made of units that were charged by hand; if there are none, reports it.
    #[cold]
    pub(crate) fn adopts(&self, ledger: &Ledger, id: GroupId, units: u64, site: Site) -> bool {
        let held = self.allows(ledger, id, units, By::Hand(site));
        if held {
            self.charged(ledger, id, units, By::Maker(site));
        }
        held
    }

    /// A guard became two.
    #[cold]
    pub(crate) fn split(&self, ledger: &Ledger, id: GroupId, left: u64, units: u64) {
        self.exchange(ledger, &[(id, left.saturating_add(units))], &[(id, left), (id, units)]);
    }

    /// A guard took another one in.
    #[cold]
    pub(crate) fn merged(&self, ledger: &Ledger, id: GroupId, units: u64, other: u64) {
        self.exchange(ledger, &[(id, units), (id, other)], &[(id, units.saturating_add(other))]);
    }

    /// A guard went to another group.
    #[cold]
    pub(crate) fn moved(&self, ledger: &Ledger, from: GroupId, to: GroupId, units: u64) {
        self.exchange(ledger, &[(from, units)], &[(to, units)]);
    }

    /// Some charges of guards become others, made by who made the first of them.
    fn exchange(&self, ledger: &Ledger, before: &[(GroupId, u64)], after: &[(GroupId, u64)]) {
        let Some(mut followed) = self.enter() else { return };
        let mut maker = None;
        for &(id, units) in before {
            maker = maker.or(followed.take(id, units, true));
        }
        let Some(maker) = maker else { return };
        for &(id, units) in after.iter().filter(|&&(_, units)| units > 0) {
            followed.add(ledger, id, units, maker, true);
        }
    }

    /// Forgets all: what was followed is of the parent's groups, in a forked child of a ledger that processes
    /// share.
    pub(crate) fn forget(&self) {
        if let Some(mut followed) = self.enter() {
            *followed = Followed::default();
        }
    }
}
