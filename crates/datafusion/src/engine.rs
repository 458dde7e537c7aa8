//! What a pool at the top shares with all tenants and queries below it.

use crate::ended::Ended;
use crate::lease::Lease;
use crate::settings::Settings;
use crossbeam_utils::CachePadded;
use std::time::Instant;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) settings: Settings,
    pub(crate) start: Instant,
    /// On lines of its own: each try_grow reads what lies beside it.
    pub(crate) ended: CachePadded<Ended>,
    /// If the pool is a budget.
    pub(crate) lease: Option<Lease>,
}
