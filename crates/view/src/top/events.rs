//! The events of a program on a terminal: keys, a new size, signals.

use ratatui::crossterm::event::{self, Event as Input, KeyEvent};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

/// An event.
#[derive(Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The size of the screen changed, or another program drew over it.
    Resized,
    /// The process is to stop, as a shell's job.
    Stop,
    /// The process was continued after it was stopped.
    Continued,
    /// A signal that ends programs.
    End(i32),
    /// No more keys will come.
    Lost(io::Error),
}

/// Starts two threads that send events for as long as the process lives: one waits for keys, one for signals. Nothing
/// else may read keys from now on.
///
/// # Errors
/// The kernel refuses the handlers or a thread.
pub fn listen() -> io::Result<Receiver<Event>> {
    let (sender, events) = channel();
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT])?;
    let sender_of_signals = sender.clone();
    thread("signals", move || forward(signals, &sender_of_signals))?;
    thread("keys", move || read(&sender))?;
    Ok(events)
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

fn forward(mut signals: Signals, sender: &Sender<Event>) {
    let mut ending = false;
    for signal in signals.forever() {
        let event = match signal {
            SIGTSTP => Event::Stop,
            SIGCONT => Event::Continued,
            signal => {
                // A second signal means that the first had no effect: the main thread may be blocked in a write to the
                // terminal.
                if std::mem::replace(&mut ending, true) {
                    let _ = emulate_default_handler(signal);
                }
                Event::End(signal)
            }
        };
        if sender.send(event).is_err() {
            let _ = emulate_default_handler(signal);
        }
    }
}

fn read(sender: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(Input::Key(key)) => Event::Key(key),
            Ok(Input::Resize(..)) => Event::Resized,
            Ok(_) => continue,
            Err(error) => Event::Lost(error),
        };
        let lost = matches!(event, Event::Lost(_));
        if sender.send(event).is_err() || lost {
            return;
        }
    }
}
