//! Finds the place of a bitfield, from either of DWARF's two descriptions.

use super::parsed::RawBits;
use crate::model::Bits;

/// The sizes in bytes of the record that a bitfield is in and of the type that it is declared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Within {
    pub record: u64,
    pub declared: u64,
    pub big_endian: bool,
}

/// Returns the offset of the storage unit in bytes, and the bits in it.
///
/// The unit is the one that a compiler would load: it has the declared type's size and lies at a multiple of it. A
/// packed record may have a field across two units, or end before the unit does. Then the unit begins with the first
/// byte that has a bit of the field.
///
/// `None` if the field cannot exist: it has no bits, or too many for the model, or lies before the record.
pub(super) fn place(raw: RawBits, offset: u64, within: Within) -> Option<(u64, Bits)> {
    let (first, size) = match raw {
        RawBits::None => return None,
        RawBits::FromStart { first, size } => (first, size),
        RawBits::FromTop { skipped, size, storage } => {
            let storage = if storage == 0 { within.declared } else { storage };
            let skipped = i128::from(skipped);
            // Bits are counted from the top of the unit, which is its first byte only on a big-endian machine.
            let inside = if within.big_endian {
                skipped
            } else {
                i128::from(storage) * 8 - skipped - i128::from(size)
            };
            (u64::try_from(i128::from(offset) * 8 + inside).ok()?, size)
        }
    };
    let size = u8::try_from(size).ok().filter(|&size| size > 0)?;
    let unit = within.declared.checked_mul(8).filter(|&bits| bits > 0);
    let mut start = first / 8;
    if let Some(unit) = unit {
        let aligned = first / unit * unit;
        let end = aligned.checked_add(unit)?;
        if first.checked_add(u64::from(size))? <= end && end <= within.record.saturating_mul(8) {
            start = aligned / 8;
        }
    }
    let offset = u8::try_from(first - start * 8).ok()?;
    Some((start, Bits { offset, size }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INT: Within = Within { record: 16, declared: 4, big_endian: false };

    fn at(raw: RawBits, offset: u64, within: Within) -> (u64, u8, u8) {
        let (unit, Bits { offset, size }) = place(raw, offset, within).unwrap();
        (unit, offset, size)
    }

    #[test]
    fn bits_from_the_start_lie_in_the_unit_that_holds_them() {
        let from_start = |first, size| RawBits::FromStart { first, size };
        assert_eq!(at(from_start(0, 3), 0, INT), (0, 0, 3));
        assert_eq!(at(from_start(35, 5), 0, INT), (4, 3, 5));
        assert_eq!(at(from_start(31, 1), 0, INT), (0, 31, 1));
        // This field is packed and lies across two units.
        assert_eq!(at(from_start(20, 20), 0, INT), (2, 4, 20));
        // This record is packed and ends before the unit.
        assert_eq!(at(from_start(8, 4), 0, Within { record: 2, ..INT }), (1, 0, 4));
        // This field is a whole unit of 64 bits and begins at bit 7.
        let long = Within { declared: 8, ..INT };
        assert_eq!(at(from_start(7, 64), 0, long), (0, 7, 64));
    }

    #[test]
    fn bits_from_the_top_are_the_same_as_bits_from_the_start() {
        let from_top = |skipped, size| RawBits::FromTop { skipped, size, storage: 4 };
        // struct { int a : 3; int b : 5; int c : 32; } as GCC writes it with -gdwarf-2.
        assert_eq!(at(from_top(29, 3), 0, INT), (0, 0, 3));
        assert_eq!(at(from_top(24, 5), 0, INT), (0, 3, 5));
        assert_eq!(at(from_top(0, 32), 4, INT), (4, 0, 32));
        // This field is packed: the compiler counts from a unit that begins before the unit of the first bit.
        assert_eq!(at(from_top(-8, 20), 0, INT), (2, 4, 20));
        // Without a storage size, the type's size counts.
        let unsaid = RawBits::FromTop { skipped: 24, size: 5, storage: 0 };
        assert_eq!(at(unsaid, 0, INT), (0, 3, 5));
    }

    #[test]
    fn a_big_endian_machine_counts_from_the_first_byte_either_way() {
        let big = Within { big_endian: true, ..INT };
        assert_eq!(at(RawBits::FromTop { skipped: 3, size: 5, storage: 4 }, 4, big), (4, 3, 5));
        assert_eq!(at(RawBits::FromStart { first: 35, size: 5 }, 0, big), (4, 3, 5));
    }

    #[test]
    fn what_cannot_be_is_none() {
        assert_eq!(place(RawBits::None, 0, INT), None);
        for raw in [
            RawBits::FromStart { first: 0, size: 0 },
            RawBits::FromStart { first: 0, size: 300 },
            RawBits::FromStart { first: u64::MAX, size: 3 },
            RawBits::FromTop { skipped: 1000, size: 3, storage: 4 },
        ] {
            assert_eq!(place(raw, 0, INT), None, "{raw:?}");
        }
    }

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        /// Both descriptions, for machines of both byte orders, mean the bits that they were made from.
        #[test]
        fn a_place_said_in_any_way_is_the_place(
            first in 0u64..500, size in 1u64..=64, power in 0u32..4, big_endian: bool,
        ) {
            let declared = 1u64 << power;
            let within = Within { record: 64, declared, big_endian };
            let unit = declared * 8;
            let start = first / unit * unit;
            let skipped = if big_endian {
                (first - start) as i64
            } else {
                (start + unit) as i64 - (first + size) as i64
            };
            for (raw, offset) in [
                (RawBits::FromStart { first, size }, 0),
                (RawBits::FromTop { skipped, size, storage: declared }, start / 8),
            ] {
                let (unit, bits) = place(raw, offset, within).unwrap();
                prop_assert_eq!(unit * 8 + u64::from(bits.offset), first);
                prop_assert_eq!(u64::from(bits.size), size);
            }
        }
    }
}
