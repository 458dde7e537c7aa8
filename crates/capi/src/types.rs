//! The types of the header.

/// The result of a call: LEDGERLINE_OK, or the reason why it did nothing. ledgerline_error_text returns a sentence
/// for each, and ledgerline_last_error one with the names and numbers of the last error in the calling thread.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ledgerline_code_t {
    /// Success.
    LEDGERLINE_OK = 0,
    /// The library made a mistake: a panic was stopped at the border. The call may have changed its objects in part.
    LEDGERLINE_ERROR_INTERNAL = -1,
    /// An argument is NULL, not aligned, or a value that the call does not know.
    LEDGERLINE_ERROR_ARGUMENT = -2,
    /// A handle names no ledger or registration of this library: it is null, was freed, or was not made by it.
    LEDGERLINE_ERROR_HANDLE = -3,
    /// The group was destroyed, its process has ended, or no group ever had that number.
    LEDGERLINE_ERROR_GONE = -4,
    /// A limit, the group's own or an ancestor's, leaves no room.
    LEDGERLINE_ERROR_LIMIT = -5,
    /// A number is beyond the range of a ledger (2^62), or out of range for the setting.
    LEDGERLINE_ERROR_RANGE = -6,
    /// A name or path is not UTF-8, is empty or too long, or has a character that is not allowed in names.
    LEDGERLINE_ERROR_NAME = -7,
    /// The group was cancelled to make room for others.
    LEDGERLINE_ERROR_CANCELLED = -8,
    /// Another program wrote over the ledger's file.
    LEDGERLINE_ERROR_DAMAGED = -9,
    /// No place is left: the ledger's capacity, or the maximum of ledgers or watches, is reached.
    LEDGERLINE_ERROR_FULL = -10,
    /// The tree would have more than 32 levels.
    LEDGERLINE_ERROR_DEPTH = -11,
    /// The group has children; destroy them first, or the tree.
    LEDGERLINE_ERROR_CHILDREN = -12,
    /// The root cannot be destroyed.
    LEDGERLINE_ERROR_ROOT = -13,
    /// Usage is above the requested limit, or the group cannot be destroyed at this moment.
    LEDGERLINE_ERROR_BUSY = -14,
    /// There is no group at that path, or no item of that name.
    LEDGERLINE_ERROR_NOT_FOUND = -15,
    /// The operating system refused.
    LEDGERLINE_ERROR_SYSTEM = -16,
    /// The file holds no ledger, or one of another format.
    LEDGERLINE_ERROR_FORMAT = -17,
    /// The buffer is too small: it has the beginning of the text, and the needed length was stored.
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

/// A ledger: a tree of groups with their counters. A number that is never used again; zero is no ledger. Any copy may
/// be used on any thread, also after the ledger was freed: then calls return LEDGERLINE_ERROR_HANDLE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_ledger_t {
    /// Private to the library.
    pub number: u64,
}

/// A group of a ledger. Two numbers; zeros are no group. Any copy may be used on any thread, also after the group was
/// destroyed or its ledger freed: then calls return LEDGERLINE_ERROR_GONE or LEDGERLINE_ERROR_HANDLE. Sixteen bits
/// distinguish the successive groups of one row: after exactly a multiple of 65535 others, a stale copy would be
/// accepted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_group_t {
    /// The number of its ledger.
    pub ledger: u64,
    /// Its own number within the ledger.
    pub id: u64,
}

/// A reclaimer that was added. Like all handles: a number; zero is none; a stale one is refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_reclaimer_t {
    /// Private to the library.
    pub number: u64,
}

/// A watch for events.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_watch_t {
    /// Private to the library.
    pub number: u64,
}

/// A token, which tells work to stop.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_token_t {
    /// Private to the library.
    pub number: u64,
}

/// A victim that was added.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_victim_t {
    /// Private to the library.
    pub number: u64,
}

/// Options for a ledger. Initialise the structure with LEDGERLINE_OPTIONS_INIT first; fields that stay zero have the
/// default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ledgerline_options_t {
    /// sizeof (ledgerline_options_t), so that later versions can have more fields.
    pub size: u32,
    /// The most groups at a time, the root included: 2 to 1048576 (the default). Costs address space, and memory only
    /// for groups in use.
    pub capacity: u32,
    /// The most units that are prepaid at once for a CPU: 1 to 2^28 (default 262144).
    pub batch: u64,
    /// The names of statistics of your own (a-z, 0-9, _), NUL-terminated; at most 24.
    pub items: *const *const std::ffi::c_char,
    /// Number of items.
    pub item_count: usize,
    /// The most milliseconds that reclaimers may run before a charge is refused (default 100).
    pub reclaim_ms: u64,
    /// The most milliseconds for which a charge above high is slowed down (default 2000).
    pub throttle_ms: u64,
    /// The milliseconds that a cancelled victim has to give back its units (default 1000).
    pub victim_ms: u64,
    /// LEDGERLINE_FLOWS, LEDGERLINE_AUDIT, or both.
    pub flags: u32,
    /// Must be zero.
    pub reserved: u32,
}

/// A reading with its bound: the true value lies between value - bound and value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_estimate_t {
    /// The upper bound of the true value.
    pub value: u64,
    /// The most by which value may be too high.
    pub bound: u64,
}

/// The limits of a group. LEDGERLINE_NO_LIMIT stands for no limit.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_limits_t {
    /// No refusable charge goes over this.
    pub max: u64,
    /// Above this, reclaimers are asked, and charges may be slowed down.
    pub high: u64,
    /// Protected from reclaim unless nothing else is left.
    pub low: u64,
    /// Always protected from reclaim.
    pub min: u64,
}

/// Counts of met limits, like in memory.events of a cgroup.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_events_t {
    /// Reclaims below low, since nothing else was left.
    pub low: u64,
    /// Charges that ended above high.
    pub high: u64,
    /// Charges that met max.
    pub max: u64,
    /// Searches for a victim.
    pub oom: u64,
    /// Cancelled victims.
    pub oom_kill: u64,
    /// Cancelled subtrees.
    pub oom_group_kill: u64,
}

/// The state of a group when it was destroyed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_settled_t {
    /// Units still charged: a leak, or charges that will still be returned. They count in the ancestors until then.
    pub leftover: u64,
    /// Prepaid units that went back.
    pub idle: u64,
    /// Its highest usage.
    pub peak: ledgerline_estimate_t,
    /// Number of charges in its life.
    pub charges: u64,
    /// Number of uncharges in its life.
    pub uncharges: u64,
}

/// Counts of callers' mistakes, as far as they were detected. All are zero in a program without bugs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_mistakes_t {
    /// Uncharges of more than the group held.
    pub underflows: u64,
    /// Uncharges of a group that is gone, and additions to unknown items.
    pub strays: u64,
    /// Uncharges that match no charge, in a ledger made with LEDGERLINE_AUDIT.
    pub audited: u64,
}

/// Results of a reclaimer's runs so far.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ledgerline_reclaim_report_t {
    /// Number of runs.
    pub runs: u64,
    /// Units that it reported as given back.
    pub claimed: u64,
    /// Units by which its group's usage fell while it ran.
    pub freed: u64,
    /// Runs that freed less than they reported.
    pub short_runs: u64,
}

/// A group in a snapshot. The path is NUL-terminated, and valid until the callback returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ledgerline_group_snapshot_t {
    /// The group.
    pub group: ledgerline_group_t,
    /// Its path, like a cgroup's.
    pub path: *const std::ffi::c_char,
    /// Length of the path in bytes.
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
    /// Number of charges in its subtree, ever.
    pub charges: u64,
    /// Number of uncharges in its subtree, ever.
    pub uncharges: u64,
    /// Charges to the group and those below it that any limit refused.
    pub refused: u64,
    /// Number of times that its own max was met.
    pub max_events: u64,
    /// Number of times that its own high was passed.
    pub high_events: u64,
}

/// Gives back memory: uncharges about `need` units, and returns how many it did. It is called in the thread whose
/// charge met a limit, without a lock held, and in one thread at a time. It may uncharge, charge, destroy groups, and
/// add and remove reclaimers. It must return: neither longjmp nor an exception may leave it (an exception ends the
/// program).
pub type ledgerline_reclaim_t =
    Option<unsafe extern "C-unwind" fn(data: *mut std::ffi::c_void, need: u64) -> u64>;

/// Frees a callback's data. It must return, like a reclaimer.
pub type ledgerline_release_t = Option<unsafe extern "C-unwind" fn(data: *mut std::ffi::c_void)>;

/// Called at a cancellation, with a NUL-terminated sentence that is valid until it returns. It runs in the thread
/// that cancels, and must return, like a reclaimer.
pub type ledgerline_cancelled_t =
    Option<unsafe extern "C-unwind" fn(data: *mut std::ffi::c_void, why: *const std::ffi::c_char)>;

/// Called with a group of a snapshot. Returns 0 to continue, anything else to stop. It must return, like a reclaimer.
/// It may call anything.
pub type ledgerline_visit_t = Option<
    unsafe extern "C-unwind" fn(
        data: *mut std::ffi::c_void,
        group: *const ledgerline_group_snapshot_t,
    ) -> i32,
>;

/// Resizes a block, as `realloc` does, or returns NULL and leaves the block as it was. It must return, as a reclaimer must.
pub type ledgerline_realloc_t = Option<
    unsafe extern "C-unwind" fn(
        data: *mut std::ffi::c_void,
        block: *mut std::ffi::c_void,
        size: usize,
    ) -> *mut std::ffi::c_void,
>;
