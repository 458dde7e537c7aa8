//! Warnings about settings with which a server may lose books, read by `INFO`. A user without permission for that gets a warning
//! that says so.

use redis::Value;

use crate::store::{Kind, StoreError};

use super::link::Link;

/// Returns warnings for an operator, for each primary.
pub(super) async fn warnings(link: &Link) -> Result<Vec<String>, StoreError> {
    let mut warnings = Vec::new();
    for primary in link.primaries().await? {
        let mut info = String::new();
        for section in ["memory", "persistence"] {
            match link.call_at(primary.as_ref(), redis::cmd("INFO").arg(section)).await {
                Ok(Value::BulkString(text)) => info += &String::from_utf8_lossy(&text),
                Ok(Value::VerbatimString { text, .. }) => info += &text,
                Ok(other) => {
                    let words = format!("text expected of INFO, and got {other:?}");
                    return Err(StoreError::new(&link.name, Kind::Nonsense, words));
                }
                Err(error) if error.kind == Kind::Denied => {
                    return Ok(vec![
                        "whether this Redis evicts or forgets keys is not known: this user may not ask (+info)"
                            .to_owned(),
                    ]);
                }
                Err(error) => return Err(error),
            }
        }
        for warning in of_info(&info) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    Ok(warnings)
}

fn of_info(info: &str) -> Vec<String> {
    let field = |name: &str| {
        let lines = info.lines().filter_map(|line| line.trim_end().split_once(':'));
        lines.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
    };
    let mut warnings = Vec::new();
    // `volatile-` policies are harmless, because books have no time to live.
    if let Some(policy) = field("maxmemory_policy").filter(|policy| policy.starts_with("allkeys")) {
        warnings.push(format!(
            "this Redis evicts keys when its memory is full (maxmemory-policy {policy}), books as well: set it to noeviction"
        ));
    }
    if field("aof_enabled") != Some("1") {
        warnings.push(
            "this Redis keeps no log (appendonly no): a restart loses what was written since its last snapshot, and all where it takes none"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_evicts_or_forgets_is_warned_of_and_another_is_not() {
        let safe = "# Memory\r\nmaxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:1\r\n";
        assert!(of_info(safe).is_empty());
        let evicts = of_info(&safe.replace("noeviction", "allkeys-random"));
        assert!(evicts.len() == 1 && evicts[0].contains("allkeys-random"), "{evicts:?}");
        assert!(of_info(&safe.replace("noeviction", "volatile-ttl")).is_empty());
        let forgets = of_info(&safe.replace("aof_enabled:1", "aof_enabled:0"));
        assert!(forgets.len() == 1 && forgets[0].contains("appendonly no"), "{forgets:?}");
    }
}
