//! The parts of BTF: the header, which has the places of the others; the list of types, each of which must lie within
//! the file; the text of names.

use std::ffi::CStr;

use gimli::{Endianity, RunTimeEndian};

use crate::error::Error;
use crate::model::{Name, Types};

/// The bytes of the header that every version has.
const HEADER: usize = 24;
/// The bytes of a header that also has the place of the kinds' layouts.
const HEADER_WITH_LAYOUTS: usize = 32;

/// The bytes that follow the three words of a type of some kind, by the file itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The bytes that follow once.
    pub(super) once: usize,
    /// The bytes that follow for each part.
    pub(super) each: usize,
}

/// BTF whose header has been checked: its parts lie within it.
#[derive(Debug)]
pub(super) struct Section<'a> {
    pub(super) order: RunTimeEndian,
    pub(super) types: &'a [u8],
    pub(super) names: &'a [u8],
    layouts: &'a [u8],
}

/// Returns the byte order, if `data` begins like BTF.
pub(super) fn order(data: &[u8]) -> Option<RunTimeEndian> {
    match *data.first_chunk()? {
        [0x9f, 0xeb] => Some(RunTimeEndian::Little),
        [0xeb, 0x9f] => Some(RunTimeEndian::Big),
        _ => None,
    }
}

/// Returns the bytes of the BTF at the start of `data`, if it stands alone and has the layout of a kernel's.
pub(super) fn extent(data: &[u8]) -> Option<&[u8]> {
    let section = Section::parse(data).ok()?;
    let [header, types_start, types, names_start, names] =
        [4, 8, 12, 16, 20].map(|at| section.word(data, at) as usize);
    let whole = types > 0
        && types_start + types == names_start
        && section.names.first() == Some(&0)
        && section.names.last() == Some(&0);
    whole.then(|| &data[..header + names_start + names])
}

impl<'a> Section<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Result<Section<'a>, Error> {
        let order =
            order(data).ok_or_else(|| Error::new("is not BTF: it does not begin with eb9f"))?;
        if data.len() < HEADER {
            let length = data.len();
            let what = format!("its BTF is cut off: {length} bytes are less than a header");
            return Err(Error::new(what));
        }
        let version = data[2];
        if version != 1 {
            return Err(Error::new(format!("its BTF has version {version}, and only 1 is known")));
        }
        let header = order.read_u32(&data[4..]) as usize;
        if header < HEADER || header > data.len() {
            let what = format!("its BTF has a header of {header} bytes, which cannot be");
            return Err(Error::new(what));
        }
        let part = |name: &str, at: usize| {
            let [offset, length] = [at, at + 4].map(|at| order.read_u32(&data[at..]) as usize);
            data[header..].get(offset..).and_then(|rest| rest.get(..length)).ok_or_else(|| {
                Error::new(format!(
                    "its BTF is cut off: the {name} are {length} bytes from {offset} on, and {} are there",
                    data.len() - header
                ))
            })
        };
        let layouts =
            if header >= HEADER_WITH_LAYOUTS { part("layouts of kinds", HEADER)? } else { &[] };
        Ok(Section { order, types: part("types", 8)?, names: part("names", 16)?, layouts })
    }

    /// Returns the word at a place that lies within `bytes`.
    pub(super) fn word(&self, bytes: &[u8], at: usize) -> u32 {
        self.order.read_u32(&bytes[at..])
    }

    /// Returns the extent of a kind, if the file states it.
    pub(super) fn layout(&self, kind: u8) -> Option<Extent> {
        let &[once, each, ..] = self.layouts.chunks_exact(4).nth(kind.into())? else { return None };
        Some(Extent { once: once.into(), each: each.into() })
    }

    /// Returns whether it is split. The names of BTF that stands alone begin with the empty name; those of split BTF
    /// do not.
    pub(super) fn is_split(&self) -> bool {
        self.names.first().map_or(!self.types.is_empty(), |&byte| byte != 0)
    }
}

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

/// One type of the file.
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
    /// The bytes that the kind adds; their number has been checked.
    pub(super) rest: &'a [u8],
}

/// An iterator over the types of a section, in their order.
pub(super) struct Entries<'a, 's> {
    section: &'s Section<'a>,
    left: &'a [u8],
    number: u32,
}

impl<'a, 's> Entries<'a, 's> {
    /// Iterates over the types, the first of which has number `first`.
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
        let unknown = || {
            Error::new(format!("type {number} of its BTF has kind {kind}, which is not known"))
                .advise("if a newer kernel wrote it, a newer version of this program may know it")
        };
        let extent = known(kind).or_else(|| self.section.layout(kind)).ok_or_else(unknown)?;
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

/// Returns the extent of a kind that this reader knows.
fn known(kind: u8) -> Option<Extent> {
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

/// The most names that a byte of the text may belong to. Writers share no endings, so one is usual. Without a limit,
/// a text that is one long ending would make as many long names as there are types.
const LONGEST_OVERLAP: usize = 8;

/// The names of a section and of its base.
pub(super) struct Names<'a> {
    base: &'a [u8],
    own: &'a [u8],
    /// For each place, the name that was interned for it, plus one; 0 if there is none.
    met: Vec<u32>,
    /// The bytes of names that may still be met.
    left: usize,
}

impl<'a> Names<'a> {
    pub(super) fn new(own: &Section<'a>, base: Option<&Section<'a>>) -> Names<'a> {
        let base = base.map_or(&[][..], |base| base.names);
        let length = base.len() + own.names.len();
        Names { base, own: own.names, met: vec![0; length], left: LONGEST_OVERLAP * length }
    }

    /// Returns the name at a place in the text.
    pub(super) fn intern(&mut self, types: &mut Types, at: u32) -> Result<Name, Error> {
        if at == 0 {
            return Ok(Name::NONE);
        }
        let at = at as usize;
        match self.met.get(at) {
            Some(0) => {}
            Some(&name) => return Ok(Name(name - 1)),
            None => {
                return Err(Error::new(format!(
                    "a name is said to begin at {at}, and the names are {} bytes",
                    self.met.len()
                )));
            }
        }
        let text = match at.checked_sub(self.base.len()) {
            Some(at) => &self.own[at..],
            None => &self.base[at..],
        };
        let text =
            CStr::from_bytes_until_nul(&text[..text.len().min(self.left)]).map_err(|_| {
                Error::new(format!("the name at {at} has no end, or is in too many others"))
            })?;
        self.left -= text.count_bytes();
        let name = match text.to_str() {
            Ok(text) => types.intern(text),
            Err(_) => types.intern(&text.to_string_lossy()),
        };
        self.met[at] = name.0 + 1;
        Ok(name)
    }
}
