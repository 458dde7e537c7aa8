//! How types are written.

use std::fmt::{self, Write};

use crate::leaf::keyword;
use crate::model::{Type, TypeId, Types};

/// As many pointers, arrays and qualifiers as are written.
const DEEPEST: usize = 32;

/// A type as its language writes it: `struct page_counter *`, `atomic_long_t[34]`, `Vec<u8>`.
///
/// A name with `::` or generic arguments stands without its keyword. The size of a flexible array is left out.
pub fn spell(types: &Types, id: TypeId) -> impl fmt::Display {
    fmt::from_fn(move |f| write_type(f, types, Some(id), DEEPEST))
}

/// Writes a type as [`spell`] does.
pub(crate) fn write_type(
    out: &mut impl Write,
    types: &Types,
    id: Option<TypeId>,
    depth: usize,
) -> fmt::Result {
    let Some(id) = id else { return out.write_str("void") };
    if depth == 0 {
        return out.write_str("...");
    }
    let named = |out: &mut _, name| safe(out, types.name(name));
    match types.get(id) {
        Type::Record(record) => {
            let name = types.name(record.name);
            if name.is_empty() {
                return write!(out, "{} {{...}}", keyword(record.kind));
            }
            if !name.contains("::") && !name.contains('<') {
                out.write_str(keyword(record.kind))?;
                out.write_char(' ')?;
            }
            safe(out, name)
        }
        Type::Array { .. } => {
            // The outermost dimension is written first.
            let (mut element, mut left) = (id, depth);
            while let (Type::Array { element: inner, .. }, 1..) = (types.get(element), left) {
                (element, left) = (*inner, left - 1);
            }
            write_type(out, types, Some(element), left)?;
            let (mut dimension, mut left) = (id, depth);
            while let (Type::Array { element, count }, 1..) = (types.get(dimension), left) {
                match count {
                    Some(count) => write!(out, "[{count}]")?,
                    None => out.write_str("[]")?,
                }
                (dimension, left) = (*element, left - 1);
            }
            Ok(())
        }
        Type::Pointer { to } => {
            write_type(out, types, *to, depth - 1)?;
            let again = to.is_some_and(|to| matches!(types.get(to), Type::Pointer { .. }));
            out.write_str(if again { "*" } else { " *" })
        }
        Type::Base { name, .. } | Type::Typedef { name, .. } | Type::Declaration { name } => {
            named(out, *name)
        }
        Type::Enum { name, .. } if types.name(*name).is_empty() => out.write_str("enum {...}"),
        Type::Enum { name, .. } => {
            if !types.name(*name).contains("::") {
                out.write_str("enum ")?;
            }
            named(out, *name)
        }
        Type::Qualified { qualifier, to } => {
            let pointer = to.is_some_and(|to| matches!(types.get(to), Type::Pointer { .. }));
            if pointer {
                write_type(out, types, *to, depth - 1)?;
                return write!(out, " {qualifier}");
            }
            out.write_str(qualifier)?;
            out.write_char(' ')?;
            write_type(out, types, *to, depth - 1)
        }
        Type::Function => out.write_str("function"),
        Type::Unknown { .. } => out.write_str("unknown"),
    }
}

/// A name without what could steer a terminal or break a line.
pub(crate) fn safe(out: &mut impl Write, name: &str) -> fmt::Result {
    if !name.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return out.write_str(name);
    }
    name.chars().try_for_each(|character| {
        if character.is_control() {
            write!(out, "{}", character.escape_default())
        } else {
            out.write_char(character)
        }
    })
}
