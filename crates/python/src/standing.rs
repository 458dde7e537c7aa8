//! Keeps the state of an account at its limit: how far it is over, and whether an error was raised for that.

use ledgerline::Refusal;
use std::cell::Cell;

/// Blocks of the raw domain up to this are not charged. The largest of pymalloc's.
pub const SMALL_MOST: u64 = 512;
/// Blocks above this are refused, and smaller ones go over the limit. A part of a `deque`, as asyncio's queue is one, has 528 bytes.
const GRANTED_MOST: u64 = 4 << 10;
/// How far small blocks go over the limit before an error is raised at each.
const OVERDRAFT: u64 = 1 << 20;
/// The same on other threads than the main one: some milliseconds pass there before the error is raised.
const OVERDRAFT_OF_THREADS: u64 = 8 << 20;
/// How far small blocks go in the end. In between an error is raised at each. Python itself may lose its way where the few bytes for an
/// exception are refused.
const OVERDRAFT_MOST: u64 = 16 << 20;
/// How far the handler of the error may go over the limit.
const GRACE: u64 = 256 << 10;
/// Balances of others are taken back at every so many refusals of a group that is over its limit already.
const COLLECT_EVERY: u64 = 64;

/// The state of an account at its limit. Accessed under the GIL (G1).
pub struct Standing {
    /// Bytes that were granted over the limit since the group was last within it.
    over: Cell<u64>,
    /// How many of them since an error was raised.
    grace: Cell<u64>,
    /// `over` at the last error that was raised, and whether there was one; or a large block was refused.
    raised_at: Cell<Option<u64>>,
    refused: Cell<bool>,
    /// The last refusal, and how many there were.
    last: Cell<Option<Refusal>>,
    count: Cell<u64>,
}

impl Standing {
    pub const fn new() -> Standing {
        Standing {
            over: Cell::new(0),
            grace: Cell::new(0),
            raised_at: Cell::new(None),
            refused: Cell::new(false),
            last: Cell::new(None),
            count: Cell::new(0),
        }
    }

    pub fn clear(&self) {
        self.is_within();
        self.last.set(None);
        self.count.set(0);
    }

    /// The group is within its limit, with room to spare.
    #[inline]
    pub fn is_within(&self) {
        if self.over.get() > 0 || self.refused.get() {
            self.over.set(0);
            self.grace.set(0);
            self.raised_at.set(None);
            self.refused.set(false);
        }
    }

    /// Whether an error is to be raised for what was granted.
    pub fn is_due(&self, main: bool) -> bool {
        let over = self.over.get();
        self.raised_at.get().is_none_or(|raised| over > raised + GRACE)
            || over > if main { OVERDRAFT } else { OVERDRAFT_OF_THREADS }
    }

    /// The error is raised.
    pub fn raised(&self) {
        self.raised_at.set(Some(self.over.get()));
    }

    /// Whether balances of others are to be taken back before the next refusal.
    pub fn is_collect_due(&self) -> bool {
        self.over.get() == 0 || self.count.get().is_multiple_of(COLLECT_EVERY)
    }

    pub fn last(&self) -> Option<Refusal> {
        self.last.get()
    }

    /// How many blocks were refused, or granted over the limit.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Whether a block may go over the limit.
    fn grants(&self, size: u64) -> bool {
        if size <= GRANTED_MOST {
            return self.over.get().saturating_add(size) <= OVERDRAFT_MOST;
        }
        let told = self.raised_at.get().is_some() || self.refused.get();
        told && self.grace.get().saturating_add(size) <= GRACE
    }

    /// A limit refused a block. Says whether it may go over the limit.
    pub fn refused(&self, refusal: Refusal, size: u64) -> bool {
        self.count.set(self.count.get() + 1);
        self.last.set(Some(refusal));
        self.grants(size)
    }

    /// A block went over the limit.
    pub fn granted(&self, size: u64) {
        self.over.set(self.over.get() + size);
        if self.raised_at.get().is_some() || self.refused.get() {
            self.grace.set(self.grace.get() + size);
        }
    }

    /// A block got nothing.
    pub fn refuse(&self) {
        self.refused.set(true);
    }
}
