//! This process's rows, and the state of its parent that a forked child must forget.
//!
//! A cell has one writing process, so a forked child must never charge its parent's rows. Everything that leads to
//! those rows lies in [`STATE`], memory that the kernel hands to a child zeroed (`MADV_WIPEONFORK`). So the child
//! notices the fork by itself, at its first allocation, in whatever way it was forked (`fork`, a bare `clone`, inside
//! an atfork handler), and attaches as its own process. The state that it needs for that is outside of the wiped
//! memory: the run, with the mapped ledger.

mod blind;
mod end;
pub(crate) mod heap;
mod names;

pub(crate) use blind::{
    access, blind, can_open, count_left_out, leaves_anew, name_blind, order, path, unname_blind,
};
pub(crate) use end::note_end;
pub(crate) use names::named_slot;

use crate::filter;
use crate::next::NEXT;
use crate::ranges::Table;
use crate::say::{environment, say, write};
use crate::text::Text;
use crate::thread::{self, Busy};
use crate::vouch;
use blind::attached_blind;
use ledgerline::{CreateError, Group, GroupId, Ledger, Limit, NAME_MAX, OpenError, StatItem};
use ledgerline_protocol::blind::Blind;
use ledgerline_protocol::given::Refused;
use ledgerline_protocol::{
    By, Count, DESCRIPTORS, GIVEN, Given, Identity, Item, OnMax, Order, PERCPU, Which,
    resident_ever,
};
use names::Name;
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Per-process state: zero in a new process, also in a forked one. The fields that every process touches come first, on
/// one page.
#[repr(C, align(4096))]
pub(crate) struct State {
    /// Groups by slot, as numbers; zero for a slot without a group. A slot is the number that stands for an owner in
    /// the shadow and in a thread's word. Slot 0 has no owner, slot 1 is the process's own.
    groups: [AtomicU64; SLOTS],
    phase: AtomicU32,
    /// The owner of its rows.
    identity: AtomicU32,
    naming: AtomicU32,
    /// Its row in the second ledger, as a number; zero without one (process/heap.rs).
    heap: AtomicU64,
    /// Not zero in a child that the C library forked.
    forked: AtomicU32,
    /// Not zero in a process that found no free row (process/blind.rs).
    left_out: AtomicU32,
    /// The time of this process's last refusal, and its use of the reserve since then (refuse.rs).
    pub(crate) refused_last: AtomicU64,
    pub(crate) spared: AtomicU64,
    /// The peak of resident bytes when the process attached, including that of programs before an `exec`.
    resident_before: AtomicU64,
    /// The bytes that the program took from the break (mapped.rs).
    pub(crate) program_break: AtomicUsize,
    /// The names of slots 2 and up.
    names: [Name; SLOTS],
    /// Code page and slot of callers (library.rs).
    pub(crate) pages: [AtomicU64; 4096],
    /// The cell of the only owner, and the first owner, of each span of the heap (shadow.rs).
    pub(crate) sole: [AtomicUsize; SPANS],
    pub(crate) first: [AtomicU16; SPANS],
    /// The largest request of each slot that was refused (refuse.rs).
    pub(crate) refused: [AtomicU64; SLOTS],
    /// The program's own mappings (mapped.rs).
    pub(crate) mappings: Table,
}

/// The spans of 64 MiB in a process's address space.
pub(crate) const SPANS: usize = 1 << (ledgerline::shadow::ADDRESS_BITS - 26);

/// The most owners of a process: as many as a byte of shadow can distinguish. Threads and libraries with further names
/// are charged to the process's own row.
const SLOTS: usize = 256;
/// The process's own slot.
pub(crate) const OWN: u32 = 1;

mod phase {
    pub(super) const NEW: u32 = 0;
    pub(super) const ATTACHING: u32 = 1;
    pub(super) const ATTACHED: u32 = 2;
    /// No ledger: nothing is charged.
    pub(super) const OFF: u32 = 3;
}

/// All large tables of this library are in one section. So the small variables, which each process writes at its start,
/// lie together on few pages and not between the tables. The section is of zeros, which take no room in the file.
#[unsafe(link_section = ".bss.ledgerline_tables")]
// SAFETY: consists of atomic numbers and of a table that is empty if all zeros.
pub(crate) static STATE: State = unsafe { MaybeUninit::zeroed().assume_init() };

/// The settings from `ledgerline run`, and its ledgers.
pub(crate) struct Run {
    ledger: Ledger,
    /// The identity of the ledgers' files.
    pub(crate) given: Given,
    /// The second ledger, if blocks have their own limit (process/heap.rs).
    heap: Option<Ledger>,
    /// The subject of a row.
    pub(crate) by: By,
    /// The action at the limit.
    pub(crate) on_max: OnMax,
    /// The memory that the limit counts.
    pub(crate) count: Count,
    /// Whether programs keep this library over `exec`.
    pub(crate) strict: bool,
    /// Whether the first refusal of each row is printed with its stack.
    pub(crate) stack: bool,
    /// Why no process of this program is accounted, if there is a reason.
    blind: Option<Blind>,
    /// The user who opened the ledger.
    user: u32,
    /// The reserve within the root's limit, for processes that were refused.
    pub(crate) reserve: u64,
    /// The number of the run's namespace.
    namespace: Option<u64>,
    /// The ledger's items, by [`Item`]; none in a ledger without them.
    items: [Option<StatItem>; Item::ALL.len()],
}

impl Run {
    /// Returns whether a limit holds for all of the run.
    fn is_limited(&self) -> bool {
        // A limit on resident memory opens and closes the root.
        self.heap.is_some()
            || self.count == Count::Resident
            || self.ledger.root().max() != Limit::MAX
    }
}

/// The state that a fork keeps.
struct Inherited {
    /// 0: not looked at yet, 1: open, 2: there is none.
    opened: AtomicU32,
    run: UnsafeCell<MaybeUninit<Run>>,
    /// The identity of the process that attached last: in a forked child, of its parent.
    parent: AtomicU32,
}

// SAFETY: the run is written once, by the one thread that moves `phase` from NEW to ATTACHING, before `opened` is 1; it
// is only read after that.
unsafe impl Sync for Inherited {}

static INHERITED: Inherited = Inherited {
    opened: AtomicU32::new(0),
    run: UnsafeCell::new(MaybeUninit::uninit()),
    parent: AtomicU32::new(0),
};

/// Returns the run, once its ledger was opened. It is never closed.
pub(crate) fn run() -> Option<&'static Run> {
    // SAFETY: `opened` is 1, so the run was written.
    (INHERITED.opened.load(Ordering::Acquire) == 1)
        .then(|| unsafe { (*INHERITED.run.get()).assume_init_ref() })
}

/// Returns the group of a slot; `None` if this process has none there. That holds for slot 0, and for every slot that a
/// forked child inherited.
#[inline(always)]
pub(crate) fn group(slot: u32) -> Option<Group<'static>> {
    let group = STATE.groups[(slot as usize) % SLOTS].load(Ordering::Relaxed);
    // SAFETY: a slot has a group only after the ledger was opened, which is never closed.
    (group != 0)
        .then(|| as_group(group, unsafe { &(*INHERITED.run.get()).assume_init_ref().ledger }))
}

/// Returns the group of a ledger that a [`number`] stands for.
#[inline(always)]
fn as_group(number: u64, ledger: &'static Ledger) -> Group<'static> {
    // The mask states to the compiler what the ledger guarantees: rows have 20 bits.
    ledger.group(GroupId::from_parts(number as u32 & 0xf_ffff, (number >> 32) as u16))
}

/// Sets the group of a slot.
fn set_group(slot: usize, group: Group<'_>) {
    STATE.groups[slot].store(number(group), Ordering::Release);
}

/// Returns a group as a number. It is never zero, since its generation is not.
fn number(group: Group<'_>) -> u64 {
    let id = group.id();
    u64::from(id.generation()) << 32 | u64::from(id.index())
}

/// Adds to an item of a slot.
pub(crate) fn note(slot: u32, what: Item, more: i64) {
    if let Some(group) = group(slot) {
        note_in(group, what, more);
    }
}

/// Adds to an item of a row.
fn note_in(row: Group<'_>, what: Item, more: i64) {
    if let Some(item) = run().and_then(|run| run.items[what as usize]) {
        row.add_stat(item, more);
    }
}

/// Returns the run if this process is charged; attaches the process on the first call. The caller is marked busy.
pub(crate) fn attached() -> Option<&'static Run> {
    loop {
        // Exchanged without a read before it: a page that is read first and written then is faulted in twice.
        let before = STATE.phase.compare_exchange(
            phase::NEW,
            phase::ATTACHING,
            Ordering::Acquire,
            Ordering::Acquire,
        );
        match before {
            Ok(_) => {
                let outcome = attach().map_or(phase::OFF, |()| phase::ATTACHED);
                STATE.phase.store(outcome, Ordering::Release);
            }
            Err(phase::ATTACHED) => return run(),
            Err(phase::OFF) => return None,
            // Another thread attaches. It is busy, so it does not wait for this one.
            Err(_) => filter::wait(),
        }
    }
}

/// Returns the identity of this process, if it is attached.
pub(crate) fn attached_as() -> Option<Identity> {
    (STATE.phase.load(Ordering::Acquire) == phase::ATTACHED).then(identity)
}

/// Ends the account of this process, whose rows a program overwrote. It continues as it would without this library; the
/// account keeps its last state.
#[cold]
pub(crate) fn leave() {
    if STATE.phase.swap(phase::OFF, Ordering::AcqRel) == phase::ATTACHED {
        say(&[
            b"the ledger is damaged: a program wrote over it; this process is no longer accounted",
        ]);
    }
    STATE.groups.iter().for_each(|group| group.store(0, Ordering::Relaxed));
    STATE.heap.store(0, Ordering::Relaxed);
}

/// Returns the identity of this process.
pub(crate) fn identity() -> Identity {
    Identity::from_owner(STATE.identity.load(Ordering::Relaxed))
}

/// Appends the path of a slot's row.
pub(crate) fn push_path<const N: usize>(text: &mut Text<N>, slot: u32) {
    text.push(b"/");
    push_process(text, program_name(), identity());
    names::push(text, slot);
}

/// Appends the name of a process's row: the program and its id. The id of a process in another namespace includes the
/// namespace, since the same id stands for another process elsewhere.
fn push_process<const N: usize>(text: &mut Text<N>, program: &[u8], process: Identity) {
    let before = text.as_str().len();
    text.push(program).shorten(before + NAME_MAX - 18);
    match process.distance() {
        0 => text.push(b"."),
        less @ ..0 => text.push(b".ns-").push_number(less.unsigned_abs()).push(b"."),
        more => text.push(b".ns").push_number(more.unsigned_abs()).push(b"."),
    }
    .push_number(process.pid().into());
}

/// Notes that this process executes another program now, or that it failed to. A child that shares its parent's memory
/// notes nothing: the row is its parent's.
pub(crate) fn note_execution(own: libc::pid_t, executes: bool) {
    let is_own = attached_as().is_some_and(|process| process.pid() == own.unsigned_abs());
    if is_own && let Some(_busy) = Busy::enter() {
        note(OWN, Item::Executed, if executes { 1 } else { -1 });
    }
}

/// Reports why this process is not accounted.
#[cold]
fn turn_away<T>(why: &[&[u8]]) -> Option<T> {
    let mut line = Text::line();
    for part in why.iter().chain([&&b"; this process is not accounted"[..]]) {
        line.push(part);
    }
    write(&line);
    None
}

/// Names a process that is not accounted in the ledger and, if there is a limit, on standard error.
#[cold]
fn turn_away_as(run: &Run, name: &Text<NAME_MAX>, identity: Identity, why: Blind) -> Option<()> {
    let row = run.ledger.create_for_process(name.as_str(), identity.owner());
    match row {
        Ok(row) => note_in(row, Item::Blind, why as i64),
        Err(_) => count_left_out(1),
    }
    if run.is_limited() {
        blind::announce(name.as_str().as_bytes(), why);
    }
    None
}

fn attach() -> Option<()> {
    if INHERITED.opened.load(Ordering::Acquire) == 0 {
        let opened = open().map_or(2, |run| {
            // SAFETY: only the attaching thread is here, and no thread reads before `opened` is 1.
            unsafe { (*INHERITED.run.get()).write(run) };
            1
        });
        INHERITED.opened.store(opened, Ordering::Release);
    }
    let run = run()?;
    let parent = INHERITED.parent.load(Ordering::Relaxed);
    let parent = (parent != 0).then(|| Identity::from_owner(parent));
    let Some(identity) = identify(run.namespace, parent) else {
        return turn_away(&[b"the PID namespace cannot be told from others"]);
    };
    STATE.identity.store(identity.owner(), Ordering::Relaxed);
    INHERITED.parent.store(identity.owner(), Ordering::Relaxed);
    let mut name = Text::<NAME_MAX>::name();
    push_process(&mut name, program_name(), identity);
    if let Some(why) = run.blind {
        return turn_away_as(run, &name, identity, why);
    }
    let attached = heap::attach(run, name.as_str(), identity.owner())
        .and_then(|()| run.ledger.attach_process(name.as_str(), identity.owner()));
    let process = match attached {
        Ok(process) => process,
        Err(CreateError::Full { .. }) => {
            STATE.left_out.store(1, Ordering::Relaxed);
            count_left_out(1);
            return turn_away(&[b"the ledger has no row left (run --rows)"]);
        }
        Err(_) => return turn_away(&[b"the ledger is damaged: a program wrote over it"]),
    };
    set_group(OWN as usize, process);
    attached_blind();
    if !filter::is_on() {
        // SAFETY: getppid has no preconditions.
        note(OWN, Item::Parent, unsafe { libc::getppid() }.into());
        note(OWN, Item::Started, filter::milliseconds() + 1);
        STATE.resident_before.store(resident_ever(libc::RUSAGE_SELF), Ordering::Relaxed);
    }
    Some(())
}

/// Whether this program started in the namespace of process ids that `/proc` shows. The ledger is found through the
/// run's `/proc`, so that is the run's namespace, unless the ledger is reached by a descriptor (`elsewhere.rs`). Holds
/// for the first process of this program: a forked one may be in another.
static IN_VIEW: AtomicU32 = AtomicU32::new(0);

/// Returns the identity of this process; under a filter, as far as it is known without a call.
fn identify(run: Option<u64>, parent: Option<Identity>) -> Option<Identity> {
    if !filter::is_on() {
        let in_view = IN_VIEW.swap(0, Ordering::Relaxed) != 0 && parent.is_none();
        return Identity::own(run.filter(|_| !in_view), parent);
    }
    let forked = STATE.forked.load(Ordering::Relaxed) != 0;
    Identity::forked(forked.then(thread::id_without_a_call)??, parent?)
}

/// Runs in the child of each `fork` of the C library: its only thread has the process's id.
extern "C" fn in_forked_child() {
    STATE.forked.store(1, Ordering::Relaxed);
}

/// Returns whether a filter may forbid this library's calls. The first call in a program checks for filters at the
/// start.
pub(crate) fn is_filtered() -> bool {
    static LOOKED: AtomicU32 = AtomicU32::new(0);
    // Relaxed: the first caller is the loader, or the one thread that opens the ledger.
    if LOOKED.load(Ordering::Relaxed) == 0 {
        let is_vouched = vouch::take();
        if let Some(order) = Order::read(environment)
            && LOOKED.swap(1, Ordering::Relaxed) == 0
        {
            let start = filter::look(order.filters.and_then(as_number), is_vouched);
            let is_in_view =
                start.is_nested == Some(false) && !order.ledger.starts_with(DESCRIPTORS.as_bytes());
            IN_VIEW.store(u32::from(is_in_view), Ordering::Relaxed);
        }
    }
    filter::is_on()
}

/// Opens the ledgers that the environment names. If it names one, a failure is reported.
fn open() -> Option<Run> {
    let order = Order::read(environment).filter(|_| !is_filtered())?;
    if environment(PERCPU).is_none() {
        let why = b" is not set to rseq or fallback; start programs with ledgerline run";
        say(&[PERCPU.to_bytes(), why]);
        return None;
    }
    let Some(given) = order.given.and_then(Given::read) else {
        say(&[
            GIVEN.to_bytes(),
            b" does not say which ledger is the run's; start programs with ledgerline run",
        ]);
        return None;
    };
    if let Some(cpus) = order.cpus.and_then(as_number) {
        // SAFETY: the run read the number on this machine, and made the ledger for it.
        unsafe { ledgerline::percpu::tell_possible_cpus(cpus) };
    }
    // SAFETY: the environment's strings end in zero.
    let ledger = unsafe { open_file(order.ledger, &given, Which::Ledger) }?;
    let state = (&raw const STATE).cast_mut().cast();
    // SAFETY: advises about whole pages of this library's zero-initialised data: private anonymous
    // memory, as the advice requires.
    let is_wiped = unsafe { libc::madvise(state, size_of::<State>(), libc::MADV_WIPEONFORK) } == 0;
    // SAFETY: the handler is a plain function of a library that stays loaded, and touches only a static. If it cannot
    // be registered, a child that is forked under a filter is not accounted.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    let heap = match order.heap {
        // SAFETY: as above.
        Some(path) => Some(unsafe { open_file(path, &given, Which::Heap) }?),
        None => None,
    };
    // SAFETY: only the attaching thread is here, and no thread reads before `opened` is 1; geteuid has no
    // preconditions.
    let user = unsafe {
        blind::keep_order();
        libc::geteuid()
    };
    Some(Run {
        by: order.by,
        on_max: order.on_max,
        count: order.count,
        strict: order.strict,
        stack: order.stack,
        blind: match NEXT.is_secret() {
            true => Some(Blind::Allocator),
            false => Some(Blind::Kernel).filter(|_| !is_wiped),
        },
        user,
        reserve: order.reserve.and_then(as_number).unwrap_or(0),
        namespace: order.namespace.and_then(as_number),
        items: Item::NAMES.map(|name| ledger.item(name)),
        ledger,
        given,
        heap,
    })
}

/// Parses a number in decimal.
fn as_number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Opens a ledger's file, if it is the run's. A failure is reported.
///
/// # Safety
/// A zero follows the path, as it does in the environment.
unsafe fn open_file(path: &'static [u8], given: &Given, which: Which) -> Option<Ledger> {
    // SAFETY: the path ends in zero, by the caller's contract. `File::open` is avoided, since its code is far from the
    // other code of a start.
    let opened = given.open(unsafe { CStr::from_ptr(path.as_ptr().cast()) }, which, libc::O_RDWR);
    let descriptor = match opened {
        Ok(descriptor) => descriptor,
        // The run has ended, and its ledger with it. This process outlived both, and continues as it would without this
        // library. Another process may have the run's id by now.
        Err(Refused::System(libc::ENOENT) | Refused::Other) if path.starts_with(b"/proc/") => {
            return None;
        }
        Err(Refused::Other) => return turn_away(&[path, b" is not a ledger of this run"]),
        Err(Refused::System(_)) => return turn_away(&[b"cannot open the ledger ", path]),
    };
    // SAFETY: just opened, and owned by nothing else.
    let file = unsafe { File::from_raw_fd(descriptor) };
    match Ledger::open_sparing(&file) {
        Ok(ledger) => Some(ledger),
        Err(OpenError::Io(error)) if error.raw_os_error() == Some(libc::ENOMEM) => {
            turn_away(&[b"too little address space for the ledger (ulimit -v)"])
        }
        Err(_) => turn_away(&[path, b" is not a ledger of this version"]),
    }
}

/// Returns the program's name without its folder, as it was when its first process began to be accounted. A program
/// that sets its title overwrites the string in which the C library has its name.
pub(crate) fn program_name() -> &'static [u8] {
    static NAME: [AtomicU64; NAME_MAX / 8] = [const { AtomicU64::new(0) }; NAME_MAX / 8];
    static KEPT: AtomicU32 = AtomicU32::new(0);
    // Acquire and Release: a thread that sees 1 sees the whole name. Two threads that keep it at the same time write
    // the same.
    if KEPT.load(Ordering::Acquire) == 0 {
        let mut words = [0; NAME_MAX];
        let name = invoked_as();
        let length = name.len().min(NAME_MAX - 1);
        words[..length].copy_from_slice(&name[..length]);
        for (to, from) in NAME.iter().zip(words.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(from);
            to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        KEPT.store(1, Ordering::Release);
    }
    // SAFETY: the numbers lie one behind the other, are written no more, and have no padding; the last byte is zero.
    let bytes = unsafe { std::slice::from_raw_parts(NAME.as_ptr().cast::<u8>(), NAME_MAX) };
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
    &bytes[..length]
}

/// Returns the program's name, as the C library has it.
fn invoked_as() -> &'static [u8] {
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
