//! Budgets of many machines, for those who operate them: `ledgerline fleet show`, `top` and `serve`.
//!
//! | module     | what it holds                                                       |
//! |------------|---------------------------------------------------------------------|
//! | `watch`    | reads the books again and again, on a thread, whatever the store does |
//! | `screen`   | the screen of `top`: what is shown, made of books and keys, and drawn to any buffer |
//! | `served`   | the page, the metrics and the JSON of `ledgerline fleet serve`      |
//! | `table`    | books for a person                                                  |
//! | `document` | books as JSON                                                       |
//! | `read`     | which books are read, and what that costs the store                 |
//! | `words`    | times, events and refusals in words                                 |
//! | `arguments` | what an operator types                                             |
//!
//! Nothing here changes a book (but that a Redis forgets, when it is looked at, what has ended by then).

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
