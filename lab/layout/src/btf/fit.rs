//! Makes sure that members lie within their records, and finds flexible arrays.

use std::collections::HashMap;
use std::ops::Range;

use crate::error::Error;
use crate::leaf::end_of;
use crate::model::{Kind, Record, Type, TypeId, Types};

/// Makes arrays of no elements flexible where flexible arrays may stand, and makes sure that no member of the records
/// in `ids` ends after its record.
pub(super) fn fit(types: &mut Types, ids: Range<usize>) -> Result<(), Error> {
    let mut flexible = HashMap::new();
    for id in ids {
        let id = TypeId(id as u32);
        let Type::Record(record) = types.get(id) else { continue };
        if let Some(member) =
            record.members.iter().find(|member| end_of(types, member) > 8 * record.size)
        {
            return Err(Error::new(format!(
                "member `{}` of {} in its BTF ends beyond its {} bytes",
                types.name(member.name),
                described(types, record),
                record.size
            )));
        }
        let may_be_flexible = match record.kind {
            Kind::Union => 0..record.members.len(),
            _ => record.members.len().saturating_sub(1)..record.members.len(),
        };
        for index in may_be_flexible {
            make_flexible(types, &mut flexible, id, index);
        }
    }
    Ok(())
}

/// Adds a flexible copy of an array type, since members at the end of a record and others may share the type.
fn make_flexible(
    types: &mut Types,
    flexible: &mut HashMap<TypeId, TypeId>,
    id: TypeId,
    index: usize,
) {
    let Type::Record(record) = types.get(id) else { return };
    let ty = record.members[index].ty;
    let Type::Array { element, count: Some(0) } = *types.get(ty) else { return };
    let endless =
        *flexible.entry(ty).or_insert_with(|| types.push(Type::Array { element, count: None }));
    if let Type::Record(record) = types.get_mut(id) {
        record.members[index].ty = endless;
    }
}

/// A record as errors name it.
pub(super) fn described(types: &Types, record: &Record) -> String {
    let keyword = if record.kind == Kind::Union { "union" } else { "struct" };
    match types.name(record.name) {
        "" => format!("an anonymous {keyword}"),
        name => format!("{keyword} {name}"),
    }
}
