//! What a server is told.

use crate::serve::token::Token;
use std::net::SocketAddr;
use std::time::Duration;

/// The shortest interval.
pub(crate) const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// What a [`Server`](crate::serve::Server) is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Names under which the server may be asked besides `localhost` and addresses: those of a proxy before it.
    pub hosts: Vec<String>,
    /// The secret without which nobody is answered but with the page's own files, which say nothing of a ledger. Without one
    /// whoever reaches the address is answered: on the loopback, every user of this machine.
    pub token: Option<Token>,
    /// Which ledgers: a PID, a file, or a name that a program announced. All of them must be there. `None` is all that run,
    /// found anew every two seconds.
    pub named: Option<Vec<String>>,
    /// How often a ledger is looked at while somebody asks; at least a tenth of a second.
    pub interval: Duration,
    /// How many groups of one ledger metrics name; the others are one row, `other`.
    pub groups: usize,
    /// How many levels below the root metrics name groups. Deeper ones are a part of `other`, and in the counters of those
    /// above them.
    pub depth: u32,
    /// Whether an hour of each group is kept, for which ledgers are looked at while nobody asks, too.
    pub history: bool,
}

impl Default for Settings {
    /// All ledgers that run, at a free port of the loopback, without a token, a look a second, 500 groups in metrics down to two levels
    /// below the root, with history.
    fn default() -> Settings {
        Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            hosts: Vec::new(),
            token: None,
            named: None,
            interval: Duration::from_secs(1),
            groups: 500,
            depth: 2,
            history: true,
        }
    }
}
