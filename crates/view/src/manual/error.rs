//! Errors of a command line, in a form that is safe for a terminal.

use crate::terminal::output::printable;
use clap::error::{ContextKind, ContextValue};

/// The longest quotation of a word from the command line.
const QUOTED: usize = 100;

/// Shortens the words that an error quotes from the command line, and removes terminal control characters from them.
pub fn tame(mut error: clap::Error) -> clap::Error {
    let quoted = |(kind, value): (ContextKind, &ContextValue)| match value {
        ContextValue::String(word) => Some((kind, word.clone())),
        _ => None,
    };
    for (kind, word) in error.context().filter_map(quoted).collect::<Vec<_>>() {
        let mut words = printable(&word);
        if words.chars().count() > QUOTED {
            words = words.chars().take(QUOTED - 3).chain("...".chars()).collect();
        }
        if words != word {
            error.insert(kind, ContextValue::String(words));
            // The advice quotes the word, too.
            error.remove(ContextKind::Suggested);
        }
    }
    error
}
