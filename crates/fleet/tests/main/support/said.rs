//! Messages of a node without charges about one budget, and their replies.

use ledgerline_fleet::message::{Line, Reply, Sync};

/// Returns a message of one line. The node has taken no reply.
pub fn sync(node: &str, path: &str, sequence: u64, lease: u64, want: u64) -> Sync {
    let line = Line {
        path: path.to_owned(),
        lease,
        used: 0,
        want,
        least: want,
        urgent: 0,
        next: 0,
        waited: 0,
        refused: 0,
    };
    Sync {
        node: node.to_owned(),
        incarnation: 7,
        sequence,
        taken: 0,
        until: 0,
        left: 0,
        ended: false,
        bye: false,
        lines: vec![line],
        refusals: Vec::new(),
    }
}

/// Returns the lease granted to the first line.
pub fn lease(reply: &Reply) -> u64 {
    match reply {
        Reply::Synced { lines, .. } => lines[0].lease,
        other => panic!("{other:?}"),
    }
}
