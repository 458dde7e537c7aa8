//! What a command line asks for.

use crate::order::Choice;
use std::time::Duration;

/// What a command line asks for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Order, filter, folds.
    pub choice: Choice,
    /// The time between looks.
    pub interval: Duration,
    /// The most rows that are printed; the screen shows as many as it has room for.
    pub rows: Option<usize>,
}
