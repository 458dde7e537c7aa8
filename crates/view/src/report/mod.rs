//! Recordings of a ledger over time, and their presentations: a page, a picture, a summary.
//!
//! | module      | contents                                                                 |
//! |-------------|--------------------------------------------------------------------------|
//! | `format`    | the file format of recordings: the specification, frames, numbers        |
//! | `recorder`  | writes a recording, look by look, in bounded space                       |
//! | `recording` | reads one, with any content                                              |
//! | `timeline`  | puts the data on one grid of time, for pictures                          |
//! | `words`     | times and dates for people                                               |
//! | `summary`   | the peaks and refusals as text or JSON                                   |
//! | `picture`   | the holdings over time, as SVG                                           |
//! | `page`      | all of it as one HTML file that needs no server                          |

mod format;
pub mod page;
pub mod picture;
mod recorder;
mod recording;
pub mod summary;
mod timeline;
mod words;

pub use recorder::{LEAST_SIZE, Recorder, Settings};
pub use recording::{Group, Recording};
