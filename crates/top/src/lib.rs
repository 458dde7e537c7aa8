//! Ledgers on a terminal, as they change: `ledgerline top`.
//!
//! | module     | what it holds                                                             |
//! |------------|---------------------------------------------------------------------------|
//! | `live`     | the screen as it lives: looks, keys, signals                              |
//! | `follow`   | a ledger as it is followed, look after look                               |
//! | `once`, `document` | one look as a table; looks as JSON                                |
//! | `shown`    | what lives on the terminal: drawn, kept fresh, asked by keys              |
//! | `terminal`, `events` | the terminal while it is ours; keys and signals                 |
//! | `draw`     | the screen, drawn to any buffer                                           |
//! | `state`    | what is shown, made of looks and keys; it knows no terminal               |
//! | `order`    | which rows are shown, and in which order: sort, folds, filter             |
//! | `entry`    | the rows that can be shown: groups with rates, programs merged of them    |
//! | `column`, `history`, `keys`, `text`, `theme` | columns; the last looks; what keys do; numbers as text; colours |
//! | `window`   | the stretch of a list that a screen shows                                 |
//! | `list`, `find` | the ledgers that there are, of which one is opened                    |
//! | `other`    | what a screen of something else needs: `ledgerline fleet top` is one      |
//!
//! Nothing here writes to a ledger.
//!
//! ```
//! use ledgerline::Ledger;
//! use ledgerline_top::{Choice, Column, Options};
//! use ledgerline_watch::Source;
//! use std::time::Duration;
//!
//! let file = tempfile::NamedTempFile::new()?;
//! let ledger = Ledger::builder().create_in(file.as_file())?;
//! let query = ledger.root().create("q42")?;
//! let _buffer = query.try_charge(3 << 20)?;
//!
//! let source = Source::open(file.path())?;
//! let choice = Choice { sort: Column::Peak, ..Choice::default() };
//! let options = Options { choice, interval: Duration::ZERO, rows: Some(20) };
//! let table = ledgerline_top::once(&source, &options)?;
//! assert!(table.lines().any(|line| line.starts_with("  q42") && line.contains("3.0M")), "{table}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod column;
mod document;
mod draw;
mod entry;
mod events;
mod find;
mod follow;
#[cfg(test)]
#[path = "../../../tests/support/golden.rs"]
mod golden;
mod history;
mod keys;
mod list;
mod live;
#[doc(hidden)]
pub mod measure;
mod once;
mod order;
pub mod other;
#[cfg(test)]
mod sample;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
mod shown;
mod state;
mod terminal;
mod text;
mod theme;
mod window;

pub use column::Column;
pub use document::{once_json, stream};
pub use find::{list, list_json};
pub use keys::HELP;
pub use live::{run, run_any, run_other};
pub use once::once;
pub use order::{Choice, Folds, Options};
