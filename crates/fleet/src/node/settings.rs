//! What a node is told.

/// What a node does when its leases end, since the store could not be reached for as long as they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AtEnd {
    /// `max` becomes 0 in each budget: charges are refused, and reclaimers give back what they can.
    #[default]
    Shrink,
    /// It goes on at the `max` that it had. What it uses counts as over as soon as it reaches the store.
    GoOn,
}

/// How a node leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// What it does when its leases end.
    pub at_end: AtEnd,
    /// How many units it likes to have idle in each budget that is in use. 1 MiB unless set.
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
