//! Groups: the handle of a group, its limits and its names. Charging is in `charge/`, creating and destroying in `tree.rs`.

use crate::counter::Limits;
use crate::gate::lock;
use crate::ledger::{Ledger, LocalPage};
use crate::percpu::windows::{self, Told};
use crate::percpu::{self, word};
use crate::size::Limit;
use crate::stock::drain;
use crate::sync::{AtomicU64, Ordering};
use crate::table::handle::{ALIGNMENT, Handle, Packed};
use crate::table::id::GroupId;
use crate::table::name::DESTROYED;
use crate::table::row::Row;
use crate::table::{Table, follow};
use std::hint::cold_path;
use std::marker::PhantomData;

const OWNED_END: usize = LocalPage::OWNED_END;

/// A group of a ledger: a query, a tenant, a thread, a process. This is a handle of two words, which can be copied. Handles
/// of one group are equal and have one hash. A later group in its row and a group of another ledger are not equal to it, so
/// a handle may be a key for as long as the ledger lives.
///
/// Charging and uncharging are async-signal-safe. A guard that is charged and dropped takes 1.1 ns on a virtual EPYC (Zen 5)
/// and 4.5 ns on a virtual Xeon, both of 2026, at any depth, on one thread and on two (`ledgerline bench charge`, cases
/// `guard_depth1` to `guard_depth8`). That is at most 1.2 × the cost of its units without a guard.
///
/// A handle of a destroyed group is refused, not followed, whichever group has its row by now. Charges are refused, and
/// setters change nothing. Readers get no units and no events, no limits ([`Limit::MAX`] for max and high, [`Limit::ZERO`]
/// for low and min), no parent, and `(destroyed)` as path and name. That also holds while its row is kept for charges that
/// were not returned ([`Ledger::leaks`] lists those), and when the group is destroyed in the middle of a reading. A group
/// whose process ended is still read as it was.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group<'l> {
    /// R2: the handle of a row of the ledger, which `'l` keeps mapped (R1).
    handle: Handle,
    ledger: PhantomData<&'l Ledger>,
}

/// A handle has two words, so that a loop over many handles leaves space in the cache for their cells.
const _: () = assert!(size_of::<Option<Group<'_>>>() <= 16);

// SAFETY: the pointer is into the ledger's region, which is shared only through atomics and sections, and which `'l` keeps
// mapped (R1).
unsafe impl Send for Group<'_> {}
// SAFETY: as above.
unsafe impl Sync for Group<'_> {}

impl Ledger {
    /// Returns the root, which every charge reaches.
    pub fn root(&self) -> Group<'_> {
        self.group(GroupId::ROOT)
    }

    /// Returns a handle for an id that was kept elsewhere, such as in an allocation's tag or a file. If there is no such
    /// group, uses of the handle are refused.
    #[inline]
    pub fn group(&self, id: GroupId) -> Group<'_> {
        // R5: an id with which a cell is found names a place in the columns.
        let named = id.index() < self.table().places
            && id.generation() != 0
            && id.generation() & self.table().detour == 0;
        let id = if named { id } else { GroupId::NOBODY };
        let handle = Handle::new(self.table().columns.first(id.index()), id.generation());
        Group { handle, ledger: PhantomData }
    }
}

impl<'l> Group<'l> {
    /// Packs the handle into one word, for a charge.
    #[inline(always)]
    pub(crate) fn pack(self) -> Packed {
        self.handle.pack()
    }

    /// Returns the group that a charge was packed with; `'l` is the charge's.
    #[inline(always)]
    pub(crate) fn unpack(packed: Packed) -> Group<'l> {
        Group { handle: packed.unpack(), ledger: PhantomData }
    }

    /// Returns the group's number, which outlives the handle.
    #[inline]
    pub fn id(self) -> GroupId {
        self.handle.id()
    }

    /// Returns its ledger.
    pub fn ledger(self) -> &'l Ledger {
        // SAFETY: R2, and `'l` keeps the ledger from being dropped.
        unsafe { Ledger::of(self.handle) }
    }

    /// Returns its ledger's table.
    pub(crate) fn table(self) -> &'l Table {
        self.ledger().table()
    }

    /// Reads the group's row. Returns `None` if the group is gone by the end of the look: the values may then belong to
    /// another group, or be a mixture, and are dropped.
    pub(crate) fn read<T>(self, look: impl FnOnce(&Row) -> T) -> Option<T> {
        follow::read(self.table(), self.id(), look)
    }

    /// Changes the row if the group exists; otherwise changes nothing and returns `None`.
    pub(crate) fn change<T>(self, change: impl FnOnce(&Row) -> T) -> Option<T> {
        follow::change(self.table(), self.id(), change)
    }

    /// Returns whether the group exists: it was not destroyed, and its process has not ended.
    pub fn exists(self) -> bool {
        follow::exists(self.table(), self.id())
    }

    /// Returns its name; `/` for the root, `(destroyed)` for a group that is gone. If another process wrote over it,
    /// characters that a name may not hold are escaped, like `\u{202e}`.
    pub fn name(self) -> String {
        let name = self.read(|row| if self.id().index() == 0 { "/".into() } else { row.name() });
        name.unwrap_or_else(|| DESTROYED.into())
    }

    /// Returns its parent; `None` for the root, and for a group that is gone.
    pub fn parent(self) -> Option<Group<'l>> {
        let ledger = self.ledger();
        let parent = self.read(|row| {
            let index = row.parent.load(Ordering::Relaxed).min(ledger.capacity() - 1);
            ledger.table().id(index)
        });
        parent.filter(|_| self.id().index() != 0).map(|parent| ledger.group(parent))
    }

    /// Returns its path, like a cgroup's: `/acme/q42`, `/` for the root, and `(destroyed)` for a group that is gone. The
    /// names are those of [`name`](Self::name).
    pub fn path(self) -> String {
        let path = self.read(|_| follow::spell(self.table(), self.id().index())).flatten();
        path.unwrap_or_else(|| DESTROYED.into())
    }

    /// The fast half of a charge: takes units that lie prepaid on the running CPU, or changes nothing and returns `false`,
    /// as always on machines without compact CPU ids. In that case [`try_charge_units`](Self::try_charge_units) does the
    /// whole charge. This is for an allocator that keeps everything else out of its fast path.
    #[inline(always)]
    #[must_use = "without prepaid units nothing was charged"]
    pub fn take_prepaid(&self, units: u64) -> bool {
        // SAFETY: the cell is of a row of the ledger's first column (R2; guarded by `tests/main/oracle.rs`).
        units <= word::STOCK_MAX
            && unsafe {
                percpu::take_fast(self.handle.cell.as_ptr(), self.handle.generation_bits, units)
            }
    }

    /// The fast half of an uncharge: puts units into the running CPU's cell, or changes nothing and returns `false` if the
    /// cell has no room.
    #[inline(always)]
    #[must_use = "without room nothing was uncharged"]
    pub fn put_prepaid(&self, units: u64) -> bool {
        // SAFETY: as in `take_prepaid`.
        units <= word::STOCK_MAX
            && unsafe {
                percpu::put_fast(self.handle.cell.as_ptr(), self.handle.generation_bits, units)
            }
    }

    /// Like [`take_prepaid`](Self::take_prepaid), but also works on machines without compact CPU ids.
    #[inline(always)]
    pub(crate) fn take_at_hand(self, units: u64) -> bool {
        self.take_prepaid(units) || {
            cold_path();
            self.take_owned(units)
        }
    }

    /// Like [`put_prepaid`](Self::put_prepaid), but also works on machines without compact CPU ids.
    #[inline(always)]
    pub(crate) fn put_at_hand(self, units: u64) -> bool {
        self.put_prepaid(units) || {
            cold_path();
            self.put_owned(units)
        }
    }

    /// Like [`take_prepaid`](Self::take_prepaid), but from the cell of a thread that owns its column. As a part of
    /// `take_prepaid`, this would make charges with sections slower: see the module's README.
    #[inline(always)]
    fn take_owned(self, units: u64) -> bool {
        let Handle { cell, generation_bits } = self.handle;
        // SAFETY: as in `take_prepaid`; the ledger's local page lies before the column.
        units <= word::STOCK_MAX
            && unsafe {
                windows::take::<ALIGNMENT, OWNED_END>(cell.as_ptr(), generation_bits, units)
            }
    }

    /// Like [`put_prepaid`](Self::put_prepaid), but into the cell of a thread that owns its column.
    #[inline(always)]
    fn put_owned(self, units: u64) -> bool {
        let Handle { cell, generation_bits } = self.handle;
        // SAFETY: as in `take_owned`.
        units <= word::STOCK_MAX
            && unsafe {
                windows::put::<ALIGNMENT, OWNED_END>(cell.as_ptr(), generation_bits, units)
            }
    }

    /// Like [`put_owned`](Self::put_owned), but for any number of units, and for a guard, which has its group packed.
    #[inline(always)]
    pub(crate) fn put_owned_packed(self, packed: Packed, units: u64) -> Told {
        // SAFETY: as in `take_owned`.
        unsafe { windows::put_packed::<ALIGNMENT, OWNED_END>(packed.raw(), units) }
    }

    /// Returns the hard limit.
    pub fn max(self) -> Limit {
        self.read(|row| Limit::units(row.counter.max_as_set())).unwrap_or(Limit::MAX)
    }

    /// Returns the soft limit.
    pub fn high(self) -> Limit {
        self.limit(|limits| &limits.high).unwrap_or(Limit::MAX)
    }

    /// Returns the limit of [`set_low`](Self::set_low).
    pub fn low(self) -> Limit {
        self.limit(|limits| &limits.low).unwrap_or(Limit::ZERO)
    }

    /// Returns the limit of [`set_min`](Self::set_min).
    pub fn min(self) -> Limit {
        self.limit(|limits| &limits.min).unwrap_or(Limit::ZERO)
    }

    fn limit(self, which: fn(&Limits) -> &AtomicU64) -> Option<Limit> {
        self.read(|row| Limit::units(which(&row.counter.limits).load(Ordering::Relaxed)))
    }

    /// Returns how many charges met this group's own limit, and were refused or granted above it (`max` events).
    pub fn max_events(self) -> u64 {
        self.read(|row| row.counter.track.max_events.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns how many walks to the counters ended above this group's high (`high` events).
    pub fn high_events(self) -> u64 {
        self.read(|row| row.counter.track.high_events.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the idle stock of the whole subtree to the counters, and returns its amount. Takes a few microseconds. It is
    /// for tests and measurements; a charge drains by itself when needed. If the group is destroyed in the middle, the next
    /// group of its row may be drained as well.
    pub fn drain(self) -> u64 {
        let _pass = lock::pass();
        self.read(|_| drain::subtree(self.table(), self.id().index())).unwrap_or(0)
    }

    /// Returns the group's row. For an id without a row, returns the root's: readers then find nothing to read, and a change
    /// checks [`exists`](Self::exists) first.
    pub(crate) fn row(self) -> &'l Row {
        let index = self.id().index();
        self.table().row(if index < self.table().capacity() { index } else { 0 })
    }
}

impl std::fmt::Debug for Group<'_> {
    /// `Group(/acme/q42 3#2)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group({} {})", self.path(), self.id())
    }
}
