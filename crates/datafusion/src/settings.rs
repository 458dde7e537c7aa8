//! The reserved parts of a pool's limits, and other settings.

use crate::report::QueryReport;
use crate::rss::RssWatch;
use crate::share::Share;
use std::fmt;

/// A hook for the reports of ended queries.
type EndHook = Box<dyn Fn(&QueryReport) + Send + Sync>;

/// The settings of a pool and all pools below it.
pub(crate) struct Settings {
    /// The part of each limit for consumers that cannot spill.
    pub(crate) kept: Share,
    /// The part of each limit for small spillers and for finishing a spill.
    pub(crate) finish: Share,
    /// The number of consumers that an error names.
    pub(crate) top: usize,
    pub(crate) rss: Option<RssWatch>,
    pub(crate) on_end: Option<EndHook>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            kept: Share::of(0.125),
            finish: Share::of(0.0625),
            top: 5,
            rss: None,
            on_end: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("kept", &self.kept)
            .field("finish", &self.finish)
            .field("top", &self.top)
            .field("rss", &self.rss)
            .finish_non_exhaustive()
    }
}
