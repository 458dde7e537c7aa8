//! Waking: any code, signal handlers included, adds to words that sleeping threads look at.

pub(crate) mod eventcount;
pub(crate) mod queue_head;
pub(crate) mod rung;
