//! Types written by hand, for tests.

use crate::model::{Align, Kind, Member, Record, Role, Type, TypeId, Types};

/// Makes a record of eight-byte words (`name`), arrays of them (`name[4]`), gaps (`_` and bytes: `_24`), and fields
/// that begin a line (`|name`).
pub(crate) fn words(types: &mut Types, name: &str, fields: &str) -> TypeId {
    let long = types.intern("long");
    let long = types.push(Type::Base { name: long, size: 8 });
    let (mut offset, mut align, mut members) = (0, 8, Vec::new());
    for field in fields.split_whitespace() {
        if let Some(bytes) = field.strip_prefix('_').and_then(|bytes| bytes.parse::<u64>().ok()) {
            offset += bytes;
            continue;
        }
        let bare = field.trim_start_matches('|');
        if bare.len() < field.len() {
            (offset, align) = (u64::next_multiple_of(offset, 64), 64);
        }
        let (spelled, count) = match bare.split_once('[') {
            Some((spelled, count)) => (spelled, Some(count.trim_end_matches(']').parse().unwrap())),
            None => (bare, None),
        };
        let ty = match count {
            Some(count) => types.push(Type::Array { element: long, count: Some(count) }),
            None => long,
        };
        let spelled = types.intern(spelled);
        let role = Role::Field;
        members.push(Member { name: spelled, ty, offset, bits: None, role, align: None });
        offset += 8 * count.unwrap_or(1);
    }
    let name = types.intern(name);
    types.push(Type::Record(Record {
        name,
        kind: Kind::Struct,
        size: offset.next_multiple_of(align),
        align: if align == 64 { Align::Known(64) } else { Align::Inferred(8) },
        members,
        declared: None,
    }))
}
