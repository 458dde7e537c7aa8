//! Reads the header, which says where the types and the names lie.

use crate::error::Error;

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// The first two bytes, read as a number in the file's byte order.
const MAGIC: u16 = 0xeb9f;
/// The bytes of the header that every version has.
const HEADER: usize = 24;
/// The bytes of a header that also has the place of the kinds' layouts.
const HEADER_WITH_LAYOUTS: usize = 32;

/// How much follows the three words of a type of some kind, as the file itself says.
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
    order: Order,
    pub(super) types: &'a [u8],
    pub(super) names: &'a [u8],
    layouts: &'a [u8],
}

/// The byte order, if `data` begins as BTF does.
pub(super) fn order(data: &[u8]) -> Option<Order> {
    let start = [*data.first()?, *data.get(1)?];
    match (u16::from_le_bytes(start), u16::from_be_bytes(start)) {
        (MAGIC, _) => Some(Order::Little),
        (_, MAGIC) => Some(Order::Big),
        _ => None,
    }
}

/// The bytes that BTF takes at the start of `data`, if it stands alone and is laid out as a kernel's is.
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
            return Err(Error::new(format!(
                "its BTF is cut off: {} bytes are less than a header",
                data.len()
            )));
        }
        let version = data[2];
        if version != 1 {
            return Err(Error::new(format!("its BTF has version {version}, and only 1 is known")));
        }
        let header = order.word(data, 4) as usize;
        if header < HEADER || header > data.len() {
            return Err(Error::new(format!(
                "its BTF has a header of {header} bytes, which cannot be"
            )));
        }
        let part = |name: &str, at: usize| {
            let (offset, length) =
                (order.word(data, at) as usize, order.word(data, at + 4) as usize);
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

    pub(super) fn order(&self) -> Order {
        self.order
    }

    /// The word at a place that lies within `bytes`.
    pub(super) fn word(&self, bytes: &[u8], at: usize) -> u32 {
        self.order.word(bytes, at)
    }

    /// How much follows a type of a kind, if the file says it.
    pub(super) fn layout(&self, kind: u8) -> Option<Extent> {
        let &[once, each, ..] = self.layouts.chunks_exact(4).nth(usize::from(kind))? else {
            return None;
        };
        Some(Extent { once: once.into(), each: each.into() })
    }

    /// Whether it is split: the names of BTF that stands alone begin with the empty one, those of split BTF do not.
    pub(super) fn is_split(&self) -> bool {
        self.names.first().map_or(!self.types.is_empty(), |&byte| byte != 0)
    }
}

impl Order {
    fn word(self, bytes: &[u8], at: usize) -> u32 {
        let word = *bytes[at..].first_chunk().expect("the word lies within");
        match self {
            Order::Little => u32::from_le_bytes(word),
            Order::Big => u32::from_be_bytes(word),
        }
    }
}
