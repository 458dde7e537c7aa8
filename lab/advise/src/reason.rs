//! Explains in one sentence why a group of fields moves.

use std::collections::BTreeSet;

use crate::cost::{Cost, RESOLVED};
use crate::search::Problem;
use crate::uses::few;

/// Names that are listed before the rest is counted.
const NAMED: usize = 4;

/// Pieces that leave today's order together.
pub(crate) struct Group {
    pub pieces: Vec<usize>,
    /// Whether they left today's order. If not, they only begin a line.
    pub moved: bool,
}

/// A move and its effect.
pub(crate) struct Change<'a> {
    pub problem: &'a Problem<'a>,
    pub group: &'a Group,
    pub today: &'a Cost,
    /// The cost of the new order, and the offsets of its pieces.
    pub cost: &'a Cost,
    pub new: &'a [u64],
    /// The cost if this move alone is taken back, and the offsets of the spots then.
    pub undone: Option<(&'a Cost, &'a [u64])>,
}

impl Change<'_> {
    /// Returns the spots of the group.
    fn spots(&self) -> BTreeSet<usize> {
        let ours = |&spot: &usize| self.group.pieces.contains(&self.problem.spots[spot].0);
        (0..self.problem.spots.len()).filter(ours).collect()
    }

    /// Returns the offset of a spot today.
    fn was(&self, spot: usize) -> u64 {
        self.problem.uses.spots[spot].offset
    }

    fn is(&self, spot: usize) -> u64 {
        let (piece, within) = self.problem.spots[spot];
        self.new[piece] + within
    }

    fn path(&self, spot: usize) -> String {
        format!("`{}`", self.problem.uses.spots[spot].path)
    }

    fn paths(&self, spots: &BTreeSet<usize>) -> String {
        few(&spots.iter().map(|&spot| self.path(spot)).collect::<Vec<_>>(), NAMED, ", ")
    }

    /// Returns the reason for the move.
    pub(crate) fn reason(&self) -> String {
        let (spots, spared) = (self.spots(), self.spared());
        if spots.is_empty() && spared.is_none() {
            return self.of_cold();
        }
        let (mates, phase) = self.gathered(&spots);
        match (spared, mates.is_empty()) {
            (Some(spared), true) => spared,
            (Some(spared), false) => {
                format!("{spared}; it joins {}, of the same phase ({phase})", self.paths(&mates))
            }
            (None, false) => {
                format!(
                    "touched in the same phase ({phase}) as {}, now on one line",
                    self.paths(&mates)
                )
            }
            (None, true) if self.group.moved => {
                "keeps what is touched by others off the lines before and behind it".to_owned()
            }
            (None, true) => "what stands before it is touched by others".to_owned(),
        }
    }

    fn of_cold(&self) -> String {
        let first = self.group.pieces[0];
        let from = self.new[first];
        let list = &self.problem.pieces.list;
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

    /// Returns the pair of fields whose waiting the move reduces most, and by how much.
    fn spared(&self) -> Option<String> {
        let (undone, at) = self.undone?;
        let waits = |cost: &Cost, writer: &str, victim: &str| {
            let pair = cost.pairs.iter().find(|p| p.writer == writer && p.victim == victim);
            pair.map_or(0.0, |pair| pair.waiting.median)
        };
        let spared = undone.pairs.iter().map(|pair| {
            let now = waits(self.cost, &pair.writer, &pair.victim);
            (pair.waiting.median - now, pair)
        });
        let (spared, pair) = spared.max_by(|a, b| a.0.total_cmp(&b.0))?;
        if spared < RESOLVED * self.today.nanoseconds.median {
            return None;
        }
        let uses = self.problem.uses;
        let number = |path: &str| uses.spots.iter().position(|spot| spot.path == path);
        let (writer, victim) = (number(&pair.writer)?, number(&pair.victim)?);
        let writes = often(uses.rates(writer).1);
        if uses.instances.row().is_some() {
            let (writer, victim) = (self.path(writer), self.path(victim));
            return Some(format!(
                "spares {victim} {spared:.1} ns of waiting for {writer} of the object beside it, which is written {writes}"
            ));
        }
        if writer == victim {
            let path = self.path(writer);
            return Some(format!("{path}, written {writes}, waits {spared:.1} ns less for itself"));
        }
        let place = match (at[writer] / 64 == at[victim] / 64, at[writer] / 128 == at[victim] / 128)
        {
            (true, _) => "on its line",
            (_, true) => "on its line's neighbour",
            _ => "near it, where objects begin elsewhere",
        };
        let (writer, victim) = (self.path(writer), self.path(victim));
        Some(format!(
            "spares {victim} {spared:.1} ns of waiting for {writer}, which is written {writes} {place}"
        ))
    }

    /// Returns the spots that came onto the group's lines and are touched in the same phase, and that phase.
    fn gathered(&self, spots: &BTreeSet<usize>) -> (BTreeSet<usize>, String) {
        let mut best: (BTreeSet<usize>, String) = Default::default();
        for role in &self.problem.uses.roles {
            for phase in &role.phases {
                let touched: BTreeSet<usize> = phase.accesses.iter().map(|t| t.spot).collect();
                let ours: Vec<usize> = touched.intersection(spots).copied().collect();
                let mates: BTreeSet<usize> = touched
                    .difference(spots)
                    .copied()
                    .filter(|&mate| {
                        let meets = |&spot: &usize| {
                            self.is(spot) / 64 == self.is(mate) / 64
                                && self.was(spot) / 64 != self.was(mate) / 64
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

/// Formats a rate in words.
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
