//! The errors, with messages that an operator understands.

use crate::report::diagnosis::Diagnosis;
use crate::size;
use crate::stock::refusal::{Reason, Refusal};
use crate::table::handle::CAPACITY_MAX;
use crate::table::name::NameError;
use std::fmt;

/// A charge that was refused. It has the fields of [`RefusedCharge`]. It is one word, so that a granted charge does not pay
/// for the details of a refusal.
#[derive(Clone, PartialEq, Eq)]
pub struct Refused(Box<RefusedCharge>);

/// The details of a [`Refused`]. It also has the fields of its [`Refusal`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedCharge {
    /// The path of the group whose limit refused the charge: the charged group, or an ancestor. `(destroyed)` if that group
    /// is gone by now.
    pub group: String,
    /// The refusal in numbers.
    pub refusal: Refusal,
    /// The groups and their units, if the request asked for a diagnosis. It costs a pass over all groups, so a plain refusal
    /// has none; [`Ledger::diagnose`](crate::Ledger::diagnose) makes one afterwards.
    pub diagnosis: Option<Box<Diagnosis>>,
}

impl Refused {
    #[cold]
    pub(crate) fn new(charge: RefusedCharge) -> Refused {
        Refused(Box::new(charge))
    }
}

impl std::ops::Deref for Refused {
    type Target = RefusedCharge;

    fn deref(&self) -> &RefusedCharge {
        &self.0
    }
}

impl std::ops::DerefMut for Refused {
    fn deref_mut(&mut self) -> &mut RefusedCharge {
        &mut self.0
    }
}

impl std::ops::Deref for RefusedCharge {
    type Target = Refusal;

    fn deref(&self) -> &Refusal {
        &self.refusal
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (group, bytes) = (&self.group, size::format(self.requested));
        match self.reason {
            Reason::Damaged => write!(
                f,
                "the ledger is damaged, another program wrote over it: {group} was not charged ({bytes} requested)"
            ),
            Reason::Gone => {
                let id = self.refusal.group;
                write!(f, "{group} takes no more charges (group {id}, {bytes} requested)")
            }
            _ => self.refusal.say(f, group, size::format),
        }
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for std::io::Error {
    /// Returns an error with the refusal inside: of the kind `QuotaExceeded` if a limit refused, `NotFound` if the group is
    /// gone, and else `Other`.
    ///
    /// ```
    /// # use ledgerline::{Group, Ledger, Limit, Refused};
    /// fn read(group: Group<'_>, bytes: u64) -> std::io::Result<()> {
    ///     let _held = group.try_charge(bytes)?;
    ///     Ok(())
    /// }
    /// # let ledger = Ledger::new()?;
    /// ledger.root().set_max(Limit::from(1 << 20))?;
    /// let error = read(ledger.root(), 2 << 20).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
    /// assert!(error.get_ref().unwrap().is::<Refused>());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn from(refused: Refused) -> std::io::Error {
        let kind = match refused.reason {
            Reason::Limit | Reason::Queued => std::io::ErrorKind::QuotaExceeded,
            Reason::Gone => std::io::ErrorKind::NotFound,
            // Not `Interrupted`: readers and writers retry after that.
            Reason::Cancelled | Reason::Damaged => std::io::ErrorKind::Other,
        };
        std::io::Error::new(kind, refused)
    }
}

/// The reason why a group was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// The name is not allowed for a group.
    BadName(NameError),
    /// The parent was destroyed.
    Gone,
    /// A live sibling has the name: [`Group::get_or_create`](crate::Group::get_or_create) returns that sibling.
    Exists,
    /// The tree would have more than 32 levels.
    TooDeep,
    /// The ledger's capacity is used up.
    Full {
        /// The capacity.
        capacity: u32,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::BadName(why) => why.fmt(f),
            CreateError::Gone => f.write_str("the parent group was destroyed"),
            CreateError::Exists => f.write_str("the parent has a group of that name already"),
            CreateError::TooDeep => f.write_str("the tree would have more than 32 levels"),
            CreateError::Full { capacity } if *capacity as usize >= CAPACITY_MAX => write!(
                f,
                "the ledger is full with {capacity} groups, and no ledger has more; destroy groups that are done"
            ),
            CreateError::Full { capacity } => write!(
                f,
                "the ledger is full with {capacity} groups; make it with a larger capacity, or destroy \
                 groups that are done"
            ),
        }
    }
}

impl std::error::Error for CreateError {}

/// The reason why a group was not destroyed. It continues as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DestroyError {
    /// It is the root.
    Root,
    /// It has children: destroy them first.
    HasChildren {
        /// How many children it has.
        children: u32,
    },
    /// It was destroyed before.
    Gone,
    /// Its cells could not be closed: the call came from a signal handler that interrupted a drain, or a sandbox forbids
    /// `membarrier` and `sched_setaffinity`.
    Busy,
}

impl fmt::Display for DestroyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DestroyError::Root => f.write_str("the root cannot be destroyed"),
            DestroyError::HasChildren { children } => {
                write!(f, "the group has {children} children; destroy them first")
            }
            DestroyError::Gone => f.write_str("the group was destroyed before"),
            DestroyError::Busy => f.write_str("the group's cells cannot be closed here; try again"),
        }
    }
}

impl std::error::Error for DestroyError {}

/// The reason why a file could not be opened as a ledger.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The file could not be read or mapped.
    Io(std::io::Error),
    /// The file does not begin like a ledger.
    NotALedger,
    /// The ledger was created by another version of the library.
    Version {
        /// The version in the file.
        found: u32,
        /// The version that this library knows.
        known: u32,
    },
    /// Its header contradicts itself, the file's length, or this machine's number of CPUs.
    Damaged,
    /// The file can be read, but not written: it was opened read-only, or it is sealed
    /// ([`LedgerBuilder::steerable`](crate::LedgerBuilder::steerable)).
    ReadOnly,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Io(error) => write!(f, "the ledger cannot be opened: {error}"),
            OpenError::NotALedger => f.write_str("the file is not a ledger"),
            OpenError::Version { found, known } => {
                write!(f, "the ledger has format {found}; this program knows format {known}")
            }
            OpenError::Damaged => f.write_str(
                "the ledger's header is damaged, or was made on a machine with fewer CPUs",
            ),
            OpenError::ReadOnly => f.write_str(
                "the ledger's file may only be read; open it for writing, if it is not sealed against that",
            ),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        OpenError::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::id::GroupId;

    #[test]
    fn a_full_ledger_is_advised_what_can_be_done() {
        let said = |capacity| CreateError::Full { capacity }.to_string();
        assert!(said(64).contains("make it with a larger capacity"));
        assert!(said(CAPACITY_MAX as u32).contains("no ledger has more; destroy groups"));
    }

    #[test]
    fn a_refusal_is_a_sentence_that_names_the_culprit() {
        let refusal = Refusal {
            group: GroupId::from_parts(1, 1),
            charged: GroupId::from_parts(2, 1),
            limit: 512 << 20,
            usage: 510 << 20,
            requested: 4 << 20,
            reason: Reason::Limit,
        };
        let refused =
            Refused::new(RefusedCharge { group: "/acme".into(), refusal, diagnosis: None });
        assert_eq!(
            refused.to_string(),
            "/acme is full: 4.0M requested, 510.0M of max 512.0M in use"
        );
    }

    /// Checks each reason in numbers and with a path.
    #[test]
    fn a_refusal_says_its_reason_with_a_number_as_with_a_path() {
        let [group, charged] = [1, 2].map(|row| GroupId::from_parts(row, 1));
        let said = |reason, limit, usage, requested| {
            let refusal = Refusal { group, charged, limit, usage, requested, reason };
            let refused =
                Refused::new(RefusedCharge { group: "/acme".into(), refusal, diagnosis: None });
            [refusal.to_string(), refused.to_string()]
        };
        assert_eq!(
            said(Reason::Limit, 4096, 4000, 1024),
            [
                "group 1#1 is full: 1024 requested, 4000 of max 4096 in use",
                "/acme is full: 1.0K requested, 3.9K of max 4.0K in use",
            ]
        );
        assert_eq!(
            said(Reason::Limit, u64::MAX, 2048, 1024),
            [
                "group 1#1 cannot hold 1024 more, 2048 in use: no group counts beyond 4611686018427387904",
                "/acme cannot hold 1.0K more, 2.0K in use: no group counts beyond 4.0E",
            ]
        );
        assert_eq!(
            said(Reason::Limit, 4096, 0, 1 << 63),
            [
                "group 1#1 cannot hold 9223372036854775808: no group counts beyond 4611686018427387904",
                "/acme cannot hold 8.0E: no group counts beyond 4.0E",
            ]
        );
        assert_eq!(
            said(Reason::Cancelled, 0, 0, 1024),
            [
                "group 1#1 was cancelled to make room for others (1024 requested)",
                "/acme was cancelled to make room for others (1.0K requested)",
            ]
        );
        assert_eq!(
            said(Reason::Damaged, 0, 0, 1024),
            [
                "the ledger is damaged: group 1#1 was not charged (1024 requested)",
                "the ledger is damaged, another program wrote over it: /acme was not charged (1.0K requested)",
            ]
        );
        assert_eq!(
            said(Reason::Gone, 0, 0, 1024),
            [
                "group 1#1 takes no more charges (1024 requested)",
                "/acme takes no more charges (group 1#1, 1.0K requested)",
            ]
        );
    }
}
