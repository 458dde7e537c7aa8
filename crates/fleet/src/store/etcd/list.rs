//! Lists the organisations that have books: reads the names of keys below the prefix, a page at a time.

use serde_json::json;

use crate::message::check_name;
use crate::store::{Kind, StoreError};

use super::Etcd;
use super::gateway::{decode, encode};

/// Number of keys that one request reads: two for each organisation.
const PAGE: usize = 1_000;

/// Returns the organisations, sorted like their keys.
pub(super) async fn organisations(etcd: &Etcd) -> Result<Vec<String>, StoreError> {
    let opening = format!("{}/v1/", etcd.prefix);
    // The first name without this prefix.
    let end = encode(&format!("{}/v10", etcd.prefix));
    let mut from = opening.clone();
    let mut found = Vec::new();
    loop {
        let request = json!({
            "key": encode(&from), "range_end": end, "keys_only": true, "limit": PAGE.to_string(),
        });
        let (answered, member) = etcd.post("/v3/kv/range", &request).await?;
        let nonsense = |what: &str| member.error(Kind::Nonsense, what);
        if !answered.body["header"].is_object() {
            return Err(nonsense("a reply of etcd has a header"));
        }
        // The gateway omits empty values.
        let rows = answered.body["kvs"].as_array().map_or(&[][..], Vec::as_slice);
        let keys = rows.iter().map(|row| row["key"].as_str().and_then(decode));
        let keys =
            keys.collect::<Option<Vec<String>>>().ok_or_else(|| nonsense("a key is text"))?;
        let name = |key: &String| {
            let name = key.strip_prefix(&opening)?.strip_suffix("/book")?;
            check_name(name).is_ok().then(|| name.to_owned())
        };
        found.extend(keys.iter().filter_map(name));
        match keys.last().filter(|_| keys.len() >= PAGE) {
            // The immediate successor of that name. A server that starts over must not cause an endless loop.
            Some(last) if *last >= from => from = format!("{last}\0"),
            Some(_) => return Err(nonsense("keys come in order")),
            None => return Ok(found),
        }
    }
}
