//! Accounts: units of each group that are charged already, and handed out to blocks under the GIL.
//!
//! ```text
//! make a block of n     account.balance >= n: balance -= n. Done
//!                       else `fetch`: charges the group for n and a batch; at a limit takes all balances back first
//! free a block of n     balance += n; what is above `most` goes back to the group
//! ```
//!
//! G1: an account is read and written by the thread that has the GIL alone. It stands at its group's number, by which labels of
//! blocks name it, as long as the number is the group's.
//!
//! G2: what a group's blocks hold, and its balance, are charged to the group in the ledger. So a group that ended keeps its number
//! while blocks bear it.

use crate::spare::Spare;
use crate::standing::Standing;
use ledgerline::alloc::block::Owner;
use ledgerline::{Charge, Group, Reason, Refusal};
use std::cell::{Cell, RefCell};
use std::ptr;

/// Charged at a time beyond what is asked for; less close to a limit.
const BATCH: u64 = 32 << 10;
/// The least that is tried beyond what is asked for.
const BATCH_LEAST: u64 = 4 << 10;
/// The most that lies in a balance.
const MOST: u64 = 128 << 10;

/// See the module's documentation.
pub struct Account {
    balance: Cell<u64>,
    most: Cell<u64>,
    owner: Cell<Option<Owner>>,
    group: Cell<Option<Group<'static>>>,
    /// The account of the group's parent; null for a root.
    parent: Cell<*const Account>,
    batch: Cell<u64>,
    /// Its place in `LIVE`.
    place: Cell<u32>,
    /// The group was destroyed.
    ended: Cell<bool>,
    pub standing: Standing,
    pub spare: Spare,
}

impl Account {
    const fn new() -> Account {
        Account {
            balance: Cell::new(0),
            most: Cell::new(0),
            owner: Cell::new(None),
            group: Cell::new(None),
            parent: Cell::new(ptr::null()),
            batch: Cell::new(BATCH),
            place: Cell::new(0),
            ended: Cell::new(true),
            standing: Standing::new(),
            spare: Spare::new(),
        }
    }
}

struct Accounts {
    at: [Account; 1 << 16],
    /// The numbers of accounts whose groups live.
    live: RefCell<Vec<u16>>,
}

// SAFETY: G1: the GIL is the lock. Guarded by `tests/test_threads.py`.
unsafe impl Sync for Accounts {}

static ACCOUNTS: Accounts =
    Accounts { at: [const { Account::new() }; 1 << 16], live: RefCell::new(Vec::new()) };

/// The result of a request for units.
pub enum Fetched {
    /// They were taken from this account's balance.
    From(&'static Account),
    Nobody,
    /// A limit refused this account.
    Limited(&'static Account, Refusal),
}

/// The account at a number that a block bears.
#[inline(always)]
pub fn at(number: u16) -> &'static Account {
    &ACCOUNTS.at[number as usize]
}

/// The account of a group; `None` if it has no number: the caller takes the parent's.
pub fn open(group: Group<'static>, parent: Option<&'static Account>) -> Option<&'static Account> {
    let owner = Owner::of(group)?;
    let account = at(owner.number());
    if account.group.get() == Some(group) {
        return (!account.ended.get()).then_some(account);
    }
    // (The group that had the number is over, and so holds nothing: G2.)
    account.balance.set(0);
    account.most.set(MOST);
    account.owner.set(Some(owner));
    account.group.set(Some(group));
    account.parent.set(parent.map_or(ptr::null(), ptr::from_ref));
    account.batch.set(BATCH);
    account.ended.set(false);
    account.standing.clear();
    let mut live = ACCOUNTS.live.borrow_mut();
    account.place.set(live.len() as u32);
    live.push(owner.number());
    Some(account)
}

/// Takes all balances back to their groups, so that the ledger knows what is in use.
pub fn collect() {
    for &number in ACCOUNTS.live.borrow().iter() {
        at(number).give_back(0);
    }
}

/// Has accounts of destroyed groups keep nothing.
pub fn end_destroyed() {
    let live = ACCOUNTS.live.borrow().clone();
    for account in live.into_iter().map(at) {
        if account.group.get().is_some_and(|group| !group.exists()) {
            account.end();
        }
    }
}

/// In a forked child whose ledger is its parent's, too: nothing that was inherited is an account of the child's.
pub fn forget() {
    for number in std::mem::take(&mut *ACCOUNTS.live.borrow_mut()) {
        let account = at(number);
        account.balance.set(0);
        account.most.set(0);
        account.group.set(None);
        account.owner.set(None);
        account.ended.set(true);
    }
}

impl Account {
    #[inline(always)]
    pub fn owner(&self) -> Option<Owner> {
        self.owner.get()
    }

    pub fn group(&self) -> Option<Group<'static>> {
        self.group.get()
    }

    /// Whether it is this group's, and that exists.
    #[inline]
    pub fn is_of(&self, group: Group<'static>) -> bool {
        self.group.get() == Some(group) && !self.ended.get()
    }

    pub fn parent(&self) -> Option<&'static Account> {
        // SAFETY: null, or the address of a static account.
        unsafe { self.parent.get().as_ref() }
    }

    /// The nearest account from here up whose group exists.
    pub fn existing(&'static self) -> Option<&'static Account> {
        let mut account = self;
        while account.ended.get() {
            account = account.parent()?;
        }
        Some(account)
    }

    /// Takes units for a block of `size` bytes.
    #[inline(always)]
    pub fn take(&'static self, size: u64) -> Fetched {
        let balance = self.balance.get();
        // Nothing lies in the balance of one that ended.
        if balance >= size {
            self.balance.set(balance - size);
            return Fetched::From(self);
        }
        self.fetch(size)
    }

    /// Whether the group was destroyed.
    #[inline(always)]
    pub fn is_ended(&self) -> bool {
        self.ended.get()
    }

    /// Puts the units of a block back.
    #[inline(always)]
    pub fn put(&self, size: u64) {
        let balance = self.balance.get() + size;
        self.balance.set(balance);
        if balance > self.most.get() {
            self.give_back(self.most.get() / 2);
        }
    }

    /// Returns what is above `keep` to the group.
    #[cold]
    #[inline(never)]
    fn give_back(&self, keep: u64) {
        let balance = self.balance.get();
        if balance <= keep {
            return;
        }
        self.balance.set(keep);
        // None: a child inherited the block, which belongs to no account there.
        if let Some(group) = self.group.get() {
            group.uncharge_units(balance - keep);
        }
    }

    /// The group was destroyed: frees of its blocks go back at once.
    pub fn end(&self) {
        if self.ended.replace(true) {
            return;
        }
        self.most.set(0);
        self.give_back(0);
        self.spare.empty();
        let mut live = ACCOUNTS.live.borrow_mut();
        let place = self.place.get() as usize;
        live.swap_remove(place);
        if let Some(&moved) = live.get(place) {
            at(moved).place.set(place as u32);
        }
    }

    /// Takes back what is kept, before the group is destroyed.
    pub fn empty(&self) {
        self.give_back(0);
    }

    #[cold]
    #[inline(never)]
    fn fetch(&'static self, size: u64) -> Fetched {
        let mut account = self;
        loop {
            let Some(existing) = account.existing() else { return Fetched::Nobody };
            account = existing;
            match account.fetch_own(size) {
                Ok(()) => return Fetched::From(account),
                Err(Refusal { reason: Reason::Gone, .. }) => account.end(),
                Err(Refusal { reason: Reason::Damaged, .. }) => return Fetched::Nobody,
                Err(refusal) => return Fetched::Limited(account, refusal),
            }
        }
    }

    fn fetch_own(&self, size: u64) -> Result<(), Refusal> {
        let group = self.group.get().expect("an account whose group exists has one");
        let need = size.saturating_sub(self.balance.get());
        let batch = self.batch.get();
        if group.attempt(need + batch).map(Charge::into_units).is_ok() {
            self.batch.set((2 * batch).min(BATCH));
            self.standing.is_within();
            return self.granted(need + batch, size);
        }
        self.batch.set((batch / 2).max(BATCH_LEAST));
        if group.attempt(need).map(Charge::into_units).is_ok() {
            return self.granted(need, size);
        }
        // Units that other accounts keep are idle.
        if self.standing.is_collect_due() {
            collect();
        }
        group.try_charge_units(size)?;
        self.granted(size, size)
    }

    fn granted(&self, units: u64, size: u64) -> Result<(), Refusal> {
        self.balance.set(self.balance.get() + units - size);
        Ok(())
    }

    /// Takes units over the limits. Says `false` if the group ended.
    pub fn take_over(&self, size: u64) -> bool {
        let need = size.saturating_sub(self.balance.get());
        let charged = self.group.get().is_some_and(|group| group.charge_units(need).is_ok());
        charged && self.granted(need, size).is_ok()
    }
}
