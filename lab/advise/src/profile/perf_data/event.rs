//! The events that were sampled: the contents of their samples, and how a sample names its event.

use std::collections::HashMap;

use super::bytes::Bytes;
use crate::profile::Kind;
use crate::profile::kinds::{DERIVED, of_event};

/// The contents of a sample, in this order.
pub(super) mod holds {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const WEIGHT: u64 = 1 << 14;
    pub const DATA_SRC: u64 = 1 << 15;
    pub const IDENTIFIER: u64 = 1 << 16;
    pub const WEIGHT_STRUCT: u64 = 1 << 24;
}

/// The type of events that are breakpoints of the processor, and the breakpoints that only stores trigger.
const BREAKPOINT: u32 = 5;
const WRITES: u32 = 2;

/// The most events of a file. perf itself runs out of descriptors earlier.
const MOST: usize = 1 << 16;

/// An event, as `struct perf_event_attr` describes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Event {
    /// The contents of its samples: [`holds`].
    pub holds: u64,
    /// The format of the counters that are read with a sample.
    pub read_format: u64,
    pub branch_format: u64,
    /// The registers that are sampled.
    pub registers: u64,
    /// The period of samples that do not have their own.
    pub period: u64,
    /// The access of each sample, if the event determines it.
    pub kind: Option<Kind>,
    /// Whether its samples are also listed under another event.
    pub derived: bool,
}

impl Event {
    /// Reads the description, which may be shorter or longer than today's.
    pub fn read(bytes: &[u8], order: super::bytes::Order) -> Option<Event> {
        let mut at = Bytes::new(bytes, order);
        let ty = at.u32()?;
        at.skip(1, 4 + 8)?;
        let (period, holds, read_format) = (at.u64()?, at.u64()?, at.u64()?);
        at.skip(1, 8 + 4)?;
        let breakpoint = at.u32().unwrap_or(0);
        let _ = at.skip(2, 8);
        let branch_format = at.u64().unwrap_or(0);
        let registers = at.u64().unwrap_or(0);
        let kind = (ty == BREAKPOINT && breakpoint == WRITES).then_some(Kind::Store);
        Some(Event { holds, read_format, branch_format, registers, period, kind, derived: false })
    }

    /// Returns the offset in a sample of the number of its event; `None` if it has none.
    fn id_at(&self) -> Option<usize> {
        if self.holds & holds::IDENTIFIER != 0 {
            return Some(0);
        }
        let before = holds::IP | holds::TID | holds::TIME | holds::ADDR;
        (self.holds & holds::ID != 0).then(|| 8 * (self.holds & before).count_ones() as usize)
    }
}

/// All events of a file.
#[derive(Debug, Default)]
pub(super) struct Events {
    list: Vec<Event>,
    by_id: HashMap<u64, usize>,
    /// The offset in samples of the number of their event.
    id_at: Option<usize>,
    /// Whether that differs between events, so that the event of a sample is unknown.
    pub mixed: bool,
}

impl Events {
    /// Adds an event, and the numbers by which samples name it. `None` if there are too many.
    pub fn add(&mut self, event: Event, ids: impl Iterator<Item = u64>) -> Option<()> {
        if self.list.len() >= MOST {
            return None;
        }
        let id_at = event.id_at();
        self.mixed |= !self.list.is_empty() && self.id_at != id_at;
        self.id_at = id_at;
        self.by_id.extend(ids.map(|id| (id, self.list.len())));
        self.list.push(event);
        Some(())
    }

    /// Sets the name of an event. The kind of a breakpoint is known without its name.
    pub fn name(&mut self, index: usize, name: &str) {
        if let Some(event) = self.list.get_mut(index) {
            event.kind = event.kind.or_else(|| of_event(name));
            event.derived = DERIVED.contains(&name);
        }
    }

    /// Returns the event with a number.
    pub fn index(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the event of a sample; `None` for a number without an event. perf ignores such samples too.
    pub fn of_sample(&self, sample: Bytes<'_>) -> Option<&Event> {
        let (Some(at), 2..) = (self.id_at, self.list.len()) else { return self.list.first() };
        let mut sample = sample;
        sample.skip(1, at as u64)?;
        match sample.u64()? {
            0 => self.list.first(),
            id => self.list.get(self.index(id)?),
        }
    }
}
