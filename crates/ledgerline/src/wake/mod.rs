//! Waking: any code, a signal handler too, adds to words; sleeping threads look at them.

pub(crate) mod eventcount;
pub(crate) mod queue_head;
pub(crate) mod rung;
