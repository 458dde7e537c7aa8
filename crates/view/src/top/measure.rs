//! The time of a refresh: a look, its order, and drawing it. For the example `refresh` only.

use crate::top::draw;
use crate::top::order::Options;
use crate::top::state::State;
use crate::top::theme::{Depth, Theme};
use crate::watch::Source;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::cell::Cell;
use std::io::{self, BufWriter, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The parts of one refresh.
#[derive(Clone, Copy, Debug)]
pub struct Refresh {
    /// Looking at all groups.
    pub look: Duration,
    /// Rates, histories, sorting.
    pub order: Duration,
    /// Drawing, as bytes for a terminal.
    pub draw: Duration,
    /// The bytes sent to the terminal.
    pub bytes: usize,
}

/// A terminal that counts the bytes that it gets.
struct Sink(Rc<Cell<usize>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set(self.0.get() + bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Refreshes a screen `count` times, as fast as possible.
///
/// # Errors
/// The screen cannot be drawn.
pub fn refreshes(source: &Source, options: &Options, count: usize) -> io::Result<Vec<Refresh>> {
    let mut state =
        State::new(source.title(), options.choice.clone(), options.interval, source.look());
    let theme = Theme { depth: Depth::Indexed, unicode: true };
    // A fixed size, since there may be no terminal to ask.
    let sent = Rc::new(Cell::new(0));
    let viewport = Viewport::Fixed(Rect::new(0, 0, 160, 50));
    let backend = CrosstermBackend::new(BufWriter::new(Sink(sent.clone())));
    let mut terminal = Terminal::with_options(backend, TerminalOptions { viewport })?;
    let mut refresh = || {
        let start = Instant::now();
        let look = source.look();
        let looked = start.elapsed();
        state.looked(look);
        let ordered = start.elapsed();
        terminal.draw(|frame| draw::screen(frame, &mut state, &theme))?;
        let drawn = start.elapsed();
        Ok(Refresh {
            look: looked,
            order: ordered - looked,
            draw: drawn - ordered,
            bytes: sent.take(),
        })
    };
    (0..count).map(|_| refresh()).collect()
}
