//! What a pool and its queries share: the levels from the top, and the life of a tenant's group.

use crate::ended::Ended;
use crate::lease::Lease;
use crate::level::Level;
use crate::settings::Settings;
use ledgerline::OwnedGroup;
use std::sync::Arc;
use std::time::Instant;

/// A pool at the top, or a tenant.
#[derive(Debug)]
pub(crate) struct Node {
    /// From the pool at the top to this one.
    pub(crate) levels: Arc<[Arc<Level>]>,
    pub(crate) settings: Settings,
    pub(crate) start: Instant,
    /// The pool above, whose group outlives this one's. `None` at the top, whose group is the caller's.
    pub(crate) above: Option<Arc<Node>>,
    /// Of the pool at the top, as the next.
    pub(crate) ended: Arc<Ended>,
    /// Of the pool at the top, if that is a budget.
    pub(crate) lease: Option<Arc<Lease>>,
}

impl Node {
    pub(crate) fn group(&self) -> &OwnedGroup {
        self.levels.last().expect("each pool has a level").group()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.above.is_some() {
            // A group that somebody else created below it keeps it; that one's owner sees it.
            let _kept = self.group().group().destroy();
        }
    }
}
