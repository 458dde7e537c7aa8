//! The loop of the screen: looks, keys, signals, until the reader ends it.

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

/// The longest wait for a key, so that a distant deadline does not overflow.
const LONGEST: Duration = Duration::from_secs(3600);

/// The reason why a part of the screen ended.
enum End {
    Quit,
    Back,
    Signal(i32),
}

/// The terminal, and its events.
struct Ui {
    screen: Screen,
    events: Receiver<Event>,
    theme: Theme,
    /// Whether this process stopped itself, and the signal that continued it has not arrived yet.
    stopped: bool,
}

/// Shows a ledger on the terminal until the reader quits. A signal that ends programs ends this one after the terminal
/// is restored, and this call does not return.
///
/// It is for the main thread of a command, once. For the rest of the process's life it leaves handlers for SIGTERM,
/// SIGINT, SIGHUP, SIGTSTP and SIGCONT, a hook for panics that restores the terminal, and two threads that wait for
/// keys and signals. A refresh of 10 000 groups takes some 20 ms.
///
/// # Errors
/// A sentence with advice: there is no terminal, or it can only show lines; the ledger cannot be read.
pub fn run(source: &Source, options: &Options) -> Result<(), String> {
    // Without a terminal nothing is read.
    able()?;
    run_other(&mut Followed::new(source, options)?)
}

/// Shows the list of ledgers, and the one that the reader chooses, like [`run`].
///
/// # Errors
/// As for [`run`], but a ledger that cannot be read is reported in the list.
pub fn run_any(options: &Options) -> Result<(), String> {
    run_other(&mut Choosing::new(options))
}

/// Shows something else, like [`run`] shows a ledger.
///
/// # Errors
/// There is no terminal, or it can only show lines.
pub fn run_other(shown: &mut dyn Shown) -> Result<(), String> {
    able()?;
    let theme = Theme::of_terminal();
    let end = {
        let screen = Screen::take().map_err(failed)?;
        let events = events::listen().map_err(failed)?;
        Ui { screen, events, theme, stopped: false }.show(shown)?
    };
    // The terminal is restored before a signal takes effect.
    match end {
        End::Quit | End::Back => Ok(()),
        End::Signal(signal) => {
            let _ = emulate_default_handler(signal);
            Err(format!("signal {signal}"))
        }
    }
}

/// Checks that standard output can be drawn on.
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
            // All events until now are drawn at once.
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

    /// Waits at most `time` for an event.
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
        // Without a shell, nothing would continue the process.
        if !is_job() {
            return Ok(());
        }
        self.stopped = true;
        self.screen.without(|| drop(emulate_default_handler(SIGTSTP)))
    }

    fn go_on(&mut self) -> io::Result<()> {
        // The terminal is set up again already, and must not flicker.
        if std::mem::take(&mut self.stopped) {
            return Ok(());
        }
        // A process that was stopped by a signal that it cannot see may find other settings of the terminal.
        self.screen.without(|| ())
    }
}

/// Does the terminal's work for Ctrl-Z: stops all processes of this job, this one by the signal's handler.
fn suspend() {
    if is_job() {
        let _ = kill_current_process_group(Signal::TSTP);
    }
}

/// Returns whether this process is a shell's job. Jobs have a process group of their own, which is not that of the
/// session. The kernel itself stops only those for SIGTSTP.
fn is_job() -> bool {
    getsid(None).is_ok_and(|session| session != getpgrp())
}

/// Panics if a test asks for it, in debug builds.
fn provoked() {
    #[cfg(debug_assertions)]
    if std::env::var_os("LEDGERLINE_TOP_PANIC").is_some() {
        panic!("LEDGERLINE_TOP_PANIC is set");
    }
}
