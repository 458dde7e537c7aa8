//! A node's settings.

/// The node's behaviour when its leases end because it could not reach the store for as long as they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AtEnd {
    /// Sets `max` to 0 in each budget: charges are refused, and reclaimers give back what they can.
    #[default]
    Shrink,
    /// Keeps the `max` of each budget. The usage counts as over as soon as the node reaches the store.
    GoOn,
}

/// The way in which a node leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The behaviour when its leases end.
    pub at_end: AtEnd,
    /// Number of units to keep idle in each budget that is in use. 1 MiB by default.
    pub reserve: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { at_end: AtEnd::Shrink, reserve: 1 << 20 }
    }
}

impl Settings {
    /// The time between turns before the first reply, in milliseconds.
    pub(super) const FIRST_INTERVAL: u64 = 1_000;

    /// The longest time between two turns that have a cause, in milliseconds.
    pub(super) const SPACING: u64 = 200;

    /// The delay after the first error, in milliseconds. It doubles with each further one, up to the time between turns.
    pub(super) const FIRST_DELAY: u64 = 25;
}
