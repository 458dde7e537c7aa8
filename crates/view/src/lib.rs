//! Ledgers as observers see them, on every medium of the `ledgerline` command.
//!
//! | module     | feature  | contents                                                       |
//! |------------|----------|----------------------------------------------------------------|
//! | [`watch`]  |          | finds ledgers, looks at them as owned data, keeps their history |
//! | [`terminal`] |        | styles, progress, tables and output of a command               |
//! | `manual`   | `manual` | manual pages and completions, from the options' definitions     |
//! | `report`   | `report` | recordings over time; summaries, pictures and pages of them    |
//! | `top`      | `top`    | the screen of `ledgerline top`                                 |
//! | `serve`    | `serve`  | a page, OpenMetrics, JSON and events by HTTP                   |
//! | `fleet`    | `fleet`  | budgets of many machines as tables, a screen, a page           |
//!
//! Nothing here writes to a ledger. Each module uses only modules above it in this table.

#[cfg(feature = "fleet")]
pub mod fleet;
#[cfg(feature = "manual")]
pub mod manual;
#[cfg(feature = "report")]
pub mod report;
#[cfg(feature = "serve")]
pub mod serve;
pub mod terminal;
#[cfg(feature = "top")]
pub mod top;
pub mod watch;

#[cfg(test)]
#[path = "../../../tests/support/cases.rs"]
mod cases;
#[cfg(test)]
#[path = "../../../tests/support/golden.rs"]
mod golden;
#[cfg(test)]
#[path = "../../../tests/support/seed.rs"]
mod seed;
