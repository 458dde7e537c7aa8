//! Writes types in the syntax of their languages.

use std::fmt::{self, Write};

use crate::error::safe;
use crate::leaf::keyword;
use crate::model::{Points, Record, Type, TypeId, Types};

/// The most pointers, arrays and qualifiers that are written.
const DEEPEST: usize = 32;

/// The most parameters of a function that are written. Functions among them are written at most [`NESTED`] deep, so a
/// malformed file cannot make a name grow without end.
const PARAMETERS: usize = 24;

/// The depth to which functions among parameters are written with their own parameters.
const NESTED: usize = 2;

/// Returns a type in the syntax of its language: `struct page_counter *`, `atomic_long_t[34]`, `Vec<u8>`.
///
/// A name with `::` or generic arguments has no keyword before it. A flexible array has no size.
pub fn spell(types: &Types, id: TypeId) -> impl fmt::Display {
    fmt::from_fn(move |f| write_type(f, types, Some(id), DEEPEST))
}

/// Writes a type like [`spell`].
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
    if let Some((declarator, function)) = to_function(types, id) {
        return write_function(out, types, function, &declarator, depth);
    }
    match types.get(id) {
        Type::Record(record) => {
            let name = types.name(record.name);
            if name.is_empty() {
                return write!(out, "{} {{...}}", keyword(record.kind));
            }
            if is_word(name) {
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
        Type::Pointer { points: Points::Pointer(name), .. } if !types.name(*name).is_empty() => {
            named(out, *name)
        }
        Type::Pointer { to, points: how } => {
            write_type(out, types, *to, depth - 1)?;
            out.write_str(if points(types, *to) { "" } else { " " })?;
            out.write_str(&mark(types, how))
        }
        Type::Declaration { keyword, name }
            if !keyword.is_empty() && is_word(types.name(*name)) =>
        {
            write!(out, "{keyword} ")?;
            named(out, *name)
        }
        Type::Base { name, .. } | Type::Typedef { name, .. } | Type::Declaration { name, .. } => {
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
            if points(types, *to) {
                write_type(out, types, *to, depth - 1)?;
                return write!(out, " {qualifier}");
            }
            out.write_str(qualifier)?;
            out.write_char(' ')?;
            write_type(out, types, *to, depth - 1)
        }
        Type::Function { .. } => write_function(out, types, id, "", depth),
        Type::Unknown { .. } => out.write_str("unknown"),
    }
}

/// Returns the declaration in C of a member, variable or typedef of a type, without the semicolon:
/// `int (*poll)(struct file *)`, `char name[16]`. With an empty name this equals [`spell`].
pub fn declare(types: &Types, id: TypeId, name: &str) -> String {
    let (declarator, base) = declarator(types, id, name);
    let mut out = String::new();
    let written = if matches!(types.get(base), Type::Function { .. }) {
        write_function(&mut out, types, base, &declarator, DEEPEST)
    } else {
        let space = if declarator.is_empty() { "" } else { " " };
        write_type(&mut out, types, Some(base), DEEPEST)
            .and_then(|()| write!(out, "{space}{declarator}"))
    };
    written.expect("a string takes all that is written");
    out
}

/// Returns whether a type points to another.
fn points(types: &Types, id: Option<TypeId>) -> bool {
    id.is_some_and(|id| matches!(types.get(id), Type::Pointer { .. }))
}

/// Returns the mark between a target type and the name: `*`, `&`, `&&`, `Class::*`.
fn mark(types: &Types, points: &Points) -> String {
    let class = match points {
        Points::Pointer(_) => return "*".to_owned(),
        Points::Lvalue => return "&".to_owned(),
        Points::Rvalue => return "&&".to_owned(),
        Points::Member(class) => types.get(types.resolve(*class)),
    };
    let mut mark = String::new();
    if let Type::Record(Record { name, .. }) | Type::Declaration { name, .. } = class {
        let _ = safe(&mut mark, types.name(*name));
    }
    mark.push_str("::*");
    mark
}

/// Returns the text of C around a name, and the type before that text. The star of a pointer to a function stands
/// with the name, within the parentheses before the parameters.
fn declarator(types: &Types, mut id: TypeId, name: &str) -> (String, TypeId) {
    let mut declarator = String::new();
    let _ = safe(&mut declarator, name);
    // Whether a star or the like stands at its start.
    let mut starred = false;
    for _ in 0..DEEPEST {
        match types.get(id) {
            Type::Pointer { points: Points::Pointer(name), .. }
                if !types.name(*name).is_empty() =>
            {
                break;
            }
            Type::Pointer { to: Some(to), points } => {
                declarator.insert_str(0, &mark(types, points));
                starred = true;
                id = *to;
            }
            Type::Qualified { qualifier, to: Some(to) } => match types.get(*to) {
                Type::Pointer { .. } => {
                    let space =
                        if declarator.starts_with(char::is_alphanumeric) { " " } else { "" };
                    declarator.insert_str(0, &format!("{qualifier}{space}"));
                    id = *to;
                }
                // In a constant array of constant pointers only the pointers are written with the qualifier.
                Type::Array { .. } | Type::Function { .. } => id = *to,
                _ => break,
            },
            Type::Array { element, count } => {
                if std::mem::take(&mut starred) {
                    declarator = format!("({declarator})");
                }
                match count {
                    Some(count) => declarator.push_str(&format!("[{count}]")),
                    None => declarator.push_str("[]"),
                }
                id = *element;
            }
            _ => break,
        }
    }
    (declarator, id)
}

/// Returns the text around the name of a pointer to a function, or of an array of such pointers, and the function;
/// `None` for other types.
fn to_function(types: &Types, id: TypeId) -> Option<(String, TypeId)> {
    if !points(types, Some(id))
        && !matches!(types.get(id), Type::Qualified { .. } | Type::Array { .. })
    {
        return None;
    }
    let (declarator, base) = declarator(types, id, "");
    matches!(types.get(base), Type::Function { .. }).then_some((declarator, base))
}

/// Writes a function, as in `int (*)(struct file *, loff_t)`.
fn write_function(
    out: &mut impl Write,
    types: &Types,
    function: TypeId,
    declarator: &str,
    depth: usize,
) -> fmt::Result {
    let Type::Function { result, parameters, variadic } = types.get(function) else {
        return Ok(());
    };
    // Each function within a function takes a share of the depth.
    let depth = depth.saturating_sub(DEEPEST / (NESTED + 1));
    if depth == 0 {
        return out.write_str("...");
    }
    write_type(out, types, *result, depth - 1)?;
    if declarator.is_empty() {
        out.write_str(" (")?;
    } else {
        write!(out, " ({declarator})(")?;
    }
    for (index, parameter) in parameters.iter().take(PARAMETERS).enumerate() {
        out.write_str(if index == 0 { "" } else { ", " })?;
        write_type(out, types, Some(*parameter), depth - 1)?;
    }
    out.write_str(match (parameters.is_empty(), *variadic || parameters.len() > PARAMETERS) {
        (true, false) => "void)",
        (true, true) => "...)",
        (false, true) => ", ...)",
        (false, false) => ")",
    })
}

/// Returns whether a name is plain, so that C writes a keyword before it.
fn is_word(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'))
}

/// Returns the ending of the word for something countable.
pub(crate) fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_takes_itself_many_times_is_spelled_in_bounds() {
        let mut types = Types::new(8);
        let function = types.push(Type::Unknown { size: None });
        let pointer = types.push(Type::pointer(Some(function)));
        let parameters = vec![pointer; 1000].into();
        types.set(function, Type::Function { result: None, parameters, variadic: false });
        let spelled = spell(&types, pointer).to_string();
        assert!(spelled.starts_with("void (*)(void (*)("), "{spelled}");
        assert!(spelled.len() < 20_000, "{}", spelled.len());
    }

    #[test]
    fn a_name_is_declared_where_c_wants_it() {
        let mut types = Types::new(8);
        let int = types.intern("int");
        let int = types.push(Type::Base { name: int, size: 4 });
        let function =
            Type::Function { result: Some(int), parameters: [int].into(), variadic: true };
        let function = types.push(function);
        let mut pointer = |to| types.push(Type::pointer(Some(to)));
        let (callback, pointer) = (pointer(function), pointer(int));
        let constant = types.push(Type::Qualified { qualifier: "const", to: Some(callback) });
        let mut array = |element| types.push(Type::Array { element, count: Some(2) });
        let (callbacks, pointers) = (array(constant), array(pointer));
        assert_eq!(declare(&types, callback, "call"), "int (*call)(int, ...)");
        assert_eq!(declare(&types, callbacks, "call"), "int (*const call[2])(int, ...)");
        assert_eq!(declare(&types, pointers, "numbers"), "int *numbers[2]");
        assert_eq!(declare(&types, pointer, ""), "int *");
    }

    #[test]
    fn a_reference_and_a_pointer_to_a_member_stand_where_a_pointer_would() {
        let mut types = Types::new(8);
        let (int, class) = (types.intern("int"), types.intern("space::Class"));
        let int = types.push(Type::Base { name: int, size: 4 });
        let class = types.push(Type::Declaration { keyword: "class", name: class });
        let row = types.push(Type::Array { element: int, count: Some(2) });
        let mut of = |to, points| types.push(Type::Pointer { to: Some(to), points });
        let (left, row) = (of(int, Points::Lvalue), of(row, Points::Lvalue));
        let member = of(int, Points::Member(class));
        let again = of(member, Points::Rvalue);
        assert_eq!(spell(&types, left).to_string(), "int &");
        assert_eq!(spell(&types, again).to_string(), "int space::Class::*&&");
        assert_eq!(declare(&types, row, "a"), "int (&a)[2]");
        assert_eq!(declare(&types, member, "m"), "int space::Class::*m");
        assert_eq!(types.size(again), Some(8));
    }

    #[test]
    fn no_control_of_a_name_reaches_the_terminal() {
        let mut types = Types::new(8);
        let name = types.intern("a\nb\u{9b}2J\u{e9}");
        let id = types.push(Type::Base { name, size: 4 });
        assert_eq!(spell(&types, id).to_string(), "a\\nb\\u{9b}2J\u{e9}");
    }

    #[test]
    fn pointers_of_rust_keep_their_names() {
        let mut types = Types::new(8);
        let byte = types.intern("u8");
        let byte = types.push(Type::Base { name: byte, size: 1 });
        let name = types.intern("*const u8");
        let pointer = types.push(Type::Pointer { to: Some(byte), points: Points::Pointer(name) });
        let array = types.push(Type::Array { element: pointer, count: Some(3) });
        assert_eq!(spell(&types, array).to_string(), "*const u8[3]");
    }
}
