//! A followed ledger: look after look, until its program ends.

use crate::top::draw;
use crate::top::order::Options;
use crate::top::shown::{Answer, Shown};
use crate::top::state::State;
use crate::top::theme::Theme;
use crate::watch::{Life, Source, Titles};
use ratatui::Frame;
use ratatui::crossterm::event::KeyEvent;
use std::borrow::Borrow;
use std::time::{Duration, Instant};

pub struct Followed<S> {
    source: S,
    life: Life,
    titles: Titles,
    pub state: State,
    last: Instant,
    /// Whether a key requested an early look.
    wanted: bool,
}

impl<S: Borrow<Source>> Followed<S> {
    /// Starts with a first look.
    ///
    /// # Errors
    /// A sentence: the ledger cannot be read.
    pub fn new(source: S, options: &Options) -> Result<Followed<S>, String> {
        let of = source.borrow();
        let mut titles = Titles::default();
        let mut look = of.try_look()?;
        titles.name(&mut look);
        let state = State::new(of.title(), options.choice.clone(), options.interval, look);
        let life = Life::of(of);
        let mut followed =
            Followed { source, life, titles, state, last: Instant::now(), wanted: false };
        followed.ask_whether_it_ended();
        Ok(followed)
    }

    /// Takes a new look.
    ///
    /// # Errors
    /// A sentence: the ledger cannot be read any more.
    pub fn look(&mut self) -> Result<(), String> {
        // Asked before the look, so that the look includes everything that the program did before it ended.
        self.ask_whether_it_ended();
        let mut look = self.source.borrow().try_look()?;
        self.titles.name(&mut look);
        self.state.looked(look);
        Ok(())
    }

    /// Checks whether the program of the last look has ended.
    pub fn ask_whether_it_ended(&mut self) {
        self.state.ended = self.life.has_ended(self.source.borrow(), self.state.look());
    }

    fn rests(&self) -> bool {
        self.state.paused || self.state.is_over()
    }
}

impl<S: Borrow<Source>> Shown for Followed<S> {
    fn draw(&mut self, frame: &mut Frame<'_>, theme: &Theme) {
        draw::screen(frame, &mut self.state, theme);
    }

    fn key(&mut self, key: KeyEvent) -> Answer {
        let answer = self.state.key(key);
        self.wanted |= answer == Answer::Look;
        answer
    }

    fn refresh(&mut self) {
        let wanted = std::mem::take(&mut self.wanted) && !self.state.is_over();
        let due = !self.rests() && self.last.elapsed() >= self.state.interval;
        if wanted || due {
            self.state.lost = self.look().err();
            self.last = Instant::now();
        }
    }

    fn every(&self) -> Duration {
        let left = self.state.interval.saturating_sub(self.last.elapsed());
        if self.rests() { Duration::MAX } else { left }
    }
}
