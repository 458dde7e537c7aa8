//! `ledgerline serve`: ledgers that run as a page, as OpenMetrics, as JSON and as events.
//!
//! ```text
//! server                                           connections, their limits, the end
//!   guard                                          who may ask, and for what: hosts, origins, methods
//!     token                                        the secret of those who may
//!   page  metrics  events                          what is answered
//!           listing                                which groups metrics name; what the others counted
//!     watched                                      the ledgers: found, looked at once an interval at most
//!       history                                    an hour of each group, within a bound
//!       changes                                    what differs from one look to the next
//!         api                                      the documents
//!           frame                                  one look, with its rates, as everybody gets it
//! other                                            documents of something else, served by the same rules
//! ```
//!
//! Nothing here writes to a ledger. However many ask, a ledger is looked at once an interval; where nobody asks, it is
//! looked at for its history alone, every five seconds.

mod api;
mod changes;
mod events;
mod frame;
mod guard;
mod history;
mod listing;
mod metrics;
mod other;
mod page;
mod server;
mod settings;
mod token;
mod watched;

pub use metrics::{encoded, label, signed};
pub use other::{Documents, Other};
pub use server::{Server, Stop};
pub use settings::Settings;
pub use token::Token;

/// What one refresh costs: for measurements, not for use.
#[doc(hidden)]
pub mod cost;
