//! Finds where a virtual base lies in a complete object.
//!
//! Compilers write how a program finds it: through the object's table. In an object of exactly this class, the C++
//! ABI of Itanium fixes the place, and every compiler here follows it: the base lies behind all that is not virtual,
//! aligned. Where there is one virtual base, that place can be worked out, and is certain if the class then ends
//! where the file says. Where there are several, their order is not in the model, and they stay unknown.

use crate::align;
use crate::model::{Member, Record, Role, Type, TypeId, Types};

/// How deep bases are followed.
const DEEPEST: u32 = 50;

/// Finds the places of the virtual bases of `classes`. Alignments must be known already.
pub(super) fn place(types: &mut Types, classes: &[TypeId]) {
    for &class in classes {
        let Type::Record(record) = types.get(class) else { continue };
        let Some((index, offset)) = only_place(types, record) else { continue };
        if let Type::Record(record) = types.get_mut(class) {
            let base = &mut record.members[index];
            base.offset = offset;
            base.role = Role::VirtualBase { known: true };
        }
    }
}

/// The index of the virtual base among the members, and the one offset that agrees with the class's size.
fn only_place(types: &Types, class: &Record) -> Option<(usize, u64)> {
    let mut all = Vec::new();
    virtual_bases(types, class, &mut all, 0)?;
    let &[base] = &all[..] else { return None };
    let index = class.members.iter().position(|member| {
        member.role == Role::VirtualBase { known: false } && types.resolve(member.ty) == base
    })?;
    let Type::Record(record) = types.get(base) else { return None };
    // Without data of its own a base may share its place with others.
    record.members.iter().find(|member| member.role == Role::Field)?;
    let align = align::of(types, base)?;
    let mut found = None;
    // Padding at the end of a base is used again, unless the base is as simple as a structure of C.
    for end in [end(types, class, false, 0)?, end(types, class, true, 0)?] {
        let offset = end.checked_next_multiple_of(align)?;
        let fits = [self::end(types, record, false, 0)?, record.size].into_iter().any(|size| {
            let end = offset.checked_add(size);
            end.and_then(|end| end.checked_next_multiple_of(class.align.bytes()))
                == Some(class.size)
        });
        if fits {
            match found {
                Some(other) if other != offset => return None,
                _ => found = Some(offset),
            }
        }
    }
    found.map(|offset| (index, offset))
}

/// Collects all virtual bases of a class, also those of its bases.
fn virtual_bases(types: &Types, class: &Record, all: &mut Vec<TypeId>, depth: u32) -> Option<()> {
    if depth > DEEPEST || all.len() > 1 {
        return None;
    }
    for member in &class.members {
        let is_virtual = matches!(member.role, Role::VirtualBase { .. });
        if !is_virtual && member.role != Role::Base {
            continue;
        }
        let id = types.resolve(member.ty);
        let Type::Record(base) = types.get(id) else { return None };
        if is_virtual && !all.contains(&id) {
            all.push(id);
        }
        virtual_bases(types, base, all, depth + 1)?;
    }
    Some(())
}

/// Where the part of a class that is not virtual ends. `padded` says whether its bases keep their padding to
/// themselves.
fn end(types: &Types, class: &Record, padded: bool, depth: u32) -> Option<u64> {
    if depth > DEEPEST {
        return None;
    }
    let mut last = 0;
    for member in &class.members {
        let size = match (member.role, types.get(types.resolve(member.ty))) {
            (Role::VirtualBase { .. }, _) => continue,
            (Role::Base, Type::Record(base)) => {
                let own = end(types, base, padded, depth + 1)?;
                let kept = padded
                    && !has_table(types, base, depth + 1)?
                    && !begins_within(
                        class,
                        member.offset.saturating_add(own),
                        member.offset.saturating_add(base.size),
                    );
                if kept { base.size } else { own }
            }
            _ => size(types, member)?,
        };
        last = last.max(member.offset.checked_add(size)?);
    }
    Some(last)
}

/// Whether a member of the class begins in a range.
fn begins_within(class: &Record, start: u64, end: u64) -> bool {
    class.members.iter().any(|member| match member.role {
        Role::VirtualBase { .. } => false,
        _ => (start..end).contains(&member.offset),
    })
}

/// Whether a class has a table, and so is not as simple as a structure of C.
fn has_table(types: &Types, class: &Record, depth: u32) -> Option<bool> {
    if depth > DEEPEST {
        return None;
    }
    for member in &class.members {
        let tabled = match (member.role, types.get(types.resolve(member.ty))) {
            (Role::VirtualTable | Role::VirtualBase { .. }, _) => true,
            (Role::Base, Type::Record(base)) => has_table(types, base, depth + 1)?,
            _ => false,
        };
        if tabled {
            return Some(true);
        }
    }
    Some(false)
}

fn size(types: &Types, member: &Member) -> Option<u64> {
    match member.bits {
        Some(bits) => Some((u64::from(bits.offset) + u64::from(bits.size)).div_ceil(8)),
        None => types.size(member.ty),
    }
}
