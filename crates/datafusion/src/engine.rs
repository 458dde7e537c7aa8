//! The state that a pool at the top shares with all tenants and queries below it.

use crate::ended::Ended;
use crate::lease::Lease;
use crate::settings::Settings;
use crossbeam_utils::CachePadded;
use std::time::Instant;

/// The state described in the module's documentation.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) settings: Settings,
    pub(crate) start: Instant,
    /// On lines of its own: each try_grow reads the fields beside it.
    pub(crate) ended: CachePadded<Ended>,
    /// The lease, if the pool is a budget.
    pub(crate) lease: Option<Lease>,
}
