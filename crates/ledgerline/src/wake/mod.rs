//! Who sleeps is told: words that anybody may bump, a signal handler too, and sleepers that look at them.

pub(crate) mod eventcount;
pub(crate) mod queue_head;
pub(crate) mod rung;
