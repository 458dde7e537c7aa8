//! Prints a record by lines: as text, as JSON, as a picture.
//!
//! Text and JSON append to one text, so that a kernel's ten thousand types cost a tenth of a second.

mod accessed;
mod json;
mod picture;
mod text;

pub use accessed::{Access, Accessed, without_zeros};
pub use json::json;
pub use picture::{html, svg};
pub use text::text;

use crate::leaf::Expand;

/// Options for printing records.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The bytes of a line: 64 or 128.
    pub line: u64,
    /// The records that are opened.
    pub expand: Expand,
    /// The base is a multiple of this; `None` assumes that it begins a line.
    pub base: Option<u64>,
    /// Whether colours are written.
    pub colour: bool,
    /// The rates at which CPUs touch fields. They are printed beside the fields of the types that it has.
    pub accessed: Option<&'a Accessed>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { line: 64, expand: Expand::Anonymous, base: None, colour: false, accessed: None }
    }
}

#[cfg(test)]
mod tests;
