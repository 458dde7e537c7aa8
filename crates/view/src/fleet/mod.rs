//! Budgets of many machines, for their operators: `ledgerline fleet show`, `top` and `serve`.
//!
//! | module     | contents                                                            |
//! |------------|---------------------------------------------------------------------|
//! | `watch`    | reads the books periodically, on a thread, independent of the store's speed |
//! | `screen`   | the screen of `top`: its state, made of books and keys, drawn to any buffer |
//! | `served`   | the page, the metrics and the JSON of `ledgerline fleet serve`      |
//! | `table`    | books for a person                                                  |
//! | `document` | books as JSON                                                       |
//! | `read`     | the choice of books to read, and their cost for the store           |
//! | `words`    | times, events and refusals in words                                 |
//! | `arguments` | the operator's arguments                                           |
//!
//! Nothing here changes a book, with one exception: reading a book makes a Redis drop entries that have ended by then.

mod arguments;
mod document;
mod read;
#[cfg(test)]
mod sample;
mod screen;
mod served;
mod table;
mod watch;
mod words;

pub use arguments::{Size, milliseconds, organisation, organisation_of, size_of};
pub use document::text as json;
pub use read::{Book, Books, Damaged, Reader};
pub use screen::{HELP, Screen};
pub use served::Served;
pub use table::text as table;
pub use watch::{Seen, Watch};
pub use words::{advised, unknown};
