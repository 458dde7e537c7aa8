//! This process's rows, and what a forked child must forget of its parent's.
//!
//! A cell has one writing process, so a forked child must never charge its parent's rows. Everything
//! that leads to those rows lies in [`STATE`], memory that the kernel hands to a child zeroed
//! (`MADV_WIPEONFORK`). So the child finds out by itself, at its first allocation, in whatever way it
//! was forked (`fork`, a bare `clone`, inside somebody's atfork handler), and attaches as a process of
//! its own. What it needs for that is outside of the wiped memory: the run, with the mapped ledger.

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
    By, DESCRIPTORS, GIVEN, Given, Identity, Item, OnMax, Order, PERCPU, Which, resident_ever,
};
use names::Name;
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Zero in a new process, also in a forked one. What every process touches comes first, on one page.
#[repr(C, align(4096))]
pub(crate) struct State {
    /// Groups by slot, as numbers. (A slot is the number that stands for an owner in the shadow and in a
    /// thread's word.) A slot without a group has zero. Slot 0 is nobody's, slot 1 the process's own.
    groups: [AtomicU64; SLOTS],
    phase: AtomicU32,
    /// The owner of its rows.
    identity: AtomicU32,
    naming: AtomicU32,
    /// Its row in the second ledger, as a number; zero without one (process/heap.rs).
    heap: AtomicU64,
    /// Not zero in a child that the C library forked.
    forked: AtomicU32,
    /// Not zero in a process that found no row left (process/blind.rs).
    left_out: AtomicU32,
    /// When this process was refused last, and what it has had of the reserve since (refuse.rs).
    pub(crate) refused_last: AtomicU64,
    pub(crate) spared: AtomicU64,
    /// The most that was resident when the process attached: also in what its number was used for before an `exec`.
    resident_before: AtomicU64,
    /// What the program took from the break (mapped.rs).
    pub(crate) program_break: AtomicUsize,
    /// The names of slots 2 and up.
    names: [Name; SLOTS],
    /// Code page and slot of callers (library.rs).
    pub(crate) pages: [AtomicU64; 4096],
    /// The one owner's cell, and the first owner, of each span of the heap (shadow.rs).
    pub(crate) sole: [AtomicUsize; SPANS],
    pub(crate) first: [AtomicU16; SPANS],
    /// The largest request of each slot that was refused (refuse.rs).
    pub(crate) refused: [AtomicU64; SLOTS],
    /// What the program mapped by itself (mapped.rs).
    pub(crate) mappings: Table,
}

/// The spans of 64 MiB in a process's address space.
pub(crate) const SPANS: usize = 1 << (ledgerline::shadow::ADDRESS_BITS - 26);

/// How many owners a process may have: as many as a byte of shadow can tell apart. Threads and libraries
/// whose names come after that are charged to the process's own row.
const SLOTS: usize = 256;
/// The process's own slot.
pub(crate) const OWN: u32 = 1;

mod phase {
    pub(super) const NEW: u32 = 0;
    pub(super) const ATTACHING: u32 = 1;
    pub(super) const ATTACHED: u32 = 2;
    /// No ledger: nobody is charged.
    pub(super) const OFF: u32 = 3;
}

/// (All large tables of this library name one section. So the small variables, which each process writes at its start, lie
/// together on few pages, and not one between each two tables. It is of zeros, which take no room in the file.)
#[unsafe(link_section = ".bss.ledgerline_tables")]
// SAFETY: it is made of atomic numbers, and of a table of which all zeros are an empty one.
pub(crate) static STATE: State = unsafe { MaybeUninit::zeroed().assume_init() };

/// What `ledgerline run` asked for, and its ledgers.
pub(crate) struct Run {
    ledger: Ledger,
    /// Which files the ledgers are.
    pub(crate) given: Given,
    /// The second ledger, if blocks have a limit of their own (process/heap.rs).
    heap: Option<Ledger>,
    /// What rows stand for.
    pub(crate) by: By,
    /// What happens at the limit.
    pub(crate) on_max: OnMax,
    /// Whether programs keep this library over `exec`.
    pub(crate) strict: bool,
    /// Whether the first refusal of each row comes with its stack.
    pub(crate) stack: bool,
    /// Why no process of this program is accounted, if there is a reason.
    blind: Option<Blind>,
    /// Who opened the ledger.
    user: u32,
    /// What is kept of the root's limit for those who were refused.
    pub(crate) reserve: u64,
    /// The number of the run's namespace.
    namespace: Option<u64>,
    /// The ledger's items, by [`Item`]; none in a ledger without them.
    items: [Option<StatItem>; Item::ALL.len()],
}

impl Run {
    /// Whether a limit holds for all of the run.
    fn is_limited(&self) -> bool {
        self.heap.is_some() || self.ledger.root().max() != Limit::MAX
    }
}

/// What outlives a fork.
struct Inherited {
    /// 0: not looked at yet, 1: open, 2: there is none.
    opened: AtomicU32,
    run: UnsafeCell<MaybeUninit<Run>>,
    /// The identity of the process that attached last: in a forked child, of its parent.
    parent: AtomicU32,
}

// SAFETY: the run is written once, by the one thread that moves `phase` from NEW to ATTACHING, before `opened` is 1; it
// is read after that.
unsafe impl Sync for Inherited {}

static INHERITED: Inherited = Inherited {
    opened: AtomicU32::new(0),
    run: UnsafeCell::new(MaybeUninit::uninit()),
    parent: AtomicU32::new(0),
};

/// The run, once its ledger was opened. It stays open for good.
pub(crate) fn run() -> Option<&'static Run> {
    // SAFETY: `opened` is 1, so the run was written.
    (INHERITED.opened.load(Ordering::Acquire) == 1)
        .then(|| unsafe { (*INHERITED.run.get()).assume_init_ref() })
}

/// The group of a slot; `None` if this process has none there. That is so for slot 0, and for every slot
/// that a forked child finds in what it inherited.
#[inline(always)]
pub(crate) fn group(slot: u32) -> Option<Group<'static>> {
    let group = STATE.groups[(slot as usize) % SLOTS].load(Ordering::Relaxed);
    // SAFETY: a slot has a group only after the ledger was opened, and it stays open for good.
    (group != 0)
        .then(|| as_group(group, unsafe { &(*INHERITED.run.get()).assume_init_ref().ledger }))
}

/// The group of a ledger that a [`number`] stands for.
#[inline(always)]
fn as_group(number: u64, ledger: &'static Ledger) -> Group<'static> {
    // (The mask tells the compiler what the ledger guarantees: rows have 20 bits.)
    ledger.group(GroupId::from_parts(number as u32 & 0xf_ffff, (number >> 32) as u16))
}

/// Gives a slot its group.
fn set_group(slot: usize, group: Group<'_>) {
    STATE.groups[slot].store(number(group), Ordering::Release);
}

/// A group as a number: never zero, since its generation is not.
fn number(group: Group<'_>) -> u64 {
    let id = group.id();
    u64::from(id.generation()) << 32 | u64::from(id.index())
}

/// Notes that a slot has so much more, or less, of an item.
pub(crate) fn note(slot: u32, what: Item, more: i64) {
    if let Some(group) = group(slot) {
        note_in(group, what, more);
    }
}

/// Notes that a row has so much more, or less, of an item.
fn note_in(row: Group<'_>, what: Item, more: i64) {
    if let Some(item) = run().and_then(|run| run.items[what as usize]) {
        row.add_stat(item, more);
    }
}

/// The run, if this process is charged; attaches it on the first call. The caller is marked busy.
pub(crate) fn attached() -> Option<&'static Run> {
    loop {
        // (At once, without a look before it: what reads the page first and writes it then has it made twice.)
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

/// This process, if it is attached.
pub(crate) fn attached_as() -> Option<Identity> {
    (STATE.phase.load(Ordering::Acquire) == phase::ATTACHED).then(identity)
}

/// Ends the account of this process, whose rows a program wrote over. It goes on as it would plain; what it held stays
/// in the account as it was.
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

/// This process.
pub(crate) fn identity() -> Identity {
    Identity::from_owner(STATE.identity.load(Ordering::Relaxed))
}

/// The path of a slot's row.
pub(crate) fn push_path<const N: usize>(text: &mut Text<N>, slot: u32) {
    text.push(b"/");
    push_process(text, program_name(), identity());
    names::push(text, slot);
}

/// What a process's row is called: the program and its id; the id of one in another namespace says so, since somebody
/// else has that number elsewhere.
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

/// Notes that this process executes another program now, or that it did not after all. A child that shares its parent's memory
/// notes nothing: the row is its parent's.
pub(crate) fn note_execution(own: libc::pid_t, executes: bool) {
    let is_own = attached_as().is_some_and(|process| process.pid() == own.unsigned_abs());
    if is_own && let Some(_busy) = Busy::enter() {
        note(OWN, Item::Executed, if executes { 1 } else { -1 });
    }
}

/// Says why this process is not accounted.
#[cold]
fn turn_away<T>(why: &[&[u8]]) -> Option<T> {
    let mut line = Text::line();
    for part in why.iter().chain([&&b"; this process is not accounted"[..]]) {
        line.push(part);
    }
    write(&line);
    None
}

/// Names a process that is not accounted in the ledger, and, where there is a limit, at once.
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
            // SAFETY: only the attaching thread is here, and nobody reads before `opened` is 1.
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
/// run's `/proc`, so that is the run's (unless it is reached by a descriptor: `elsewhere.rs`). It counts for the first process of this program: one that is forked may be in
/// another.
static IN_VIEW: AtomicU32 = AtomicU32::new(0);

/// Who this process is; under a filter as far as that is known without a call.
fn identify(run: Option<u64>, parent: Option<Identity>) -> Option<Identity> {
    if !filter::is_on() {
        let in_view = IN_VIEW.swap(0, Ordering::Relaxed) != 0 && parent.is_none();
        return Identity::own(run.filter(|_| !in_view), parent);
    }
    let forked = STATE.forked.load(Ordering::Relaxed) != 0;
    Identity::forked(forked.then(thread::id_without_a_call)??, parent?)
}

/// Runs in the child of each `fork` of the C library's: its one thread bears the process's id.
extern "C" fn in_forked_child() {
    STATE.forked.store(1, Ordering::Relaxed);
}

/// Whether a filter may forbid what this library does. Looks once in a program whether there was one from the start.
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

/// Opens the ledgers that the environment names; says why not, if it names one.
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
        // SAFETY: the run has that from this machine, and made the ledger for it.
        unsafe { ledgerline::percpu::tell_possible_cpus(cpus) };
    }
    // SAFETY: the environment's strings end in zero.
    let ledger = unsafe { open_file(order.ledger, &given, Which::Ledger) }?;
    let state = (&raw const STATE).cast_mut().cast();
    // SAFETY: advises about whole pages of this library's zero-initialised data: private anonymous
    // memory, as the advice requires.
    let is_wiped = unsafe { libc::madvise(state, size_of::<State>(), libc::MADV_WIPEONFORK) } == 0;
    // SAFETY: the handler is a plain function of a library that stays loaded, and touches a static alone. (Where it
    // cannot be registered, a child that is forked under a filter goes unaccounted.)
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    let heap = match order.heap {
        // SAFETY: as above.
        Some(path) => Some(unsafe { open_file(path, &given, Which::Heap) }?),
        None => None,
    };
    // SAFETY: only the attaching thread is here, and nobody reads before `opened` is 1; geteuid has no preconditions.
    let user = unsafe {
        blind::keep_order();
        libc::geteuid()
    };
    Some(Run {
        by: order.by,
        on_max: order.on_max,
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

/// A number in decimal.
fn as_number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Opens a ledger's file, if it is the run's; says why not.
///
/// # Safety
/// A zero follows the path, as it does in the environment.
unsafe fn open_file(path: &'static [u8], given: &Given, which: Which) -> Option<Ledger> {
    // SAFETY: the path ends in zero, as the caller says. (Not by `File::open`, whose code lies far from all else that a
    // start needs.)
    let opened = given.open(unsafe { CStr::from_ptr(path.as_ptr().cast()) }, which, libc::O_RDWR);
    let descriptor = match opened {
        Ok(descriptor) => descriptor,
        // The run has ended, and its ledger with it: this process outlived both, and goes on as it would plain. Another
        // process may have the run's number by now.
        Err(Refused::System(libc::ENOENT) | Refused::Other) if path.starts_with(b"/proc/") => {
            return None;
        }
        Err(Refused::Other) => return turn_away(&[path, b" is not a ledger of this run"]),
        Err(Refused::System(_)) => return turn_away(&[b"cannot open the ledger ", path]),
    };
    // SAFETY: just opened, and nobody else's.
    let file = unsafe { File::from_raw_fd(descriptor) };
    match Ledger::open_sparing(&file) {
        Ok(ledger) => Some(ledger),
        Err(OpenError::Io(error)) if error.raw_os_error() == Some(libc::ENOMEM) => {
            turn_away(&[b"too little address space for the ledger (ulimit -v)"])
        }
        Err(_) => turn_away(&[path, b" is not a ledger of this version"]),
    }
}

/// The program's name without its folder, as it was when its first process began to be accounted. (A program that gives itself
/// a title writes over the place where the C library has its name.)
pub(crate) fn program_name() -> &'static [u8] {
    static NAME: [AtomicU64; NAME_MAX / 8] = [const { AtomicU64::new(0) }; NAME_MAX / 8];
    static KEPT: AtomicU32 = AtomicU32::new(0);
    // Acquire and Release: whoever sees that it is kept sees all of it. (Two threads that keep it at a time write the same.)
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

/// The program's name, as the C library has it.
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
