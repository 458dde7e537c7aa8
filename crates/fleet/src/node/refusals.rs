//! Refused charges that a node has to report.

use std::collections::VecDeque;

use crate::message::{MAX_REFUSALS, MAX_UNITS, Refusal, is_group_of};

/// Refusals that no reply has acknowledged, oldest first, at most [`MAX_REFUSALS`] of them.
///
/// An entry that was sent never changes under its number: the book counts each number once, however often it comes. Further
/// refusals of the same group get another number. Entries that find no room here are not reported; the counts of refused charges
/// in each line are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Refusals {
    /// Each entry with the time of its last charge. Its age is 0 here and is computed for each message.
    waiting: VecDeque<(u64, Refusal)>,
    /// The highest number assigned.
    last: u64,
    /// The highest number that was sent.
    said: u64,
}

impl Refusals {
    /// Notes charges that a budget refused.
    pub fn note(&mut self, now: u64, budget: &str, group: &str, units: u64, count: u64) {
        let group = if is_group_of(budget, group) { group } else { budget };
        let same = |(_, one): &&mut (u64, Refusal)| {
            one.number > self.said && (&*one.budget, &*one.group) == (budget, group)
        };
        if let Some((at, one)) = self.waiting.iter_mut().find(same) {
            one.units = one.units.max(units.min(MAX_UNITS));
            one.count = one.count.saturating_add(count).min(MAX_UNITS);
            *at = now;
        } else if self.waiting.len() < MAX_REFUSALS && count > 0 {
            self.last += 1;
            let (budget, group) = (budget.to_owned(), group.to_owned());
            let (units, count) = (units.min(MAX_UNITS), count.min(MAX_UNITS));
            let one = Refusal { number: self.last, budget, group, units, count, age: 0 };
            self.waiting.push_back((now, one));
        }
    }

    /// Returns the entries for a message, and the highest number so far.
    pub fn say(&mut self, now: u64) -> (Vec<Refusal>, u64) {
        self.said = self.last;
        let said = self
            .waiting
            .iter()
            .map(|(at, one)| Refusal { age: now.saturating_sub(*at), ..one.clone() });
        (said.collect(), self.said)
    }

    /// Removes the entries up to a number, which a reply acknowledged.
    pub fn noted(&mut self, number: u64) {
        self.waiting.retain(|(_, one)| one.number > number);
    }

    /// Returns how many refused charges wait to be reported.
    pub fn waiting(&self) -> u64 {
        self.waiting.iter().map(|(_, one)| one.count).sum()
    }
}
