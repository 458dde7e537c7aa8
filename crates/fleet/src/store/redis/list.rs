//! Lists the organisations that have books. They are found by the names of their keys: each book is in its own slot, and a
//! function cannot change two slots.

use std::collections::BTreeSet;

use redis::{Cmd, Value};

use crate::message::check_name;
use crate::store::{Kind, StoreError};

use super::codec::nonsense;
use super::link::Link;

/// Number of keys that one command looks at: some hundred microseconds of the server's time.
const KEYS_A_CALL: u32 = 1_000;

/// Number of commands to one server after which a listing fails. The server then has ten million keys of other programs.
const CALLS: u32 = 10_000;

/// An upper bound, above the number of organisations of any store.
const ORGANISATIONS: usize = 50_000;

/// The keys that prove that an organisation has a book. Events and refusals outlive the last budget.
const SIGNS: [&str; 2] = ["budgets", "nodes"];

/// Returns the organisations whose keys begin with a prefix, sorted.
pub(super) async fn organisations(link: &Link, prefix: &str) -> Result<Vec<String>, StoreError> {
    let opening = format!("{{{prefix}:v1:");
    let mut found = BTreeSet::new();
    for primary in link.primaries().await? {
        let mut cursor = "0".to_owned();
        let mut calls = 0;
        loop {
            let reply = link.call_at(primary.as_ref(), &scan(&cursor, &opening)).await?;
            let page = page(&reply).map_or_else(|| nonsense("a page of keys", &reply), Ok);
            let (next, keys) =
                page.map_err(|words| StoreError::new(&link.name, Kind::Nonsense, words))?;
            found.extend(keys.iter().filter_map(|key| organisation(key, &opening)));
            if found.len() > ORGANISATIONS {
                let detail = format!("more than {ORGANISATIONS} organisations");
                return Err(StoreError::new(&link.name, Kind::Nonsense, detail));
            }
            calls += 1;
            if next == "0" {
                break;
            }
            if calls == CALLS {
                let detail = format!("no end of its keys after {CALLS} times {KEYS_A_CALL}");
                return Err(StoreError::new(&link.name, Kind::Slow, detail));
            }
            cursor = next;
        }
    }
    Ok(found.into_iter().collect())
}

fn scan(cursor: &str, opening: &str) -> Cmd {
    let mut pattern = String::new();
    for character in opening.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    let mut command = redis::cmd("SCAN");
    command.arg(cursor).arg("MATCH").arg(pattern + "*").arg("COUNT").arg(KEYS_A_CALL);
    command
}

/// Parses the next cursor and the keys. Keys that are not text belong to other programs.
fn page(reply: &Value) -> Option<(String, Vec<String>)> {
    let Value::Array(parts) = reply else { return None };
    let [Value::BulkString(next), Value::Array(keys)] = parts.as_slice() else { return None };
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    let next = String::from_utf8(next.clone()).ok()?;
    let is_number = !next.is_empty() && next.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (next, keys.iter().filter_map(text).collect()))
}

fn organisation(key: &str, opening: &str) -> Option<String> {
    let (name, part) = key.strip_prefix(opening)?.rsplit_once("}:")?;
    (SIGNS.contains(&part) && check_name(name).is_ok()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_organisation_and_keys_of_others_tell_none() {
        let opening = "{ledgerline:v1:";
        for (key, told) in [
            ("{ledgerline:v1:acme}:budgets", Some("acme")),
            ("{ledgerline:v1:a}:b}:nodes", Some("a}:b")),
            ("{ledgerline:v1:acme}:events", None),
            ("{ledgerline:v1:}:budgets", None),
            ("{ledgerline:v2:acme}:budgets", None),
            ("budgets", None),
        ] {
            assert_eq!(organisation(key, opening).as_deref(), told, "{key}");
        }
        let command = scan("0", "{a*:v1:").get_packed_command();
        assert!(String::from_utf8(command).unwrap().contains("\r\n{a\\*:v1:*\r\n"));
    }
}
