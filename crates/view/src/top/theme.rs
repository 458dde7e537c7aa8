//! Colours, for light and dark terminals, with few colours or many.
//!
//! There are two of different hue, and distinguishing them is not required: a mark or a number carries the same
//! meaning. They lie on the blue-orange axis, which all common kinds of colour blindness keep, and each has a contrast
//! with black and with white of 4.5 to 1 (of 256 colours: 4 to 1), so that the background may be either.

use ratatui::style::{Color, Modifier, Style};

/// The number of colours of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// None: unwanted or unsupported.
    None,
    /// The sixteen, whose values the user chose.
    Sixteen,
    /// The 256 of xterm.
    Indexed,
    /// All.
    True,
}

/// The abilities of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Colours.
    pub depth: Depth,
    /// Blocks and lines, as opposed to ASCII.
    pub unicode: bool,
}

/// Blue: used units. Vermilion: values that need attention.
const TRUE: [(u8, u8, u8); 2] = [(0, 122, 190), (196, 84, 0)];
/// The nearest of xterm's 256 colours.
const INDEXED: [u8; 2] = [31, 130];

impl Theme {
    /// Returns the theme for the terminal on standard output, from the environment.
    pub fn of_terminal() -> Theme {
        let style = crate::terminal::style::Style::of_stdout();
        let set = |name: &str| std::env::var(name).unwrap_or_default();
        let depth = if style.colour { depth(&set("TERM"), &set("COLORTERM")) } else { Depth::None };
        Theme { depth, unicode: style.unicode }
    }

    /// Returns the style of used units: bars, sparklines.
    pub fn used(&self) -> Style {
        // None of the sixteen is a blue that is readable on black everywhere.
        Style { fg: self.colour(0, None), ..Style::new() }
    }

    /// Returns the style of values that need attention. It is bold as well.
    pub fn alarming(&self) -> Style {
        // The only one of the sixteen that is readable on black and on white in the usual palettes.
        Style { fg: self.colour(1, Some(Color::Magenta)), ..self.strong() }
    }

    /// Returns one of the two colours, or its substitute of the sixteen.
    fn colour(&self, ours: usize, sixteen: Option<Color>) -> Option<Color> {
        let (red, green, blue) = TRUE[ours];
        match self.depth {
            Depth::None => None,
            Depth::Sixteen => sixteen,
            Depth::Indexed => Some(Color::Indexed(INDEXED[ours])),
            Depth::True => Some(Color::Rgb(red, green, blue)),
        }
    }

    /// Returns the style of details.
    pub fn faint(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Returns the style of a title.
    pub fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of the chosen row: the terminal's own two colours, exchanged.
    pub fn chosen(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

fn depth(term: &str, colorterm: &str) -> Depth {
    match colorterm {
        "truecolor" | "24bit" => Depth::True,
        _ if term.contains("direct") => Depth::True,
        _ if term.contains("256color") => Depth::Indexed,
        _ => Depth::Sixteen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the relative luminance of a colour, by WCAG 2.
    fn luminance((red, green, blue): (u8, u8, u8)) -> f64 {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    }

    /// Returns the smaller of a colour's contrasts with black and with white.
    fn contrast(colour: (u8, u8, u8)) -> f64 {
        let luminance = luminance(colour);
        (1.05 / (luminance + 0.05)).min((luminance + 0.05) / 0.05)
    }

    /// Returns a colour of xterm's cube of 6 × 6 × 6.
    fn indexed(index: u8) -> (u8, u8, u8) {
        let level = |step: u8| [0, 95, 135, 175, 215, 255][usize::from(step)];
        let index = index - 16;
        (level(index / 36), level(index / 6 % 6), level(index % 6))
    }

    #[test]
    fn colours_can_be_read_on_black_and_on_white() {
        for colour in TRUE {
            assert!(contrast(colour) >= 4.5, "{colour:?}: {}", contrast(colour));
        }
        for index in INDEXED {
            assert!(contrast(indexed(index)) >= 4.0, "{index}: {}", contrast(indexed(index)));
        }
    }

    #[test]
    fn colours_differ_along_blue_and_yellow_which_the_colour_blind_keep() {
        // With red-green blindness the share of blue light is still visible.
        let blueness = |(red, green, blue): (u8, u8, u8)| {
            f64::from(blue) - (f64::from(red) + f64::from(green)) / 2.0
        };
        for [used, alarming] in [TRUE, INDEXED.map(indexed)] {
            assert!(blueness(used) - blueness(alarming) > 150.0);
        }
    }

    #[test]
    fn a_terminal_is_asked_for_no_more_colours_than_it_says_it_has() {
        assert_eq!(depth("xterm", ""), Depth::Sixteen);
        assert_eq!(depth("linux", ""), Depth::Sixteen);
        assert_eq!(depth("tmux-256color", ""), Depth::Indexed);
        assert_eq!(depth("xterm-256color", "truecolor"), Depth::True);
        assert_eq!(depth("xterm-direct", ""), Depth::True);
        let plain = Theme { depth: Depth::None, unicode: false };
        for style in [plain.used(), plain.alarming(), plain.faint(), plain.strong(), plain.chosen()]
        {
            assert_eq!((style.fg, style.bg), (None, None));
        }
        for depth in [Depth::Sixteen, Depth::Indexed, Depth::True] {
            let theme = Theme { depth, unicode: true };
            assert!(
                [theme.used(), theme.alarming(), theme.chosen()].iter().all(|it| it.bg.is_none())
            );
        }
    }
}
