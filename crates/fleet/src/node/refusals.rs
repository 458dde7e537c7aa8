//! What a node has to tell of charges that were refused.

use std::collections::VecDeque;

use crate::message::{MAX_REFUSALS, MAX_UNITS, Refusal, is_group_of};

/// Refusals that no reply has taken note of, oldest first, at most [`MAX_REFUSALS`] of them.
///
/// What a message has said stays as it was said, under its number: the book counts a number once, however often it comes.
/// Further refusals of the same group get another number. Those that find no room here are not told; the numbers of refused
/// charges that each line says miss none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Refusals {
    /// Each with the time of its last charge. Its age is what a message says, and 0 here.
    waiting: VecDeque<(u64, Refusal)>,
    /// The highest number there is.
    last: u64,
    /// The highest number that a message has said.
    said: u64,
}

impl Refusals {
    /// Takes note of charges that a budget refused.
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

    /// What a message says, and the highest number so far.
    pub fn say(&mut self, now: u64) -> (Vec<Refusal>, u64) {
        self.said = self.last;
        let said = self
            .waiting
            .iter()
            .map(|(at, one)| Refusal { age: now.saturating_sub(*at), ..one.clone() });
        (said.collect(), self.said)
    }

    /// A reply says that the book has noted all up to a number.
    pub fn noted(&mut self, number: u64) {
        self.waiting.retain(|(_, one)| one.number > number);
    }

    /// How many refused charges wait to be told.
    pub fn waiting(&self) -> u64 {
        self.waiting.iter().map(|(_, one)| one.count).sum()
    }
}
