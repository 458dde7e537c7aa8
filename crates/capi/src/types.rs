//! The types of the header.

/// What a call returns: LEDGERLINE_OK, or why it did nothing. ledgerline_error_text gives a sentence for each, and
/// ledgerline_last_error one with the names and numbers of the last error in the calling thread.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ledgerline_code_t {
    /// It was done.
    LEDGERLINE_OK = 0,
    /// The library made a mistake: a panic was stopped at the border. What the call was to change may be changed in
    /// part.
    LEDGERLINE_ERROR_INTERNAL = -1,
    /// An argument is NULL, not aligned, or no value that the call knows.
    LEDGERLINE_ERROR_ARGUMENT = -2,
    /// A handle names no ledger or registration of this library: it is null, was freed, or is another's.
    LEDGERLINE_ERROR_HANDLE = -3,
    /// The group was destroyed, its process has ended, or there never was one of that number.
    LEDGERLINE_ERROR_GONE = -4,
    /// A limit, the group's own or an ancestor's, leaves no room.
    LEDGERLINE_ERROR_LIMIT = -5,
    /// A number is beyond what a ledger counts (2^62), or not one that the setting may have.
    LEDGERLINE_ERROR_RANGE = -6,
    /// A name or path is not UTF-8, is empty or too long, or holds a character that no name may hold.
    LEDGERLINE_ERROR_NAME = -7,
    /// The group was cancelled to make room for others.
    LEDGERLINE_ERROR_CANCELLED = -8,
    /// Another program wrote over the ledger's file.
    LEDGERLINE_ERROR_DAMAGED = -9,
    /// There is no place for one more: the ledger's capacity, or the most ledgers or watches, are reached.
    LEDGERLINE_ERROR_FULL = -10,
    /// The tree would have more than 32 levels.
    LEDGERLINE_ERROR_DEPTH = -11,
    /// The group has children; destroy them first, or the tree.
    LEDGERLINE_ERROR_CHILDREN = -12,
    /// The root cannot be destroyed.
    LEDGERLINE_ERROR_ROOT = -13,
    /// More is in use than the limit would allow; or the group cannot be destroyed at this moment.
    LEDGERLINE_ERROR_BUSY = -14,
    /// There is no group of that path, or no item of that name.
    LEDGERLINE_ERROR_NOT_FOUND = -15,
    /// The operating system said no.
    LEDGERLINE_ERROR_SYSTEM = -16,
    /// The file holds no ledger, or one of another format.
    LEDGERLINE_ERROR_FORMAT = -17,
    /// The buffer is too small: it has the beginning of the text, and the length that is needed was told.
    LEDGERLINE_ERROR_BUFFER = -18,
    /// More was uncharged than the group holds. Nothing was changed, and the mistake was counted.
    LEDGERLINE_ERROR_MISTAKE = -19,
    /// The ledger is not kept for good (ledgerline_ledger_keep).
    LEDGERLINE_ERROR_NOT_KEPT = -20,
    /// The ledger is kept for good, and cannot be freed.
    LEDGERLINE_ERROR_KEPT = -21,
    /// The library has another ABI than the header.
    LEDGERLINE_ERROR_ABI = -22,
    /// The parent has a group of that name.
    LEDGERLINE_ERROR_EXISTS = -23,
}

/// A ledger: a tree of groups with their counters. A number that is never used again; zeros are no ledger. Any copy
/// may be used on any thread, also after the ledger was freed: then calls return LEDGERLINE_ERROR_HANDLE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_ledger_t {
    /// The library's own.
    pub number: u64,
}

/// A group of a ledger. Two numbers; zeros are no group. Any copy may be used on any thread, also after the group was
/// destroyed or its ledger freed: then calls return LEDGERLINE_ERROR_GONE or LEDGERLINE_ERROR_HANDLE. (Sixteen bits
/// tell the groups apart that use one row after each other: after exactly a multiple of 65535 others a stale copy
/// would be believed.)
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_group_t {
    /// The number of its ledger.
    pub ledger: u64,
    /// Its own number in the ledger.
    pub id: u64,
}

/// A reclaimer that was added. As all handles: a number; zero is none; a stale one is refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_reclaimer_t {
    /// The library's own.
    pub number: u64,
}

/// A watch for events.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_watch_t {
    /// The library's own.
    pub number: u64,
}

/// A token, which tells work to stop.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_token_t {
    /// The library's own.
    pub number: u64,
}

/// A victim that was added.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_victim_t {
    /// The library's own.
    pub number: u64,
}

/// How a ledger is made. Set all of it to LEDGERLINE_OPTIONS_INIT first; what stays zero has the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ledgerline_options_t {
    /// sizeof (ledgerline_options_t), so that later versions can have more.
    pub size: u32,
    /// The most groups at a time, the root included: 2 to 1048576 (the default). Costs address space, and memory only
    /// where it is used.
    pub capacity: u32,
    /// The most units that lie prepaid at once for a CPU: 1 to 2^28 (default 262144).
    pub batch: u64,
    /// The names of statistics of your own (a-z, 0-9, _), NUL-terminated; at most 24.
    pub items: *const *const std::ffi::c_char,
    /// How many.
    pub item_count: usize,
    /// For how many milliseconds reclaimers may run before a charge is refused (default 100).
    pub reclaim_ms: u64,
    /// The most milliseconds for which a charge above high is slowed down (default 2000).
    pub throttle_ms: u64,
    /// How many milliseconds a cancelled victim has to give back what it holds (default 1000).
    pub victim_ms: u64,
    /// LEDGERLINE_FLOWS, LEDGERLINE_AUDIT, or both.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// A reading and how far off it may be: the truth lies between value - bound and value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_estimate_t {
    /// The upper value.
    pub value: u64,
    /// By how much it may be too high.
    pub bound: u64,
}

/// The limits of a group. LEDGERLINE_NO_LIMIT stands for none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_limits_t {
    /// No charge that may be refused goes over this.
    pub max: u64,
    /// Above this, reclaimers are asked, and charges may be slowed down.
    pub high: u64,
    /// Protected from reclaim unless nothing else is left.
    pub low: u64,
    /// Protected from reclaim always.
    pub min: u64,
}

/// How often limits were met, as memory.events of a cgroup counts it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_events_t {
    /// Reclaimed below low, since nothing else was left.
    pub low: u64,
    /// Ended above high.
    pub high: u64,
    /// Met max.
    pub max: u64,
    /// A victim was looked for.
    pub oom: u64,
    /// A victim was cancelled.
    pub oom_kill: u64,
    /// A whole subtree was cancelled.
    pub oom_group_kill: u64,
}

/// What was found when a group was destroyed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_settled_t {
    /// Units still charged: a leak, or charges that will still be returned. They count in the ancestors until then.
    pub leftover: u64,
    /// Units that lay prepaid, and went back.
    pub idle: u64,
    /// Its highest usage.
    pub peak: ledgerline_estimate_t,
    /// Charges in its life.
    pub charges: u64,
    /// Uncharges in its life.
    pub uncharges: u64,
}

/// Mistakes of callers, as far as they showed. A program without bugs has none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_mistakes_t {
    /// Uncharges of more than the group held.
    pub underflows: u64,
    /// Uncharges of a group that is gone, and additions to items that there are not.
    pub strays: u64,
    /// Uncharges that no charge fits, in a ledger made with LEDGERLINE_AUDIT.
    pub audited: u64,
}

/// What a reclaimer did so far.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_reclaim_report_t {
    /// How often it ran.
    pub runs: u64,
    /// Units that it said it gave back.
    pub claimed: u64,
    /// Units by which its group's usage fell while it ran.
    pub freed: u64,
    /// Runs that freed less than they said.
    pub short_runs: u64,
}

/// A group in a snapshot. The path is NUL-terminated, and is there until the callback returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ledgerline_group_snapshot_t {
    /// The group.
    pub group: ledgerline_group_t,
    /// Its path, like a cgroup's.
    pub path: *const std::ffi::c_char,
    /// Bytes of the path.
    pub path_length: usize,
    /// Levels below the root.
    pub depth: u32,
    /// LEDGERLINE_STATE_LIVE, _EXITED or _DAMAGED.
    pub state: u32,
    /// Units charged, exactly.
    pub usage: u64,
    /// Its highest usage.
    pub peak: ledgerline_estimate_t,
    /// Its limits.
    pub limits: ledgerline_limits_t,
    /// Charges of its subtree, ever.
    pub charges: u64,
    /// Uncharges of its subtree, ever.
    pub uncharges: u64,
    /// Charges to the group and those below it that a limit refused, whichever it was.
    pub refused: u64,
    /// How often its own max was met.
    pub max_events: u64,
    /// How often its own high was passed.
    pub high_events: u64,
}

/// Gives back memory: uncharges about `need` units, and returns how many it did. It is called in the thread whose charge
/// met a limit, with nothing locked, and in one thread at a time. It may uncharge, charge, destroy groups, and add and
/// remove reclaimers. It must return: neither longjmp nor an exception may leave it (an exception ends the program).
pub type ledgerline_reclaim_t =
    Option<unsafe extern "C-unwind" fn(data: *mut std::ffi::c_void, need: u64) -> u64>;

/// Frees a callback's data. It must return, as a reclaimer must.
pub type ledgerline_release_t = Option<unsafe extern "C-unwind" fn(data: *mut std::ffi::c_void)>;

/// Told of a cancellation, with a NUL-terminated sentence that is there until it returns. It runs in the thread that
/// cancels, and must return, as a reclaimer must.
pub type ledgerline_cancelled_t =
    Option<unsafe extern "C-unwind" fn(data: *mut std::ffi::c_void, why: *const std::ffi::c_char)>;

/// Shown a group of a snapshot. Returns 0 to go on, anything else to stop. It must return, as a reclaimer must; it may
/// call anything.
pub type ledgerline_visit_t = Option<
    unsafe extern "C-unwind" fn(
        data: *mut std::ffi::c_void,
        group: *const ledgerline_group_snapshot_t,
    ) -> i32,
>;
