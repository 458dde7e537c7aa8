//! The organisations that have books: the names of keys below the prefix, a page at a time.

use serde_json::json;

use crate::message::check_name;
use crate::store::{Kind, StoreError};

use super::Etcd;
use super::gateway::{decode, encode};

/// How many keys one request reads: two for each organisation.
const PAGE: usize = 1_000;

/// The organisations, sorted as their keys are.
pub(super) async fn organisations(etcd: &Etcd) -> Result<Vec<String>, StoreError> {
    let opening = format!("{}/v1/", etcd.prefix);
    // The first name that no longer begins like this.
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
        // The gateway leaves out what is empty.
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
            // The name that follows it at once. (A server that begins anew would never end.)
            Some(last) if *last >= from => from = format!("{last}\0"),
            Some(_) => return Err(nonsense("keys come in order")),
            None => return Ok(found),
        }
    }
}
