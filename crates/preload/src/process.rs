//! This process's rows, and what a forked child must forget of its parent's.
//!
//! A cell has one writing process, so a forked child must never charge its parent's rows. Everything
//! that leads to those rows lies in [`STATE`], memory that the kernel hands to a child zeroed
//! (`MADV_WIPEONFORK`). So the child finds out by itself, at its first allocation, in whatever way it
//! was forked (`fork`, a bare `clone`, inside somebody's atfork handler), and attaches as a process of
//! its own. What it needs for that is outside of the wiped memory: the mapped ledger, the settings.

use crate::ranges::Table;
use crate::say::{environment, say};
use crate::text::Text;
use ledgerline::{Group, GroupId, Ledger, NAME_MAX, OpenError, StatItem};
use ledgerline_protocol::{By, ITEMS, Identity, OnMax, Order, PERCPU};
use std::cell::UnsafeCell;
use std::ffi::{CStr, OsStr};
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Rows of a ledger that is shared like this are never destroyed, so all are the first in theirs.
const GENERATION: u16 = 1;

/// Zero in a new process, also in a forked one.
#[repr(C, align(4096))]
pub(crate) struct State {
    /// Rows by slot. (A slot is the number that stands for an owner in the shadow and in a thread's
    /// word.) A slot without a row has zero, the root's row, which owns no block. Slot 0 is nobody's, slot
    /// 1 the process's own.
    rows: [AtomicU32; SLOTS],
    phase: AtomicU32,
    /// The owner of its rows.
    identity: AtomicU32,
    naming: AtomicU32,
    /// The names of slots 2 and up.
    names: [Name; SLOTS],
    /// Code page and slot of callers (library.rs).
    pub(crate) pages: [AtomicU64; 4096],
    /// The one owner's cell, and the first owner, of each span of the heap (shadow.rs).
    pub(crate) sole: [AtomicUsize; SPANS],
    pub(crate) first: [AtomicU16; SPANS],
    /// The largest request of each slot that was refused (refuse.rs).
    pub(crate) refused: [AtomicU64; SLOTS],
    /// What the program mapped by itself, and what it took from the break (mapped.rs).
    pub(crate) mappings: Table,
    pub(crate) program_break: AtomicUsize,
}

/// The spans of 64 MiB in the lower half of the address space.
pub(crate) const SPANS: usize = 1 << (47 - 26);

/// How many owners a process may have: as many as a byte of shadow can tell apart. Threads and libraries
/// whose names come after that are charged to the process's own row.
const SLOTS: usize = 256;
/// The process's own slot.
pub(crate) const OWN: u32 = 1;

struct Name {
    /// The name, filled up with zeros.
    text: [AtomicU64; NAME_MAX / 8],
}

mod phase {
    pub(super) const NEW: u32 = 0;
    pub(super) const ATTACHING: u32 = 1;
    pub(super) const ATTACHED: u32 = 2;
    /// No ledger: nobody is charged.
    pub(super) const OFF: u32 = 3;
}

pub(crate) static STATE: State = State {
    rows: [const { AtomicU32::new(0) }; SLOTS],
    phase: AtomicU32::new(phase::NEW),
    identity: AtomicU32::new(0),
    naming: AtomicU32::new(0),
    names: [const { Name { text: [const { AtomicU64::new(0) }; NAME_MAX / 8] } }; SLOTS],
    pages: [const { AtomicU64::new(0) }; 4096],
    sole: [const { AtomicUsize::new(0) }; SPANS],
    first: [const { AtomicU16::new(0) }; SPANS],
    refused: [const { AtomicU64::new(0) }; SLOTS],
    mappings: Table::new(),
    program_break: AtomicUsize::new(0),
};

/// What `run` asked for.
struct Settings {
    by: By,
    on_max: OnMax,
    /// The number of the run's namespace.
    namespace: Option<u64>,
    /// The ledger's items, by [`Item`]; none in a ledger without them.
    items: [Option<StatItem>; ITEMS.len()],
}

/// What a row counts beside its units: the places of [`ITEMS`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    Private,
    Shared,
    File,
    RefusedFirst,
    RefusedFirstTime,
    RefusedLargest,
    Folded,
}

/// What outlives a fork.
struct Inherited {
    /// 0: not looked at yet, 1: open, 2: there is none.
    opened: AtomicU32,
    ledger: UnsafeCell<MaybeUninit<Ledger>>,
    settings: UnsafeCell<Settings>,
    /// The identity of the process that attached last: in a forked child, of its parent.
    parent: AtomicU32,
}

// SAFETY: the ledger and the settings are written once, by the one thread that moves `phase` from
// NEW to ATTACHING, before `opened` is 1; they are read after that.
unsafe impl Sync for Inherited {}

static INHERITED: Inherited = Inherited {
    opened: AtomicU32::new(0),
    ledger: UnsafeCell::new(MaybeUninit::uninit()),
    parent: AtomicU32::new(0),
    settings: UnsafeCell::new(Settings {
        by: By::Thread,
        on_max: OnMax::Enomem,
        namespace: None,
        items: [None; ITEMS.len()],
    }),
};

/// The group of a slot; `None` if this process has none there. That is so for slot 0, and for every slot
/// that a forked child finds in what it inherited.
#[inline(always)]
pub(crate) fn group(slot: u32) -> Option<Group<'static>> {
    let row = STATE.rows[(slot as usize) % SLOTS].load(Ordering::Relaxed);
    // SAFETY: a slot has a row only after the ledger was opened, and it stays open for good.
    let ledger = unsafe { (*INHERITED.ledger.get()).assume_init_ref() };
    // (The mask tells the compiler what the ledger guarantees: rows have 20 bits.)
    (row != 0).then(|| ledger.group(GroupId::from_parts(row & 0xf_ffff, GENERATION)))
}

/// What rows stand for. Only after [`attached`] was true.
pub(crate) fn by() -> By {
    // SAFETY: written once, before the process was attached.
    unsafe { (*INHERITED.settings.get()).by }
}

/// What happens at the limit. Only after [`attached`] was true.
pub(crate) fn on_max() -> OnMax {
    // SAFETY: written once, before the process was attached.
    unsafe { (*INHERITED.settings.get()).on_max }
}

/// Notes that a slot has so much more, or less, of an item.
pub(crate) fn note(slot: u32, what: Item, more: i64) {
    // SAFETY: a slot has a row only after the settings were written.
    let item = || unsafe { (*INHERITED.settings.get()).items[what as usize] };
    if let Some(group) = group(slot)
        && let Some(item) = item()
    {
        group.add_stat(item, more);
    }
}

/// Whether this process is charged; attaches it on the first call. The caller is marked busy.
pub(crate) fn attached() -> bool {
    loop {
        match STATE.phase.load(Ordering::Acquire) {
            phase::ATTACHED => return true,
            phase::OFF => return false,
            phase::NEW => {
                let mine = STATE.phase.compare_exchange(
                    phase::NEW,
                    phase::ATTACHING,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if mine.is_ok() {
                    let outcome = if attach() { phase::ATTACHED } else { phase::OFF };
                    STATE.phase.store(outcome, Ordering::Release);
                }
            }
            // Another thread attaches. It is busy, so it does not wait for this one.
            _ => std::thread::yield_now(),
        }
    }
}

/// This process.
pub(crate) fn identity() -> Identity {
    Identity::from_owner(STATE.identity.load(Ordering::Relaxed))
}

/// What the process's row is called: the program and its id; the id of one in another namespace says so, since somebody
/// else has that number elsewhere.
pub(crate) fn push_name<const N: usize>(text: &mut Text<N>) {
    let before = text.as_str().len();
    text.push(program_name()).shorten(before + NAME_MAX - 18);
    match identity().distance() {
        0 => text.push(b"."),
        less @ ..0 => text.push(b".ns-").push_number(less.unsigned_abs()).push(b"."),
        more => text.push(b".ns").push_number(more.unsigned_abs()).push(b"."),
    }
    .push_number(identity().pid().into());
}

fn attach() -> bool {
    if INHERITED.opened.load(Ordering::Acquire) == 0 {
        let opened = if open() { 1 } else { 2 };
        INHERITED.opened.store(opened, Ordering::Release);
    }
    if INHERITED.opened.load(Ordering::Acquire) != 1 {
        return false;
    }
    // SAFETY: `opened` is 1.
    let ledger = unsafe { (*INHERITED.ledger.get()).assume_init_ref() };
    // SAFETY: as above; the settings were written before.
    let run = unsafe { (*INHERITED.settings.get()).namespace };
    let parent = INHERITED.parent.load(Ordering::Relaxed);
    let parent = (parent != 0).then(|| Identity::from_owner(parent));
    let Some(identity) = Identity::own(run, parent) else {
        say(&[b"the PID namespace cannot be told from others; this process is not accounted"]);
        return false;
    };
    STATE.identity.store(identity.owner(), Ordering::Relaxed);
    INHERITED.parent.store(identity.owner(), Ordering::Relaxed);
    let mut name = Text::<NAME_MAX>::name();
    push_name(&mut name);
    let Ok(process) = ledger.attach_process(name.as_str(), identity.owner()) else {
        say(&[b"the ledger holds no more groups; this process is not accounted"]);
        return false;
    };
    if process.id().generation() != GENERATION {
        return false;
    }
    STATE.rows[OWN as usize].store(process.id().index(), Ordering::Release);
    true
}

/// Opens the ledger that the environment names; says why not, if it names one.
fn open() -> bool {
    let Some(order) = Order::read(environment) else { return false };
    if environment(PERCPU).is_none() {
        let why = b" is not set to rseq or fallback; start programs with ledgerline run";
        say(&[PERCPU.to_bytes(), why]);
        return false;
    }
    let path = order.ledger;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(OsStr::from_bytes(path));
    let file = match file {
        Ok(file) => file,
        // The run has ended, and its ledger with it: this process outlived both, and goes on as it would plain.
        Err(gone) if gone.kind() == ErrorKind::NotFound && path.starts_with(b"/proc/") => {
            return false;
        }
        Err(_) => {
            say(&[b"cannot open the ledger ", path, b"; this process is not accounted"]);
            return false;
        }
    };
    let ledger = match Ledger::open_in(&file) {
        Ok(ledger) => ledger,
        Err(OpenError::Io(error)) if error.raw_os_error() == Some(libc::ENOMEM) => {
            say(&[b"too little address space for the ledger (ulimit -v); this process is not accounted"]);
            return false;
        }
        Err(_) => {
            say(&[path, b" is not a ledger of this version; this process is not accounted"]);
            return false;
        }
    };
    let state = (&raw const STATE).cast_mut().cast();
    // SAFETY: advises about whole pages of this library's zero-initialised data: private anonymous
    // memory, as the advice requires.
    let wiped = unsafe { libc::madvise(state, size_of::<State>(), libc::MADV_WIPEONFORK) } == 0;
    if !wiped {
        say(&[b"this kernel cannot wipe memory on fork; this process is not accounted"]);
        return false;
    }
    // SAFETY: only the attaching thread is here, and nobody reads before `opened` is 1.
    unsafe {
        let namespace = order.namespace.and_then(|text| std::str::from_utf8(text).ok());
        let namespace = namespace.and_then(|text| text.parse().ok());
        let items = ITEMS.map(|name| ledger.item(name));
        (*INHERITED.settings.get()) =
            Settings { by: order.by, on_max: order.on_max, namespace, items };
        (*INHERITED.ledger.get()).write(ledger);
    }
    true
}

/// What the row of a slot is called below the process's own, if it is another.
pub(crate) fn slot_name(slot: u32) -> Option<[u8; NAME_MAX]> {
    let name = (slot > OWN).then(|| &STATE.names[slot as usize % SLOTS])?;
    let mut bytes = [0; NAME_MAX];
    for (to, from) in bytes.chunks_exact_mut(8).zip(&name.text) {
        to.copy_from_slice(&from.load(Ordering::Relaxed).to_le_bytes());
    }
    Some(bytes)
}

/// The slot of the row with this name below the process's own; creates the row when the name is new. Where
/// there are too many names, or no room in the ledger, it is the process's own slot.
pub(crate) fn named_slot(name: &[u8]) -> u32 {
    let mut text = Text::name();
    text.push(if name.is_empty() { b"(no name)" } else { name });
    while STATE.naming.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::thread::yield_now();
    }
    let slot = find_or_create(&text).unwrap_or_else(|| {
        note(OWN, Item::Folded, 1);
        OWN
    });
    STATE.naming.store(0, Ordering::Release);
    slot
}

fn find_or_create(text: &Text<NAME_MAX>) -> Option<u32> {
    let words = text.words::<{ NAME_MAX / 8 }>();
    for (slot, name) in STATE.names.iter().enumerate().skip(OWN as usize + 1) {
        let row = &STATE.rows[slot];
        if row.load(Ordering::Relaxed) == 0 {
            let group = group(OWN)?.create(text.as_str()).ok()?;
            if group.id().generation() != GENERATION {
                return None;
            }
            for (to, from) in name.text.iter().zip(words) {
                to.store(from, Ordering::Relaxed);
            }
            row.store(group.id().index(), Ordering::Release);
            return Some(slot as u32);
        }
        if name.text.iter().zip(words).all(|(have, want)| have.load(Ordering::Relaxed) == want) {
            return Some(slot as u32);
        }
    }
    None
}

/// The program's name without its folder.
pub(crate) fn program_name() -> &'static [u8] {
    unsafe extern "C" {
        static program_invocation_short_name: *const libc::c_char;
    }
    // SAFETY: the C library sets it before any library's initialisation to a string that it keeps.
    unsafe {
        if program_invocation_short_name.is_null() {
            b"program"
        } else {
            CStr::from_ptr(program_invocation_short_name).to_bytes()
        }
    }
}
