//! Goes through the list of types one by one, and makes sure that each lies within the file.

use super::section::{Extent, Section};
use crate::error::Error;

/// The kinds of types, by their numbers.
pub(super) mod kind {
    pub(in crate::btf) const INT: u8 = 1;
    pub(in crate::btf) const PTR: u8 = 2;
    pub(in crate::btf) const ARRAY: u8 = 3;
    pub(in crate::btf) const STRUCT: u8 = 4;
    pub(in crate::btf) const UNION: u8 = 5;
    pub(in crate::btf) const ENUM: u8 = 6;
    pub(in crate::btf) const FWD: u8 = 7;
    pub(in crate::btf) const TYPEDEF: u8 = 8;
    pub(in crate::btf) const VOLATILE: u8 = 9;
    pub(in crate::btf) const CONST: u8 = 10;
    pub(in crate::btf) const RESTRICT: u8 = 11;
    pub(in crate::btf) const FUNC: u8 = 12;
    pub(in crate::btf) const FUNC_PROTO: u8 = 13;
    pub(in crate::btf) const VAR: u8 = 14;
    pub(in crate::btf) const DATASEC: u8 = 15;
    pub(in crate::btf) const FLOAT: u8 = 16;
    pub(in crate::btf) const DECL_TAG: u8 = 17;
    pub(in crate::btf) const TYPE_TAG: u8 = 18;
    pub(in crate::btf) const ENUM64: u8 = 19;
}

/// The bytes of the three words that every type begins with: its name, its kind and number of parts, its size or the
/// type that it refers to.
const COMMON: usize = 12;

/// One type as it stands in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    /// Its number.
    pub(super) number: u32,
    pub(super) kind: u8,
    /// A flag whose meaning depends on the kind.
    pub(super) flag: bool,
    /// The place of its name in the text of names.
    pub(super) name: u32,
    /// A size in bytes or the number of a type, depending on the kind.
    pub(super) size_or_type: u32,
    /// The bytes that the kind adds; there are as many as there must be.
    pub(super) rest: &'a [u8],
}

/// An iterator over the types of a section, in their order.
pub(super) struct Entries<'a, 's> {
    section: &'s Section<'a>,
    left: &'a [u8],
    number: u32,
}

impl<'a, 's> Entries<'a, 's> {
    /// Iterates over the types, of which the first has number `first`.
    pub(super) fn new(section: &'s Section<'a>, first: u32) -> Entries<'a, 's> {
        Entries { section, left: section.types, number: first }
    }

    fn read(&mut self) -> Result<Entry<'a>, Error> {
        let number = self.number;
        let cut_off =
            || Error::new(format!("its BTF is cut off in type {number}")).advise("copy it again");
        let (common, behind) = self.left.split_first_chunk::<COMMON>().ok_or_else(cut_off)?;
        let [name, info, size_or_type] = [0, 4, 8].map(|at| self.section.word(common, at));
        // Kinds had five bits and the number of parts sixteen, until Linux gave both the unused bits between them.
        let kind = (info >> 24 & 0x7f) as u8;
        let parts = (info & 0xff_ffff) as usize;
        let Some(extent) = extent(kind).or_else(|| self.section.layout(kind)) else {
            return Err(Error::new(format!(
                "type {number} of its BTF has kind {kind}, which is not known"
            ))
            .advise("if a newer kernel wrote it, a newer version of this program may know it"));
        };
        // This fits: there are at most 2^24 parts of 255 bytes.
        let length = extent.once + extent.each * parts;
        let (rest, left) = behind.split_at_checked(length).ok_or_else(cut_off)?;
        (self.left, self.number) = (left, number + 1);
        Ok(Entry { number, kind, flag: info >> 31 == 1, name, size_or_type, rest })
    }
}

impl<'a> Iterator for Entries<'a, '_> {
    type Item = Result<Entry<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.left = &[];
        }
        Some(entry)
    }
}

/// How much follows a type of a kind that this reader knows.
fn extent(kind: u8) -> Option<Extent> {
    let (once, each) = match kind {
        kind::INT | kind::VAR | kind::DECL_TAG => (4, 0),
        kind::ARRAY => (12, 0),
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => (0, 12),
        kind::ENUM | kind::FUNC_PROTO => (0, 8),
        kind::PTR
        | kind::FWD
        | kind::TYPEDEF
        | kind::VOLATILE
        | kind::CONST
        | kind::RESTRICT
        | kind::FUNC
        | kind::FLOAT
        | kind::TYPE_TAG => (0, 0),
        _ => return None,
    };
    Some(Extent { once, each })
}
