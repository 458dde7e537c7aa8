//! The stretch of a list that a screen shows.

use std::ops::Range;

/// The stretch of a list that a screen shows.
#[derive(Debug, Default)]
pub struct Window {
    first: usize,
    height: usize,
}

impl Window {
    /// Returns the lines that a screen of this height shows: the chosen one is always among them.
    pub fn around(&mut self, chosen: usize, lines: usize, height: usize) -> Range<usize> {
        self.height = height.max(1);
        let least = (chosen + 1).saturating_sub(self.height);
        let most = chosen.min(lines.saturating_sub(self.height));
        self.first = self.first.clamp(least, most);
        self.first..(self.first + self.height).min(lines)
    }

    /// Returns the number of lines that the screen had room for when it was drawn last.
    pub fn height(&self) -> usize {
        self.height
    }
}
