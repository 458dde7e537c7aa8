//! The format of the kernel's records (perf_event_open(2)).
//!
//! ```text
//! sample      header | event | pid tid | time | cpu - | size data       data: the tracepoint's alone
//! any other   header | ...   | pid tid | time | cpu - | event
//! ```

use super::event::{Event, What};
use super::tracepoint::Fields;
use perf_event_open_sys::bindings::{
    PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_LOST, PERF_RECORD_MISC_COMM_EXEC,
    PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_SAMPLE, PERF_RECORD_SWITCH, PERF_SAMPLE_CPU,
    PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
};

/// The fields of every record, in the order above.
pub(super) const COMMON: u64 = (PERF_SAMPLE_IDENTIFIER as u64)
    | (PERF_SAMPLE_TID as u64)
    | (PERF_SAMPLE_TIME as u64)
    | (PERF_SAMPLE_CPU as u64);

/// Bytes of the trailer of every record but a sample.
const TRAILER: usize = 32;

/// The data that is needed to read samples.
#[derive(Clone, Debug)]
pub(super) struct Format {
    /// The tracepoint's fields, if it is recorded.
    pub(super) fields: Option<Fields>,
    /// The numbers of the tracepoint's events, one for each CPU.
    pub(super) changes: Vec<u64>,
    /// Bytes of a page.
    pub(super) page: i64,
}

/// Passes on the events in a run of whole records. Returns the number of records that the kernel lost.
pub(super) fn parse(mut bytes: &[u8], format: &Format, each: &mut dyn FnMut(Event)) -> u64 {
    let mut lost = 0;
    while let Some(header) = bytes.get(..8) {
        let kind = word32(header, 0).unwrap_or(0);
        let flags = u32::from(u16::from_ne_bytes([header[4], header[5]]));
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        // The size is impossible, so the rest cannot be read.
        let Some(record) = bytes.get(..size).filter(|record| record.len() >= 8) else { break };
        bytes = &bytes[size..];
        if kind == PERF_RECORD_LOST {
            lost += word64(record, 16).unwrap_or(0);
            continue;
        }
        let event = if kind == PERF_RECORD_SAMPLE {
            sample(record, format)
        } else {
            let what = match kind {
                PERF_RECORD_SWITCH if flags & PERF_RECORD_MISC_SWITCH_OUT == 0 => What::On,
                PERF_RECORD_COMM if flags & PERF_RECORD_MISC_COMM_EXEC != 0 => What::Exec,
                PERF_RECORD_EXIT => What::Exit,
                _ => continue,
            };
            record.len().checked_sub(TRAILER).and_then(|at| stamped(record, at, what))
        };
        if let Some(event) = event {
            each(event);
        }
    }
    lost
}

fn sample(record: &[u8], format: &Format) -> Option<Event> {
    let event = word64(record, 8)?;
    let what = match format.fields.filter(|_| format.changes.contains(&event)) {
        Some(fields) => {
            let data = record.get(44..)?;
            What::Pages {
                space: word32(data, fields.space)?,
                kind: u8::try_from(word32(data, fields.kind)?).ok().filter(|kind| *kind < 4)?,
                own: word32(data, fields.own)? != 0,
                pages: word64(data, fields.size)?.cast_signed() / format.page,
            }
        }
        None => What::Fault,
    };
    stamped(record, 16, what)
}

fn stamped(record: &[u8], at: usize, what: What) -> Option<Event> {
    Some(Event {
        pid: word32(record, at)?,
        tid: word32(record, at + 4)?,
        time: word64(record, at + 8)?,
        cpu: word32(record, at + 16)?,
        what,
    })
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIELDS: Fields = Fields { space: 8, own: 12, kind: 16, size: 24 };

    fn format() -> Format {
        Format { fields: Some(FIELDS), changes: vec![7], page: 4096 }
    }

    fn record(kind: u32, flags: u32, parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        let size = u16::try_from(body.len() + 8).unwrap();
        let flags = u16::try_from(flags).unwrap();
        [&kind.to_ne_bytes()[..], &flags.to_ne_bytes(), &size.to_ne_bytes(), &body].concat()
    }

    /// Returns the stamp of process 10, thread 11, time 12, CPU 3.
    fn stamp() -> Vec<u8> {
        let words = [10u32, 11, 12, 0, 3, 0].map(u32::to_ne_bytes);
        words.concat()
    }

    fn events(bytes: &[u8]) -> (Vec<What>, u64) {
        let mut events = Vec::new();
        let lost = parse(bytes, &format(), &mut |event| {
            assert_eq!((event.pid, event.tid, event.time, event.cpu), (10, 11, 12, 3));
            events.push(event.what);
        });
        (events, lost)
    }

    #[test]
    fn every_kind_of_record_is_understood() {
        let mut change = vec![0; 32];
        for (at, value) in [(8, 99u32), (12, 1), (16, 1), (24, 5 * 4096)] {
            change[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let id = |id: u64| id.to_ne_bytes();
        let size = (change.len() as u32).to_ne_bytes();
        let bytes = [
            record(PERF_RECORD_SAMPLE, 0, &[&id(6), &stamp()]),
            record(PERF_RECORD_SAMPLE, 0, &[&id(7), &stamp(), &size, &change]),
            record(PERF_RECORD_SWITCH, 0, &[&stamp(), &id(6)]),
            record(PERF_RECORD_SWITCH, PERF_RECORD_MISC_SWITCH_OUT, &[&stamp(), &id(6)]),
            record(PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC, &[&[0; 16], &stamp(), &id(6)]),
            record(PERF_RECORD_COMM, 0, &[&[0; 16], &stamp(), &id(6)]),
            record(PERF_RECORD_EXIT, 0, &[&[0; 24], &stamp(), &id(6)]),
            record(PERF_RECORD_LOST, 0, &[&id(6), &id(41), &stamp(), &id(6)]),
        ]
        .concat();
        let pages = What::Pages { space: 99, kind: 1, own: true, pages: 5 };
        let expected = vec![What::Fault, pages, What::On, What::Exec, What::Exit];
        assert_eq!(events(&bytes), (expected, 41));
    }

    #[test]
    fn what_is_cut_off_is_left_out() {
        let whole = record(PERF_RECORD_SAMPLE, 0, &[&6u64.to_ne_bytes(), &stamp()]);
        for length in 0..whole.len() {
            assert_eq!(events(&whole[..length]), (vec![], 0));
        }
        assert_eq!(events(&record(PERF_RECORD_SWITCH, 0, &[])), (vec![], 0));
        assert_eq!(events(&[0; 16]), (vec![], 0), "a record of no size ends it");
    }

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn nothing_that_a_ring_may_hold_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            parse(&bytes, &format(), &mut |_| ());
        }
    }
}
