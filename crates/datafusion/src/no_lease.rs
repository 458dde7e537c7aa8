//! Stands for `lease.rs` where the feature `fleet` is off: no pool has a lease.

use std::time::Instant;

#[derive(Debug)]
pub(crate) enum Lease {}

#[expect(dead_code, reason = "nobody reads what nobody makes")]
pub(crate) struct Wish {
    pub(crate) units: u64,
    pub(crate) query: u64,
    pub(crate) otherwise: Otherwise,
}

#[derive(Clone, Copy)]
pub(crate) enum Otherwise {
    Spills,
    Ends,
}

impl Lease {
    pub(crate) fn covers(&self, _path: &str) -> bool {
        match *self {}
    }

    pub(crate) fn foresee(&self, _used: u64) {
        match *self {}
    }

    pub(crate) fn deadline(&self) -> Instant {
        match *self {}
    }

    pub(crate) fn grow(&self, _wish: Wish, _end: Instant) -> bool {
        match *self {}
    }

    pub(crate) fn say(&self, _text: &mut String) {
        match *self {}
    }
}
