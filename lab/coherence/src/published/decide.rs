//! Finds the unknown that decides a case: each range is varied alone, and all others keep the best guess.

use super::program::Assumed;
use super::{Case, Work};
use crate::experiments::each;
use crate::machine::Range;
use crate::simulate::Error;

/// The smallest change, in per cent, that stands out from the variation of throughputs.
const SIGNIFICANT: f64 = 1.0;

/// The first row's change when one range alone is varied.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    /// The range: `work`, an unknown of the case, or a range of the machine.
    pub name: String,
    /// The range's ends.
    pub ends: [f64; 2],
    /// The predicted change in per cent at each end.
    pub changes: [f64; 2],
}

/// The ranges' effects on a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The predicted change in per cent with the best guess of every range.
    pub best: f64,
    /// Each range alone, the one that matters most first.
    pub alone: Vec<Alone>,
}

impl Decided {
    /// Returns the ranges that the answer depends on.
    pub fn turns_on(&self) -> impl Iterator<Item = &Alone> {
        self.alone.iter().filter(|alone| turns_on(self.best, alone.changes))
    }
}

/// Returns whether an answer depends on a range. At an end of the range the change has another sign or significance,
/// or the smallest of the three changes is less than half of the largest.
///
/// ```
/// use ledgerline_coherence::published::turns_on;
/// assert!(turns_on(6.0, [20.0, 0.7]));
/// assert!(!turns_on(20.0, [24.0, 17.0]));
/// ```
#[must_use]
pub fn turns_on(best: f64, changes: [f64; 2]) -> bool {
    let class = |change: f64| {
        if change.abs() < SIGNIFICANT { 0 } else { change.signum() as i32 }
    };
    let all = [best, changes[0], changes[1]];
    let sizes = all.map(f64::abs);
    let (least, most) =
        (sizes.into_iter().fold(f64::MAX, f64::min), sizes.into_iter().fold(0.0, f64::max));
    all.iter().any(|&change| class(change) != class(best))
        || (most > SIGNIFICANT && 2.0 * least < most)
}

impl Case {
    /// Varies each range alone. It takes two predictions of a point for each range.
    ///
    /// # Errors
    /// The errors of [`Case::predict`].
    pub fn decide(&self) -> Result<Decided, Error> {
        let row = &self.rows[0];
        let change = |point: &Assumed| self.change(row, &self.fit(row, point)?.0);
        let best = self.best();
        let mut varied = Vec::new();
        let mut vary = |name: &str, range: &Range, to: &dyn Fn(f64) -> Assumed| {
            let ends = [range.low, range.high];
            varied.push((name.to_owned(), ends, ends.map(to)));
        };
        if let Work::Unknown(range) = &self.work {
            vary("work", range, &|work_ns| Assumed { work_ns, ..best.clone() });
        }
        for (index, (name, range)) in self.unknowns.iter().enumerate() {
            vary(name, range, &|value| {
                let mut point = best.clone();
                point.unknowns[index] = value;
                point
            });
        }
        for (index, entry) in self.machine.nuisance.ranges().into_iter().enumerate() {
            let range = entry.value;
            if range.low < range.high {
                vary(entry.name, range, &|value| {
                    let mut machine = self.machine.clone();
                    machine.nuisance.ranges_mut()[index].value.best = value;
                    Assumed { settings: machine.best(), ..best.clone() }
                });
            }
        }
        let mut alone = each(&varied, |_, (name, ends, points)| {
            let [low, high] = [&points[0], &points[1]].map(&change);
            Ok(Alone { name: name.clone(), ends: *ends, changes: [low?, high?] })
        })?;
        let apart = |alone: &Alone| (alone.changes[0] - alone.changes[1]).abs();
        alone.sort_by(|a, b| apart(b).total_cmp(&apart(a)));
        Ok(Decided { best: change(&best)?, alone })
    }
}
