//! Classification of Redis errors.

use redis::{ErrorKind, RedisError};

use crate::store::Kind;
use crate::store::error::disagrees;

use super::bounded;

/// Returns the kind of an error, by its code and text.
pub(super) fn kind(error: &RedisError) -> Kind {
    let words = error.to_string();
    let has = |part: &str| words.contains(part);
    match (error.kind(), error.code().unwrap_or_default()) {
        _ if error.is_timeout() => Kind::Slow,
        _ if disagrees(&words) => Kind::Tls,
        _ if has(bounded::WORDS) => Kind::Nonsense,
        (ErrorKind::ReadOnly, _) | (_, "READONLY" | "NOREPLICAS" | "MISCONF") => Kind::ReadOnly,
        (ErrorKind::AuthenticationFailed, _) | (_, "NOAUTH" | "WRONGPASS" | "NOPERM") => {
            Kind::Denied
        }
        (
            ErrorKind::BusyLoadingError
            | ErrorKind::MasterDown
            | ErrorKind::ClusterDown
            | ErrorKind::TryAgain
            | ErrorKind::MasterNameNotFoundBySentinel
            | ErrorKind::ClusterConnectionNotFound,
            _,
        ) => Kind::NotReady,
        (_, "OOM") => Kind::Full,
        (_, "BUSY") => Kind::Slow,
        _ if has("OOM command not allowed") => Kind::Full,
        _ if has("READONLY") || has("NOREPLICAS") || has("MISCONF") => Kind::ReadOnly,
        // The following come before the parser's errors: a function without a permission reports that in a sentence, and a
        // server that wants a password replies `unauthenticated …` to a command of many words.
        _ if has("unauthenticated multibulk") || has("unauthenticated bulk") => Kind::Denied,
        _ if has("NOPERM")
            || has("no permissions to run")
            || has("executing the script can't")
            || has("ACL failure in script") =>
        {
            Kind::Denied
        }
        _ if has("Function not found") => Kind::NoLibrary,
        _ if has("a row of another format") || has("LEDGERLINE the function library") => {
            Kind::OtherVersion
        }
        (_, "LEDGERLINE") => Kind::OtherVersion,
        _ if has("unknown command") || has("Unknown subcommand") => Kind::TooOld,
        _ if error.is_io_error()
            || error.is_connection_dropped()
            || error.is_connection_refusal() =>
        {
            Kind::Unreachable
        }
        (ErrorKind::InvalidClientConfig, _) => Kind::Address,
        _ => Kind::Nonsense,
    }
}

/// Returns whether a new connection may do better: this one is broken, is in the middle of a reply, or leads to a server that is
/// no longer a primary.
pub(super) fn wants_new_connection(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Unreachable | Kind::Slow | Kind::ReadOnly | Kind::NotReady | Kind::Nonsense
    )
}
