//! The interface of screens on the terminal, and the results of keys.

use crate::top::theme::Theme;
use ratatui::Frame;
use ratatui::crossterm::event::KeyEvent;
use std::time::Duration;

/// A screen.
pub trait Shown {
    /// Draws everything that has room. Called after each key, and once in [`every`](Self::every).
    fn draw(&mut self, frame: &mut Frame<'_>, theme: &Theme);

    /// Executes the command of a key.
    fn key(&mut self, key: KeyEvent) -> Answer;

    /// Takes new data without waiting.
    fn refresh(&mut self);

    /// Returns the time until there may be new data.
    fn every(&self) -> Duration;

    /// Returns the screen that replaces this one until it ends: called after [`Answer::Open`].
    fn open(&mut self) -> Option<Box<dyn Shown>> {
        None
    }
}

/// The result of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The content may have changed.
    Show,
    /// Look now.
    Look,
    /// Show another screen in its place: [`Shown::open`].
    Open,
    /// Draw the whole screen anew.
    Redraw,
    /// Stop, as a shell's job.
    Suspend,
    /// End, and return to the previous screen.
    Back,
    /// End.
    Quit,
}
