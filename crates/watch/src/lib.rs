//! Ledgers as those who watch them see them: from another process, while the program runs and after it died.
//!
//! | module    | what it holds                                                             |
//! |-----------|---------------------------------------------------------------------------|
//! | `source`  | a ledger that is watched: opening it, and looking at it                   |
//! | `look`    | one look: all groups as owned data                                        |
//! | `find`    | the ledgers that there are, and the one that a process belongs to         |
//! | `counted` | what a run counts of its rows, and which rows make no sense               |
//! | `life`    | whether the program behind a ledger goes on                               |
//! | `rates`   | what changed from one look to the next, by the second                     |
//! | `series`  | what one group held over time, in bounded memory, coarser with age        |
//! | `history` | the series of many groups                                                 |
//!
//! Nothing here (but `fuzz`, to its own samples) writes to a ledger, and no file is opened for writing or mapped. What prints, draws or serves lies in the crates above.

#[cfg(test)]
#[path = "../../../tests/support/cases.rs"]
mod cases;
pub mod counted;
pub mod find;
#[doc(hidden)]
pub mod fuzz;
mod history;
mod life;
mod look;
mod rates;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
mod series;
mod source;

pub use history::{Chronicle, History};
pub use life::Life;
pub use look::{Counts, ItemName, Look, Row, State};
pub use rates::{Rates, Tempo};
pub use series::{Point, Series};
pub use source::Source;
