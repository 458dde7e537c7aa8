//! Prints measured beside predicted figures, as text and as JSON.

use std::fmt::Write;

use crate::cost::{self, Question};
use crate::print::{figure, negated, range};
use crate::uses::Uses;
use ledgerline_coherence::experiments::Interval;
use ledgerline_layout::Error;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::trial::{Gain, Measured, Order};

/// Share of the time that other programs had the CPUs, from which on the figures are not those of a quiet machine.
const BUSY: f64 = 0.02;
/// Above this share, no replay is compared with a prediction: a thread whose partner has no CPU does not share.
const DISTURBED: f64 = 0.2;
/// A factor of the time to move a line, beyond which the machine differs from the predicted one.
const OTHER: f64 = 1.5;

/// The predictions for the same orders.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Nanoseconds an operation.
    pub today: Interval,
    /// The prediction for the proposed order, and the difference.
    pub proposed: Option<(Interval, Gain)>,
}

/// A replay and its context.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The type.
    pub name: &'a str,
    /// The source of the profile.
    pub profile: &'a str,
    /// The source of the proposed order. Without a proposed order, the reason.
    pub from: &'a str,
    /// The machine of the replay, in a line.
    pub here: &'a str,
    /// The number of CPUs that the profile or the user asked for.
    pub asked: usize,
    /// The question of the prediction, for as many CPUs as took part.
    pub question: &'a Question<'a>,
    /// Whether its machine is the default, because none was named.
    pub assumed: bool,
    /// Today's order.
    pub today: &'a Order,
    /// The proposed order.
    pub proposed: Option<&'a Order>,
    /// The measurement.
    pub measured: &'a Measured,
    /// The prediction.
    pub predicted: &'a Predicted,
}

/// Predicts the result of a replay.
///
/// # Errors
/// Like [`cost::of`].
pub fn predict(
    question: &Question<'_>,
    uses: &Uses,
    today: &Order,
    proposed: Option<&Order>,
) -> Result<Predicted, Error> {
    let old = cost::of(question, uses, &today.place)?;
    let proposed = proposed.map(|order| {
        let new = cost::of(question, uses, &order.place)?;
        let change = cost::difference(&old, &new);
        let gain = Gain { ns: negated(&change.change), throughput: change.throughput };
        Ok((new.nanoseconds, gain))
    });
    Ok(Predicted { today: old.nanoseconds, proposed: proposed.transpose()? })
}

impl Report<'_> {
    /// Returns the measured and the predicted gain, in per cent of throughput.
    fn gains(&self) -> Option<(Interval, Interval)> {
        let (_, measured) = self.measured.proposed.as_ref()?;
        let (_, predicted) = self.predicted.proposed.as_ref()?;
        Some((measured.throughput, predicted.throughput))
    }

    /// Returns whether the measurement can be compared with the prediction: other programs hardly disturbed it, and
    /// operations take the time of the profile.
    fn is_comparable(&self) -> bool {
        self.measured.disturbed <= DISTURBED && self.measured.short.is_empty()
    }

    /// Returns whether the measured gain lies within the predicted range. `None` without a gain, or if the two cannot
    /// be compared.
    #[must_use]
    pub fn within(&self) -> Option<bool> {
        let (measured, predicted) = self.gains().filter(|_| self.is_comparable())?;
        Some(predicted.holds(measured.median))
    }

    fn verdict(&self) -> Option<String> {
        let (measured, predicted) = self.gains()?;
        let median = measured.median;
        let side = if median < predicted.low { "below" } else { "above" };
        let meet = measured.low <= predicted.high && predicted.low <= measured.high;
        let place = match (predicted.holds(median), meet) {
            (true, _) => "within what was predicted".to_owned(),
            (_, true) => format!("{side} what was predicted, and the ranges meet"),
            _ => format!("{side} what was predicted"),
        };
        let sure = match (measured.low > 0.0, measured.high < 0.0) {
            (true, _) => "The proposed order is faster here",
            (_, true) => "The proposed order is slower here",
            _ => "The orders cannot be told apart here",
        };
        if !self.is_comparable() {
            return Some(format!("{sure}. This is not held against the prediction:"));
        }
        Some(format!("{sure}; the measured gain lies {place}."))
    }

    /// Returns the caveats about the figures.
    fn notes(&self) -> Vec<String> {
        let Measured { short, absent, objects, disturbed, .. } = self.measured;
        let cpus = self.question.cpus;
        let mut notes = Vec::new();
        for short in short {
            notes.push(format!(
                "An operation of {:?} takes {} ns alone here, and {} by the profile: it is too short to be \
                 replayed faithfully.",
                short.role,
                figure(short.replayed_ns),
                figure(short.wanted_ns)
            ));
        }
        if *disturbed > BUSY {
            notes.push(format!(
                "Other programs had the CPU of a thread for {:.0} % of the time: measure again when it is quiet.",
                100.0 * disturbed
            ));
        }
        if cpus < self.asked {
            notes.push(format!(
                "The question is about {} CPUs, and {cpus} took part: this process may use no more.",
                self.asked
            ));
        }
        if cpus == 1 {
            notes.push(
                "With one CPU nothing is shared: this is the cost of an operation alone.".into(),
            );
        }
        if !absent.is_empty() {
            notes.push(format!(
                "Too few CPUs for every role: no thread plays {}.",
                absent.join(", ")
            ));
        }
        if let Some(objects) = objects {
            notes.push(format!("{objects} objects were used, as many as memory was taken for."));
        }
        if let Some(ns) = self.measured.transfer_ns {
            let machine = self.question.machine;
            let distance = machine.topology.distance(0, 1);
            let predicted = machine.best().transfer[distance as usize][1] as f64 / 1000.0;
            if !(1.0 / OTHER..OTHER).contains(&(ns / predicted)) {
                notes.push(format!(
                    "A line took {} ns from CPU to CPU here, and takes {} on the machine of the prediction.",
                    figure(ns),
                    figure(predicted)
                ));
            }
        }
        if self.assumed {
            notes.push(format!(
                "Nobody said which machine to predict for, so it is {}. `ledgerline calibrate` describes this one.",
                self.question.machine.name
            ));
        }
        notes
    }

    /// Appends the report as text.
    pub fn text(&self, out: &mut String) {
        let sizes = match self.proposed {
            Some(proposed) => {
                format!("{} bytes, and {} by {}", self.today.size, proposed.size, self.from)
            }
            None => format!("{} bytes; {}", self.today.size, self.from),
        };
        let (cpus, points) = (self.question.cpus, self.question.points);
        // Writing to a string does not fail.
        let _ = writeln!(out, "{}: {sizes}; profile {}", self.name, self.profile);
        let _ = writeln!(out, "measured on {}", self.here);
        let transfer = self
            .measured
            .transfer_ns
            .map(|ns| format!("; a line took {} ns from CPU to CPU", figure(ns)));
        let turns = if self.proposed.is_some() { " of each in turn" } else { "" };
        let (rounds, transfer) = (self.measured.rounds, transfer.unwrap_or_default());
        let _ = writeln!(out, "  {rounds} rounds{turns}, ranges of nine tenths{transfer}");
        let machine = &self.question.machine.name;
        let _ = writeln!(out, "predicted for {} of {machine}, {points} points\n", cpus_of(cpus));
        let rows = self.rows();
        let wide = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 3] = std::array::from_fn(wide);
        for [what, measured, predicted] in &rows {
            let [a, b, c] = widths;
            let _ = writeln!(out, "{what:<a$}  {measured:>b$}  {predicted:>c$}");
        }
        out.push('\n');
        for line in self.verdict().into_iter().chain(self.notes()) {
            let _ = writeln!(out, "{line}");
        }
    }

    fn rows(&self) -> Vec<[String; 3]> {
        let row = |what: &str, measured: &Interval, predicted: &Interval| {
            [what.to_owned(), range(measured), range(predicted)]
        };
        let (measured, predicted) = (self.measured, self.predicted);
        let mut rows = vec![["", "measured", "predicted"].map(str::to_owned)];
        rows.push(row("today, ns an operation", &measured.today, &predicted.today));
        if let (Some((new, gain)), Some((new_predicted, gain_predicted))) =
            (&measured.proposed, &predicted.proposed)
        {
            rows.push(row("proposed, ns an operation", new, new_predicted));
            rows.push(row("gain, ns an operation", &gain.ns, &gain_predicted.ns));
            rows.push(row("gain, % of throughput", &gain.throughput, &gain_predicted.throughput));
        }
        rows
    }

    /// Returns the report as one JSON object. Figures are nanoseconds an operation, or per cent.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("keys are texts")
    }
}

impl Serialize for Report<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Measured { rounds, transfer_ns, disturbed, short, absent, objects, .. } = self.measured;
        let faithful = short.is_empty() && absent.is_empty() && objects.is_none();
        let figures = |today, proposed: &Option<(Interval, Gain)>| Figures {
            today_ns: today,
            proposed_ns: proposed.as_ref().map(|(new, _)| *new),
            gain_ns: proposed.as_ref().map(|(_, gain)| gain.ns),
            throughput_percent: proposed.as_ref().map(|(_, gain)| gain.throughput),
        };
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("schema", "ledgerline/layout-trial.v1")?;
        object.serialize_entry("name", self.name)?;
        object.serialize_entry("profile", self.profile)?;
        object.serialize_entry("against", &self.proposed.map(|_| self.from))?;
        object.serialize_entry("here", self.here)?;
        object.serialize_entry("cpus", &self.question.cpus)?;
        object.serialize_entry("cpus_asked", &self.asked)?;
        object.serialize_entry("machine", &self.question.machine.name)?;
        object.serialize_entry("machine_assumed", &self.assumed)?;
        object.serialize_entry("points", &self.question.points)?;
        object.serialize_entry("today_bytes", &self.today.size)?;
        object.serialize_entry("proposed_bytes", &self.proposed.map(|order| order.size))?;
        object.serialize_entry("rounds", rounds)?;
        object.serialize_entry("transfer_ns", transfer_ns)?;
        object.serialize_entry("disturbed", disturbed)?;
        let (measured, predicted) = (self.measured, self.predicted);
        object.serialize_entry("measured", &figures(measured.today, &measured.proposed))?;
        object.serialize_entry("predicted", &figures(predicted.today, &predicted.proposed))?;
        object.serialize_entry("within", &self.within())?;
        object.serialize_entry("faithful", &faithful)?;
        object.serialize_entry("notes", &self.notes())?;
        object.end()
    }
}

fn cpus_of(count: usize) -> String {
    format!("{count} CPU{}", if count == 1 { "" } else { "s" })
}

#[derive(Serialize)]
struct Figures {
    today_ns: Interval,
    proposed_ns: Option<Interval>,
    gain_ns: Option<Interval>,
    throughput_percent: Option<Interval>,
}

#[cfg(test)]
mod tests;
