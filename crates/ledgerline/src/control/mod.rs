//! Control: who is refused, reclaimed, slowed down, made to wait, cancelled; and who is told.

pub(crate) mod alarm;
pub(crate) mod audit;
pub(crate) mod audit_report;
pub(crate) mod events;
pub(crate) mod mode;
pub(crate) mod pressure;
pub(crate) mod process;
pub(crate) mod protection;
pub(crate) mod reclaim;
pub(crate) mod reclaiming;
pub(crate) mod set_max;
pub(crate) mod throttle;
pub(crate) mod token;
pub(crate) mod victim;
pub(crate) mod wait;
pub(crate) mod wait_queue;
