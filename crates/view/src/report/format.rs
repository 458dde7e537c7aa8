//! The file format of recordings.
//!
//! ```text
//! file      magic "ledgrec\n", version (4 bytes, little-endian), 4 bytes of zero, frames
//! frame     kind (1 byte), length of the payload (4), payload, CRC-32 of kind, length and payload (4)
//!
//! numbers   LEB128: seven bits a byte, the lowest first, at most ten bytes
//! change    the wrapping difference to the number before, zigzag (0, -1, 1, -2 … are 0, 1, 2, 3 …), as a number
//! text      its length as a number, then UTF-8
//! time      nanoseconds by CLOCK_MONOTONIC, as a number
//!
//! kind 1    Begin: time, nanoseconds since 1970, nanoseconds between samples, how many groups were left out for space,
//!           the unit, the title
//! kind 2    Group: index, time of birth, depth, pid, path, program
//! kind 3    Points, of a group that was compacted: index, state, its values, how many points; for each its start since
//!           the start before, length, change of last, most as a change from last, least likewise, refused, reclaimed
//! kind 4    Sample: time since the sample before; then for each group that changed its index, a byte of bits, and the
//!           change of each value that the bits name
//! kind 5    End: time, how the program ended
//!
//! values    current, peak, charges, refused, reclaimed, max (2^64 - 1: none): bits 0 to 5, in this order, as changes
//!           from the last written values of this group, from zeros if there are none
//! state     0 lives, 1 ended: bit 6 marks the end of a group. It holds nothing from then on, whatever current is.
//! ```
//!
//! The first frame is Begin. A group precedes each frame that names its index; indexes count up from 0. Readers skip
//! frames of unknown kinds. The part after a torn frame or a wrong checksum is not read, since each sample states only
//! changes.
//!
//! Frames are only ever appended, and the file is replaced as a whole, by renaming another over it, when it becomes too
//! long. So the writer may be killed at any time: everything written until then can be read.

use std::time::Duration;

pub(crate) const MAGIC: [u8; 8] = *b"ledgrec\n";
pub(crate) const VERSION: u32 = 1;
/// Magic, version, four bytes of zero.
pub(crate) const HEADER: usize = 16;
/// The bytes of a frame besides its payload.
const FRAME: usize = 9;
/// The longest payload: a sample of 65 536 groups in which all values changed is shorter.
const LONGEST: usize = 8 << 20;

pub(crate) const BEGIN: u8 = 1;
pub(crate) const GROUP: u8 = 2;
pub(crate) const POINTS: u8 = 3;
pub(crate) const SAMPLE: u8 = 4;
pub(crate) const END: u8 = 5;

/// The bit of a sample's entry for the end of a group.
pub(crate) const ENDED: u8 = 1 << 6;
/// The number of values of a group.
pub(crate) const VALUES: usize = 6;
/// No limit.
pub(crate) const NO_MAX: u64 = u64::MAX;

/// The values of a group at a time: current, peak, charges, refused, reclaimed, max.
pub(crate) type Values = [u64; VALUES];
pub(crate) const CURRENT: usize = 0;
pub(crate) const PEAK: usize = 1;
pub(crate) const CHARGES: usize = 2;
pub(crate) const REFUSED: usize = 3;
pub(crate) const RECLAIMED: usize = 4;
pub(crate) const MAX: usize = 5;

/// Returns the beginning of a recording.
pub(crate) fn header() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    bytes
}

/// A buffer that is being written.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(crate) fn change(&mut self, before: u64, now: u64) {
        let change = now.wrapping_sub(before).cast_signed();
        self.number((change << 1 ^ change >> 63).cast_unsigned());
    }

    pub(crate) fn time(&mut self, time: Duration) {
        // A clock reaches 2^64 nanoseconds after 584 years.
        self.number(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    /// Writes the bits of the changed values, and `others`; then the changes.
    pub(crate) fn changes(&mut self, before: &Values, now: &Values, others: u8) {
        let changed = (0..VALUES).filter(|&at| before[at] != now[at]);
        self.0.push(changed.clone().fold(others, |bits, at| bits | 1 << at));
        changed.for_each(|at| self.change(before[at], now[at]));
    }

    /// Writes a frame with the output of `payload`.
    pub(crate) fn frame(&mut self, kind: u8, payload: impl FnOnce(&mut Writer)) {
        let start = self.0.len();
        self.0.extend([kind, 0, 0, 0, 0]);
        payload(self);
        let length = (self.0.len() - start - 5) as u32;
        self.0[start + 1..start + 5].copy_from_slice(&length.to_le_bytes());
        let sum = crc32fast::hash(&self.0[start..]);
        self.0.extend(sum.to_le_bytes());
    }
}

/// A buffer that is being read. Each method returns `None` if the bytes are not of the requested form.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    fn bytes(&mut self, many: usize) -> Option<&'b [u8]> {
        let (head, tail) = self.0.split_at_checked(many)?;
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|byte| byte[0])
    }

    pub(crate) fn four(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn change(&mut self, before: u64) -> Option<u64> {
        let zigzag = self.number()?;
        let change = zigzag >> 1 ^ (zigzag & 1).wrapping_neg();
        Some(before.wrapping_add(change))
    }

    pub(crate) fn time(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_nanos)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        String::from_utf8(self.bytes(length)?.to_vec()).ok()
    }

    /// Changes the values whose bits are set, and returns the other bits.
    pub(crate) fn changes(&mut self, values: &mut Values) -> Option<u8> {
        let bits = self.byte()?;
        for (at, value) in values.iter_mut().enumerate() {
            if bits & 1 << at != 0 {
                *value = self.change(*value)?;
            }
        }
        Some(bits)
    }

    /// Returns the next frame: its kind and payload. `None` if it is torn or damaged.
    pub(crate) fn frame(&mut self) -> Option<(u8, Reader<'b>)> {
        let mut ahead = *self;
        let kind = ahead.byte()?;
        let length = ahead.four()? as usize;
        if length > LONGEST {
            return None;
        }
        let payload = ahead.bytes(length)?;
        let sum = ahead.four()?;
        if crc32fast::hash(&self.0[..length + FRAME - 4]) != sum {
            return None;
        }
        *self = ahead;
        Some((kind, Reader(payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn what_is_written_is_read(numbers: [u64; 4], text: String, before: Values, now: Values) {
            let mut writer = Writer::default();
            writer.frame(77, |frame| {
                numbers.iter().for_each(|&number| frame.number(number));
                frame.change(numbers[0], numbers[1]);
                frame.text(&text);
                frame.changes(&before, &now, ENDED);
            });
            let mut reader = Reader(&writer.0);
            let (kind, mut payload) = reader.frame().unwrap();
            prop_assert_eq!(kind, 77);
            for number in numbers {
                prop_assert_eq!(payload.number(), Some(number));
            }
            prop_assert_eq!(payload.change(numbers[0]), Some(numbers[1]));
            prop_assert_eq!(payload.text(), Some(text));
            let mut values = before;
            prop_assert_eq!(payload.changes(&mut values).map(|bits| bits & ENDED), Some(ENDED));
            prop_assert_eq!(values, now);
            prop_assert!(payload.0.is_empty() && reader.0.is_empty());
        }

        #[test]
        fn a_frame_that_was_changed_or_cut_is_refused(at: usize, bit in 0..8, cut: usize) {
            let mut writer = Writer::default();
            writer.frame(4, |frame| (0..50).for_each(|number| frame.number(number * 1000)));
            let whole = writer.0;
            let mut changed = whole.clone();
            changed[at % whole.len()] ^= 1_u8 << bit;
            prop_assert!(Reader(&changed).frame().is_none());
            prop_assert!(Reader(&whole[..cut % whole.len()]).frame().is_none());
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_none() {
        assert_eq!(Reader(&[0xff; 9]).number(), None);
        assert_eq!(Reader(&[[0xff; 9].as_slice(), &[2]].concat()).number(), None);
        assert_eq!(Reader(&[[0xff; 9].as_slice(), &[1]].concat()).number(), Some(u64::MAX));
    }
}
