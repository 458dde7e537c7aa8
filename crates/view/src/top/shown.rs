//! What can be shown on the terminal, whatever it is, and what follows its keys.

use crate::top::theme::Theme;
use ratatui::Frame;
use ratatui::crossterm::event::KeyEvent;
use std::time::Duration;

/// What is shown.
pub trait Shown {
    /// Draws everything that has room. Called after each key, and once in [`every`](Self::every).
    fn draw(&mut self, frame: &mut Frame<'_>, theme: &Theme);

    /// Does what a key asks for.
    fn key(&mut self, key: KeyEvent) -> Answer;

    /// Takes what is new, and waits for nothing.
    fn refresh(&mut self);

    /// How long it takes until there may be something new.
    fn every(&self) -> Duration;

    /// What is shown in its place until that ends: asked for after [`Answer::Open`].
    fn open(&mut self) -> Option<Box<dyn Shown>> {
        None
    }
}

/// What follows a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What is shown may have changed.
    Show,
    /// It is to look now.
    Look,
    /// Something else is to be shown in its place: [`Shown::open`].
    Open,
    /// The whole screen is to be drawn anew.
    Redraw,
    /// Stop, as a shell's job.
    Suspend,
    /// End, and go on with what was shown before.
    Back,
    /// End.
    Quit,
}
