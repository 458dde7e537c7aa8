//! Where a virtual base is in a complete object.
//!
//! Compilers write how a program finds it: through the object's table. In an object that is nothing more
//! than its class the place is fixed by the C++ ABI of Itanium, which every compiler here follows: behind all
//! that is not virtual, aligned. Where there is one virtual base, that place can be worked out and is
//! certain if the class then ends where the file says; where there are several, their order is not in the
//! model, and they stay unknown.

use crate::align;
use crate::model::{Member, Record, Role, Type, TypeId, Types};

/// As deep as bases are followed.
const DEEPEST: u32 = 50;

/// Finds a place for the virtual bases of `classes`. Alignments must be worked out already.
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

/// Which member the virtual base is, and the one offset that agrees with the class's size.
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
    // Padding at the end of a base is used again, or not if it is as simple as a structure of C.
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

/// All that a class has, also through its bases.
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

/// Where what is not virtual ends; with the padding of its bases, if they have it to themselves.
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

/// Whether a member of the class begins there.
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
