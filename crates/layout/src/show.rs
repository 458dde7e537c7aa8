//! Printing a record by lines: as text, as JSON, as a picture.
//!
//! Text and JSON write into one growing text, so that a kernel's ten thousand types cost a tenth of a second.

mod json;
mod picture;
mod text;

pub use json::json;
pub use picture::{Heat, html, svg};
pub use text::text;

use crate::leaf::Expand;

/// How records are printed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of a line: 64 or 128.
    pub line: u64,
    /// Which records are opened.
    pub expand: Expand,
    /// The base is a multiple of this; `None` assumes that it begins a line.
    pub base: Option<u64>,
    /// Whether colours are written.
    pub colour: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { line: 64, expand: Expand::Anonymous, base: None, colour: false }
    }
}

#[cfg(test)]
mod tests;
