//! Screens of something else than ledgers, which live on the terminal as those do.

use crate::draw::line_of_keys;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub use crate::draw::pen::{Pen, width_of};
pub use crate::keys::Help;
pub use crate::shown::{Answer, Shown};
pub use crate::theme::{Depth, Theme};

/// Writes as many keys, with what they do, as there is room for.
pub fn keys(area: Rect, buffer: &mut Buffer, keys: &[Help], theme: &Theme) {
    line_of_keys(area, buffer, keys, theme);
}
