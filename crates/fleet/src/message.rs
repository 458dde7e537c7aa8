//! Messages between nodes and books. Times are in milliseconds. Units are those of the ledger: bytes, unless it counts other
//! things.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::fmt;

/// The largest number of units, and the highest sequence number. Redis counts in doubles, which are exact up to here.
pub const MAX_UNITS: u64 = 1 << 53;

/// The most lines of one message.
pub const MAX_LINES: usize = 16_384;

/// The longest name of a node, of an organisation, of a tenant or of a job, in bytes.
pub const MAX_NAME: usize = 255;

/// The longest lease with the longest grace, in milliseconds: two years.
pub(crate) const LONGEST_PROMISE: u64 = 2 * 366 * 24 * 3_600 * 1_000;

/// The most refusals of one message.
pub const MAX_REFUSALS: usize = 32;

/// The longest path of a group that was refused, in bytes.
pub const MAX_GROUP: usize = 1_024;

/// The largest number of names in a budget's path.
pub const MAX_LEVELS: usize = 16;

/// A message from a node to the book of one organisation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sync {
    /// The node's name.
    pub node: String,
    /// Which start of that node this is: a random number, never 0.
    pub incarnation: u64,
    /// This message's number, from 1. Each message of an incarnation has a higher one. The same number again means the same
    /// message again: it renews nothing.
    pub sequence: u64,
    /// The highest number whose reply the node has taken; 0 before the first.
    pub taken: u64,
    /// Until when a book has promised to keep the node's leases from others, by the book's own time: `at + ttl + grace` of the
    /// last reply taken; 0 before the first. A book that lost writes adopts no lease whose time is over, however late the message
    /// comes.
    pub until: u64,
    /// How long from now the node relies on that promise, by its own clock: the rest of its leases plus the grace promised with
    /// them; 0 without leases. The book keeps the leases at least that long after the message arrives, whatever its own terms are
    /// by then.
    pub left: u64,
    /// The node's leases have ended by its own clock: it claims none of them, and `lease` is 0 in each line.
    pub ended: bool,
    /// The node leaves, and all of its leases are free.
    pub bye: bool,
    /// Budgets that the node uses and every level above them, each before those below it. A budget that the message does not name
    /// stays as it is: any message renews all leases of the incarnation.
    pub lines: Vec<Line>,
    /// Refused charges that no reply has acknowledged, oldest first.
    pub refusals: Vec<Refusal>,
}

/// Charges of one group that a budget refused on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// A number from 1, counted per incarnation. The book ignores a number that it has already noted.
    pub number: u64,
    /// The budget whose group was full there.
    pub budget: String,
    /// The path of the group that made the charge: the budget's own, or one below it.
    pub group: String,
    /// Size of the largest charge.
    pub units: u64,
    /// Number of charges.
    pub count: u64,
    /// Age of the last charge when the message was made.
    pub age: u64,
}

/// A node's report of one budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// The path, as in `/acme/batch`.
    pub path: String,
    /// The lease that the node believes it holds.
    pub lease: u64,
    /// Units charged there now.
    pub used: u64,
    /// The lease that the node asks for. More than `lease` asks for growth; less gives back, and the node has lowered its `max`
    /// already.
    pub want: u64,
    /// The part of `want` that it would ask for even if no level below this one grew. A level grows to this plus the growth of
    /// those below it, and no further, so units that a full budget refuses below never lie idle above.
    pub least: u64,
    /// The lease that all waiting charges need; 0 if none waits. Free units go to them first.
    pub urgent: u64,
    /// The part of `urgent` that covers the usage and the charge that waits longest.
    pub next: u64,
    /// How long that charge has waited, in milliseconds.
    pub waited: u64,
    /// Number of charges that this budget refused since the incarnation began.
    pub refused: u64,
}

/// The book's answer to a [`Sync`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The message was applied, now or, if it repeats the last one, earlier.
    Synced {
        /// The message's number.
        sequence: u64,
        /// When the message was applied, in milliseconds of the book's time, which never goes back.
        at: u64,
        /// How long the leases hold, counted from the moment before the message was sent.
        ttl: u64,
        /// How long the book keeps them from others after that.
        grace: u64,
        /// One for each line, in the same order.
        lines: Vec<Granted>,
    },
    /// The book has applied a message with a higher number.
    Late {
        /// The highest number applied.
        sequence: u64,
    },
    /// A newer incarnation has the node's name. The leases of this one count until they end, and grow no more.
    Fenced,
}

/// The book's answer for one budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// The node's lease from now on.
    pub lease: u64,
    /// Units of it that others would like to have back, idle ones first.
    pub asked: u64,
    /// Units of it that charges of other nodes wait for. While there are any, nodes keep nothing idle, and freed units go to
    /// those charges.
    pub wanted: u64,
    /// Units of it that the node gives back as they are returned, before charges of its own get them, because others have less
    /// than their part.
    pub due: u64,
    /// The budget's limit.
    pub limit: u64,
    /// The sum of all nodes' leases of it.
    pub leased: u64,
    /// The state of the budget.
    pub state: State,
}

/// The state of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// It grants what is left of its limit.
    #[default]
    Open,
    /// More is leased than its limit allows. It grants nothing.
    Over {
        /// Number of units above the limit.
        by: u64,
    },
    /// It is deleted, and is removed with its last lease.
    Closing,
    /// An operator drains this node: the budget grants it nothing.
    Drained,
    /// There is no such budget.
    Unknown,
    /// The book was emptied or damaged. It grants nothing until all nodes have reported their leases.
    Learning,
}

/// A notification from a book to nodes between their turns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nudge {
    /// Nodes of this budget should sync now: others want units that they hold idle, units were freed, or an operator changed it.
    Sync(String),
    /// A charge of another node waits for units of this budget, and none was idle. A node that frees some should sync then.
    Waits(String),
}

impl Nudge {
    /// Returns the budget's path.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Sync(path) | Self::Waits(path) => path,
        }
    }

    /// Returns the nudge as stores carry it: the path, with a leading question mark for `Waits`.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Sync(path) => path.clone(),
            Self::Waits(path) => format!("?{path}"),
        }
    }

    /// Parses the text of a nudge.
    pub(crate) fn read(text: &str) -> Self {
        match text.strip_prefix('?') {
            Some(path) => Self::Waits(path.to_owned()),
            None => Self::Sync(text.to_owned()),
        }
    }
}

/// The reason why a message or a change breaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// A name is empty, too long, or has a slash or a control character.
    Name(String),
    /// A path outside the organisation, with a bad name, or with too many names.
    Path(String),
    /// The level above this path is not named before it.
    NoLevelAbove(String),
    /// A path is named twice.
    Twice(String),
    /// A number of units or a sequence number above [`MAX_UNITS`].
    TooMany(u64),
    /// An incarnation or a sequence number of 0, or a reply taken before its message was sent.
    Number,
    /// More than [`MAX_LINES`].
    TooLong(usize),
    /// A lease was claimed although all have ended.
    Claim(String),
    /// The leases would last longer than any lease can, or go on although all have ended.
    Left(u64),
    /// A lease of no time, or of more than a year.
    Terms,
    /// More refusals than [`MAX_REFUSALS`], or one of a group that is not the budget's.
    Refusals,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "{name:?} is no name: 1 to {MAX_NAME} bytes, no slash, no control character"
            ),
            Self::Path(path) => write!(f, "{path:?} is no budget of this organisation"),
            Self::NoLevelAbove(path) => write!(f, "the level above {path} must come before it"),
            Self::Twice(path) => write!(f, "{path} is named twice"),
            Self::TooMany(units) => {
                write!(f, "{units} is more than can be counted exactly ({MAX_UNITS})")
            }
            Self::Number => write!(
                f,
                "incarnations and sequence numbers begin at 1, and a reply is taken after its message"
            ),
            Self::TooLong(lines) => write!(f, "{lines} lines, of which {MAX_LINES} fit"),
            Self::Claim(path) => write!(f, "a lease of {path} is claimed although all have ended"),
            Self::Left(left) => write!(f, "no leases last {left} ms from now on"),
            Self::Terms => {
                write!(f, "a lease holds at least a millisecond, and both times are below a year")
            }
            Self::Refusals => write!(
                f,
                "a message has at most {MAX_REFUSALS} refusals, in the order of their numbers, each of a group of its budget"
            ),
        }
    }
}

impl Error for Malformed {}

impl Sync {
    /// Checks everything that books rely on. Stores check each message before they send it.
    ///
    /// # Errors
    /// Describes what is wrong with the message.
    pub fn check(&self, organisation: &str) -> Result<(), Malformed> {
        check_name(organisation)?;
        check_name(&self.node)?;
        if self.incarnation == 0 || self.sequence == 0 || self.taken >= self.sequence {
            return Err(Malformed::Number);
        }
        if let Some(number) =
            [self.sequence, self.until].into_iter().find(|number| *number > MAX_UNITS)
        {
            return Err(Malformed::TooMany(number));
        }
        if self.left > LONGEST_PROMISE || (self.ended && self.left > 0) {
            return Err(Malformed::Left(self.left));
        }
        if self.lines.len() > MAX_LINES {
            return Err(Malformed::TooLong(self.lines.len()));
        }
        self.check_refusals(organisation)?;
        let mut named = HashSet::with_capacity(self.lines.len());
        for line in &self.lines {
            check_path(organisation, &line.path)?;
            let Line { lease, used, want, least, urgent, next, waited, refused, .. } = *line;
            let numbers = [lease, used, want, least, urgent, next, waited, refused];
            if let Some(units) = numbers.into_iter().find(|units| *units > MAX_UNITS) {
                return Err(Malformed::TooMany(units));
            }
            if self.ended && lease > 0 {
                return Err(Malformed::Claim(line.path.clone()));
            }
            if above(&line.path).is_some_and(|above| !named.contains(above)) {
                return Err(Malformed::NoLevelAbove(line.path.clone()));
            }
            if !named.insert(line.path.as_str()) {
                return Err(Malformed::Twice(line.path.clone()));
            }
        }
        Ok(())
    }

    fn check_refusals(&self, organisation: &str) -> Result<(), Malformed> {
        let mut last = 0;
        for refusal in &self.refusals {
            let Refusal { number, budget, group, units, count, age } = refusal;
            check_path(organisation, budget)?;
            if let Some(most) = [number, units, count, age].into_iter().find(|n| **n > MAX_UNITS) {
                return Err(Malformed::TooMany(*most));
            }
            if *number <= last || *count == 0 || !is_group_of(budget, group) {
                return Err(Malformed::Refusals);
            }
            last = *number;
        }
        if self.refusals.len() > MAX_REFUSALS { Err(Malformed::Refusals) } else { Ok(()) }
    }
}

/// Returns whether a group, by its path, may belong to a budget.
pub(crate) fn is_group_of(budget: &str, group: &str) -> bool {
    is_within(budget, group) && group.len() <= MAX_GROUP && !group.contains(char::is_control)
}

/// Returns whether a path is that of a level, or of one below it.
pub(crate) fn is_within(level: &str, path: &str) -> bool {
    path.strip_prefix(level).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the path of the level above: for `/acme/batch`, `/acme`.
pub fn above(path: &str) -> Option<&str> {
    path.rfind('/').filter(|at| *at > 0).map(|at| &path[..at])
}

/// Returns a path and those above it, the lowest first.
pub(crate) fn levels(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| above(path))
}

/// Returns whether any of these paths lies below `path`.
pub(crate) fn has_below<V>(paths: &BTreeMap<String, V>, path: &str) -> bool {
    let below = format!("{path}/");
    paths.range(below.clone()..).next().is_some_and(|(other, _)| other.starts_with(&below))
}

pub(crate) fn check_name(name: &str) -> Result<(), Malformed> {
    let fits = (1..=MAX_NAME).contains(&name.len())
        && !name.contains(|c: char| c == '/' || c.is_control());
    if fits { Ok(()) } else { Err(Malformed::Name(name.to_owned())) }
}

pub(crate) fn check_path(organisation: &str, path: &str) -> Result<(), Malformed> {
    let wrong = || Malformed::Path(path.to_owned());
    let names = path.strip_prefix('/').ok_or_else(wrong)?;
    if names.split('/').next() != Some(organisation) || names.split('/').count() > MAX_LEVELS {
        return Err(wrong());
    }
    names.split('/').try_for_each(check_name)
}
