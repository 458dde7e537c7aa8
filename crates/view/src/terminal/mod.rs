//! The common parts of the `ledgerline` command for the terminal and its files.
//!
//! | module     | contents                                                                  |
//! |------------|---------------------------------------------------------------------------|
//! | `style`    | the abilities of a terminal, and styles of words                          |
//! | `progress` | one line with the progress of a long measurement                          |
//! | `output`   | writing to standard output; untrusted words made safe for a terminal      |
//! | `text`     | counts of something, and tables                                           |
//! | `calendar` | times as dates                                                            |
//! | `folder`   | working folders                                                           |

pub mod calendar;
pub mod folder;
pub mod output;
pub mod progress;
pub mod style;
pub mod text;
