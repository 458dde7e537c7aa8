//! The end of a query.

use datafusion_execution::memory_pool::human_readable_size;
use std::fmt;

/// The report on a query's end: from [`Query::end`](crate::Query::end), or passed to
/// [`on_query_end`](crate::LedgerPoolBuilder::on_query_end).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryReport {
    /// The path of the query's group.
    pub path: String,
    /// The peak of its holding: at most this many bytes, and at least `peak - peak_bound`.
    pub peak: u64,
    /// The amount by which `peak` may be too high.
    pub peak_bound: u64,
    /// Bytes that reservations of the query still hold. They count in the tenant until they are returned.
    pub leftover: u64,
    /// The holders of these by the consumer's name, the largest first.
    pub holders: Vec<(String, u64)>,
    /// The number of times that a consumer that can spill was refused, so that it spilled.
    pub asked_to_spill: u64,
    /// The number of times that a consumer that cannot spill was refused.
    pub refused: u64,
    /// Bytes that `grow`, which cannot fail, granted while the query was over a limit.
    pub overrun: u64,
}

/// Returns bytes in readable form.
pub(crate) fn size(bytes: u64) -> String {
    human_readable_size(usize::try_from(bytes).unwrap_or(usize::MAX))
}

impl fmt::Display for QueryReport {
    /// Writes a sentence for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended, peak {}", self.path, size(self.peak))?;
        if self.asked_to_spill > 0 {
            write!(f, ", asked {} times to spill", self.asked_to_spill)?;
        }
        if self.refused > 0 {
            write!(f, ", refused {} times", self.refused)?;
        }
        if self.overrun > 0 {
            write!(f, ", {} granted over a limit", size(self.overrun))?;
        }
        if self.leftover > 0 {
            write!(f, ", {} still reserved by", size(self.leftover))?;
            for (at, (name, bytes)) in self.holders.iter().enumerate() {
                let comma = if at == 0 { "" } else { "," };
                write!(f, "{comma} {name} ({})", size(*bytes))?;
            }
        }
        Ok(())
    }
}
