//! A run's data about its container.

use ledgerline::container::Status;
use ledgerline::size;
use serde::{Serialize, Serializer};

/// The container of a run, when the program had ended. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Container {
    /// The limit that left the least room; `None` if there was none.
    #[serde(serialize_with = "limit")]
    pub limit: Option<u64>,
    /// The source of that limit.
    pub source: Option<String>,
    /// The kernel's charge against it; `None` if that cannot be measured.
    pub kernel: Option<u64>,
    /// The part of that which no row had.
    pub untracked: u64,
    /// The number of times that the kernel reported pressure.
    pub pressure: u64,
    /// The kernel's files that were watched for that, and the others with the reason.
    pub watched: Vec<String>,
}

/// Serializes a number, or the word that a cgroup's files have for no limit.
pub(crate) fn limit<S: Serializer>(limit: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match limit {
        Some(units) => serializer.serialize_u64(*units),
        None => serializer.serialize_str("max"),
    }
}

impl From<Status> for Container {
    fn from(status: Status) -> Container {
        Container {
            limit: status.limit.as_ref().map(|limit| limit.bytes),
            source: status.limit.map(|limit| limit.source.to_string()),
            kernel: status.kernel,
            untracked: status.untracked,
            pressure: status.pressure,
            watched: status.watched,
        }
    }
}

impl Container {
    /// Returns a line for below the table.
    pub fn told(&self) -> String {
        let Some((bytes, source)) = self.limit.zip(self.source.as_ref()) else {
            return "The container has no limit.".to_owned();
        };
        let mut text = format!("The container's limit: {}, {source}.", size::format(bytes));
        match self.kernel {
            Some(_) if self.pressure > 0 => {
                let times = if self.pressure == 1 {
                    "once".to_owned()
                } else {
                    format!("{} times", self.pressure)
                };
                text.push_str(&format!(" The kernel told of pressure {times}."));
            }
            Some(_) => {}
            None => text.push_str(" What is untracked cannot be measured there."),
        }
        text
    }
}
