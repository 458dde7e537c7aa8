//! What happens to a program on a terminal: keys, a new size, signals.

use ratatui::crossterm::event::{self, Event as Input, KeyEvent};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The screen has another size, or was drawn over.
    Resized,
    /// The process is to stop, as a shell's job.
    Stop,
    /// The process goes on after it was stopped.
    Continued,
    /// A signal that ends programs.
    End(i32),
    /// No more keys will come.
    Lost(io::Error),
}

/// Two threads that tell what happens, for as long as the process lives: one waits for keys, one for signals. They start
/// here, and nothing else may read keys from now on.
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
                // Whoever asks a second time was not heard: the main thread may wait for a terminal that takes nothing.
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
