//! The last error of each thread, with its names and numbers.
//!
//! A refusal of [`ledgerline_try_charge_units`](crate::charge::ledgerline_try_charge_units) is kept in numbers and made a
//! sentence when somebody asks, so that a refusal allocates nothing. Other texts are kept in a buffer without a
//! destructor: the last error can be set and asked until the thread's last instruction.

use ledgerline::Refusal;
use std::cell::{Cell, UnsafeCell};
use std::fmt::{self, Write};

/// The longest text that is kept; a path of 32 names fits.
const LENGTH: usize = 2560;

struct Text {
    bytes: [u8; LENGTH],
    length: usize,
}

thread_local! {
    static REFUSAL: Cell<Option<(u64, Refusal)>> = const { Cell::new(None) };
    static TEXT: UnsafeCell<Text> = const { UnsafeCell::new(Text { bytes: [0; LENGTH], length: 0 }) };
}

impl Write for Text {
    /// Takes as much as there is room for, in whole characters.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = text.floor_char_boundary(LENGTH - self.length);
        self.bytes[self.length..self.length + room].copy_from_slice(&text.as_bytes()[..room]);
        self.length += room;
        Ok(())
    }
}

/// Keeps a text.
pub(crate) fn set(text: fmt::Arguments<'_>) {
    REFUSAL.set(None);
    TEXT.with(|kept| {
        // SAFETY: the thread's own, and nothing below comes back here: `text` has only numbers, texts and paths. (A
        // signal handler that comes in between may mix two texts, which are bytes.)
        let kept = unsafe { &mut *kept.get() };
        kept.length = 0;
        let _always_ok = kept.write_fmt(text);
    });
}

/// Keeps a refusal. Async-signal-safe.
pub(crate) fn set_refusal(ledger: u64, refusal: Refusal) {
    REFUSAL.set(Some((ledger, refusal)));
}

/// A last error.
pub(crate) enum Last {
    /// Empty if there was none.
    Text(String),
    /// In the ledger of that number.
    Refusal(u64, Refusal),
}

pub(crate) fn get() -> Last {
    if let Some((ledger, refusal)) = REFUSAL.get() {
        return Last::Refusal(ledger, refusal);
    }
    // SAFETY: the thread's own; copied at once.
    TEXT.with(|kept| unsafe {
        let kept = &*kept.get();
        Last::Text(String::from_utf8_lossy(&kept.bytes[..kept.length.min(LENGTH)]).into_owned())
    })
}
