//! Ledgers as observers see them: from another process, while the program runs and after it died.
//!
//! | module    | contents                                                                  |
//! |-----------|---------------------------------------------------------------------------|
//! | `source`  | a watched ledger: opening it, and looking at it                           |
//! | `look`    | one look: all groups as owned data                                        |
//! | `find`    | the ledgers of this machine, and the one that a process belongs to        |
//! | `counted` | the counts of a run's rows, and the detection of damaged rows             |
//! | `life`    | whether the program behind a ledger is still running                      |
//! | `seen`    | the kernel's view of a process: its title, its resident size              |
//! | `titles`  | the names of processes as `ps` shows them                                 |
//! | `rates`   | the changes from one look to the next, per second                         |
//! | `series`  | the holdings of one group over time, in bounded memory, coarser with age  |
//! | `history` | the series of many groups                                                 |
//!
//! Nothing here writes to a ledger, except `fuzz` to its own samples, and no file is opened for writing or mapped. Printing,
//! drawing and serving are tasks of the modules above.

pub mod counted;
pub mod find;
#[doc(hidden)]
pub mod fuzz;
mod history;
mod life;
mod look;
mod rates;
mod seen;
mod series;
mod source;
mod titles;

pub use history::{Chronicle, History};
pub use life::Life;
pub use look::{Counts, ItemName, Look, Row, State};
pub use rates::{Rates, Tempo};
pub use seen::{Asked, Seen};
pub use series::{Point, Series};
pub use source::Source;
pub use titles::Titles;
