//! Names of groups for consumers.

use ledgerline::{NAME_MAX, name};

/// Returns a valid group name, as near as possible to the consumer's. Other characters become `_`, and a long name is
/// cut in the middle, since the partition is at the end.
pub(crate) fn group_name(consumer: &str) -> String {
    let clean: String = consumer.chars().map(|c| if name::allows(c) { c } else { '_' }).collect();
    if clean.is_empty() {
        return "unnamed".to_owned();
    }
    if clean.len() <= NAME_MAX {
        return clean;
    }
    let half = (NAME_MAX - "..".len()) / 2;
    let head = (0..=half).rev().find(|&at| clean.is_char_boundary(at)).unwrap_or(0);
    let tail = (clean.len() - half..).find(|&at| clean.is_char_boundary(at));
    format!("{}..{}", &clean[..head], &clean[tail.unwrap_or(clean.len())..])
}
