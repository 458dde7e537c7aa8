// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Ledgerline: memory cgroups inside a process. Groups in a tree are charged, limited, watched and explained, at a few
// nanoseconds a charge.
//
//     ledgerline_ledger_t ledger;
//     ledgerline_group_t root, query;
//     ledgerline_ledger_new(NULL, &ledger);
//     ledgerline_ledger_root(ledger, &root);
//     ledgerline_group_create(root, "q42", LEDGERLINE_NUL_TERMINATED, &query);
//     if (ledgerline_try_charge(query, 4096) == LEDGERLINE_OK)
//         ledgerline_uncharge(query, 4096);
//
// Every call keeps these rules:
//
// ERRORS. A call returns LEDGERLINE_OK or a negative code, and then did nothing, unless its text says otherwise. Results
// come through pointers, which are written if the call succeeds. ledgerline_last_error has a sentence with names and
// numbers for the last error of the thread.
//
// HANDLES are numbers, passed by value and copied at will. One that is null, made up, stale, freed, or of another copy
// of the library is refused with LEDGERLINE_ERROR_HANDLE or LEDGERLINE_ERROR_GONE, also if another thread frees it at
// that moment.
//
// POINTERS that are NULL or not aligned are LEDGERLINE_ERROR_ARGUMENT, where the text does not allow NULL. Others must
// lead to what the type says, for the time of the call. Names are UTF-8, of the given length, or NUL-terminated if the
// length is LEDGERLINE_NUL_TERMINATED.
//
// THREADS. Any thread may call anything at any time.
//
// SIGNALS. "async-signal-safe" calls may be made in a signal handler, also one that interrupted a call of the library.
//
// FORK. A child has its own copy of ledgers in memory, with the same handles. It never waits for threads of the parent,
// nor for a callback that one of them was inside; a reclaimer that was left so is not asked there again, and can be removed.
// A ledger that other threads were using at the moment of the fork is not unmapped there when it is freed.
//
// CALLBACKS must return. Neither longjmp nor a C++ exception may leave one: an exception ends the program.
//
// UNLOADING. The library stays loaded after dlclose.


#ifndef LEDGERLINE_H
#define LEDGERLINE_H

#include <stddef.h>
#include <stdint.h>

// The length of a name that ends with a NUL.
#define LEDGERLINE_NUL_TERMINATED SIZE_MAX

// The handles that are none, and what options begin with.
#ifdef __cplusplus
#define LEDGERLINE_NOBODY (ledgerline_group_t{0, 0})
#else
#define LEDGERLINE_NOBODY ((ledgerline_group_t){0, 0})
#endif
#define LEDGERLINE_OPTIONS_INIT {(uint32_t)sizeof(ledgerline_options_t), 0, 0, NULL, 0, 0, 0, 0, 0, 0}


// The version of the ABI that this header describes. A library of the same number has all declarations of this
// header.
#define LEDGERLINE_ABI_VERSION 1

// In ledgerline_options_t: counts the units charged and freed, too. No charge takes the fast path then.
#define LEDGERLINE_FLOWS 1

// In ledgerline_options_t: follows each charge, to find wrong uncharges. For tests: no charge takes the fast path.
#define LEDGERLINE_AUDIT 2

// For ledgerline_try_charge_wait: if a limit is met and nothing can be reclaimed, cancels a victim
// (ledgerline_add_victim) and waits for the units that it returns.
#define LEDGERLINE_OOM 1

// For ledgerline_try_charge_wait: sleeps for usage above high before it returns.
#define LEDGERLINE_THROTTLED 2

// The value for no limit.
#define LEDGERLINE_NO_LIMIT UINT64_MAX

// Limits hold. The initial mode of every group.
#define LEDGERLINE_ENFORCE 0

// Charges are counted. One that would have been refused counts a `max` event.
#define LEDGERLINE_MEASURE 1

// Nothing is refused, and guards are not counted. Charges by units are counted, so that they can be returned later,
// with `max` events as in LEDGERLINE_MEASURE.
#define LEDGERLINE_OFF 2

// The group accepts charges, or its process ended and has not been settled yet.
#define LEDGERLINE_STATE_LIVE 0

// Its process ended, and was settled (ledgerline_settle_dead). It is kept for its counts.
#define LEDGERLINE_STATE_EXITED 1

// Another program overwrote it; its numbers are meaningless.
#define LEDGERLINE_STATE_DAMAGED 2

// The result of a call: LEDGERLINE_OK, or the reason why it did nothing. ledgerline_error_text returns a sentence
// for each, and ledgerline_last_error one with the names and numbers of the last error in the calling thread.
enum ledgerline_code_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Success.
    LEDGERLINE_OK = 0,
    // The library made a mistake: a panic was stopped at the border. The call may have changed its objects in part.
    LEDGERLINE_ERROR_INTERNAL = -1,
    // An argument is NULL, not aligned, or a value that the call does not know.
    LEDGERLINE_ERROR_ARGUMENT = -2,
    // A handle names no ledger or registration of this library: it is null, was freed, or was not made by it.
    LEDGERLINE_ERROR_HANDLE = -3,
    // The group was destroyed, its process has ended, or no group ever had that number.
    LEDGERLINE_ERROR_GONE = -4,
    // A limit, the group's own or an ancestor's, leaves no room.
    LEDGERLINE_ERROR_LIMIT = -5,
    // A number is beyond the range of a ledger (2^62), or out of range for the setting.
    LEDGERLINE_ERROR_RANGE = -6,
    // A name or path is not UTF-8, is empty or too long, or has a character that is not allowed in names.
    LEDGERLINE_ERROR_NAME = -7,
    // The group was cancelled to make room for others.
    LEDGERLINE_ERROR_CANCELLED = -8,
    // Another program wrote over the ledger's file.
    LEDGERLINE_ERROR_DAMAGED = -9,
    // No place is left: the ledger's capacity, or the maximum of ledgers or watches, is reached.
    LEDGERLINE_ERROR_FULL = -10,
    // The tree would have more than 32 levels.
    LEDGERLINE_ERROR_DEPTH = -11,
    // The group has children; destroy them first, or the tree.
    LEDGERLINE_ERROR_CHILDREN = -12,
    // The root cannot be destroyed.
    LEDGERLINE_ERROR_ROOT = -13,
    // Usage is above the requested limit, or the group cannot be destroyed at this moment.
    LEDGERLINE_ERROR_BUSY = -14,
    // There is no group at that path, or no item of that name.
    LEDGERLINE_ERROR_NOT_FOUND = -15,
    // The operating system refused.
    LEDGERLINE_ERROR_SYSTEM = -16,
    // The file holds no ledger, or one of another format.
    LEDGERLINE_ERROR_FORMAT = -17,
    // The buffer is too small: it has the beginning of the text, and the needed length was stored.
    LEDGERLINE_ERROR_BUFFER = -18,
    // More was uncharged than the group holds. Nothing was changed, and the mistake was counted.
    LEDGERLINE_ERROR_MISTAKE = -19,
    // The ledger is not kept for good (ledgerline_ledger_keep).
    LEDGERLINE_ERROR_NOT_KEPT = -20,
    // The ledger is kept for good, and cannot be freed.
    LEDGERLINE_ERROR_KEPT = -21,
    // The library has another ABI than the header.
    LEDGERLINE_ERROR_ABI = -22,
    // The parent has a group of that name.
    LEDGERLINE_ERROR_EXISTS = -23,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ledgerline_code_t ledgerline_code_t;
#else
typedef int32_t ledgerline_code_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Options for a ledger. Initialise the structure with LEDGERLINE_OPTIONS_INIT first; fields that stay zero have the
// default.
typedef struct {
    // sizeof (ledgerline_options_t), so that later versions can have more fields.
    uint32_t size;
    // The most groups at a time, the root included: 2 to 1048576 (the default). Costs address space, and memory only
    // for groups in use.
    uint32_t capacity;
    // The most units that are prepaid at once for a CPU: 1 to 2^28 (default 262144).
    uint64_t batch;
    // The names of statistics of your own (a-z, 0-9, _), NUL-terminated; at most 24.
    const char *const *items;
    // Number of items.
    size_t item_count;
    // The most milliseconds that reclaimers may run before a charge is refused (default 100).
    uint64_t reclaim_ms;
    // The most milliseconds for which a charge above high is slowed down (default 2000).
    uint64_t throttle_ms;
    // The milliseconds that a cancelled victim has to give back its units (default 1000).
    uint64_t victim_ms;
    // LEDGERLINE_FLOWS, LEDGERLINE_AUDIT, or both.
    uint32_t flags;
    // Must be zero.
    uint32_t reserved;
} ledgerline_options_t;

// A ledger: a tree of groups with their counters. A number that is never used again; zero is no ledger. Any copy may
// be used on any thread, also after the ledger was freed: then calls return LEDGERLINE_ERROR_HANDLE.
typedef struct {
    // Private to the library.
    uint64_t number;
} ledgerline_ledger_t;

// A group of a ledger. Two numbers; zeros are no group. Any copy may be used on any thread, also after the group was
// destroyed or its ledger freed: then calls return LEDGERLINE_ERROR_GONE or LEDGERLINE_ERROR_HANDLE. Sixteen bits
// distinguish the successive groups of one row: after exactly a multiple of 65535 others, a stale copy would be
// accepted.
typedef struct {
    // The number of its ledger.
    uint64_t ledger;
    // Its own number within the ledger.
    uint64_t id;
} ledgerline_group_t;

// Counts of callers' mistakes, as far as they were detected. All are zero in a program without bugs.
typedef struct {
    // Uncharges of more than the group held.
    uint64_t underflows;
    // Uncharges of a group that is gone, and additions to unknown items.
    uint64_t strays;
    // Uncharges that match no charge, in a ledger made with LEDGERLINE_AUDIT.
    uint64_t audited;
} ledgerline_mistakes_t;

// A reading with its bound: the true value lies between value - bound and value.
typedef struct {
    // The upper bound of the true value.
    uint64_t value;
    // The most by which value may be too high.
    uint64_t bound;
} ledgerline_estimate_t;

// The state of a group when it was destroyed.
typedef struct {
    // Units still charged: a leak, or charges that will still be returned. They count in the ancestors until then.
    uint64_t leftover;
    // Prepaid units that went back.
    uint64_t idle;
    // Its highest usage.
    ledgerline_estimate_t peak;
    // Number of charges in its life.
    uint64_t charges;
    // Number of uncharges in its life.
    uint64_t uncharges;
} ledgerline_settled_t;

// The limits of a group. LEDGERLINE_NO_LIMIT stands for no limit.
typedef struct {
    // No refusable charge goes over this.
    uint64_t max;
    // Above this, reclaimers are asked, and charges may be slowed down.
    uint64_t high;
    // Protected from reclaim unless nothing else is left.
    uint64_t low;
    // Always protected from reclaim.
    uint64_t min;
} ledgerline_limits_t;

// Counts of met limits, like in memory.events of a cgroup.
typedef struct {
    // Reclaims below low, since nothing else was left.
    uint64_t low;
    // Charges that ended above high.
    uint64_t high;
    // Charges that met max.
    uint64_t max;
    // Searches for a victim.
    uint64_t oom;
    // Cancelled victims.
    uint64_t oom_kill;
    // Cancelled subtrees.
    uint64_t oom_group_kill;
} ledgerline_events_t;

// A group in a snapshot. The path is NUL-terminated, and valid until the callback returns.
typedef struct {
    // The group.
    ledgerline_group_t group;
    // Its path, like a cgroup's.
    const char *path;
    // Length of the path in bytes.
    size_t path_length;
    // Levels below the root.
    uint32_t depth;
    // LEDGERLINE_STATE_LIVE, _EXITED or _DAMAGED.
    uint32_t state;
    // Units charged, exactly.
    uint64_t usage;
    // Its highest usage.
    ledgerline_estimate_t peak;
    // Its limits.
    ledgerline_limits_t limits;
    // Number of charges in its subtree, ever.
    uint64_t charges;
    // Number of uncharges in its subtree, ever.
    uint64_t uncharges;
    // Charges to the group and those below it that any limit refused.
    uint64_t refused;
    // Number of times that its own max was met.
    uint64_t max_events;
    // Number of times that its own high was passed.
    uint64_t high_events;
} ledgerline_group_snapshot_t;

// Called with a group of a snapshot. Returns 0 to continue, anything else to stop. It must return, like a reclaimer.
// It may call anything.
typedef int32_t (*ledgerline_visit_t)(void *data, const ledgerline_group_snapshot_t *group);

// Resizes a block, as `realloc` does, or returns NULL and leaves the block as it was. It must return, as a reclaimer must.
typedef void *(*ledgerline_realloc_t)(void *data, void *block, size_t size);

// A watch for events.
typedef struct {
    // Private to the library.
    uint64_t number;
} ledgerline_watch_t;

// Gives back memory: uncharges about `need` units, and returns how many it did. It is called in the thread whose
// charge met a limit, without a lock held, and in one thread at a time. It may uncharge, charge, destroy groups, and
// add and remove reclaimers. It must return: neither longjmp nor an exception may leave it (an exception ends the
// program).
typedef uint64_t (*ledgerline_reclaim_t)(void *data, uint64_t need);

// A reclaimer that was added. Like all handles: a number; zero is none; a stale one is refused.
typedef struct {
    // Private to the library.
    uint64_t number;
} ledgerline_reclaimer_t;

// Frees a callback's data. It must return, like a reclaimer.
typedef void (*ledgerline_release_t)(void *data);

// Results of a reclaimer's runs so far.
typedef struct {
    // Number of runs.
    uint64_t runs;
    // Units that it reported as given back.
    uint64_t claimed;
    // Units by which its group's usage fell while it ran.
    uint64_t freed;
    // Runs that freed less than they reported.
    uint64_t short_runs;
} ledgerline_reclaim_report_t;

// A token, which tells work to stop.
typedef struct {
    // Private to the library.
    uint64_t number;
} ledgerline_token_t;

// Called at a cancellation, with a NUL-terminated sentence that is valid until it returns. It runs in the thread
// that cancels, and must return, like a reclaimer.
typedef void (*ledgerline_cancelled_t)(void *data, const char *why);

// A victim that was added.
typedef struct {
    // Private to the library.
    uint64_t number;
} ledgerline_victim_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of the library's ABI. A program compares it with LEDGERLINE_ABI_VERSION of its header:
// ledgerline_check_abi does.
//
// Errors: none. Threads: any. Signals: async-signal-safe.
uint32_t ledgerline_abi_version(void);

// Returns LEDGERLINE_OK if a header with this LEDGERLINE_ABI_VERSION fits the library.
//
// Errors: LEDGERLINE_ERROR_ABI if it does not. Threads: any. Signals: async-signal-safe but for the error.
ledgerline_code_t ledgerline_fits_abi(uint32_t version);

// Returns the version of the library, like "0.1.0". The text is never freed.
//
// Errors: none. Threads: any. Signals: async-signal-safe.
const char *ledgerline_version(void);

// Returns a sentence for a code, also for an unknown one. The text is never freed.
//
// Errors: none. Threads: any. Signals: async-signal-safe.
const char *ledgerline_error_text(int32_t code);

// Writes the text of the last error in the calling thread. For a refusal it names the full group, the requested
// units and the units in use. Empty if there was no error. A call that succeeds leaves the text unchanged.
//
// Like snprintf it writes at most `size` bytes with the NUL, and stores the length of the whole text without the NUL
// in `*needed`, which may be NULL. With a `size` of 0 the buffer may be NULL.
//
// Errors: LEDGERLINE_ERROR_BUFFER if the text did not fit (it was cut between two characters);
// LEDGERLINE_ERROR_ARGUMENT. Threads: any; each has its own. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_last_error(char *buffer,
                                        size_t size,
                                        size_t *needed);

// Makes a ledger in memory of this process. `options` may be NULL for the defaults. A forked child has its own copy.
//
// Errors: LEDGERLINE_ERROR_RANGE for a capacity, batch or item that is not as described; _NAME; _ARGUMENT; _FULL with
// 4095 ledgers; _SYSTEM without address space. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_ledger_new(const ledgerline_options_t *options,
                                        ledgerline_ledger_t *ledger);

// Makes a ledger in an empty file that is open for reading and writing, so that other processes can open it. The
// descriptor stays the caller's, and may be closed afterwards. The file must not become shorter while it is in use.
//
// Errors: as ledgerline_ledger_new; LEDGERLINE_ERROR_SYSTEM for a file that is not empty or cannot be mapped;
// _ARGUMENT for a number that is no open file. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_ledger_create_in(const ledgerline_options_t *options,
                                              int32_t descriptor,
                                              ledgerline_ledger_t *ledger);

// Opens a ledger that another process made in a file. This process may read it. To charge groups of its own it calls
// ledgerline_ledger_attach.
//
// Errors: LEDGERLINE_ERROR_FORMAT if the file is no ledger of this version, _DAMAGED if its header is inconsistent,
// _SYSTEM, _ARGUMENT, _FULL. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_ledger_open_in(int32_t descriptor,
                                            ledgerline_ledger_t *ledger);

// Makes this process a writer of a ledger in a file: creates a group for it below the root, and lets it charge that
// group and those that it creates below. A forked child calls this for itself. Units that the process holds when it
// ends stay charged until some process calls ledgerline_settle_dead. `name` has `length` bytes, or ends with a NUL
// if `length` is LEDGERLINE_NUL_TERMINATED.
//
// Errors: as ledgerline_group_create. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_ledger_attach(ledgerline_ledger_t ledger,
                                           const char *name,
                                           size_t length,
                                           ledgerline_group_t *group);

// Frees a ledger. From now on its handle and those of its groups are refused, on all threads. Its reclaimers,
// watches and victims are taken out as by their own calls, so this waits for callbacks that run in other threads,
// unless it is called inside one. Calls that are inside at this moment end normally, also waits; the memory is freed
// with the last one.
//
// Errors: LEDGERLINE_ERROR_HANDLE if it was freed before, _KEPT if it is kept for good. Threads: any; of two that
// free one ledger, only one gets LEDGERLINE_OK. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_ledger_free(ledgerline_ledger_t ledger);

// Keeps a ledger for good: it can no longer be freed, and its groups can be current (ledgerline_current_swap). Slow
// calls are a little faster then, since they are not counted. A second call is harmless.
//
// Errors: LEDGERLINE_ERROR_HANDLE. Threads: any. Signals: async-signal-safe.
ledgerline_code_t ledgerline_ledger_keep(ledgerline_ledger_t ledger);

// Returns the root, which every charge reaches.
//
// Errors: LEDGERLINE_ERROR_HANDLE, _ARGUMENT. Threads: any. Signals: async-signal-safe.
ledgerline_code_t ledgerline_ledger_root(ledgerline_ledger_t ledger, ledgerline_group_t *root);

// Finds the group at a path like "/acme/q42"; "/" is the root. Of siblings that share a name it finds one. Costs a
// pass over the rows in use for each level, so a server should keep its handles.
//
// Errors: LEDGERLINE_ERROR_NOT_FOUND, _HANDLE, _NAME for a path that is not UTF-8, _ARGUMENT. Threads: any. Signals:
// not async-signal-safe.
ledgerline_code_t ledgerline_ledger_find(ledgerline_ledger_t ledger,
                                         const char *path,
                                         size_t length,
                                         ledgerline_group_t *group);

// Returns the counts of callers' mistakes, as far as they were detected.
//
// Errors: LEDGERLINE_ERROR_HANDLE, _ARGUMENT. Threads: any. Signals: async-signal-safe.
ledgerline_code_t ledgerline_ledger_mistakes(ledgerline_ledger_t ledger,
                                             ledgerline_mistakes_t *mistakes);

// Returns the number of a ledger's own item (ledgerline_options_t), for ledgerline_group_add_stat.
//
// Errors: LEDGERLINE_ERROR_NOT_FOUND, _HANDLE, _NAME, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_ledger_item(ledgerline_ledger_t ledger,
                                         const char *name,
                                         size_t length,
                                         uint32_t *item);

// Settles the units that ended processes still hold in a ledger in a file, whether they exited or were killed. The
// units go back to the groups above, and their number is stored in `units`, which may be NULL. Until then they
// count, also towards limits, and the groups of those processes are like those of living ones. Nothing settles
// automatically: call this after a charge was refused, before the next try, or every few seconds. Any process that
// has the ledger open may call it, attached or not, and each unit goes back once. If another process is settling,
// this waits a fifth of a second at most, and then settles nothing.
//
// The groups of those processes no longer exist. Snapshots have them as LEDGERLINE_STATE_EXITED, until
// ledgerline_fold_ended takes them out. Groups of no process stay as they are: those that the process which made the
// file creates below the root without ledgerline_ledger_attach. A process that is killed in the middle of a charge
// may leave the groups above too full by that charge, for good.
//
// A process has ended when the kernel has no process of its number, or only a zombie of which no thread runs. So all
// processes that attach must be in one PID namespace: the units of a process in another one are settled while it
// lives. Zombies are recognised by /proc; without it, a process has ended when its parent has waited for it. If
// another process has got the number, the units go back when that one ends, or attaches to this ledger itself.
//
// Costs a pass over the groups, and a few system calls for each process.
//
// Errors: LEDGERLINE_ERROR_HANDLE. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_settle_dead(ledgerline_ledger_t ledger,
                                         uint64_t *units);

// Folds the groups of processes that ended and were settled (ledgerline_settle_dead) into a group with the same
// parent, so that a ledger has room for any number of processes in succession. For processes that attached, that is
// a group right below the root. It gets their counts, the units that they held at their ends, and their highest
// peak. Their own groups are gone from snapshots. The number of folded processes is stored in `processes`, which may
// be NULL: none while another process folds or settles.
//
// Costs a pass over the groups, and memory for a list.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_fold_ended(ledgerline_group_t into,
                                        uint64_t *processes);

// Creates a group below another. A name is UTF-8 of 1 to 56 bytes without '/', control characters, terminal control
// sequences and invisible characters; siblings may share one. It has `length` bytes, or ends with a NUL if `length`
// is LEDGERLINE_NUL_TERMINATED.
//
// Errors: LEDGERLINE_ERROR_NAME, _FULL, _DEPTH, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not
// async-signal-safe.
ledgerline_code_t ledgerline_group_create(ledgerline_group_t parent,
                                          const char *name,
                                          size_t length,
                                          ledgerline_group_t *group);

// Destroys a group. Units that are still charged stay counted in its ancestors until they are returned; their number
// is stored in `settled`, which may be NULL. The group's handles are refused from then on, except by
// ledgerline_uncharge.
//
// Errors: LEDGERLINE_ERROR_CHILDREN, _ROOT, _GONE, _BUSY (in a signal handler), _HANDLE; the group then continues to
// exist. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_group_destroy(ledgerline_group_t group,
                                           ledgerline_settled_t *settled);

// Destroys a group and all groups below it, also those that other threads create there meanwhile. `settled`, which
// may be NULL, receives the report for this group.
//
// Errors: as ledgerline_group_destroy; some groups may be destroyed by then. Threads: any. Signals: not
// async-signal-safe.
ledgerline_code_t ledgerline_group_destroy_tree(ledgerline_group_t group,
                                                ledgerline_settled_t *settled);

// Returns LEDGERLINE_OK if the group exists: it was not destroyed, and its process was not found to have ended.
// ledgerline_settle_dead checks that; until then the group of an ended process exists.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_exists(ledgerline_group_t group);

// Writes the group's path, like a cgroup's: "/acme/q42". The buffer is filled as by ledgerline_last_error.
//
// Errors: LEDGERLINE_ERROR_BUFFER, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_group_path(ledgerline_group_t group,
                                        char *buffer,
                                        size_t size,
                                        size_t *needed);

// Returns the group's parent.
//
// Errors: LEDGERLINE_ERROR_ROOT for the root, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: as
// ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_parent(ledgerline_group_t group, ledgerline_group_t *parent);

// Charges a group and all its ancestors, or refuses. Before it refuses, it asks the reclaimers below the full group
// (ledgerline_add_reclaimer), which run in this thread. The caller returns the units by ledgerline_uncharge.
//
// Costs one to three nanoseconds if the running CPU has prepaid units, otherwise a walk to the root (a quarter of a
// microsecond). Zero units are granted as long as the group exists.
//
// Errors: LEDGERLINE_ERROR_LIMIT (the last error names the full group), _GONE, _HANDLE, _DAMAGED; _RANGE beyond 2^62
// units, and if a group without a limit would hold more than that. Threads: any. Signals: not async-signal-safe;
// ledgerline_try_charge_units is.
ledgerline_code_t ledgerline_try_charge(ledgerline_group_t group,
                                        uint64_t units);

// Like ledgerline_try_charge, for allocators and signal handlers: it asks no reclaimer, does not wait and allocates
// nothing.
//
// Errors: as ledgerline_try_charge. Threads: any. Signals: async-signal-safe. In a program that loads the library by
// dlopen, this holds only if the thread had an error before, since the text of an error is a thread-local variable.
ledgerline_code_t ledgerline_try_charge_units(ledgerline_group_t group,
                                              uint64_t units);

// Charges even over the limits, for charges that must not fail. Each group that this takes over its limit counts a
// `max` event. It asks no reclaimer and allocates nothing.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _DAMAGED; _RANGE beyond 2^62 units, and if a group, limited or not, would
// hold more than that. Threads: any. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_charge(ledgerline_group_t group,
                                    uint64_t units);

// Returns units that were charged to the group, from any thread, in one part or in several. This is also possible
// after the group was destroyed, as long as its charges hold units: they then go back to its ancestors.
//
// A ledger counts units and does not know which charge they belong to. So a mistake (units that are returned twice)
// shows only if the group's counter would fall below zero. While the group holds units of other charges, the second
// return takes those. Units that fit into the running CPU's stock of the group (32 KiB, a sixteenth of its usage,
// or 32 of its large charges, whichever is most) become idle there without a check: until the stock is drained, the
// groups above read lower by as much. LEDGERLINE_AUDIT finds all such mistakes.
//
// Errors: LEDGERLINE_ERROR_MISTAKE if more was returned than that, also for a destroyed group that holds nothing any
// more (nothing was changed, and the mistake was counted: ledgerline_mistakes); _HANDLE; _GONE for a number that no
// group can have; _RANGE. Threads: any. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_uncharge(ledgerline_group_t group,
                                      uint64_t units);

// Like ledgerline_try_charge, but waits up to `milliseconds` for room (UINT64_MAX: without a time limit). Waiters at
// one full group are served in order of arrival. `flags` is 0, or LEDGERLINE_OOM and LEDGERLINE_THROTTLED in any
// combination. A charge that a limit can never allow is refused at once.
//
// A ledger that is freed meanwhile stays until this returns, and this continues to wait.
//
// Errors: LEDGERLINE_ERROR_LIMIT when the time is up, _CANCELLED if the group was cancelled meanwhile; _ARGUMENT for an
// unknown flag; _GONE, _HANDLE, _RANGE, _DAMAGED. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_try_charge_wait(ledgerline_group_t group,
                                             uint64_t units,
                                             uint64_t milliseconds,
                                             uint32_t flags);

// Moves units that are charged to one group to another group of the same ledger. Only limits below their first
// common ancestor apply. The new group is charged before the old one is uncharged, and a snapshot shows the units in
// one of the two.
//
// Errors: LEDGERLINE_ERROR_LIMIT, and the units stay where they were; _MISTAKE if the old group does not hold as
// many; _ARGUMENT for groups of two ledgers; _GONE, _HANDLE, _RANGE, _DAMAGED. Threads: any. Signals: not
// async-signal-safe.
ledgerline_code_t ledgerline_transfer(ledgerline_group_t from,
                                      ledgerline_group_t to,
                                      uint64_t units);

// Sets the hard limit, or LEDGERLINE_NO_LIMIT. If usage is above it, idle units are returned and the reclaimers
// below are asked first. No charge ever sees a limit that does not hold.
//
// Errors: LEDGERLINE_ERROR_BUSY if usage is still above it (the limit stays as it was); _RANGE for 2^62 and more;
// _GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units, as long as the ledger has no reclaimers and
// the call succeeds.
ledgerline_code_t ledgerline_group_set_max(ledgerline_group_t group,
                                           uint64_t max);

// Sets the hard limit regardless of usage, for a runaway group: from then on charges are refused until usage has
// come down. The excess of usage over the limit is stored in `above`, which may be NULL.
//
// Errors: LEDGERLINE_ERROR_RANGE, _GONE, _HANDLE. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_group_set_max_now(ledgerline_group_t group,
                                               uint64_t max,
                                               uint64_t *above);

// Sets the soft limit above which reclaimers are asked and a charge with LEDGERLINE_THROTTLED is slowed down.
//
// Errors: LEDGERLINE_ERROR_RANGE, _GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_set_high(ledgerline_group_t group,
                                            uint64_t high);

// Sets how much is protected from reclaim unless nothing else is left.
//
// Errors: LEDGERLINE_ERROR_RANGE, _GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_set_low(ledgerline_group_t group,
                                           uint64_t low);

// Sets how much is always protected from reclaim.
//
// Errors: LEDGERLINE_ERROR_RANGE, _GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_set_min(ledgerline_group_t group,
                                           uint64_t min);

// Returns the limits of a group.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_limits(ledgerline_group_t group,
                                          ledgerline_limits_t *limits);

// Sets the mode of a group and all below it, present and future: LEDGERLINE_ENFORCE, LEDGERLINE_MEASURE or
// LEDGERLINE_OFF.
//
// Errors: LEDGERLINE_ERROR_ARGUMENT for another number, _GONE, _HANDLE. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_group_set_mode(ledgerline_group_t group,
                                            uint32_t mode);

// Returns the mode of a group.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_mode(ledgerline_group_t group,
                                        uint32_t *mode);

// Returns the units that are charged to a group and all below it, exactly: true at a moment of the call. Costs a
// look at every cell in use.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_group_usage(ledgerline_group_t group,
                                         uint64_t *usage);

// Returns the usage within a stated bound, in a few loads.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_estimate(ledgerline_group_t group,
                                            ledgerline_estimate_t *usage);

// Returns the highest usage since the group was created or its peak was reset, within a bound.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_peak(ledgerline_group_t group,
                                        ledgerline_estimate_t *peak);

// Resets the peak to the present usage.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_reset_peak(ledgerline_group_t group);

// Returns the counts of met limits in a group and below it.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_group_events(ledgerline_group_t group, ledgerline_events_t *events);

// Returns the counts of met limits of this very group.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_group_local_events(ledgerline_group_t group,
                                                ledgerline_events_t *events);

// Adds to one of the ledger's own items (ledgerline_ledger_item).
//
// Errors: LEDGERLINE_ERROR_NOT_FOUND for an unknown item number, _GONE, _HANDLE. Threads: any. Signals: as
// ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_add_stat(ledgerline_group_t group,
                                            uint32_t item,
                                            int64_t n);

// Returns the counts of an item in a group (`own`) and in its subtree. The item is one of the ledger's own, or
// "blocks_live", "blocks_total", "refused", "reclaimed", "throttled", "throttled_usec", and with LEDGERLINE_FLOWS
// "charged" and "freed". Either place may be NULL.
//
// Errors: LEDGERLINE_ERROR_NOT_FOUND, _NAME, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_group_stat(ledgerline_group_t group,
                                        const char *name,
                                        size_t length,
                                        int64_t *own,
                                        int64_t *subtree);

// Writes the counts of a group's subtree as the lines of memory.stat. The buffer is filled as by
// ledgerline_last_error.
//
// Errors: LEDGERLINE_ERROR_BUFFER, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_group_stat_text(ledgerline_group_t group,
                                             char *buffer,
                                             size_t size,
                                             size_t *needed);

// Writes the usage of the groups from this one to the root, and of the largest consumers below the fullest of them:
// a table for a terminal or a log. The buffer is filled as by ledgerline_last_error.
//
// Errors: LEDGERLINE_ERROR_BUFFER, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_group_diagnose(ledgerline_group_t group,
                                            char *buffer,
                                            size_t size,
                                            size_t *needed);

// Takes a snapshot of the whole tree, and calls `visit` for each group: the root first, each followed by those below
// it. The snapshot is complete before the first call, so `visit` may call anything, and free the ledger, too.
//
// Errors: LEDGERLINE_ERROR_ARGUMENT for a NULL function, _HANDLE. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_ledger_snapshot(ledgerline_ledger_t ledger,
                                             ledgerline_visit_t visit,
                                             void *data);

// Returns the calling thread's current group, as ledgerline_current_swap set it; zeros for none.
//
// Errors: LEDGERLINE_ERROR_ARGUMENT; _HANDLE if code in Rust made a group of a ledger of its own the current one.
// Threads: any; each has its own. Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_current_get(ledgerline_group_t *group);

// Makes a group the calling thread's current one (zeros for none), and stores the previous one in `*before`, which
// may be NULL. The group's ledger is kept for good (ledgerline_ledger_keep). Code that was not given a group may ask
// for the current one and charge it. A thread inherits nothing. A runtime that switches stacks swaps when it resumes
// a fiber, and swaps back when the fiber yields.
//
// Errors: LEDGERLINE_ERROR_NOT_KEPT, _GONE, _HANDLE; the current group is as before. Threads: any; each has its own.
// Signals: as ledgerline_try_charge_units.
ledgerline_code_t ledgerline_current_swap(ledgerline_group_t group,
                                          ledgerline_group_t *before);

// Charges a block that an allocator just made to a group, with `size` bytes, or one if that is zero, and labels it: its owner
// and its size stand beside the heap, so that ledgerline_block_release needs neither. The block has no header. For hooks of
// `malloc` and the like. Blocks start at multiples of 16, and 16 bytes apart at least. On an error the hook frees the block and
// returns NULL. The group's ledger is kept for good (ledgerline_ledger_keep).
//
// For LEDGERLINE_NOBODY the calling thread's current group (ledgerline_current_swap) is charged; if there is none the block is
// not accounted, and the call succeeds. 65 535 groups may hold blocks at a time.
//
// Costs ten to twenty nanoseconds more than ledgerline_try_charge_units. The labels take four bytes for each 16 of heap, where
// they are touched.
//
// Errors: as ledgerline_try_charge_units; LEDGERLINE_ERROR_ARGUMENT for NULL, and where a block is not aligned; _NOT_KEPT; _FULL
// where all numbers of owners are taken; _SYSTEM if there is no memory for the label. Threads: any. Signals: async-signal-safe
// but for the first block in a GiB of addresses and the first of a group.
ledgerline_code_t ledgerline_block_charge(ledgerline_group_t group,
                                          void *block,
                                          size_t size);

// Returns the bytes of a block to the group that was charged for them, and takes its label off. A hook of `free` calls it
// before the block is freed, on any thread: another one may get the place at once. `size`, which may be NULL, receives the
// bytes: zero for NULL and for a block that is not accounted, which is no error.
//
// Errors: none but LEDGERLINE_ERROR_ARGUMENT, for a block that is not aligned. Threads: any. Signals: async-signal-safe.
ledgerline_code_t ledgerline_block_release(void *block,
                                           size_t *size);

// Resizes a block: charges its owner for what it grows by, calls `realloc(data, block, size)`, and labels what that returns. If
// it returns NULL, all is as before. The owner stays the same, whichever group is current, and a block without an owner stays so.
// If the owner was destroyed, growth is refused. `moved` receives the result of `realloc`.
//
// Errors: as ledgerline_block_charge, and then `realloc` was not called, and the block is as before; LEDGERLINE_ERROR_SYSTEM where
// `realloc` returned NULL. If there is no memory for the new label, the block is no longer accounted. Threads: any. Signals: as `realloc`.
ledgerline_code_t ledgerline_block_resize(void *block,
                                          size_t size,
                                          ledgerline_realloc_t realloc,
                                          void *data,
                                          void **moved);

// Reports the owner of a block and the bytes charged for it: LEDGERLINE_NOBODY and zero if it has none. Both places may be
// NULL.
//
// Errors: LEDGERLINE_ERROR_ARGUMENT; _HANDLE if code in Rust charged it to a ledger of its own. Threads: any. Signals:
// async-signal-safe.
ledgerline_code_t ledgerline_block_owner(void *block,
                                         ledgerline_group_t *group,
                                         size_t *size);

// Starts to watch the events of a group and all below it. The descriptor is a non-blocking eventfd for poll or
// epoll. It is readable after events: read eight bytes, and call ledgerline_group_events for the counts, which
// include those events. Close it only by ledgerline_watch_close. A group that is destroyed has no more events.
//
// Errors: LEDGERLINE_ERROR_FULL with 256 watches of the ledger in this process, _SYSTEM without a descriptor, _GONE,
// _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_watch_open(ledgerline_group_t group,
                                        ledgerline_watch_t *watch,
                                        int32_t *descriptor);

// Takes the events that were not taken yet: LEDGERLINE_OK if there were any, LEDGERLINE_ERROR_NOT_FOUND if not. It
// reads the descriptor, for callers that poll it and do not want to read it themselves.
//
// Errors: LEDGERLINE_ERROR_NOT_FOUND, _HANDLE. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_watch_look(ledgerline_watch_t watch);

// Ends a watch, and closes its descriptor.
//
// Errors: LEDGERLINE_ERROR_HANDLE if it was ended before, also by ledgerline_ledger_free. Threads: any. Signals: not
// async-signal-safe.
ledgerline_code_t ledgerline_watch_close(ledgerline_watch_t watch);

// Adds a function that gives back memory of a group. Before a charge below a full group (this one or an ancestor) is
// refused, the function is called with the needed units; lower priorities first. Only ledgerline_try_charge,
// ledgerline_try_charge_wait and the calls that lower a limit ask it, in their thread and one at a time.
//
// Errors: LEDGERLINE_ERROR_ARGUMENT for a NULL function, _GONE, _HANDLE. Threads: any; the function may be called in
// any thread that charges. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_add_reclaimer(ledgerline_group_t group,
                                           int32_t priority,
                                           ledgerline_reclaim_t reclaim,
                                           void *data,
                                           ledgerline_reclaimer_t *reclaimer);

// Like ledgerline_add_reclaimer, but the library owns the data from this call on, also if it fails. `release`, which
// may be NULL, is called with the data once, when no thread is inside the function or will be: before this returns
// an error, or in ledgerline_remove_reclaimer or ledgerline_ledger_free. If those do not wait, the thread that
// leaves the function last calls it. So data may be freed that way even if the reclaimer is taken out inside a
// callback. A forked child that does not have the thread that was inside frees nothing.
//
// Errors: as ledgerline_add_reclaimer. Threads: any; `release` is called in any thread, without a lock held.
// Signals: not async-signal-safe.
ledgerline_code_t ledgerline_add_reclaimer_owning(ledgerline_group_t group,
                                                  int32_t priority,
                                                  ledgerline_reclaim_t reclaim,
                                                  void *data,
                                                  ledgerline_release_t release,
                                                  ledgerline_reclaimer_t *reclaimer);

// Takes a reclaimer out. When this returns, no other thread is inside the function or will be, so the data may be
// freed. Do not call it under a lock that the function takes. Inside a reclaimer or another callback it does not
// wait for other threads: one may still be inside. For data that must be freed in that case, use
// ledgerline_add_reclaimer_owning.
//
// Errors: LEDGERLINE_ERROR_HANDLE if it was taken out before, also by ledgerline_ledger_free. Threads: any. Signals:
// not async-signal-safe.
ledgerline_code_t ledgerline_remove_reclaimer(ledgerline_reclaimer_t reclaimer);

// Returns the results of a reclaimer's runs so far.
//
// Errors: LEDGERLINE_ERROR_HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_reclaimer_report(ledgerline_reclaimer_t reclaimer,
                                              ledgerline_reclaim_report_t *report);

// Makes a token that is not cancelled.
//
// Errors: LEDGERLINE_ERROR_ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_token_new(ledgerline_token_t *token);

// Frees a token. Its callbacks are not called from then on. This waits for callbacks that run in other threads,
// unless it is called inside one. Victims that were added with the token stay, and can still be cancelled.
//
// Errors: LEDGERLINE_ERROR_HANDLE. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_token_free(ledgerline_token_t token);

// Returns LEDGERLINE_OK while the work may continue, LEDGERLINE_ERROR_CANCELLED once it should stop. The last error
// has the reason. Costs a lock for a few instructions.
//
// Errors: LEDGERLINE_ERROR_CANCELLED, _HANDLE. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_token_check(ledgerline_token_t token);

// Writes why a token was cancelled. The buffer is filled as by ledgerline_last_error; empty while it is not.
//
// Errors: LEDGERLINE_ERROR_BUFFER, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_token_why(ledgerline_token_t token,
                                       char *buffer,
                                       size_t size,
                                       size_t *needed);

// Cancels a token by hand. Callbacks run in this call.
//
// Errors: LEDGERLINE_ERROR_CANCELLED if it was cancelled before; _HANDLE. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_token_cancel(ledgerline_token_t token);

// Registers a function that is called once when a token is cancelled, in the thread that cancels. If the token was
// cancelled before, it is called at once.
//
// Errors: LEDGERLINE_ERROR_ARGUMENT for a NULL function, _HANDLE. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_token_on_cancel(ledgerline_token_t token,
                                             ledgerline_cancelled_t cancelled,
                                             void *data);

// Adds a group as a victim. When a request with LEDGERLINE_OOM meets a full group above it, the token of the victim
// that holds most above its protection is cancelled.
//
// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
ledgerline_code_t ledgerline_add_victim(ledgerline_group_t group,
                                        ledgerline_token_t token,
                                        ledgerline_victim_t *victim);

// Takes a victim out, so that it is no longer cancelled.
//
// Errors: LEDGERLINE_ERROR_HANDLE if it was taken out before, also by ledgerline_ledger_free. Threads: any. Signals:
// not async-signal-safe.
ledgerline_code_t ledgerline_remove_victim(ledgerline_victim_t victim);

// Sets whether all victims below a group are cancelled together when one of them is. `whole` is 0 or 1.
//
// Errors: LEDGERLINE_ERROR_ARGUMENT for another number, _GONE, _HANDLE. Threads: any. Signals: as
// ledgerline_try_charge_units.
ledgerline_code_t ledgerline_group_set_oom_group(ledgerline_group_t group,
                                                 uint32_t whole);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LEDGERLINE_H */

// Returns LEDGERLINE_OK if the library that runs has the ABI of this header. A program calls it once, before
// anything else.
static inline ledgerline_code_t ledgerline_check_abi(void) {
    return ledgerline_fits_abi(LEDGERLINE_ABI_VERSION);
}
