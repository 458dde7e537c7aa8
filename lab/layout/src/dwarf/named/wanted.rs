//! The wanted names, and the places where the bytes of a unit may name one.
//!
//! An entry has its name as text, or as the text's place in `.debug_str`, or as a number in the unit's table of such
//! places. A linker lets one text be the end of another, so every place counts at which a name ends a text.

use gimli::{Endianity, RunTimeEndian};
use memchr::memmem::{Finder, find_iter};
use std::collections::BTreeSet;

/// With more patterns than this, reading all entries costs less than searching for each pattern.
const MOST_PATTERNS: usize = 40;

/// The places of entries that may be wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hits {
    /// Only entries with one of these bytes, which are sorted.
    At(Vec<usize>),
    /// Anywhere.
    Anywhere,
}

/// Names, without their scopes.
pub(super) struct Wanted {
    names: BTreeSet<Vec<u8>>,
    /// The byte patterns that stand for them in units; `None` if there are too many.
    patterns: Option<Vec<Finder<'static>>>,
    /// The starts of their texts in `.debug_str`; sorted.
    places: Vec<usize>,
    /// The positions of these places in `.debug_str_offsets`; sorted.
    indices: Vec<usize>,
}

impl Wanted {
    /// Finds `names` in the sections of strings. `wide` means that some unit has offsets of eight bytes.
    pub(super) fn new(
        names: BTreeSet<Vec<u8>>,
        strings: &[u8],
        offsets: &[u8],
        endian: RunTimeEndian,
        wide: bool,
    ) -> Wanted {
        let texts: Vec<Vec<u8>> = names.iter().map(|name| [name, &[0][..]].concat()).collect();
        let mut places: Vec<usize> =
            texts.iter().flat_map(|text| find_iter(strings, text)).collect();
        places.sort_unstable();
        places.dedup();
        let mut patterns = texts;
        for &place in &places {
            if let Ok(place) = u32::try_from(place) {
                let mut bytes = [0; 4];
                endian.write_u32(&mut bytes, place);
                patterns.push(bytes.to_vec());
            }
            if wide {
                let mut bytes = [0; 8];
                endian.write_u64(&mut bytes, place as u64);
                patterns.push(bytes.to_vec());
            }
        }
        let few = patterns.len() <= MOST_PATTERNS;
        let mut indices: Vec<usize> = match few {
            true => patterns.iter().flat_map(|pattern| find_iter(offsets, pattern)).collect(),
            false => (0..offsets.len() / 4).map(|index| 4 * index).collect(),
        };
        indices.sort_unstable();
        let finder = |pattern: Vec<u8>| Finder::new(&pattern).into_owned();
        let patterns = few.then(|| patterns.into_iter().map(finder).collect());
        Wanted { names, patterns, places, indices }
    }

    /// Returns whether a text, or the end of one, is `name`.
    pub(super) fn is_text(strings: &[u8], name: &[u8]) -> bool {
        find_iter(strings, &[name, &[0]].concat()).next().is_some()
    }

    /// Returns whether a name is looked for.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.names.contains(name)
    }

    /// Returns whether the text at a place of `.debug_str` is looked for.
    pub(super) fn is_at(&self, place: usize) -> bool {
        self.places.binary_search(&place).is_ok()
    }

    /// Returns whether any unit may name one by its number in a table of places.
    pub(super) fn numbered(&self) -> bool {
        !self.indices.is_empty()
    }

    /// Returns whether the table of places from `start` to `end` has one.
    pub(super) fn in_table(&self, start: usize, end: usize) -> bool {
        let first = self.indices.partition_point(|&at| at < start);
        self.indices.get(first).is_some_and(|&at| at < end)
    }

    /// Returns the places at which the bytes of a unit may name one.
    pub(super) fn hits(&self, unit: &[u8]) -> Hits {
        let Some(patterns) = &self.patterns else { return Hits::Anywhere };
        let mut hits = Vec::new();
        for pattern in patterns {
            // Bytes that overlap with a match may be a match as well.
            let mut from = 0;
            while let Some(found) = pattern.find(&unit[from..]) {
                hits.push(from + found);
                from += found + 1;
            }
        }
        hits.sort_unstable();
        Hits::At(hits)
    }
}

impl Hits {
    /// Returns whether an entry from `start` to `end` may have a wanted name.
    pub(super) fn within(&self, start: usize, end: usize) -> bool {
        match self {
            Hits::Anywhere => true,
            Hits::At(hits) => {
                let first = hits.partition_point(|&at| at < start);
                hits.get(first).is_some_and(|&at| at < end)
            }
        }
    }

    /// Returns whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Hits::At(hits) if hits.is_empty())
    }
}
