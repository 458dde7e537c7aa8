//! Ledgers on a terminal, as they change: `ledgerline top`.
//!
//! | module     | contents                                                                  |
//! |------------|---------------------------------------------------------------------------|
//! | `live`     | the loop of the screen: looks, keys, signals                              |
//! | `follow`   | a followed ledger, look after look                                        |
//! | `once`, `document` | one look as a table; looks as JSON                                |
//! | `shown`    | the interface of screens: drawing, refreshing, keys                       |
//! | `terminal`, `events` | the terminal while it is taken; keys and signals                |
//! | `draw`     | the screen, drawn to any buffer                                           |
//! | `state`    | the state of the screen, made of looks and keys, without a terminal       |
//! | `order`    | the shown rows and their order: sort, folds, filter                       |
//! | `entry`    | the possible rows: groups with rates, or merged programs                  |
//! | `column`, `history`, `keys`, `text`, `theme` | columns; the last looks; commands of keys; numbers as text; colours |
//! | `window`   | the stretch of a list that a screen shows                                 |
//! | `list`, `find` | the list of ledgers, from which one is opened                         |
//! | `other`    | the interface for other screens, such as `ledgerline fleet top`           |
//!
//! Nothing here writes to a ledger.
//!
//! ```
//! use ledgerline::Ledger;
//! use ledgerline_view::top::{Choice, Column, Options};
//! use ledgerline_view::watch::Source;
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
//! let table = ledgerline_view::top::once(&source, &options)?;
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
