//! The terminal while it is taken, and its restoration.

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

/// The bytes of a screen that are written at once.
const BUFFER: usize = 64 << 10;

/// Whether the terminal is taken. One thread takes it; any panicking thread restores it. The atomic exchange lets only
/// one of them do so, and publishes no other memory: Relaxed is enough.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The taken terminal: the alternate screen, and each key as it is pressed. It is restored when this value is dropped,
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
        // An error from here on restores it.
        let terminal = Terminal::new(backend).inspect_err(|_| give_back())?;
        Ok(Screen { terminal })
    }

    /// Draws the changes since the last time, as one write that the terminal shows at once.
    ///
    /// # Errors
    /// The terminal accepts no more output.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        execute!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(draw)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// Forgets the drawn content: the next time everything is drawn.
    ///
    /// # Errors
    /// The terminal accepts no more output.
    pub fn forget(&mut self) -> io::Result<()> {
        // `Terminal::clear` would query the cursor's position, and the thread for keys would take the answer.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Restores the terminal, runs `work`, and takes the terminal again.
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

/// Takes the terminal: raw mode, and the alternate screen.
fn take() -> io::Result<()> {
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    enable_raw_mode().inspect_err(|_| TAKEN.store(false, Ordering::Relaxed))?;
    execute!(stdout(), EnterAlternateScreen).inspect_err(|_| give_back())
}

/// Restores the terminal, if it was taken. There is no place to report an error.
fn give_back() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        let _ = execute!(stdout(), EndSynchronizedUpdate, ResetColor, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Sets a hook that reports a panic of any thread on the original screen.
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
