//! Finds the types that hold another by value, or that point to it.
//!
//! ```text
//! targets   the name          -> the types that it means: records, typedefs, numbers, what is only declared
//! ways      the types         -> those through which a target is reached, by one walk over reversed references
//! holders   each named record -> the paths to a target within it; only ways are entered
//! ```

mod print;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use serde::Serialize;

use crate::Error;
use crate::leaf::{self, name_of, start_of};
use crate::model::{Kind, Member, Points, Record, Role, Type, TypeId, Types};
use crate::pick::{ALL, Pattern, advise_near, named};

pub use print::{json, text};

/// The depth to which records, arrays and typedefs are entered, since a malformed file may nest one in itself.
const DEEPEST: usize = 64;
/// The most members that are examined, and the most places that are found.
const LOOKS: usize = 1 << 26;
const MOST: usize = 1 << 20;

/// The way in which a type holds another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// By value: as a member, as an element of a member, or within a member.
    Contains,
    /// By a pointer or a reference that is a member of its own, or an element of one. A pointer to a pointer points
    /// only to that pointer.
    PointsTo,
}

/// A type that holds another.
#[derive(Clone, Debug)]
pub struct Holder<'t> {
    /// Its name.
    pub name: &'t str,
    /// The type itself, a record.
    pub id: TypeId,
    /// The places where it holds the other, by offset.
    pub places: Vec<Place>,
}

/// A place where a type holds another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path of members that leads there, with `[]` for each dimension of an array: `slots[].link`.
    pub path: String,
    /// The type of the last member, as it was declared.
    pub ty: TypeId,
    /// The first bit, in the first element of each array.
    pub start: u64,
    /// The bytes of the type that is held, or of the pointer.
    pub size: u64,
    /// The arrays on the way, the outermost first.
    pub arrays: Vec<Array>,
}

/// An array on the way to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Array {
    /// The number of elements; `None` for a flexible array.
    pub count: Option<u64>,
    /// The bytes from one element to the next.
    pub stride: u64,
}

/// The types that a name means in a question for holders.
#[derive(Clone, Debug)]
pub struct Targets {
    is: Vec<bool>,
}

impl Targets {
    /// Returns the types that a name or a pattern means: records, numbers, enumerations, typedefs and their targets,
    /// and types that are only declared.
    ///
    /// # Errors
    /// If there are none. The error names near ones.
    pub fn of(types: &Types, text: &str) -> Result<Targets, Error> {
        let pattern = Pattern::new(text)?;
        let mut is = vec![false; types.len()];
        for (id, ty) in types.iter() {
            if !own_name(types, ty).is_some_and(|name| pattern.matches(name)) {
                continue;
            }
            is[id.0 as usize] = true;
            let stands_for = types.resolve(id);
            if matches!(types.get(stands_for), Type::Record(_) | Type::Declaration { .. }) {
                is[stands_for.0 as usize] = true;
            }
        }
        if is.contains(&true) {
            return Ok(Targets { is });
        }
        let names = types.iter().filter_map(|(_, ty)| own_name(types, ty));
        let error = Error::new(format!("there is no type {text:?}"));
        Err(advise_near(error, pattern.text(), names, ALL))
    }

    fn has(&self, id: TypeId) -> bool {
        self.is[id.0 as usize]
    }
}

/// Returns the name that a type has of its own.
fn own_name<'t>(types: &'t Types, ty: &Type) -> Option<&'t str> {
    let name = match ty {
        Type::Record(Record { name, .. })
        | Type::Base { name, .. }
        | Type::Enum { name, .. }
        | Type::Typedef { name, .. }
        | Type::Declaration { name, .. } => types.name(*name),
        _ => return None,
    };
    (!name.is_empty()).then_some(name)
}

/// Returns the named types that hold a target, by name; types of one name in the order of the file. Types with the
/// same name and the same places are listed once. The variants of a Rust enum are places within the enum.
///
/// This costs a pass over all types, and over the found places.
///
/// # Errors
/// If there are more than a million places, or infinitely many.
pub fn holders<'t>(
    types: &'t Types,
    targets: &Targets,
    link: Link,
) -> Result<Vec<Holder<'t>>, Error> {
    let mut search = Search {
        types,
        targets,
        link,
        ways: ways(types, targets, link),
        path: String::new(),
        arrays: Vec::new(),
        places: Vec::new(),
        looks: LOOKS,
        room: MOST,
    };
    let mut list = Vec::new();
    for (name, id) in named(types) {
        let Some((_, record)) = leaf::record(types, id) else { continue };
        if record.kind == Kind::Variant || !search.ways[id.0 as usize] {
            continue;
        }
        search.enter(record, 0, DEEPEST)?;
        let mut places = std::mem::take(&mut search.places);
        if !places.is_empty() {
            places.sort_by(|a, b| a.start.cmp(&b.start).then_with(|| a.path.cmp(&b.path)));
            list.push(Holder { name, id, places });
        }
    }
    list.sort_by(|a, b| a.name.cmp(b.name).then(a.id.cmp(&b.id)));
    list.dedup_by(|later, first| {
        let plain =
            |place: &Place| (place.start, place.size, place.path.clone(), place.arrays.clone());
        later.name == first.name
            && later.places.iter().map(plain).eq(first.places.iter().map(plain))
    });
    Ok(list)
}

/// Returns whether a member is opened in a search for pointers, so that members of its type count as the outer type's
/// own.
fn is_own(types: &Types, member: &Member) -> bool {
    name_of(types, member).is_empty() || member.role == Role::Variant
}

/// Returns the target of a pointer or reference. A pointer to a member of a class is an offset and has no target.
fn pointed_at(ty: &Type) -> Option<TypeId> {
    match *ty {
        Type::Pointer { points: Points::Member(_), .. } => None,
        Type::Pointer { to, .. } => to,
        _ => None,
    }
}

/// Returns which types hold a target or lead to one, by following references backwards from the targets.
fn ways(types: &Types, targets: &Targets, link: Link) -> Vec<bool> {
    let mut back: HashMap<TypeId, Vec<TypeId>> = HashMap::new();
    for (id, ty) in types.iter() {
        let mut refers = |to: TypeId| back.entry(to).or_default().push(id);
        ty.inner().into_iter().for_each(&mut refers);
        match ty {
            Type::Record(record) => record.members.iter().for_each(|member| refers(member.ty)),
            ty if link == Link::PointsTo => pointed_at(ty).into_iter().for_each(refers),
            _ => {}
        }
    }
    let mut reached = targets.is.clone();
    let mut left: Vec<TypeId> =
        types.iter().map(|(id, _)| id).filter(|&id| targets.has(id)).collect();
    while let Some(id) = left.pop() {
        for &from in back.get(&id).into_iter().flatten() {
            if !std::mem::replace(&mut reached[from.0 as usize], true) {
                left.push(from);
            }
        }
    }
    reached
}

struct Search<'t, 's> {
    types: &'t Types,
    targets: &'s Targets,
    link: Link,
    ways: Vec<bool>,
    path: String,
    arrays: Vec<Array>,
    places: Vec<Place>,
    looks: usize,
    room: usize,
}

impl Search<'_, '_> {
    /// Collects the places within a record that begins at a bit.
    fn enter(&mut self, record: &Record, base: u64, depth: usize) -> Result<(), Error> {
        for member in &record.members {
            let endless = || Error::new("its types nest without end");
            self.looks = self.looks.checked_sub(1).ok_or_else(endless)?;
            if !member.place_known() || !self.ways[member.ty.0 as usize] {
                continue;
            }
            let (length, dimensions) = (self.path.len(), self.arrays.len());
            let name = name_of(self.types, member);
            if !name.is_empty() && length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            self.member(member, base.saturating_add(start_of(member)), depth)?;
            self.path.truncate(length);
            self.arrays.truncate(dimensions);
        }
        Ok(())
    }

    fn member(&mut self, member: &Member, start: u64, depth: usize) -> Result<(), Error> {
        for id in self.types.through(member.ty) {
            if self.link == Link::Contains && self.targets.has(id) {
                let size = self.types.size(id).unwrap_or(0);
                return self.found(member.ty, start, size);
            }
            match self.types.get(id) {
                Type::Array { element, count } => {
                    let stride = self.types.size(*element).unwrap_or(0);
                    self.arrays.push(Array { count: *count, stride });
                    self.path.push_str("[]");
                }
                ty if self.link == Link::PointsTo
                    && pointed_at(ty).is_some_and(|to| self.is_target(to)) =>
                {
                    return self.found(member.ty, start, self.types.pointer_size.into());
                }
                Type::Record(inner) if depth > 0 && self.ways[id.0 as usize] => {
                    let opens = self.link == Link::Contains || is_own(self.types, member);
                    return if opens { self.enter(inner, start, depth - 1) } else { Ok(()) };
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether a pointer to this type points to a target, or to an array of them.
    fn is_target(&self, id: TypeId) -> bool {
        self.types.through(id).any(|id| self.targets.has(id))
    }

    fn found(&mut self, ty: TypeId, start: u64, size: u64) -> Result<(), Error> {
        self.room = self.room.checked_sub(1).ok_or_else(|| {
            Error::new(format!("there are more than {MOST} places"))
                .advise("name a type that fewer types hold")
        })?;
        let (path, arrays) = (self.path.clone(), self.arrays.clone());
        self.places.push(Place { path, ty, start, size, arrays });
        Ok(())
    }
}
