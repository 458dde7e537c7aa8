//! A peak for each reader, like an open `memory.peak` of the kernel.
//!
//! All readers of a group share its watermarks. Before one reader resets them, every other reader of the group notes their
//! values.

use crate::control::peaks::Noted;
use crate::gate::lock::Gated;
use crate::group::Group;
use crate::report::estimate::Estimate;
use crate::whose;

/// Returns the peaks that readers of a ledger noted, locked.
fn noted<'l>(group: Group<'l>) -> Gated<'l, Noted> {
    group.ledger().control().peaks.lock()
}

/// A peak of a group that starts when this is created, and again when it is [reset](Self::reset).
///
/// Readers of one process do not disturb each other, nor [`Group::peak`]. In a ledger that processes share, a reset in
/// another process restarts this one, too.
#[derive(Debug)]
#[must_use = "a reader that is dropped at once reads nothing"]
pub struct PeakReader<'l> {
    group: Group<'l>,
    number: u64,
}

impl<'l> Group<'l> {
    /// Returns a reader with its own peak, like an opened `memory.peak` of the kernel. It starts at the present usage. Takes
    /// a lock. Not async-signal-safe.
    ///
    /// ```
    /// # let ledger = ledgerline::Ledger::new()?;
    /// let tenant = ledger.root().create("acme")?;
    /// drop(tenant.try_charge(80)?);
    /// let hourly = tenant.peak_reader();
    /// drop(tenant.try_charge(30)?);
    /// let least = |peak: ledgerline::Estimate| peak.value - peak.bound;
    /// assert!(least(hourly.peak()) <= 30 && tenant.peak().value >= 80);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peak_reader(self) -> PeakReader<'l> {
        let number = whose::nobody(|| noted(self).add(self.id()));
        let reader = PeakReader { group: self, number };
        reader.reset();
        reader
    }

    /// Restarts the group's peak at the present usage. The peaks of [readers](Self::peak_reader) continue.
    pub fn reset_peak(self) {
        let mut noted = noted(self);
        self.change(|row| {
            noted.note(self.id(), row.counter.peak_since());
            row.counter.reset_watermark();
        });
    }
}

impl PeakReader<'_> {
    /// Returns the highest usage since this was created or reset; zero for a group that is gone. Its bound is that of
    /// [`Group::peak`].
    pub fn peak(&self) -> Estimate {
        let noted = noted(self.group);
        let (least, most) = noted.of(self.group.id(), self.number);
        let now = self.group.read(|row| row.counter.peak_since());
        now.map_or_else(Estimate::default, |now| {
            Estimate::between((least.max(now.0), most.max(now.1)))
        })
    }

    /// Restarts this peak at the present usage.
    pub fn reset(&self) {
        let mut noted = noted(self.group);
        let id = self.group.id();
        if let Some(before) = self.group.change(|row| row.counter.begin_watermark_anew()) {
            noted.note(id, before);
            noted.forget(id, self.number);
        }
    }
}

impl Drop for PeakReader<'_> {
    fn drop(&mut self) {
        noted(self.group).remove(self.group.id(), self.number);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Estimate, Ledger};

    #[test]
    fn each_reader_has_the_highest_usage_since_its_own_reset() {
        let ledger = Ledger::builder().capacity(4).batch(1).anonymous().unwrap();
        let group = ledger.root().create("g").unwrap();
        // Idle units count for a peak.
        let to = |units: u64| {
            drop(group.try_charge(units).unwrap());
            ledger.root().drain();
        };
        to(100);
        let first = group.peak_reader();
        to(50);
        let second = group.peak_reader();
        to(30);
        let peaks = || [first.peak(), second.peak(), group.peak()];
        // A walk may fetch one unit more than requested.
        let are = |peaks: [Estimate; 3], expected: [u64; 3]| {
            let is = |(peak, expected): (Estimate, u64)| {
                peak.value - peak.bound <= expected
                    && (expected..expected + 2).contains(&peak.value)
            };
            peaks.into_iter().zip(expected).all(is)
        };
        assert!(are(peaks(), [50, 30, 100]));
        second.reset();
        assert!(are(peaks(), [50, 0, 100]));
        let held = group.try_charge(60).unwrap();
        assert!(are(peaks(), [60, 60, 100]));
        first.reset();
        assert!(are(peaks(), [60, 60, 100]), "it holds as much now");
        drop(held);
        ledger.root().drain();
        first.reset();
        group.reset_peak();
        assert!(are(peaks(), [0, 60, 0]));
        to(10);
        assert!(are(peaks(), [10, 60, 10]));
        drop(first);
        group.destroy().unwrap();
        assert_eq!(second.peak().value, 0);
    }
}
