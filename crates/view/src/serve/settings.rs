//! The settings of a server.

use crate::serve::token::Token;
use std::net::SocketAddr;
use std::time::Duration;

/// The shortest interval.
pub(crate) const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The settings of a [`Server`](crate::serve::Server).
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Names of the server besides `localhost` and addresses: those of a proxy in front of it.
    pub hosts: Vec<String>,
    /// The secret that requests need, except those for the page's own files, which have no data of a ledger. Without
    /// one all requests that reach the address are answered: on the loopback, those of every user of this machine.
    pub token: Option<Token>,
    /// The ledgers: a PID, a file, or a name that a program announced. All of them must exist. `None` is those of all
    /// running programs, found anew every two seconds.
    pub named: Option<Vec<String>>,
    /// The interval between looks at a ledger while it has clients; at least a tenth of a second.
    pub interval: Duration,
    /// The most groups of one ledger that metrics name; the others are one row, `other`.
    pub groups: usize,
    /// The deepest level below the root at which metrics name groups. Deeper ones are a part of `other`, and of the
    /// counters of groups above them.
    pub depth: u32,
    /// Whether an hour of each group is kept. Ledgers are then looked at even without clients.
    pub history: bool,
}

impl Default for Settings {
    /// Serves the ledgers of all running programs, at a free port of the loopback, without a token. Looks once a
    /// second, names 500 groups in metrics down to two levels below the root, and keeps a history.
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
