//! Errors of stores.

use std::error::Error;
use std::fmt;

use crate::message::Malformed;

/// An error of a call to a store, with the store's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// The store's kind and address, without passwords.
    pub store: String,
    /// The kind of the error.
    pub kind: Kind,
    /// The store's message, or a description of the problem.
    pub detail: String,
}

/// The kind of a store's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its address does not answer, or the connection broke.
    Unreachable,
    /// It did not answer in time.
    Slow,
    /// It is a replica, or does not accept writes.
    ReadOnly,
    /// It has no memory or no space left.
    Full,
    /// It lacks a feature that this crate needs.
    TooOld,
    /// Its function library was not loaded.
    NoLibrary,
    /// Its function library, or its data, has another version.
    OtherVersion,
    /// The user lacks a permission.
    Denied,
    /// It and this side do not agree on TLS: a certificate is missing or not trusted, or one side does not use TLS.
    Tls,
    /// It is loading its data, or is electing a primary.
    NotReady,
    /// Its answer is invalid.
    Nonsense,
    /// Too many other clients changed the book at the same time.
    Contended,
    /// Its address or the options are invalid, or a file cannot be read.
    Address,
    /// The message breaks the protocol. It was not sent.
    Malformed,
    /// The book cannot be changed like this.
    Rejected,
}

impl StoreError {
    pub(crate) fn new(store: &str, kind: Kind, detail: impl fmt::Display) -> Self {
        Self { store: store.to_owned(), kind, detail: shortened(&detail, LONGEST) }
    }

    /// Returns a function that makes the error for a message that breaks the protocol and is not sent.
    pub(crate) fn malformed(store: &str) -> impl Fn(Malformed) -> Self {
        move |malformed| Self::new(store, Kind::Malformed, malformed)
    }

    /// Returns whether the same call may succeed later without a repair.
    #[must_use]
    pub fn passes(&self) -> bool {
        matches!(
            self.kind,
            Kind::Unreachable
                | Kind::Slow
                | Kind::Full
                | Kind::NotReady
                | Kind::Contended
                | Kind::ReadOnly
        )
    }
}

/// Maximum number of characters of a store's message.
const LONGEST: usize = 1000;

/// Returns at most the first `most` characters of `shown`. Formatting stops there.
pub(super) fn shortened(shown: &impl fmt::Display, most: usize) -> String {
    struct First(String, usize);

    impl fmt::Write for First {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for letter in text.chars() {
                self.1 = self.1.checked_sub(1).ok_or(fmt::Error)?;
                self.0.push(letter);
            }
            Ok(())
        }
    }

    let mut first = First(String::new(), most);
    // An error means that there is more text.
    let _ = fmt::write(&mut first, format_args!("{shown}"));
    first.0
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, kind, detail } = self;
        let what = match kind {
            Kind::Unreachable => "cannot be reached",
            Kind::Slow => "did not answer in time",
            Kind::ReadOnly => "is read-only",
            Kind::Full => "is full",
            Kind::TooOld => "is too old",
            Kind::NoLibrary => "has no function library of this crate: an operator loads it",
            Kind::OtherVersion => "has another version",
            Kind::Denied => "denies this user a right",
            Kind::Tls => "and this side do not agree on TLS",
            Kind::NotReady => "is not ready",
            Kind::Nonsense => "answers nonsense",
            Kind::Contended => "saw too many changes of this book at a time",
            Kind::Address => return write!(f, "{store} cannot be opened: {detail}"),
            Kind::Malformed => {
                return write!(f, "{store}: the message breaks the protocol: {detail}");
            }
            Kind::Rejected => return write!(f, "{store}: {detail}"),
        };
        write!(f, "{store} {what} ({detail})")
    }
}

impl Error for StoreError {}

/// Returns whether an error concerns TLS, by its text: other libraries wrap it in their own errors.
pub(super) fn disagrees(words: &str) -> bool {
    let of_tls = [
        "invalid peer certificate",
        "received fatal alert",
        "received corrupt message",
        "peer is incompatible",
        "peer misbehaved",
    ];
    of_tls.iter().any(|part| words.contains(part))
}
