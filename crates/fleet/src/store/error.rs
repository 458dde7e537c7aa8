//! Why a store gave no answer.

use std::error::Error;
use std::fmt;

use crate::message::Malformed;

/// A store gave no answer. Names the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// Which store: its kind and its address, without passwords.
    pub store: String,
    /// What is the matter.
    pub kind: Kind,
    /// What the store said, or what was wrong about it.
    pub detail: String,
}

/// What is the matter with a store, or with what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nobody answers at its address, or the connection broke.
    Unreachable,
    /// It did not answer in time.
    Slow,
    /// It is a replica, or does not accept writes.
    ReadOnly,
    /// It has no memory or no space left.
    Full,
    /// It lacks what this crate needs.
    TooOld,
    /// Its function library was not loaded.
    NoLibrary,
    /// Its function library, or what it keeps, has another version.
    OtherVersion,
    /// The user lacks a right.
    Denied,
    /// It and this side do not agree on TLS: one trusts the other's certificate not, has none, or speaks plainly.
    Tls,
    /// It is loading its data, or is electing a primary.
    NotReady,
    /// Its answer makes no sense.
    Nonsense,
    /// Too many others changed the book at the same time.
    Contended,
    /// Its address, or what goes with it, makes no sense, or a file cannot be read.
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

    /// What breaks the protocol is not sent.
    pub(crate) fn malformed(store: &str) -> impl Fn(Malformed) -> Self {
        move |malformed| Self::new(store, Kind::Malformed, malformed)
    }

    /// The same call may succeed later, without anybody having to mend anything.
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

/// The most letters of what a store said.
const LONGEST: usize = 1000;

/// The first letters of what is displayed. What comes after them is not even made.
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
    // (An error says that there is more.)
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

/// Whether an error is one of TLS, by its words: other libraries pass it on in errors of theirs.
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
