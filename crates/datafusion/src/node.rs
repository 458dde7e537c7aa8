//! The common part of pools, tenants and queries: the levels from the top, and the life of a group.

use crate::engine::Engine;
use crate::level::Level;
use crate::settings::Settings;
use crate::top::Top;
use crossbeam_utils::CachePadded;
use ledgerline::{CreateError, OwnedGroup};
use std::sync::Arc;
use std::time::Instant;

/// A pool at the top, a tenant or a query.
#[derive(Debug)]
pub(crate) struct Node {
    /// From the pool at the top to this one.
    pub(crate) levels: Vec<Arc<Level>>,
    pub(crate) engine: Arc<Engine>,
    /// The node above, whose group outlives this one's. `None` at the top, whose group is the caller's.
    above: Option<Arc<Node>>,
}

impl Node {
    pub(crate) fn top(Top { group, lease }: Top, settings: Settings) -> Node {
        let (start, ended) = (Instant::now(), CachePadded::default());
        let engine = Arc::new(Engine { settings, start, ended, lease });
        let level = Level::new(group, engine.clone(), true);
        Node { levels: vec![Arc::new(level)], engine, above: None }
    }

    /// Creates a group below this one's.
    pub(crate) fn below(self: &Arc<Node>, name: &str) -> Result<Node, CreateError> {
        let engine = self.engine.clone();
        let group = engine.ended.create(self.group(), name)?;
        let level = Arc::new(Level::new(group, engine.clone(), false));
        let levels = self.levels.iter().cloned().chain([level]).collect();
        Ok(Node { levels, engine, above: Some(self.clone()) })
    }

    pub(crate) fn level(&self) -> &Level {
        self.levels.last().expect("each pool has a level")
    }

    pub(crate) fn group(&self) -> &OwnedGroup {
        &self.level().owned
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.above.is_some() {
            // A group created below it by other code keeps it; that one's owner sees the error. A query's is gone
            // already, unless it was busy when the query ended: then this is the second attempt.
            let _kept_or_gone = self.group().group().destroy();
        }
    }
}
