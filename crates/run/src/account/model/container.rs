//! What a run knew of its container.

use ledgerline::container::Status;
use ledgerline::size;
use serde::{Serialize, Serializer};

/// The container of a run, when the program had ended. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Container {
    /// The limit that left the least room; `None` if there was none.
    #[serde(serialize_with = "limit")]
    pub limit: Option<u64>,
    /// Whose that is.
    pub source: Option<String>,
    /// What the kernel charged against it; `None` where that cannot be measured.
    pub kernel: Option<u64>,
    /// What of that no row had.
    pub untracked: u64,
    /// How often the kernel told of pressure.
    pub pressure: u64,
    /// Which of the kernel's files were watched for that, and which not and why.
    pub watched: Vec<String>,
}

/// A number, or the word that a cgroup's files have for no limit.
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
    /// A line for below the table.
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
