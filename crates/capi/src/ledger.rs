//! Ledgers: make, open, free, keep.

use crate::border::{self, Failure, NUL_TERMINATED, Outcome, fail, out, run, text};
use crate::registry;
use crate::types::ledgerline_code_t::{self, *};
use crate::types::{
    ledgerline_group_t, ledgerline_ledger_t, ledgerline_mistakes_t, ledgerline_options_t,
};
use ledgerline::{ITEMS_MAX, Ledger, LedgerBuilder};
use std::ffi::c_char;
use std::fs::File;
use std::mem::{ManuallyDrop, offset_of};
use std::os::fd::FromRawFd;
use std::time::Duration;

/// In ledgerline_options_t: counts the units charged and freed, too. No charge takes the fast path then.
pub const LEDGERLINE_FLOWS: u32 = 1;
/// In ledgerline_options_t: follows each charge, to find wrong uncharges. For tests: no charge takes the fast path.
pub const LEDGERLINE_AUDIT: u32 = 2;

/// Reads the caller's options. Fields behind the caller's `size` count as zero.
///
/// # Safety
/// The pointer is NULL or points to `size` bytes.
unsafe fn options(given: *const ledgerline_options_t) -> Outcome<LedgerBuilder> {
    // SAFETY: numbers and a pointer, all of which may be zero.
    let mut options: ledgerline_options_t = unsafe { std::mem::zeroed() };
    if given.is_null() {
        return Ok(Ledger::builder());
    }
    if !given.is_aligned() {
        return Err(fail(LEDGERLINE_ERROR_ARGUMENT, "the options are not aligned"));
    }
    // SAFETY: every version of the options begins with the size.
    let size = unsafe { (&raw const (*given).size).read() } as usize;
    // A later header may have more fields. They must be zero, since this library does not know them.
    let known = size_of::<ledgerline_options_t>();
    if !(offset_of!(ledgerline_options_t, batch)..=4096).contains(&size) {
        let why = format_args!("options of {size} bytes: begin with LEDGERLINE_OPTIONS_INIT");
        return Err(fail(LEDGERLINE_ERROR_ARGUMENT, why));
    }
    // SAFETY: reads as many bytes as both sides have.
    let unknown = unsafe {
        let (from, into) = (given.cast::<u8>(), (&raw mut options).cast::<u8>());
        into.copy_from_nonoverlapping(from, size.min(known));
        std::slice::from_raw_parts(from.add(size.min(known)), size.saturating_sub(known))
    };
    let flags = options.flags & !(LEDGERLINE_FLOWS | LEDGERLINE_AUDIT);
    if flags != 0 || options.reserved != 0 || unknown.iter().any(|&byte| byte != 0) {
        let why = "options that this library does not know";
        return Err(fail(LEDGERLINE_ERROR_ARGUMENT, why));
    }
    // SAFETY: the items are as the header requires.
    unsafe { builder(&options) }
}

/// # Safety
/// There are as many items as the options say, each NUL-terminated.
unsafe fn builder(options: &ledgerline_options_t) -> Outcome<LedgerBuilder> {
    let mut builder = Ledger::builder()
        .flows(options.flags & LEDGERLINE_FLOWS != 0)
        .audit(options.flags & LEDGERLINE_AUDIT != 0);
    builder = if_given(builder, options.capacity, LedgerBuilder::capacity);
    builder = if_given(builder, options.batch, LedgerBuilder::batch);
    let time = Duration::from_millis;
    builder = if_given(builder, time(options.reclaim_ms), LedgerBuilder::reclaim_time);
    builder = if_given(builder, time(options.throttle_ms), LedgerBuilder::throttle_time);
    builder = if_given(builder, time(options.victim_ms), LedgerBuilder::victim_time);
    if options.item_count == 0 {
        return Ok(builder);
    }
    if options.item_count > ITEMS_MAX {
        let why = format_args!("{} items: a ledger has at most {ITEMS_MAX}", options.item_count);
        return Err(fail(LEDGERLINE_ERROR_RANGE, why));
    }
    if options.items.is_null() || !options.items.is_aligned() {
        return Err(fail(LEDGERLINE_ERROR_ARGUMENT, "the items are NULL or not aligned"));
    }
    let items: Vec<&str> = (0..options.item_count)
        // SAFETY: as the caller says.
        .map(|item| unsafe { text(options.items.add(item).read(), NUL_TERMINATED) })
        .collect::<Outcome<_>>()?;
    Ok(builder.items(&items))
}

/// Sets an option that is not zero.
fn if_given<T: Default + PartialEq>(
    builder: LedgerBuilder,
    value: T,
    set: fn(LedgerBuilder, T) -> LedgerBuilder,
) -> LedgerBuilder {
    if value == T::default() { builder } else { set(builder, value) }
}

/// Borrows the caller's file, which stays the caller's.
fn file(descriptor: i32) -> Outcome<ManuallyDrop<File>> {
    // SAFETY: checks whether the number is that of an open file.
    if descriptor < 0 || unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
        let why = format_args!("{descriptor} is no open file");
        return Err(fail(LEDGERLINE_ERROR_ARGUMENT, why));
    }
    // SAFETY: open now, and not closed by this value. If the caller closes it meanwhile, the system reports that.
    Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) }))
}

/// Adds a ledger to the registry, and returns its number.
fn register(ledger: Ledger, into: &border::Out<'_, ledgerline_ledger_t>) -> Outcome {
    into.set(ledgerline_ledger_t { number: registry::add(ledger)? })
}

/// Makes a ledger in memory of this process. `options` may be NULL for the defaults. A forked child has its own copy.
///
/// Errors: LEDGERLINE_ERROR_RANGE for a capacity, batch or item that is not as described; _NAME; _ARGUMENT; _FULL with
/// 4095 ledgers; _SYSTEM without address space. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_ledger_new(
    options: *const ledgerline_options_t,
    ledger: *mut ledgerline_ledger_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let (into, builder) = unsafe { (out(ledger, "the ledger")?, self::options(options)?) };
        register(builder.anonymous()?, &into)
    })
}

/// Makes a ledger in an empty file that is open for reading and writing, so that other processes can open it. The
/// descriptor stays the caller's, and may be closed afterwards. The file must not become shorter while it is in use.
///
/// Errors: as ledgerline_ledger_new; LEDGERLINE_ERROR_SYSTEM for a file that is not empty or cannot be mapped;
/// _ARGUMENT for a number that is no open file. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_ledger_create_in(
    options: *const ledgerline_options_t,
    descriptor: i32,
    ledger: *mut ledgerline_ledger_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let (into, builder) = unsafe { (out(ledger, "the ledger")?, self::options(options)?) };
        register(builder.create_in(&*file(descriptor)?)?, &into)
    })
}

/// Opens a ledger that another process made in a file. This process may read it. To charge groups of its own it calls
/// ledgerline_ledger_attach.
///
/// Errors: LEDGERLINE_ERROR_FORMAT if the file is no ledger of this version, _DAMAGED if its header is inconsistent,
/// _SYSTEM, _ARGUMENT, _FULL. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_ledger_open_in(
    descriptor: i32,
    ledger: *mut ledgerline_ledger_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let into = unsafe { out(ledger, "the ledger")? };
        register(Ledger::open_in(&*file(descriptor)?)?, &into)
    })
}

/// Makes this process a writer of a ledger in a file: creates a group for it below the root, and lets it charge that
/// group and those that it creates below. A forked child calls this for itself. Units that the process holds when it
/// ends stay charged until some process calls ledgerline_settle_dead. `name` has `length` bytes, or ends with a NUL
/// if `length` is LEDGERLINE_NUL_TERMINATED.
///
/// Errors: as ledgerline_group_create. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_ledger_attach(
    ledger: ledgerline_ledger_t,
    name: *const c_char,
    length: usize,
    group: *mut ledgerline_group_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let (into, name) = unsafe { (out(group, "the group")?, text(name, length)?) };
        let visit = border::ledger(ledger)?;
        let group = visit.ledger().attach_process(name, std::process::id())?;
        into.set(visit.handle_of(group))
    })
}

/// Frees a ledger. From now on its handle and those of its groups are refused, on all threads. Its reclaimers,
/// watches and victims are taken out as by their own calls, so this waits for callbacks that run in other threads,
/// unless it is called inside one. Calls that are inside at this moment end normally, also waits; the memory is freed
/// with the last one.
///
/// Errors: LEDGERLINE_ERROR_HANDLE if it was freed before, _KEPT if it is kept for good. Threads: any; of two that
/// free one ledger, only one gets LEDGERLINE_OK. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_ledger_free(ledger: ledgerline_ledger_t) -> ledgerline_code_t {
    run(|| registry::free(border::ledger(ledger)?))
}

/// Keeps a ledger for good: it can no longer be freed, and its groups can be current (ledgerline_current_swap). Slow
/// calls are a little faster then, since they are not counted. A second call is harmless.
///
/// Errors: LEDGERLINE_ERROR_HANDLE. Threads: any. Signals: async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_ledger_keep(ledger: ledgerline_ledger_t) -> ledgerline_code_t {
    run(|| border::ledger(ledger)?.keep())
}

/// Returns the root, which every charge reaches.
///
/// Errors: LEDGERLINE_ERROR_HANDLE, _ARGUMENT. Threads: any. Signals: async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_ledger_root(
    ledger: ledgerline_ledger_t,
    root: *mut ledgerline_group_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let into = unsafe { out(root, "the root")? };
        let visit = border::ledger(ledger)?;
        into.set(visit.handle_of(visit.ledger().root()))
    })
}

/// Finds the group at a path like "/acme/q42"; "/" is the root. Of siblings that share a name it finds one. Costs a
/// pass over the rows in use for each level, so a server should keep its handles.
///
/// Errors: LEDGERLINE_ERROR_NOT_FOUND, _HANDLE, _NAME for a path that is not UTF-8, _ARGUMENT. Threads: any. Signals:
/// not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_ledger_find(
    ledger: ledgerline_ledger_t,
    path: *const c_char,
    length: usize,
    group: *mut ledgerline_group_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let (into, path) = unsafe { (out(group, "the group")?, text(path, length)?) };
        let visit = border::ledger(ledger)?;
        let Some(group) = visit.ledger().find(path) else {
            let path = ledgerline::name::escaped(path);
            let why = format_args!("there is no group at the path {path}");
            return Err(fail(LEDGERLINE_ERROR_NOT_FOUND, why));
        };
        into.set(visit.handle_of(group))
    })
}

/// Returns the counts of callers' mistakes, as far as they were detected.
///
/// Errors: LEDGERLINE_ERROR_HANDLE, _ARGUMENT. Threads: any. Signals: async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_ledger_mistakes(
    ledger: ledgerline_ledger_t,
    mistakes: *mut ledgerline_mistakes_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let into = unsafe { out(mistakes, "the place for mistakes")? };
        let mistakes = border::ledger(ledger)?.ledger().mistakes();
        into.set(ledgerline_mistakes_t {
            underflows: mistakes.underflows,
            strays: mistakes.strays,
            audited: mistakes.audited,
        })
    })
}

/// Returns the number of a ledger's own item (ledgerline_options_t), for ledgerline_group_add_stat.
///
/// Errors: LEDGERLINE_ERROR_NOT_FOUND, _HANDLE, _NAME, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_ledger_item(
    ledger: ledgerline_ledger_t,
    name: *const c_char,
    length: usize,
    item: *mut u32,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let (into, name) = unsafe { (out(item, "the item")?, text(name, length)?) };
        let visit = border::ledger(ledger)?;
        into.set(visit.ledger().item(name).ok_or_else(no_item)?.index() as u32)
    })
}

#[cold]
pub(crate) fn no_item() -> Failure {
    fail(LEDGERLINE_ERROR_NOT_FOUND, "the ledger has no such item; name it in its options")
}
