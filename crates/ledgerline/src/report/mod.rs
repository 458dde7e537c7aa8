//! Reports: estimates, snapshots, diagnoses, leaks and `memory.stat`, of one group or of all. Readers get owned data.

pub(crate) mod diagnosis;
pub(crate) mod diagnosis_print;
pub(crate) mod estimate;
pub(crate) mod leak;
pub(crate) mod memory_stat;
pub(crate) mod peak;
pub(crate) mod scan;
pub(crate) mod settled;
pub(crate) mod snapshot;
pub(crate) mod statistics;
