//! `ledgerline serve`: ledgers of running programs as a page, as OpenMetrics, as JSON and as events.
//!
//! ```text
//! server                                           connections, their limits, the end
//!   guard                                          access control: hosts, origins, methods
//!     token                                        the secret of authorized clients
//!   page  metrics  events                          the responses
//!           listing                                the groups that metrics name; the counts of the others
//!     watched                                      the ledgers: found, looked at once an interval at most
//!       history                                    an hour of each group, within a bound
//!       changes                                    the differences from one look to the next
//!         api                                      the documents
//!           frame                                  one look, with its rates, shared by all requests
//! other                                            documents of something else, served by the same rules
//! ```
//!
//! Nothing here writes to a ledger. A ledger is looked at once an interval, for any number of clients. Without clients,
//! it is looked at for its history alone, every five seconds.

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

/// The cost of one refresh: for measurements, not for use.
#[doc(hidden)]
pub mod cost;
