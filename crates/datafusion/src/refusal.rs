//! What a refusal says: who asked, which limit said no, the chain of groups, and who holds what in that query.

use crate::consumer::Consumer;
use crate::level::{Level, Short};
use crate::settings::Settings;
use datafusion_common::DataFusionError;
use datafusion_execution::memory_pool::human_readable_size;
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
}

pub(crate) fn size(bytes: u64) -> String {
    human_readable_size(usize::try_from(bytes).unwrap_or(usize::MAX))
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
            let group = level.group().group();
            let _ = write!(text, "; {} holds {}", group.path(), size(group.precise()));
            if let Some(max) = group.max().get() {
                let _ = write!(text, " of max {}", size(max));
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
        text
    }

    fn say_why(&self, text: &mut String) {
        let _ = match &self.why {
            Why::Short(level, short) => {
                self.say_short(text, &level.group().group().path(), short);
                Ok(())
            }
            Why::Full(refusal) if refusal.reason == Reason::Limit => write!(
                text,
                "{} is full, {} of max {} in use",
                self.path_of(refusal),
                size(refusal.usage),
                size(refusal.limit)
            ),
            Why::Full(refusal) => write!(text, "{refusal}"),
            Why::Ended => write!(text, "{} has ended", self.query),
        };
    }

    fn say_short(&self, text: &mut String, path: &str, short: &Short) {
        let Short { room, lines, spillable, survey, uncounted } = short;
        if let Some(uncounted) = uncounted {
            let _ = write!(
                text,
                "the process holds {} that nobody reserved, which leaves {} for {path}; ",
                size(*uncounted),
                size(*room)
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
            size(*room),
            size(*spillable)
        );
        if survey.largest_other > self.consumer.held() {
            let largest = size(survey.largest_other);
            let _ = write!(text, "; the largest of {} holds {largest}", survey.active);
        } else if survey.active > 1 {
            let _ = write!(text, "; it is the largest of {}", survey.active);
        }
    }

    /// The path of the group that refused: one of the levels, the consumer's, or one above the pool.
    fn path_of(&self, refusal: &Refusal) -> String {
        self.consumer.group().ledger().group(refusal.group).path()
    }
}
