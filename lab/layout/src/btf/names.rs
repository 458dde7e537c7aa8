//! The text of names. A name is found by the place where it begins, and a zero byte ends it.

use std::ffi::CStr;

use super::section::Section;
use crate::error::Error;
use crate::model::{Name, Types};

/// How many names a byte of the text may belong to. Writers share no endings, so one is usual. A text that is all one
/// long ending would otherwise make as many long names as there are types.
const LONGEST_OVERLAP: usize = 8;

/// The names of a section and of what it builds on.
pub(super) struct Names<'a> {
    base: &'a [u8],
    own: &'a [u8],
    /// For each place, what was interned for the name that begins there, plus one; 0 if nothing was.
    met: Vec<u32>,
    /// How many more bytes of names may be met.
    left: usize,
}

impl<'a> Names<'a> {
    pub(super) fn new(own: &Section<'a>, base: Option<&Section<'a>>) -> Names<'a> {
        let base = base.map_or(&[][..], |base| base.names);
        let length = base.len() + own.names.len();
        Names { base, own: own.names, met: vec![0; length], left: LONGEST_OVERLAP * length }
    }

    /// The name at a place in the text.
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
