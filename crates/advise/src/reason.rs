//! Why a group of fields moves, in one sentence.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::advice::{Advice, Group};
use crate::search::Problem;

/// Names that are listed before the rest is counted.
const NAMED: usize = 4;

pub(crate) fn of(advice: &Advice, problem: &Problem<'_>, group: &Group, new: &[u64]) -> String {
    let spots: BTreeSet<usize> = (0..problem.spots.len())
        .filter(|&spot| group.pieces.contains(&problem.spots[spot].0))
        .collect();
    let context = Context { advice, problem, group, new, spots };
    context.sentence()
}

struct Context<'a> {
    advice: &'a Advice,
    problem: &'a Problem<'a>,
    group: &'a Group,
    new: &'a [u64],
    /// Those of the group.
    spots: BTreeSet<usize>,
}

impl Context<'_> {
    fn was(&self, spot: usize) -> u64 {
        self.advice.uses.spots[spot].offset
    }

    fn is(&self, spot: usize) -> u64 {
        let (piece, within) = self.problem.spots[spot];
        self.new[piece] + within
    }

    fn path(&self, spot: usize) -> String {
        format!("`{}`", self.advice.uses.spots[spot].path)
    }

    fn paths(&self, spots: &BTreeSet<usize>) -> String {
        let named: Vec<String> = spots.iter().take(NAMED).map(|&spot| self.path(spot)).collect();
        match spots.len().checked_sub(NAMED) {
            Some(more @ 1..) => format!("{} and {more} more", named.join(", ")),
            _ => named.join(", "),
        }
    }

    fn sentence(&self) -> String {
        if self.spots.is_empty() {
            return self.of_cold();
        }
        let mut text = match self.dearest() {
            Some((writer, victim, waited)) => self.parted(writer, victim, waited),
            None => String::new(),
        };
        let (mates, phase) = self.gathered();
        if !mates.is_empty() {
            text.push_str(if text.is_empty() { "touched" } else { "; it joins what is touched" });
            if text == "touched" {
                let _ = write!(text, " in the same phase, {phase}, as {}", self.paths(&mates));
                text.push_str(", now on one line");
            } else {
                let _ = write!(text, " in the same phase, {phase}: {}", self.paths(&mates));
            }
        }
        if text.is_empty() {
            text.push_str(if self.group.moved {
                "makes room for what moves beside it"
            } else {
                "what stands before it is touched by others"
            });
        }
        text
    }

    fn of_cold(&self) -> String {
        let first = self.group.pieces[0];
        let from = self.new[first];
        let list = &self.advice.pieces.list;
        let touched = (0..list.len()).filter(|&piece| !self.problem.cold[piece]);
        let after = touched.filter(|&piece| self.new[piece] > from);
        let after = after.min_by_key(|&piece| self.new[piece]);
        match after {
            Some(piece) if self.group.moved => {
                format!(
                    "the profile does not touch it: it fills the space before `{}`",
                    list[piece].name()
                )
            }
            _ if self.group.moved => "the profile does not touch it: it fills a hole".to_owned(),
            _ => "what stands before it keeps its lines to itself".to_owned(),
        }
    }

    /// The dearest pair today that the move parts, and what it costs: one of the group, one that is not.
    fn dearest(&self) -> Option<(usize, usize, f64)> {
        let near = |a: u64, b: u64| a / 128 == b / 128;
        let number = |path: &str| self.advice.uses.spots.iter().position(|spot| spot.path == path);
        let least = 5e-4 * self.advice.today.nanoseconds.median;
        for pair in &self.advice.today.pairs {
            let (writer, victim) = (number(&pair.writer)?, number(&pair.victim)?);
            let one = self.spots.contains(&writer) != self.spots.contains(&victim);
            let parted = near(self.was(writer), self.was(victim))
                && self.distance(writer, victim, false) < self.distance(writer, victim, true);
            if one && parted && pair.waiting.median >= least {
                return Some((writer, victim, pair.waiting.median));
            }
        }
        None
    }

    /// 0 on one line, 1 on one pair, 2 apart.
    fn distance(&self, one: usize, other: usize, new: bool) -> u8 {
        let at = |spot| if new { self.is(spot) } else { self.was(spot) };
        match (at(one) / 64 == at(other) / 64, at(one) / 128 == at(other) / 128) {
            (true, _) => 0,
            (_, true) => 1,
            _ => 2,
        }
    }

    fn parted(&self, writer: usize, victim: usize, waited: f64) -> String {
        let place = if self.distance(writer, victim, false) == 0 {
            "the line"
        } else {
            "the neighbour line"
        };
        let uses = &self.advice.uses;
        let (reads, _) = uses.rates(victim);
        let how = if reads > 0.0 { "reads" } else { "writes" };
        let writes = often(uses.rates(writer).1);
        let (writer_path, victim_path) = (self.path(writer), self.path(victim));
        if self.spots.contains(&writer) {
            format!(
                "{writer_path} is written {writes} on {place} of {victim_path}, whose {how} wait \
                 {waited:.1} ns for it"
            )
        } else {
            format!(
                "{victim_path} waits {waited:.1} ns for {writer_path}, which is written {writes} on \
                 {place}"
            )
        }
    }

    /// Who is on the group's lines now, was not, and is touched in the same phase; and which phase.
    fn gathered(&self) -> (BTreeSet<usize>, String) {
        let mut best: (BTreeSet<usize>, String) = Default::default();
        for role in &self.advice.uses.roles {
            for phase in &role.phases {
                let touched: BTreeSet<usize> = phase.touches.iter().map(|t| t.spot).collect();
                let ours: Vec<usize> = touched.intersection(&self.spots).copied().collect();
                let mates: BTreeSet<usize> = touched
                    .difference(&self.spots)
                    .copied()
                    .filter(|&mate| {
                        let meets = |&spot: &usize| {
                            self.distance(spot, mate, true) == 0
                                && self.distance(spot, mate, false) > 0
                        };
                        ours.iter().any(meets)
                    })
                    .collect();
                if mates.len() > best.0.len() {
                    best = (mates, phase.name.clone());
                }
            }
        }
        best
    }
}

/// A rate in words.
pub(crate) fn often(rate: f64) -> String {
    let times = |rate: f64| {
        let text = format!("{rate:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match rate {
        rate if rate <= 0.0 => "never".to_owned(),
        rate if (rate - 1.0).abs() < 0.005 => "once an operation".to_owned(),
        rate if rate < 0.2 => format!("once in {} operations", times((1.0 / rate).round())),
        rate => format!("{} times an operation", times(rate)),
    }
}
