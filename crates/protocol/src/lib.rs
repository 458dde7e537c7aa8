//! The protocol between `ledgerline run` and the library that it preloads.
//!
//! `run` makes a ledger in a file, writes an [`Order`] into the environment of the program, and preloads the library.
//! The library reads the order in each process that the program becomes or starts, opens the ledger and charges every
//! allocation to it. Both settle the rows of ended processes, so they must agree on which processes have ended
//! ([`alive`]), also across namespaces ([`Identity`]), and on which filters are the run's own ([`Start::filters`]).
//!
//! | variable            | content                                       | if it is missing                  |
//! |---------------------|-----------------------------------------------|-----------------------------------|
//! | `LEDGERLINE_LEDGER` | the path of the ledger's file                 | nothing is charged                |
//! | `LEDGERLINE_RUN` | the identity of the run's ledgers: [`Given`] | the library does not attach |
//! | `LEDGERLINE_BY`     | what a row stands for: [`By`]                 | [`By::Thread`]                    |
//! | `LEDGERLINE_ON_MAX` | the action at the root's limit: [`OnMax`]     | [`OnMax::Enomem`]                 |
//! | `LEDGERLINE_STRICT` | `1`: programs keep this environment over `exec` | they may drop it |
//! | `LEDGERLINE_STACK` | `1`: the first refusal of each row comes with its stack | it does not |
//! | `LEDGERLINE_RESERVE` | the reserve within the root's limit, in bytes: [`Order::reserve`] | nothing is kept |
//! | `LEDGERLINE_HEAP` | the path of the second ledger's file: [`Order::heap`] | blocks have no limit of their own |
//! | `LEDGERLINE_NAMESPACE` | the number of the run's namespace of processes | there is but one namespace     |
//! | `LEDGERLINE_FILTERS` | the number of the run's seccomp filters, with a suffix if the program has no others: [`Order::filters`] | it has none |
//! | `LEDGERLINE_CPUS` | how many CPUs the machine may have: [`Order::cpus`] | the library asks |
//! | `LEDGERLINE_PERCPU` | how cells are updated: `rseq`, `owned`, `fallback` | the library does not attach       |
//!
//! The ledger's own format is not part of this: `Ledger::open_in` refuses a ledger of another version.
//!
//! This is a crate, not a file that both sides compile by `#[path]`, because a published package holds no file of
//! another package. It depends on libc alone and allocates nothing: the library calls it within malloc.

/// Declares an enumeration whose values have names.
macro_rules! named {
    (
        $(#[$meta:meta])*
        $of:ident, $(#[$called:meta])* { $($(#[$doc:meta])* $value:ident $(= $number:literal)?: $name:literal,)* }
    ) => {
        $(#[$meta])*
        pub enum $of {
            $($(#[$doc])* $value $(= $number)?),*
        }

        impl $of {
            /// All values.
            pub const ALL: [$of; $of::NAMES.len()] = [$($of::$value),*];
            /// The names of all values.
            pub const NAMES: [&str; [$($name),*].len()] = [$($name),*];

            $(#[$called])*
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($of::$value => $name),*
                }
            }
        }
    };
}

mod alive;
pub mod blind;
pub mod given;
mod identity;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
mod status;

pub use alive::alive;
pub use given::Given;
pub use identity::{Identity, OWN_NAMESPACE, number, program};
pub use status::{Start, at_start, most_resident, resident_ever, vouched};

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

/// The variable with the path of the ledger's file.
const LEDGER: &CStr = c"LEDGERLINE_LEDGER";
/// The variable with the identity of the ledgers' files.
pub const GIVEN: &CStr = c"LEDGERLINE_RUN";
/// The variable with the path of the second ledger's file.
const HEAP: &CStr = c"LEDGERLINE_HEAP";
/// The variable for what a row stands for.
const BY: &CStr = c"LEDGERLINE_BY";
/// The variable for the action at the limit.
const ON_MAX: &CStr = c"LEDGERLINE_ON_MAX";

/// The variable for the memory that a limit counts.
const COUNT: &CStr = c"LEDGERLINE_COUNT";

/// The variable for the size of the reserve.
const RESERVE: &CStr = c"LEDGERLINE_RESERVE";

/// The variable that makes accounting mandatory for each program.
const STRICT: &CStr = c"LEDGERLINE_STRICT";

/// The variable for stacks of refusals.
const STACK: &CStr = c"LEDGERLINE_STACK";

/// The variable with the number of the run's namespace of process ids.
const NAMESPACE: &CStr = c"LEDGERLINE_NAMESPACE";

/// The variable with the number of the run's seccomp filters.
pub const FILTERS: &CStr = c"LEDGERLINE_FILTERS";

/// Suffix of that number: the executing process states that the program has no further filters.
pub const VOUCHED: u8 = b'!';

/// The variable with the number of CPUs that the machine may have.
const CPUS: &CStr = c"LEDGERLINE_CPUS";

/// The variable for the way to update cells, which the library `ledgerline` itself reads.
///
/// All processes of a ledger update it in one way. `run` sets the variable if the user did not. The preloaded library
/// does not attach without it: `ledgerline` would test restartable sequences with a thread of its own, which has no
/// place in the first malloc of a program.
pub const PERCPU: &CStr = c"LEDGERLINE_PERCPU";

/// More bytes than any machine has. A larger limit is a typing mistake; a larger count means that a program overwrote
/// the ledger.
pub const MOST_BYTES: u64 = 1 << 56;

named! {
    /// The counters of a row beside its units: the ledger's items, in this order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Item,
    /// Returns the item's name in the ledger.
    {
        /// Private memory that programs map by themselves and that was writable; it is charged.
        Private: "mapped",
        /// Shared memory that they map.
        Shared: "mapped_shared",
        /// Files that they map to be read.
        File: "mapped_file",
        /// The bytes of the first request that was refused ([`Item::REFUSED`]).
        RefusedFirst: "refused_first",
        /// The time of that request, in milliseconds of `CLOCK_MONOTONIC`.
        RefusedFirstTime: "refused_first_time",
        /// The bytes of the largest request that was refused.
        RefusedLargest: "refused_largest",
        /// In a process's own row, how often a name found no row because the process has as many as it may have.
        /// Allocations under that name are charged to the process's own row.
        Folded: "names_without_row",
        /// The number of ended processes that a row stands for, if there are several. `run` counts them.
        Ended: "ended",
        /// Of the root, the part of the user's limit that is kept as the reserve. The root's own limit is less by that.
        Reserved: "reserve",
        /// The number of requests that a limit of the first ledger refused and that were granted then: out of the
        /// reserve, or since a limit of resident memory was not met. The program did not see a refusal.
        Spared: "granted_after_refusal",
        /// Why the process of the row is not accounted: the number of a [`Blind`](blind::Blind).
        Blind: "not_accounted",
        /// The most bytes that the kernel saw resident in the row's process. Known if the process ended by itself. Of
        /// the root, the peak of all processes together, if the limit counts resident memory.
        Resident: "resident",
        /// The number of requests that the limit for blocks alone refused ([`Order::heap`]).
        RefusedHeap: "refused_heap",
        /// The number of those that the reserve granted.
        SparedHeap: "granted_after_refusal_heap",
        /// Of the root, the limit of blocks alone, as the user set it, plus one; zero is none.
        MaxHeap: "max_heap",
        /// Of the root, the number of processes that found no row left.
        LeftOut: "left_out",
        /// The bytes that a process mapped and that are not followed, since there were more mappings than the preloaded
        /// library has room for. They are not charged.
        Forgotten: "mapped_forgotten",
        /// The bytes that were in use when the first request was refused.
        RefusedUsage: "refused_usage",
        /// The id of the process that started the row's process, in its own namespace.
        Parent: "parent",
        /// The time at which the process began to be accounted, in milliseconds of `CLOCK_MONOTONIC`, plus one.
        Started: "started",
        /// Not zero if the process has executed another program, which has a row of its own.
        Executed: "executed",
    }
}

impl Item {
    /// The refusals of a row. They are its own; their sum over rows means nothing.
    pub const REFUSED: [Item; 4] =
        [Item::RefusedFirst, Item::RefusedFirstTime, Item::RefusedLargest, Item::RefusedUsage];
    /// The identity of a process. These are its own; their sum over rows means nothing.
    pub const ORIGIN: [Item; 3] = [Item::Parent, Item::Started, Item::Executed];
    /// Of the root, which has no process, the limit of resident memory as the user set it, plus one; zero is none. One
    /// more item would take 64 bytes more in each row's part of each CPU.
    pub const RESIDENT_MAX: Item = Item::Parent;
}

/// The largest request, in bytes, that the reserve serves.
pub const RESERVE_REQUEST: u64 = 16 << 10;
/// The divisor of the reserve: one process may use that part of it.
pub const RESERVE_SHARE: u64 = 4;

named! {
    /// The subject of a row of the account.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    By,
    /// Returns the name on the command line and in the environment.
    {
        /// A thread; its row lies below its process's.
        Thread: "thread",
        /// A process.
        Process: "process",
        /// A shared library that allocates; its row lies below its process's.
        Library: "library",
    }
}

named! {
    /// The action on an allocation that would exceed the root's limit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    OnMax,
    /// Returns the name on the command line and in the environment.
    {
        /// It fails with `ENOMEM`.
        Enomem: "enomem",
        /// The process that asked explains the refusal and ends itself by `SIGKILL`.
        Kill: "kill",
    }
}

named! {
    /// The memory that the limit of a run counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Count,
    /// Returns the name on the command line and in the environment.
    {
        /// Blocks and mappings, from the request on, whether they are touched or not.
        Mapped: "mapped",
        /// Memory that the kernel holds for the processes, as it was at the last look.
        Resident: "resident",
    }
}

/// The lowest bit of the root's max, if the limit counts resident memory: at the last look that was above the limit. Each
/// look changes the max.
pub const MARK_CLOSED: u64 = 1;

/// The settings that `run` gives to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order<'a> {
    /// The path of the ledger's file.
    pub ledger: &'a [u8],
    /// The identity of the ledgers' files, as [`Given`] writes it.
    pub given: Option<&'a [u8]>,
    /// The path of a second ledger's file, if blocks have their own limit, which is that ledger's root's. Each process
    /// has one row in it, to which its blocks are charged a second time.
    pub heap: Option<&'a [u8]>,
    /// The subject of a row.
    pub by: By,
    /// The action at the limit.
    pub on_max: OnMax,
    /// The memory that the limit counts.
    pub count: Count,
    /// Whether programs keep the library's variables in their environment even if the executing process drops them.
    pub strict: bool,
    /// Whether the first refusal of each row is printed with its stack, on standard error.
    pub stack: bool,
    /// The reserve in bytes, in decimal: kept below the user's limit, for small requests of processes that were refused
    /// before.
    pub reserve: Option<&'a [u8]>,
    /// The number of the run's namespace of process ids, in decimal, if it is known.
    pub namespace: Option<&'a [u8]>,
    /// The number of seccomp filters that the run is under, in decimal ([`Start::filters`]), if it is known. These
    /// filters allow the library's calls; a process that has more filters must take care. The suffix [`VOUCHED`] states
    /// that the program that reads the order has no more, so it need not ask. The program removes the suffix at once:
    /// it does not hold for programs that this one executes.
    pub filters: Option<&'a [u8]>,
    /// The number of CPUs that the machine may ever have, in decimal. The ledger was made for that number.
    pub cpus: Option<&'a [u8]>,
}

impl<'a> Order<'a> {
    /// Returns the variables that carry the order, with their values.
    #[must_use]
    pub fn write(&self) -> [(&'static OsStr, &'a OsStr); 12] {
        [
            (HEAP, self.heap.unwrap_or_default()),
            (STACK, if self.stack { b"1".as_slice() } else { b"" }),
            (STRICT, if self.strict { b"1".as_slice() } else { b"" }),
            (FILTERS, self.filters.unwrap_or_default()),
            (CPUS, self.cpus.unwrap_or_default()),
            (NAMESPACE, self.namespace.unwrap_or_default()),
            (RESERVE, self.reserve.unwrap_or_default()),
            (GIVEN, self.given.unwrap_or_default()),
            (LEDGER, self.ledger),
            (BY, self.by.name().as_bytes()),
            (ON_MAX, self.on_max.name().as_bytes()),
            (COUNT, self.count.name().as_bytes()),
        ]
        .map(|(name, value)| (OsStr::from_bytes(name.to_bytes()), OsStr::from_bytes(value)))
    }

    /// Reads the order from an environment, if there is one.
    pub fn read(variable: impl Fn(&CStr) -> Option<&'a [u8]>) -> Option<Order<'a>> {
        let ledger = variable(LEDGER)?;
        let (by, on_max, count) = (variable(BY), variable(ON_MAX), variable(COUNT));
        let by = By::ALL.into_iter().find(|one| by == Some(one.name().as_bytes()));
        let on_max = OnMax::ALL.into_iter().find(|one| on_max == Some(one.name().as_bytes()));
        let count = Count::ALL.into_iter().find(|one| count == Some(one.name().as_bytes()));
        Some(Order {
            ledger,
            given: variable(GIVEN).filter(|text| !text.is_empty()),
            heap: variable(HEAP).filter(|path| !path.is_empty()),
            by: by.unwrap_or(By::Thread),
            on_max: on_max.unwrap_or(OnMax::Enomem),
            count: count.unwrap_or(Count::Mapped),
            stack: variable(STACK) == Some(b"1"),
            strict: variable(STRICT) == Some(b"1"),
            reserve: variable(RESERVE).filter(|number| !number.is_empty()),
            namespace: variable(NAMESPACE).filter(|number| !number.is_empty()),
            filters: variable(FILTERS).filter(|number| !number.is_empty()),
            cpus: variable(CPUS).filter(|number| !number.is_empty()),
        })
    }
}

/// Prefix of a ledger's path through a descriptor of the process's own. The library kept that descriptor when the
/// process left the run's `/proc`.
pub const DESCRIPTORS: &str = "/proc/self/fd/";

/// The ledger that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The ledger.
    Ledger,
    /// The second ledger ([`Order::heap`]).
    Heap,
}

/// Returns the path of a ledger's file from a string of an environment, `NAME=value`, if it has one.
#[must_use]
pub fn path_of(string: &CStr) -> Option<(Which, &CStr)> {
    let of = |which, name: &CStr| {
        let value = string.to_bytes_with_nul().strip_prefix(name.to_bytes())?.strip_prefix(b"=")?;
        Some((which, CStr::from_bytes_with_nul(value).ok()?))
    };
    of(Which::Ledger, LEDGER).or_else(|| of(Which::Heap, HEAP))
}

/// Returns the number of the run's filters from a string of an environment, `NAME=value`, if it has one without the
/// suffix.
#[must_use]
pub fn unmarked(string: &CStr) -> Option<&[u8]> {
    let value = string.to_bytes().strip_prefix(FILTERS.to_bytes())?.strip_prefix(b"=")?;
    (value.last() != Some(&VOUCHED)).then_some(value)
}

/// Returns whether a string of an environment, `NAME=value`, is a part of an order.
#[must_use]
pub fn is_of_order(string: &[u8]) -> bool {
    let names = [
        LEDGER, GIVEN, HEAP, BY, ON_MAX, COUNT, STRICT, STACK, RESERVE, NAMESPACE, FILTERS, CPUS,
        PERCPU,
    ];
    names
        .iter()
        .any(|name| string.strip_prefix(name.to_bytes()).is_some_and(|rest| rest.starts_with(b"=")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_an_order_is_known_among_other_variables() {
        let order = Order::read(|name| (name == LEDGER).then_some(&b"x"[..])).unwrap();
        for (name, _) in order.write() {
            let name = name.as_bytes();
            assert!(is_of_order(&[name, b"=7"].concat()) && is_of_order(&[name, b"="].concat()));
            assert!(!is_of_order(name) && !is_of_order(&[name, b"S=7"].concat()));
        }
        assert_eq!(path_of(c"LEDGERLINE_LEDGER=/x"), Some((Which::Ledger, c"/x")));
        assert_eq!(path_of(c"LEDGERLINE_HEAP=/y"), Some((Which::Heap, c"/y")));
        assert_eq!((path_of(c"LEDGERLINE_LEDGER"), path_of(c"A=/x")), (None, None));
        assert!(!is_of_order(b"LD_PRELOAD=x") && !is_of_order(b"LEDGERLINE_PRELOAD=x"));
        assert_eq!(unmarked(c"LEDGERLINE_FILTERS=12"), Some(&b"12"[..]));
        assert_eq!(unmarked(c"LEDGERLINE_FILTERS="), Some(&b""[..]));
        for other in [c"LEDGERLINE_FILTERS=12!", c"LEDGERLINE_FILTERS", c"LEDGERLINE_FILTERS_=1"] {
            assert_eq!(unmarked(other), None);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for by in By::ALL {
            for on_max in OnMax::ALL {
                let heap = (by == By::Library).then_some(&b"/proc/7/fd/4"[..]);
                let namespace = (by == By::Thread).then_some(&b"4026531836"[..]);
                let reserve = (by == By::Process).then_some(&b"65536"[..]);
                let filters = (by == By::Process).then_some(&b"3"[..]);
                let cpus = (by == By::Library).then_some(&b"64"[..]);
                let order = Order {
                    ledger: b"/proc/7/fd/3",
                    given: (by == By::Library).then_some(&b"0.1"[..]),
                    heap,
                    by,
                    on_max,
                    count: if by == By::Process { Count::Resident } else { Count::Mapped },
                    strict: by == By::Library,
                    stack: by == By::Thread,
                    reserve,
                    namespace,
                    filters,
                    cpus,
                };
                let written = order.write();
                let find = |name: &CStr| {
                    let name = OsStr::from_bytes(name.to_bytes());
                    Some(written.iter().find(|(other, _)| *other == name)?.1.as_bytes())
                };
                assert_eq!(Order::read(find), Some(order));
            }
        }
    }

    #[test]
    fn without_a_ledger_nothing_is_asked_and_the_rest_has_defaults() {
        assert_eq!(Order::read(|_| None), None);
        let only = |name: &CStr| (name == LEDGER).then_some(&b"x"[..]);
        let order = Order {
            ledger: b"x",
            given: None,
            heap: None,
            by: By::Thread,
            on_max: OnMax::Enomem,
            count: Count::Mapped,
            strict: false,
            stack: false,
            reserve: None,
            namespace: None,
            filters: None,
            cpus: None,
        };
        assert_eq!(Order::read(only), Some(order));
    }
}
