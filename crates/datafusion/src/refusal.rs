//! What a refusal says: who asked, which limit said no, the chain of groups, and who holds what in that query.

use crate::consumer::Consumer;
use crate::lease::Lease;
use crate::level::{Level, Short};
use crate::report::size;
use crate::settings::Settings;
use datafusion_common::DataFusionError;
use ledgerline::{Reason, Refusal};
use std::cmp::Reverse;
use std::fmt::Write;
use std::sync::Arc;

/// Why a consumer was refused.
pub(crate) enum Why<'a> {
    /// A level is short.
    Short(&'a Level, Short),
    /// The ledger refused: a max.
    Full(Refusal),
    /// The query was ended.
    Ended,
}

impl Why<'_> {
    /// Whether it was the lease that did not suffice, of which the fleet may have more.
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

/// What there is to tell about.
pub(crate) struct Refused<'a> {
    pub(crate) consumer: &'a Consumer,
    pub(crate) bytes: u64,
    pub(crate) why: Why<'a>,
    /// The query's path, as it is told when its group is gone, too.
    pub(crate) query: &'a str,
    /// From the pool's top to the query.
    pub(crate) levels: &'a [Arc<Level>],
    pub(crate) consumers: Vec<Arc<Consumer>>,
    pub(crate) settings: &'a Settings,
    /// The lease of the pool's top, if that is a budget.
    pub(crate) lease: Option<&'a Lease>,
}

impl Refused<'_> {
    /// The error, of the kind that operators know to spill at.
    pub(crate) fn into_error(self) -> DataFusionError {
        DataFusionError::ResourcesExhausted(self.text())
    }

    fn text(&self) -> String {
        let (query, consumer) = (self.query, self.consumer);
        let mut text =
            format!("{query}/{} asked for {} and was refused: ", consumer.name, size(self.bytes));
        self.say_why(&mut text);
        let _ = write!(text, "\nChain: {query}/{} holds {}", consumer.name, size(consumer.held()));
        for level in self.levels.iter().rev() {
            let group = level.group();
            let path = group.path();
            let _ = write!(text, "; {path} holds {}", size(group.precise()));
            if let Some(max) = group.max().get() {
                let _ = write!(text, " of {} {}", self.limit(&path), size(max));
            }
        }
        let mut holders = self.consumers.iter().filter(|one| one.held() > 0).collect::<Vec<_>>();
        holders.sort_by_key(|one| Reverse(one.held()));
        let more = holders.len().saturating_sub(self.settings.top);
        let _ = write!(text, "\nTop consumers of {query}: ");
        for (at, holder) in holders.iter().take(self.settings.top).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let spill = if holder.can_spill { "can spill" } else { "cannot spill" };
            let _ = write!(text, "{comma}{} {} ({spill})", holder.name, size(holder.held()));
        }
        match (holders.len(), more) {
            (0, _) => text.push_str("none"),
            (_, 0) => {}
            (_, more) => drop(write!(text, " and {more} more")),
        }
        if let Some(lease) = self.lease.filter(|lease| self.why.is_lease(lease, self.consumer)) {
            lease.say(&mut text);
        }
        text
    }

    /// What the limit of a group is: its max, which is set here, or what the fleet leased.
    fn limit(&self, path: &str) -> &'static str {
        if self.lease.is_some_and(|lease| lease.covers(path)) { "lease" } else { "max" }
    }

    fn say_why(&self, text: &mut String) {
        let _ = match &self.why {
            Why::Short(level, short) => {
                self.say_short(text, &level.group().path(), short);
                Ok(())
            }
            Why::Full(refusal) if refusal.reason == Reason::Limit => {
                let path = path_of(self.consumer, refusal);
                let (used, limit) = (size(refusal.usage), size(refusal.limit));
                write!(text, "{path} is full, {used} of {} {limit} in use", self.limit(&path))
            }
            Why::Full(refusal) => write!(text, "{refusal}"),
            Why::Ended => write!(text, "{} has ended", self.query),
        };
    }

    fn say_short(&self, text: &mut String, path: &str, short: &Short) {
        let Short { room, lines, spillable, survey } = short;
        if let Some(uncounted) = room.uncounted {
            let _ = write!(
                text,
                "the process holds {} that nobody reserved, which leaves {} for {path}; ",
                size(uncounted),
                size(room.spill)
            );
        }
        if !self.consumer.can_spill {
            text.push_str("nothing is left for consumers that cannot spill");
            return;
        }
        let _ = write!(
            text,
            "{path} has {} of {} for consumers that can spill, and they hold {}",
            size(lines.growth),
            size(room.spill),
            size(*spillable)
        );
        if survey.largest_other > self.consumer.held() {
            let largest = size(survey.largest_other);
            let _ = write!(text, "; the largest of {} holds {largest}", survey.active);
        } else if survey.active > 1 {
            let _ = write!(text, "; it is the largest of {}", survey.active);
        }
    }
}

/// The path of the group that refused: one of the levels, the consumer's, or one above the pool.
fn path_of(consumer: &Consumer, refusal: &Refusal) -> String {
    consumer.group().ledger().group(refusal.group).path()
}
