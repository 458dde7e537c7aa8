//! The terminal while it is ours, and as it was before.

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::style::ResetColor;
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal};
use std::io::{self, BufWriter, Stdout, stdout};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a screen that are written at once.
const BUFFER: usize = 64 << 10;

/// Whether the terminal is ours. (One thread takes it; whoever panics gives it back. The exchange is atomic, so one of
/// them does, and no other memory is handed over by it: Relaxed is enough.)
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it is ours: the other screen, and each key as it is pressed. It is given back when this value goes,
/// and before a panic is reported.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// There is none, or it cannot be set.
    pub fn take() -> io::Result<Screen> {
        give_back_at_panics();
        take()?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(BUFFER, stdout()));
        // (What fails from here on gives it back.)
        let terminal = Terminal::new(backend).inspect_err(|_| give_back())?;
        Ok(Screen { terminal })
    }

    /// Draws what changed since the last time, as one write that the terminal shows at once.
    ///
    /// # Errors
    /// The terminal takes nothing more.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        execute!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(draw)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// Forgets what was drawn: the next time everything is.
    ///
    /// # Errors
    /// The terminal takes nothing more.
    pub fn forget(&mut self) -> io::Result<()> {
        // (`Terminal::clear` would ask where the cursor is, and wait for an answer that the thread for keys takes.)
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Gives the terminal back, does something, and takes it again.
    ///
    /// # Errors
    /// The terminal cannot be set again.
    pub fn without(&mut self, work: impl FnOnce()) -> io::Result<()> {
        give_back();
        work();
        take()?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Takes the terminal: raw, and with a screen beside the one that was there.
fn take() -> io::Result<()> {
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    enable_raw_mode().inspect_err(|_| TAKEN.store(false, Ordering::Relaxed))?;
    execute!(stdout(), EnterAlternateScreen).inspect_err(|_| give_back())
}

/// Gives the terminal back, if it was taken. What cannot be written there cannot be said, either.
fn give_back() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        let _ = execute!(stdout(), EndSynchronizedUpdate, ResetColor, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Has a panic, of whichever thread, reported on the screen that was there before.
fn give_back_at_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            report(info);
        }));
    });
}
