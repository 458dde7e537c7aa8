//! The text of a refusal: the consumer, the limit that refused, the chain of groups, and the holders in that query.

use crate::consumer::Consumer;
use crate::lease::Lease;
use crate::level::{Level, Short};
use crate::node::Node;
use crate::report::size;
use ledgerline::{Reason, Refusal};
use std::fmt;
use std::sync::Arc;

/// The reason why a consumer was refused.
pub(crate) enum Why<'a> {
    /// A level is short.
    Short(&'a Level, Short),
    /// The ledger refused: a max.
    Full(Refusal),
    /// The query was ended.
    Ended,
}

impl Why<'_> {
    /// Returns whether the lease was exhausted, of which the fleet may have more.
    pub(crate) fn is_lease(&self, lease: &Lease, consumer: &Consumer) -> bool {
        match self {
            Why::Short(level, short) => {
                short.room.uncounted.is_none() && lease.covers(&level.group().path())
            }
            Why::Full(refusal) => {
                refusal.reason == Reason::Limit && lease.covers(&path_of(consumer, refusal))
            }
            Why::Ended => false,
        }
    }
}

/// The subject of a refusal's text.
pub(crate) struct Refused<'a> {
    /// The query's path.
    pub(crate) query: &'a str,
    pub(crate) node: &'a Node,
    pub(crate) consumer: &'a Consumer,
    pub(crate) bytes: u64,
    pub(crate) why: Why<'a>,
    /// The query's consumers that hold something, the largest first.
    pub(crate) holders: Vec<(Arc<Consumer>, u64)>,
}

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { query, node, consumer, holders, .. } = self;
        write!(f, "{query}/{} asked for {} and was refused: ", consumer.name, size(self.bytes))?;
        self.say_why(f)?;
        write!(f, "\nChain: {query}/{} holds {}", consumer.name, size(consumer.held()))?;
        for level in node.levels.iter().rev() {
            let group = level.group();
            let path = group.path();
            write!(f, "; {path} holds {}", size(group.precise()))?;
            if let Some(max) = group.max().get() {
                write!(f, " of {} {}", self.limit(&path), size(max))?;
            }
        }
        let top = node.engine.settings.top;
        write!(f, "\nTop consumers of {query}: ")?;
        for (at, (holder, held)) in holders.iter().take(top).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let spill = if holder.can_spill { "can spill" } else { "cannot spill" };
            write!(f, "{comma}{} {} ({spill})", holder.name, size(*held))?;
        }
        match (holders.len(), holders.len().saturating_sub(top)) {
            (0, _) => f.write_str("none")?,
            (_, 0) => {}
            (_, more) => write!(f, " and {more} more")?,
        }
        match &node.engine.lease {
            Some(lease) if self.why.is_lease(lease, consumer) => lease.say(f),
            _ => Ok(()),
        }
    }
}

impl Refused<'_> {
    /// Returns the name of a group's limit: its max, which is set here, or a lease of the fleet.
    fn limit(&self, path: &str) -> &'static str {
        let lease = self.node.engine.lease.as_ref();
        if lease.is_some_and(|lease| lease.covers(path)) { "lease" } else { "max" }
    }

    fn say_why(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Short(level, short) => self.say_short(f, &level.group().path(), short),
            Why::Full(refusal) if refusal.reason == Reason::Limit => {
                let path = path_of(self.consumer, refusal);
                let (used, limit) = (size(refusal.usage), size(refusal.limit));
                write!(f, "{path} is full, {used} of {} {limit} in use", self.limit(&path))
            }
            Why::Full(refusal) => write!(f, "{refusal}"),
            Why::Ended => write!(f, "{} has ended", self.query),
        }
    }

    fn say_short(&self, f: &mut fmt::Formatter<'_>, path: &str, short: &Short) -> fmt::Result {
        let Short { room, lines, spillable, survey } = short;
        let limit = size(room.spill);
        if let Some(uncounted) = room.uncounted.map(size) {
            write!(f, "the process holds {uncounted} that no query reserved, ")?;
            write!(f, "which leaves {limit} for {path}; ")?;
        }
        if !self.consumer.can_spill {
            return f.write_str("nothing is left for consumers that cannot spill");
        }
        write!(f, "{path} has {} of {limit} for consumers that can spill, ", size(lines.growth))?;
        write!(f, "and they hold {}", size(*spillable))?;
        if survey.largest_other > self.consumer.held() {
            let largest = size(survey.largest_other);
            write!(f, "; the largest of {} holds {largest}", survey.active)
        } else if survey.active > 1 {
            write!(f, "; it is the largest of {}", survey.active)
        } else {
            Ok(())
        }
    }
}

/// Returns the path of the group that refused: one of the levels, the consumer's, or one above the pool.
fn path_of(consumer: &Consumer, refusal: &Refusal) -> String {
    consumer.group().ledger().group(refusal.group).path()
}
