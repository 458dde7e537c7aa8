//! Finds where bitfields lie.
//!
//! BTF states the first bit of each from the start of the record, in memory order. The storage unit has the type that
//! the field is declared with, and lies at a multiple of that type's size, as compilers place it.

use std::collections::HashMap;

use super::fit::described;
use crate::error::Error;
use crate::model::{Bits, Type, TypeId, Types};

/// The largest type that a bitfield may be declared with, in bytes.
const LARGEST_UNIT: u64 = 16;

/// A number that does not fill its bytes; a member of such a type is a bitfield.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrow {
    /// Where its bits begin within its bytes.
    offset: u32,
    /// How many bits it has.
    width: u8,
}

impl Narrow {
    /// Reads an integer's encoding; `None` if the integer fills its bytes.
    pub(super) fn of(size: u32, encoding: u32) -> Option<Narrow> {
        let (offset, width) = (encoding >> 16 & 0xff, encoding as u8);
        let fills = offset == 0 && u64::from(width) == 8 * u64::from(size);
        (width > 0 && !fills).then_some(Narrow { offset, width })
    }
}

/// A member that is or may be a bitfield.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) record: TypeId,
    /// The index of the member in that record.
    pub(super) member: usize,
    /// Its first bit.
    pub(super) start: u32,
    /// How many bits it has; 0 if only its type can tell.
    pub(super) width: u8,
}

impl Field {
    /// Enters the place of the field in the model, now that all types are known.
    pub(super) fn place(
        self,
        types: &mut Types,
        narrow: &HashMap<TypeId, Narrow>,
    ) -> Result<(), Error> {
        let Type::Record(record) = types.get(self.record) else {
            unreachable!("only records have fields")
        };
        let member = &record.members[self.member];
        let wrong = |why: String| {
            Err(Error::new(format!(
                "member `{}` of {} in its BTF {why}",
                types.name(member.name),
                described(types, record)
            )))
        };
        let unit = types.resolve(member.ty);
        let (start, width) = match narrow.get(&unit) {
            _ if self.width > 0 => (u64::from(self.start), self.width),
            Some(narrow) => (u64::from(self.start) + u64::from(narrow.offset), narrow.width),
            None if self.start.is_multiple_of(8) => return Ok(()),
            None => {
                return wrong(format!(
                    "begins at bit {}, within a byte, and is no bitfield",
                    self.start
                ));
            }
        };
        let size = match types.get(unit) {
            Type::Base { size, .. } | Type::Enum { size, .. } => *size,
            _ => return wrong("is a bitfield, and its type is no number".into()),
        };
        let size = size.next_power_of_two();
        if size > LARGEST_UNIT || u64::from(width) > 8 * size {
            return wrong(format!("has {width} bits of a type of {size} bytes"));
        }
        let offset = start / (8 * size) * size;
        let bits = Bits { offset: (start - 8 * offset) as u8, size: width };
        let Type::Record(record) = types.get_mut(self.record) else {
            unreachable!("only records have fields")
        };
        let member = &mut record.members[self.member];
        (member.offset, member.bits) = (offset, Some(bits));
        Ok(())
    }
}
