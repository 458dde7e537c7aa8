//! Reads the attributes of an entry that layouts depend on.

use super::Slice;
use super::parsed::{RawBits, Reference};
use super::unit::Unit;
use crate::Error;
use gimli::{Abbreviation, Attribute, AttributeValue, EntriesRaw, Expression, Operation};

/// More bytes than any memory has. A larger size or offset is malformed; below this, bits can be counted.
const BEYOND: u64 = 1 << 56;

/// The attributes of an entry that layouts depend on. `named/reading.rs` must know each attribute that is read here.
#[derive(Debug, Default)]
pub(super) struct Attributes<'a> {
    pub name: &'a [u8],
    pub to: Reference,
    pub specification: Reference,
    pub signature: Reference,
    /// The class of a pointer to its members.
    pub class: Reference,
    pub size: Option<u64>,
    pub align: u64,
    /// The start of a member in bytes; the record's start if the entry does not state it.
    pub location: Said<u64>,
    pub file: u64,
    pub line: u32,
    pub encoding: u64,
    pub declaration: bool,
    pub external: bool,
    pub artificial: bool,
    pub virtual_base: bool,
    pub vector: bool,
    pub constant: bool,
    pub count: Said<i128>,
    pub lower: Said<i128>,
    pub upper: Said<i128>,
    pub stride: Option<u64>,
    pub bit_stride: Option<u64>,
    pub bit_size: Option<u64>,
    pub bits_from_start: Option<u64>,
    pub bits_from_top: Option<i64>,
}

/// An entry's statement of a value that may be a constant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Said<T> {
    #[default]
    Missing,
    Is(T),
    /// The program computes it at run time.
    Computed,
}

impl<'a> Attributes<'a> {
    /// Reads all attributes of the entry whose abbreviation was just read.
    pub(super) fn read(
        unit: &Unit<'_, 'a>,
        entries: &mut EntriesRaw<'_, Slice<'a>>,
        abbreviation: &Abbreviation,
    ) -> Result<Attributes<'a>, Error> {
        let mut all = Attributes::default();
        for &specification in abbreviation.attributes() {
            let attribute =
                entries.read_attribute(specification).map_err(|error| unit.broken(error))?;
            all.take(unit, &attribute)?;
        }
        Ok(all)
    }

    fn take(&mut self, unit: &Unit<'_, 'a>, attribute: &Attribute<Slice<'a>>) -> Result<(), Error> {
        let number = || attribute.udata_value().unwrap_or(0);
        let flag = || matches!(attribute.raw_value(), AttributeValue::Flag(true));
        let small = || match attribute.udata_value() {
            Some(bytes) if bytes < BEYOND => Ok(Some(bytes)),
            Some(bytes) => Err(Error::new(format!(
                "{} speaks of {bytes} bytes or bits, more than any memory has",
                unit.at.place()
            ))
            .advise("build or copy the file again")),
            // The program computes it at run time.
            None => Ok(None),
        };
        match attribute.name() {
            gimli::DW_AT_name => {
                self.name = unit.string(attribute.raw_value()).unwrap_or_default();
                unit.universe.budget.spend(self.name.len() as u64)?;
            }
            gimli::DW_AT_type => self.to = unit.reference(attribute),
            gimli::DW_AT_specification => self.specification = unit.reference(attribute),
            gimli::DW_AT_signature => self.signature = unit.reference(attribute),
            gimli::DW_AT_containing_type => self.class = unit.reference(attribute),
            gimli::DW_AT_byte_size => self.size = small()?,
            gimli::DW_AT_bit_size => self.bit_size = small()?,
            gimli::DW_AT_data_bit_offset => self.bits_from_start = small()?,
            gimli::DW_AT_bit_offset => {
                self.bits_from_top =
                    attribute.sdata_value().filter(|bits| bits.unsigned_abs() < BEYOND);
            }
            gimli::DW_AT_alignment => {
                self.align = small()?.filter(|bytes| bytes.is_power_of_two()).unwrap_or(0);
            }
            gimli::DW_AT_data_member_location => {
                self.location = match small()? {
                    Some(bytes) => Said::Is(bytes),
                    None => evaluate(unit, attribute.exprloc_value()),
                };
            }
            gimli::DW_AT_decl_file => self.file = number(),
            gimli::DW_AT_decl_line => self.line = u32::try_from(number()).unwrap_or(0),
            gimli::DW_AT_encoding => {
                self.encoding = match attribute.value() {
                    AttributeValue::Encoding(encoding) => encoding.0.into(),
                    _ => number(),
                };
            }
            gimli::DW_AT_declaration => self.declaration = flag(),
            gimli::DW_AT_external => self.external = flag(),
            gimli::DW_AT_artificial => self.artificial = flag(),
            gimli::DW_AT_virtuality => self.virtual_base = number() != 0,
            gimli::DW_AT_GNU_vector => self.vector = flag(),
            gimli::DW_AT_const_value => self.constant = true,
            gimli::DW_AT_count => self.count = bound(attribute),
            gimli::DW_AT_lower_bound => self.lower = bound(attribute),
            gimli::DW_AT_upper_bound => self.upper = bound(attribute),
            gimli::DW_AT_byte_stride => self.stride = small()?,
            gimli::DW_AT_bit_stride => self.bit_stride = small()?,
            _ => {}
        }
        Ok(())
    }

    /// Returns the place of a member's bits, if it is a bitfield.
    pub(super) fn bits(&self) -> RawBits {
        match (self.bit_size, self.bits_from_start, self.bits_from_top) {
            (None | Some(0), ..) => RawBits::None,
            (Some(size), Some(first), _) => RawBits::FromStart { first, size },
            (Some(size), None, Some(skipped)) => {
                RawBits::FromTop { skipped, size, storage: self.size.unwrap_or(0) }
            }
            // Without either, the bits begin at the member's start.
            (Some(size), None, None) => {
                let Said::Is(bytes) = self.location else {
                    return RawBits::FromStart { first: 0, size };
                };
                RawBits::FromStart { first: bytes * 8, size }
            }
        }
    }

    /// Returns whether a member belongs to the whole class, and so lies outside of its objects.
    pub(super) fn is_static(&self) -> bool {
        let placed = self.location != Said::Missing || self.bits() != RawBits::None;
        self.external || self.declaration || (self.constant && !placed)
    }

    /// Returns the size in bytes, even if the entry gives it in bits.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.size.or(self.bit_size.map(|bits| bits.div_ceil(8)))
    }

    /// Returns the number of elements of this dimension; `None` for a flexible or dynamic one.
    pub(super) fn elements(&self) -> Option<u64> {
        match (self.count, self.upper, self.lower) {
            (Said::Is(count), ..) => Some(u64::try_from(count).unwrap_or(0)),
            (Said::Missing, Said::Is(upper), lower) => {
                let lower = match lower {
                    Said::Is(lower) => lower,
                    Said::Missing => 0,
                    Said::Computed => return None,
                };
                Some(u64::try_from(upper - lower + 1).unwrap_or(0))
            }
            _ => None,
        }
    }
}

/// Reads a bound. An upper bound of -1, as in `int a[0]`, may also be written as the largest number of its width.
fn bound(attribute: &Attribute<Slice<'_>>) -> Said<i128> {
    let is_upper = attribute.name() == gimli::DW_AT_upper_bound;
    match attribute.raw_value() {
        AttributeValue::Data4(u32::MAX) | AttributeValue::Data8(u64::MAX) if is_upper => {
            Said::Is(-1)
        }
        AttributeValue::Udata(u64::MAX) if is_upper => Said::Is(-1),
        AttributeValue::Sdata(value) => Said::Is(value.into()),
        _ => match attribute.udata_value() {
            Some(value) => Said::Is(value.into()),
            None => Said::Computed,
        },
    }
}

/// Evaluates an offset that is written as a computation on the record's address, the form of all offsets in DWARF 2.
fn evaluate(unit: &Unit<'_, '_>, expression: Option<Expression<Slice<'_>>>) -> Said<u64> {
    let Some(expression) = expression else { return Said::Computed };
    let mut operations = expression.operations(unit.at.header.encoding());
    let mut pushed = None;
    let mut offset = 0u64;
    loop {
        match operations.next() {
            Ok(Some(Operation::PlusConstant { value })) => offset = offset.saturating_add(value),
            Ok(Some(Operation::UnsignedConstant { value })) if pushed.is_none() => {
                pushed = Some(value);
            }
            Ok(Some(Operation::Plus)) if pushed.is_some() => {
                offset = offset.saturating_add(pushed.take().unwrap_or(0));
            }
            Ok(None) if pushed.is_none() && offset < BEYOND => return Said::Is(offset),
            _ => return Said::Computed,
        }
    }
}
