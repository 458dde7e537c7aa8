//! Reads the access of a sample.

use super::bytes::Bytes;
use super::event::{Event, holds};
use crate::profile::kinds::{Said, of_source};

/// The parts of a sample that concern an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub process: Option<u32>,
    pub thread: Option<u32>,
    pub cpu: Option<u32>,
    pub address: Option<u64>,
    pub period: u64,
    pub said: Said,
}

/// Parses a sample; `None` if it is truncated.
pub(super) fn read(mut at: Bytes<'_>, event: &Event) -> Option<Sample> {
    let has = |what: u64| event.holds & what != 0;
    let mut sample = Sample { period: event.period, ..Sample::default() };
    at.skip(u64::from((event.holds & (holds::IDENTIFIER | holds::IP)).count_ones()), 8)?;
    if has(holds::TID) {
        let (process, thread) = (at.u32()?, at.u32()?);
        (sample.process, sample.thread) = (Some(process), Some(thread));
    }
    at.skip(u64::from(has(holds::TIME)), 8)?;
    if has(holds::ADDR) {
        sample.address = Some(at.u64()?);
    }
    at.skip(u64::from((event.holds & (holds::ID | holds::STREAM_ID)).count_ones()), 8)?;
    if has(holds::CPU) {
        let (cpu, _reserved) = (at.u32()?, at.u32()?);
        sample.cpu = Some(cpu);
    }
    if has(holds::PERIOD) {
        sample.period = at.u64()?;
    }
    if !has(holds::DATA_SRC) {
        return Some(sample);
    }
    // The parts in front of the source have variable sizes.
    if has(holds::READ) {
        skip_read(&mut at, event.read_format)?;
    }
    if has(holds::CALLCHAIN) {
        let frames = at.u64()?;
        at.skip(frames, 8)?;
    }
    if has(holds::RAW) {
        let size = at.u32()?;
        at.skip(1, size.into())?;
    }
    if has(holds::BRANCH_STACK) {
        const INDEX: u64 = 1 << 17;
        const COUNTERS: u64 = 1 << 19;
        let branches = at.u64()?;
        at.skip(u64::from(event.branch_format & INDEX != 0), 8)?;
        at.skip(branches, if event.branch_format & COUNTERS == 0 { 24 } else { 32 })?;
    }
    if has(holds::REGS_USER) && at.u64()? != 0 {
        at.skip(event.registers.count_ones().into(), 8)?;
    }
    if has(holds::STACK_USER) {
        let size = at.u64()?;
        at.skip(1, size)?;
        at.skip(u64::from(size > 0), 8)?;
    }
    at.skip(u64::from(has(holds::WEIGHT | holds::WEIGHT_STRUCT)), 8)?;
    sample.said = of_source(at.u64()?);
    Some(sample)
}

/// Skips the counters that were read with a sample.
fn skip_read(at: &mut Bytes<'_>, format: u64) -> Option<()> {
    const TIMES: u64 = 1 | 2;
    const GROUP: u64 = 8;
    const OF_EACH: u64 = 4 | 16;
    let times = u64::from((format & TIMES).count_ones());
    let each = 1 + u64::from((format & OF_EACH).count_ones());
    let counters = if format & GROUP == 0 { 1 } else { at.u64()? };
    at.skip(times, 8)?;
    at.skip(counters, 8 * each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Kind;
    use crate::profile::perf_data::bytes::Order;

    /// A sample with all contents, as the kernel's header describes it. The source comes behind all of them.
    #[test]
    fn the_source_is_found_behind_whatever_a_sample_holds() {
        let event = Event {
            holds: 0x1ffff,
            read_format: 1 | 4 | 8,
            branch_format: 1 << 17,
            registers: 0b1011,
            ..Event::default()
        };
        let words: &[u64] = &[
            1,
            2,
            7 << 32 | 6,
            3,
            0xffff_8881_00a4_c000,
            4,
            5,
            2,
            1009, // to the period
            2,
            99,
            1,
            2,
            3,
            4, // two counters, each with its number, after one time
            3,
            1,
            2,
            3,                     // three frames
            0x1111_1111_0000_0004, // four raw bytes
            1,
            9,
            1,
            2,
            3, // a branch
            1,
            7,
            7,
            7, // three registers
            8,
            0x55,
            8,  // a stack
            12, // the weight
            0x6a10_0142,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let sample = read(Bytes::new(&bytes, Order::Little), &event).unwrap();
        let expected = Sample {
            process: Some(6),
            thread: Some(7),
            cpu: Some(2),
            address: Some(0xffff_8881_00a4_c000),
            period: 1009,
            said: Said::Access(Kind::Atomic),
        };
        assert_eq!(sample, expected);
        for length in 0..bytes.len() {
            assert_eq!(read(Bytes::new(&bytes[..length], Order::Little), &event), None, "{length}");
        }
    }
}
