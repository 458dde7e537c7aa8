//! The screen as it lives: looks, keys, signals, until the reader ends it.

use crate::top::events::{self, Event};
use crate::top::find::Choosing;
use crate::top::follow::Followed;
use crate::top::order::Options;
use crate::top::shown::{Answer, Shown};
use crate::top::terminal::Screen;
use crate::top::theme::Theme;
use crate::watch::Source;
use rustix::process::{Signal, getpgrp, getsid, kill_current_process_group};
use signal_hook::consts::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// The longest wait for a key, so that a time far off is a time.
const LONGEST: Duration = Duration::from_secs(3600);

/// Why a part of the screen ended.
enum End {
    Quit,
    Back,
    Signal(i32),
}

/// The terminal, and what happens on it.
struct Ui {
    screen: Screen,
    events: Receiver<Event>,
    theme: Theme,
    /// Whether this process stopped itself, and the signal that let it go on has not come up yet.
    stopped: bool,
}

/// Shows a ledger on the terminal until the reader quits. A signal that ends programs ends this one after the terminal
/// was given back, and this call does not return.
///
/// It is for the main thread of a command, once: for the rest of the process's life it leaves handlers for SIGTERM, SIGINT,
/// SIGHUP, SIGTSTP and SIGCONT, a hook for panics that gives the terminal back, and two threads that wait for keys and
/// signals. A refresh of 10 000 groups takes some 20 ms.
///
/// # Errors
/// A sentence that says what to do: there is no terminal, or it shows nothing but lines; the ledger cannot be read.
pub fn run(source: &Source, options: &Options) -> Result<(), String> {
    // (Without a terminal nothing is read.)
    able()?;
    run_other(&mut Followed::new(source, options)?)
}

/// Shows the ledgers that there are, and the one that the reader chooses, as [`run`] does.
///
/// # Errors
/// As [`run`], but that a ledger that cannot be read is told of in the list.
pub fn run_any(options: &Options) -> Result<(), String> {
    run_other(&mut Choosing::new(options))
}

/// Shows something else, as [`run`] shows a ledger.
///
/// # Errors
/// There is no terminal, or it shows nothing but lines.
pub fn run_other(shown: &mut dyn Shown) -> Result<(), String> {
    able()?;
    let theme = Theme::of_terminal();
    let end = {
        let screen = Screen::take().map_err(failed)?;
        let events = events::listen().map_err(failed)?;
        Ui { screen, events, theme, stopped: false }.show(shown)?
    };
    // (The terminal is given back before a signal takes effect.)
    match end {
        End::Quit | End::Back => Ok(()),
        End::Signal(signal) => {
            let _ = emulate_default_handler(signal);
            Err(format!("signal {signal}"))
        }
    }
}

/// Whether standard output can be drawn on.
fn able() -> Result<(), String> {
    if !io::stdout().is_terminal() {
        return Err("standard output is no terminal: --once prints one look as a table, \
                    --json a line for each look"
            .to_owned());
    }
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        return Err(
            "this terminal shows lines alone (TERM is dumb, or not set): --once prints one \
                    look as a table"
                .to_owned(),
        );
    }
    Ok(())
}

fn failed(error: io::Error) -> String {
    format!("the terminal: {error}")
}

impl Ui {
    fn show(&mut self, shown: &mut dyn Shown) -> Result<End, String> {
        loop {
            shown.refresh();
            let theme = self.theme;
            self.screen.draw(|frame| shown.draw(frame, &theme)).map_err(failed)?;
            provoked();
            let mut event = self.wait(shown.every());
            // All that happened until now is drawn once.
            while let Some(happened) = event {
                match happened {
                    Event::End(signal) => return Ok(End::Signal(signal)),
                    Event::Lost(error) => return Err(failed(error)),
                    Event::Resized => (),
                    Event::Stop => self.stop().map_err(failed)?,
                    Event::Continued => self.go_on().map_err(failed)?,
                    Event::Key(key) => match shown.key(key) {
                        Answer::Show | Answer::Look => (),
                        Answer::Open => {
                            if let Some(mut opened) = shown.open()
                                && let end @ (End::Quit | End::Signal(_)) =
                                    self.show(&mut *opened)?
                            {
                                return Ok(end);
                            }
                        }
                        Answer::Redraw => self.screen.forget().map_err(failed)?,
                        Answer::Suspend => suspend(),
                        Answer::Back => return Ok(End::Back),
                        Answer::Quit => return Ok(End::Quit),
                    },
                }
                event = self.events.try_recv().ok();
            }
        }
    }

    /// Waits so long for something to happen.
    fn wait(&self, time: Duration) -> Option<Event> {
        match self.events.recv_timeout(time.min(LONGEST)) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(Event::Lost(io::ErrorKind::BrokenPipe.into()))
            }
        }
    }

    fn stop(&mut self) -> io::Result<()> {
        // (Nobody could let it go on.)
        if !is_job() {
            return Ok(());
        }
        self.stopped = true;
        self.screen.without(|| drop(emulate_default_handler(SIGTSTP)))
    }

    fn go_on(&mut self) -> io::Result<()> {
        // (The terminal is taken again already, and shall not flicker.)
        if std::mem::take(&mut self.stopped) {
            return Ok(());
        }
        // Whoever stopped it by a signal that it cannot see may have set the terminal otherwise.
        self.screen.without(|| ())
    }
}

/// As the terminal itself would: stops all processes of this job, this one by the signal's handler.
fn suspend() {
    if is_job() {
        let _ = kill_current_process_group(Signal::TSTP);
    }
}

/// Whether a shell looks after this process as one of its jobs. Jobs have a process group of their own, which is not that
/// of the session. (The kernel stops no others for SIGTSTP, either.)
fn is_job() -> bool {
    getsid(None).is_ok_and(|session| session != getpgrp())
}

/// A panic that a test asks for, where the program is one for tests.
fn provoked() {
    #[cfg(debug_assertions)]
    if std::env::var_os("LEDGERLINE_TOP_PANIC").is_some() {
        panic!("LEDGERLINE_TOP_PANIC is set");
    }
}
