//! What `ledgerline run` and the library that it preloads agree on.
//!
//! `run` makes a ledger in a file, writes an [`Order`] into the environment of the program, and preloads the
//! library. The library reads the order in each process that the program becomes or starts, opens the ledger and
//! charges every allocation to it. Both settle the rows of processes that have ended, so they must agree on
//! which processes these are: [`alive`], in any namespace: [`Identity`]; and on what is a filter of the run's own:
//! [`Start::filters`].
//!
//! | variable            | what it says                                  | where it is missing               |
//! |---------------------|-----------------------------------------------|-----------------------------------|
//! | `LEDGERLINE_LEDGER` | the path of the ledger's file                 | nothing is charged                |
//! | `LEDGERLINE_RUN` | which files are the run's ledgers: [`Given`] | the library does not attach |
//! | `LEDGERLINE_BY`     | what a row stands for: [`By`]                 | [`By::Thread`]                    |
//! | `LEDGERLINE_ON_MAX` | what happens at the root's limit: [`OnMax`]   | [`OnMax::Enomem`]                 |
//! | `LEDGERLINE_STRICT` | `1`: programs keep this environment over `exec` | they may drop it |
//! | `LEDGERLINE_STACK` | `1`: the first refusal of each row comes with its stack | it does not |
//! | `LEDGERLINE_RESERVE` | what is kept of the root's limit, in bytes: [`Order::reserve`] | nothing is kept |
//! | `LEDGERLINE_HEAP` | the path of the second ledger's file: [`Order::heap`] | blocks have no limit of their own |
//! | `LEDGERLINE_NAMESPACE` | the number of the run's namespace of processes | there is but one namespace     |
//! | `LEDGERLINE_FILTERS` | the number of seccomp filters of the run; with a mark behind it whoever executes the program vouches that it has no more: [`Order::filters`] | it has none |
//! | `LEDGERLINE_CPUS` | how many CPUs the machine may have: [`Order::cpus`] | the library asks |
//! | `LEDGERLINE_PERCPU` | how cells are updated: `rseq`, `owned`, `fallback` | the library does not attach       |
//!
//! The ledger's own format is not part of this: `Ledger::open_in` refuses a ledger of another version.
//!
//! This is a crate, and not a file that both sides compile by `#[path]`, because a package holds no file of
//! another package when it is published. It depends on libc alone and allocates nothing: the library calls it
//! within malloc.

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
            /// All there are.
            pub const ALL: [$of; $of::NAMES.len()] = [$($of::$value),*];
            /// What all are called.
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

/// The variable that names the ledger's file.
const LEDGER: &CStr = c"LEDGERLINE_LEDGER";
/// The variable that says which files these are.
pub const GIVEN: &CStr = c"LEDGERLINE_RUN";
/// The variable that names the second ledger's file.
const HEAP: &CStr = c"LEDGERLINE_HEAP";
/// The variable that says what a row stands for.
const BY: &CStr = c"LEDGERLINE_BY";
/// The variable that says what happens at the limit.
const ON_MAX: &CStr = c"LEDGERLINE_ON_MAX";

/// The variable that says how much is kept for programs that were refused.
const RESERVE: &CStr = c"LEDGERLINE_RESERVE";

/// The variable that says whether each program must be accounted.
const STRICT: &CStr = c"LEDGERLINE_STRICT";

/// The variable that says whether refusals come with their stacks.
const STACK: &CStr = c"LEDGERLINE_STACK";

/// The variable that says which namespace of process ids is the run's.
const NAMESPACE: &CStr = c"LEDGERLINE_NAMESPACE";

/// The variable that says under how many seccomp filters the run is.
pub const FILTERS: &CStr = c"LEDGERLINE_FILTERS";

/// What stands behind that number where whoever executes a program vouches that it has no filters besides.
pub const VOUCHED: u8 = b'!';

/// The variable that says how many CPUs the machine may have.
const CPUS: &CStr = c"LEDGERLINE_CPUS";

/// The variable that says how cells are updated, which `ledgerline` itself reads.
///
/// All processes of a ledger update it in one way. `run` sets the variable where the user did not. The library
/// does not attach without it: `ledgerline` would test restartable sequences with a thread of its own, which
/// has no place in the first malloc of a program.
pub const PERCPU: &CStr = c"LEDGERLINE_PERCPU";

/// No machine holds more bytes: a limit above is a typing mistake, and a count above what a program wrote over the ledger.
pub const MOST_BYTES: u64 = 1 << 56;

named! {
    /// What a row of a run's ledger counts beside its units: the ledger's items, in this order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Item,
    /// What it is called in the ledger.
    {
        /// Private memory that programs map by themselves and that was writable, which is charged.
        Private: "mapped",
        /// Shared memory that they map.
        Shared: "mapped_shared",
        /// Files that they map to be read.
        File: "mapped_file",
        /// The bytes of the first request that was refused ([`Item::REFUSED`]).
        RefusedFirst: "refused_first",
        /// When that was, in milliseconds of `CLOCK_MONOTONIC`.
        RefusedFirstTime: "refused_first_time",
        /// The bytes of the largest request that was refused.
        RefusedLargest: "refused_largest",
        /// In a process's own row, how often a name found no row, since the process has as many as it may have: what goes
        /// by that name is charged to the process's own row.
        Folded: "folded_names",
        /// How many processes that ended a row stands for, if it stands for several. `run` counts them.
        Ended: "ended",
        /// Of the root, how much of the user's limit is kept as the reserve: the root's own limit is less by that.
        Reserved: "reserve",
        /// How many requests were granted out of the reserve: a limit of the first ledger refused them, and the program did
        /// not feel it.
        Spared: "spared",
        /// Why the process of the row is not accounted: the number of a [`Blind`](blind::Blind).
        Blind: "blind",
        /// The most bytes that the kernel saw resident in the row's process, when it ended by itself.
        Resident: "resident",
        /// How many requests the limit for blocks alone refused ([`Order::heap`]).
        RefusedHeap: "refused_heap",
        /// How many it refused and the reserve granted.
        SparedHeap: "spared_heap",
        /// Of the root, which limit blocks alone have, as the user set it, plus one; zero is none.
        MaxHeap: "max_heap",
        /// Of the root, the processes that found no row left.
        LeftOut: "left_out",
        /// The bytes that a process mapped and this account does not follow: there were more mappings than the preloaded
        /// library has room for. They are charged to nobody.
        Forgotten: "mapped_forgotten",
        /// The bytes that were in use when the first request was refused.
        RefusedUsage: "refused_usage",
        /// The id of the process that the row's process was started by, in its own namespace.
        Parent: "parent",
        /// When the process began to be accounted, in milliseconds of `CLOCK_MONOTONIC`, plus one.
        Started: "started",
        /// Not zero if the process has executed another program, which has a row of its own.
        Executed: "executed",
    }
}

impl Item {
    /// What a row was refused: its own, of which no sum means anything.
    pub const REFUSED: [Item; 4] =
        [Item::RefusedFirst, Item::RefusedFirstTime, Item::RefusedLargest, Item::RefusedUsage];
    /// The identity of a process: its own, of which no sum means anything.
    pub const ORIGIN: [Item; 3] = [Item::Parent, Item::Started, Item::Executed];
}

/// The largest request, in bytes, that the reserve serves.
pub const RESERVE_REQUEST: u64 = 16 << 10;
/// Which part of the reserve one process may have.
pub const RESERVE_SHARE: u64 = 4;

named! {
    /// What a row of the account stands for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    By,
    /// What it is called on the command line and in the environment.
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
    /// What happens to an allocation that would go over the root's limit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    OnMax,
    /// What it is called on the command line and in the environment.
    {
        /// It fails with `ENOMEM`.
        Enomem: "enomem",
        /// The process that asked says why and ends itself by `SIGKILL`.
        Kill: "kill",
    }
}

/// What `run` asks of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order<'a> {
    /// The path of the ledger's file.
    pub ledger: &'a [u8],
    /// Which files the ledgers are, as [`Given`] writes it.
    pub given: Option<&'a [u8]>,
    /// The path of a second ledger's file, if blocks have a limit of their own, which is that of its root. In it each
    /// process has one row, to which its blocks are charged a second time.
    pub heap: Option<&'a [u8]>,
    /// What a row stands for.
    pub by: By,
    /// What happens at the limit.
    pub on_max: OnMax,
    /// Whether programs keep what the library needs in their environment, also where who executes them drops it.
    pub strict: bool,
    /// Whether the first refusal of each row comes with its stack, on standard error.
    pub stack: bool,
    /// The bytes that are kept, below what the user allowed, for small requests of processes that were refused before;
    /// in decimal.
    pub reserve: Option<&'a [u8]>,
    /// The number of the run's namespace of process ids, in decimal, if that is known.
    pub namespace: Option<&'a [u8]>,
    /// Under how many seccomp filters the run is, in decimal ([`Start::filters`]), if that is known. They allow what the
    /// library does; a process that has more must take care. With the mark ([`VOUCHED`]) behind the number the program
    /// that reads the order has no more, and need not ask. It takes the mark away at once: of what it executes it says
    /// nothing.
    pub filters: Option<&'a [u8]>,
    /// How many CPUs the machine may ever have, in decimal: what the ledger was made for.
    pub cpus: Option<&'a [u8]>,
}

impl<'a> Order<'a> {
    /// The variables that carry the order, and their values.
    #[must_use]
    pub fn write(&self) -> [(&'static OsStr, &'a OsStr); 11] {
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
        ]
        .map(|(name, value)| (OsStr::from_bytes(name.to_bytes()), OsStr::from_bytes(value)))
    }

    /// The order in an environment, if there is one.
    pub fn read(variable: impl Fn(&CStr) -> Option<&'a [u8]>) -> Option<Order<'a>> {
        let ledger = variable(LEDGER)?;
        let (by, on_max) = (variable(BY), variable(ON_MAX));
        let by = By::ALL.into_iter().find(|one| by == Some(one.name().as_bytes()));
        let on_max = OnMax::ALL.into_iter().find(|one| on_max == Some(one.name().as_bytes()));
        Some(Order {
            ledger,
            given: variable(GIVEN).filter(|text| !text.is_empty()),
            heap: variable(HEAP).filter(|path| !path.is_empty()),
            by: by.unwrap_or(By::Thread),
            on_max: on_max.unwrap_or(OnMax::Enomem),
            stack: variable(STACK) == Some(b"1"),
            strict: variable(STRICT) == Some(b"1"),
            reserve: variable(RESERVE).filter(|number| !number.is_empty()),
            namespace: variable(NAMESPACE).filter(|number| !number.is_empty()),
            filters: variable(FILTERS).filter(|number| !number.is_empty()),
            cpus: variable(CPUS).filter(|number| !number.is_empty()),
        })
    }
}

/// Where a path of a ledger begins that leads through a descriptor of the process's own: one that the library kept for
/// it when the process went out of sight of the run's `/proc`.
pub const DESCRIPTORS: &str = "/proc/self/fd/";

/// Which ledger a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The ledger.
    Ledger,
    /// The second one ([`Order::heap`]).
    Heap,
}

/// The path of a ledger's file, if a string of an environment, `NAME=value`, says that.
#[must_use]
pub fn path_of(string: &CStr) -> Option<(Which, &CStr)> {
    let of = |which, name: &CStr| {
        let value = string.to_bytes_with_nul().strip_prefix(name.to_bytes())?.strip_prefix(b"=")?;
        Some((which, CStr::from_bytes_with_nul(value).ok()?))
    };
    of(Which::Ledger, LEDGER).or_else(|| of(Which::Heap, HEAP))
}

/// Under how many filters the run is, if a string of an environment, `NAME=value`, says that and has no mark.
#[must_use]
pub fn unmarked(string: &CStr) -> Option<&[u8]> {
    let value = string.to_bytes().strip_prefix(FILTERS.to_bytes())?.strip_prefix(b"=")?;
    (value.last() != Some(&VOUCHED)).then_some(value)
}

/// Whether a string of an environment, `NAME=value`, is a part of an order.
#[must_use]
pub fn is_of_order(string: &[u8]) -> bool {
    let names =
        [LEDGER, GIVEN, HEAP, BY, ON_MAX, STRICT, STACK, RESERVE, NAMESPACE, FILTERS, CPUS, PERCPU];
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
