//! Marks for how far a predicted figure is a prediction: as a sign, in a cell and in a sentence.

use ledgerline_coherence::experiments::{Basis, Interval};

/// A mark beside a predicted figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The row was used for calibration.
    Calibrated,
    /// Nearly all of it is a floor that was used for calibration.
    Floor,
    /// The other rows are relative to it.
    Base,
    /// The published value lies outside the range.
    Outside,
}

/// The marks in the order of a legend.
pub(super) const MARKS: [Mark; 4] = [Mark::Calibrated, Mark::Floor, Mark::Base, Mark::Outside];

impl Mark {
    pub(super) fn of(basis: Basis, published: Option<f64>, predicted: Interval) -> Option<Mark> {
        match basis {
            Basis::Calibrated => Some(Mark::Calibrated),
            Basis::Floor => Some(Mark::Floor),
            Basis::Base => Some(Mark::Base),
            Basis::Prediction => {
                published.filter(|&value| !predicted.holds(value)).map(|_| Mark::Outside)
            }
        }
    }

    /// Returns the sign for a column of text.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Mark::Calibrated => "=",
            Mark::Floor => "~",
            Mark::Base => "0",
            Mark::Outside => "!",
        }
    }

    /// Returns the words for a cell.
    pub(super) fn short(self) -> &'static str {
        match self {
            Mark::Calibrated => "calibrated on",
            Mark::Floor => "rests on a floor",
            Mark::Base => "base of the others",
            Mark::Outside => "outside",
        }
    }

    /// Returns the words for a legend.
    pub(super) fn long(self) -> &'static str {
        match self {
            Mark::Calibrated => "calibrated on: no prediction",
            Mark::Floor => "rests on a floor that was calibrated on: no prediction",
            Mark::Base => "the base of the others, by definition: no prediction",
            Mark::Outside => "the published value lies outside",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_prediction_can_miss() {
        let predicted = Interval { median: 2.0, low: 1.0, high: 3.0 };
        let mark = |basis, published| Mark::of(basis, published, predicted);
        assert_eq!(mark(Basis::Prediction, Some(4.0)), Some(Mark::Outside));
        assert_eq!(mark(Basis::Prediction, Some(3.0)), None);
        assert_eq!(mark(Basis::Prediction, None), None);
        for (basis, expected) in [
            (Basis::Calibrated, Mark::Calibrated),
            (Basis::Floor, Mark::Floor),
            (Basis::Base, Mark::Base),
        ] {
            assert_eq!(mark(basis, Some(4.0)), Some(expected));
            assert!(!basis.predicts() && expected.long().ends_with("no prediction"));
        }
    }
}
