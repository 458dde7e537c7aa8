//! What the parts of the `ledgerline` command share of the terminal and its files.
//!
//! | module     | what it holds                                                             |
//! |------------|---------------------------------------------------------------------------|
//! | `style`    | what a terminal can show, and how words are painted on it                 |
//! | `progress` | one line that says where a long measurement stands                        |
//! | `output`   | writing to standard output; words of others that must not steer a terminal|
//! | `text`     | so many of something, and tables                                          |
//! | `calendar` | times as dates                                                            |
//! | `folder`   | folders to work in                                                        |

pub mod calendar;
pub mod folder;
pub mod output;
pub mod progress;
pub mod style;
pub mod text;
