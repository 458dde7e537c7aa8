//! Types that are declared by hand, and files in perf's format.

pub mod perf;

use ledgerline_layout::model::{Align, Kind, Member, Record, Role, Type, TypeId, Types};

/// Adds a record of eight-byte words (`name`), arrays of them (`name[4]`) and four-byte words (`name:4`), in this order
/// and naturally aligned.
pub fn record(types: &mut Types, name: &str, fields: &str) -> TypeId {
    let mut number = |name: &str, size| {
        let name = types.intern(name);
        types.push(Type::Base { name, size })
    };
    let (long, int) = (number("long", 8), number("int", 4));
    let (mut offset, mut members) = (0u64, Vec::new());
    for field in fields.split_whitespace() {
        let (spelled, ty, size) = if let Some((spelled, count)) = field.split_once('[') {
            let count: u64 = count.trim_end_matches(']').parse().unwrap();
            let array = Type::Array { element: long, count: Some(count) };
            (spelled, types.push(array), 8 * count)
        } else if let Some(spelled) = field.strip_suffix(":4") {
            (spelled, int, 4)
        } else {
            (field, long, 8)
        };
        offset = offset.next_multiple_of(size.min(8));
        let name = types.intern(spelled);
        members.push(Member { name, ty, offset, bits: None, role: Role::Field, align: None });
        offset += size;
    }
    let name = types.intern(name);
    types.push(Type::Record(Record {
        name,
        kind: Kind::Struct,
        size: offset.next_multiple_of(8),
        align: Align::Inferred(8),
        members,
        declared: None,
    }))
}

/// The page counter before Linux commit 408587baee39.
pub const COUNTER: &str = "usage min low high max emin min_usage children_min_usage elow low_usage \
                           children_low_usage watermark failcnt parent";
