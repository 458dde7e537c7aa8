//! Reads the description of `kmem:rss_stat` in tracefs: its number and the offsets of its fields.

use std::fs;
use std::path::Path;

/// The usual places of tracefs.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Offsets in the tracepoint's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    /// 32 bits: the address space.
    pub(super) space: usize,
    /// 32 bits: whether it is the running task's.
    pub(super) own: usize,
    /// 32 bits: the kind of pages.
    pub(super) kind: usize,
    /// 64 bits: bytes after the change.
    pub(super) size: usize,
}

/// Returns the tracepoint's number and fields; `None` if there is no such tracepoint, or this user may not read it.
pub(super) fn find() -> Option<(u64, Fields)> {
    ROOTS.iter().find_map(|root| {
        let directory = Path::new(root).join("events/kmem/rss_stat");
        let number = fs::read_to_string(directory.join("id")).ok()?.trim().parse().ok()?;
        Some((number, fields(&fs::read_to_string(directory.join("format")).ok()?)?))
    })
}

/// Parses the text that describes the format.
fn fields(format: &str) -> Option<Fields> {
    let offset = |name: &str, size: usize| {
        format.lines().find_map(|line| {
            let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
            let declared = parts.next()?.rsplit(' ').next()?;
            let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
            let bytes: usize = parts.next()?.strip_prefix("size:")?.parse().ok()?;
            (declared == name && bytes == size).then_some(offset)
        })
    };
    Some(Fields {
        space: offset("mm_id", 4)?,
        own: offset("curr", 4)?,
        kind: offset("member", 4)?,
        size: offset("size", 8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: rss_stat\nID: 646\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \n\tfield:unsigned int mm_id;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int curr;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:int member;\toffset:16;\tsize:4;\tsigned:1;\n\
        \tfield:long size;\toffset:24;\tsize:8;\tsigned:1;\n";

    #[test]
    fn fields_are_found_by_name_and_width() {
        let expected = Fields { space: 8, own: 12, kind: 16, size: 24 };
        assert_eq!(fields(FORMAT), Some(expected));
        assert_eq!(
            fields(
                &FORMAT.replace("long size;\toffset:24;\tsize:8", "int size;\toffset:24;\tsize:4")
            ),
            None
        );
        assert_eq!(fields(&FORMAT.replace("curr", "other")), None);
        assert_eq!(fields(""), None);
    }
}
