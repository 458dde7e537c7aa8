//! What a run knew of its container.

use ledgerline::container::Status;
use ledgerline::size;

/// The container of a run, when the program had ended. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The limit that left the least room, and whose that is; `None` if there was none.
    pub limit: Option<(u64, String)>,
    /// What the kernel charged against it; `None` where that cannot be measured.
    pub kernel: Option<u64>,
    /// What of that no row had.
    pub untracked: u64,
    /// How often the kernel told of pressure.
    pub pressure: u64,
    /// Which of the kernel's files were watched for that, and which not and why.
    pub watched: Vec<String>,
}

impl From<Status> for Container {
    fn from(status: Status) -> Container {
        Container {
            limit: status.limit.map(|limit| (limit.bytes, limit.source.to_string())),
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
        let Some((bytes, source)) = &self.limit else {
            return "The container has no limit.".to_owned();
        };
        let mut text = format!("The container's limit: {}, {source}.", size::format(*bytes));
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
