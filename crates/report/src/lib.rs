//! Recordings of a ledger over time, and what is made of them: a page, a picture, a summary.
//!
//! | module      | what it holds                                                            |
//! |-------------|--------------------------------------------------------------------------|
//! | `format`    | how a recording lies in a file: the specification, frames, numbers       |
//! | `recorder`  | writes a recording, look by look, in bounded space                       |
//! | `recording` | reads one, whatever its bytes are                                        |
//! | `timeline`  | puts what was read on one grid of time, for pictures                     |
//! | `words`     | times and dates as people write them                                     |
//! | `summary`   | the peaks and refusals as text or JSON                                   |
//! | `picture`   | who held what when, as SVG                                               |
//! | `page`      | all of it as one HTML file that needs no server                          |

#[cfg(test)]
#[path = "../../../tests/support/cases.rs"]
mod cases;
mod format;
pub mod page;
pub mod picture;
mod recorder;
mod recording;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
pub mod summary;
mod timeline;
mod words;

pub use recorder::{LEAST_SIZE, Recorder, Settings};
pub use recording::{Group, Recording};
