use proptest::prelude::*;

use super::*;
use crate::model::{Align, Name};

/// One type of a file that a test makes; it refers only to those before it.
#[derive(Clone, Debug)]
enum Made {
    Number,
    Typedef(usize),
    Array(usize, Option<u64>),
    Pointer(usize),
    Record(Vec<(bool, usize)>),
}

fn made() -> impl Strategy<Value = Vec<Made>> {
    let to = || any::<prop::sample::Index>().prop_map(|index| index.index(1 << 20));
    let member = prop::collection::vec((prop::bool::weighted(0.8), to()), 0..4);
    let one = prop_oneof![
        Just(Made::Number),
        to().prop_map(Made::Typedef),
        (to(), prop::option::of(1..4u64)).prop_map(|(to, count)| Made::Array(to, count)),
        to().prop_map(Made::Pointer),
        member.prop_map(Made::Record),
    ];
    prop::collection::vec(one, 2..14)
}

/// Returns the types. A type is named for its number; some members have no name.
fn types_of(made: &[Made]) -> Types {
    let mut types = Types::new(8);
    types.push(Type::Base { name: Name::NONE, size: 8 });
    for (index, one) in made.iter().enumerate() {
        let name = types.intern(&format!("t{index}"));
        let to = |to: &usize| TypeId((to % (index + 1)) as u32);
        let ty = match one {
            Made::Number => Type::Base { name, size: 8 },
            Made::Typedef(of) => Type::Typedef { name, to: Some(to(of)), align: None },
            Made::Array(of, count) => Type::Array { element: to(of), count: *count },
            Made::Pointer(of) => Type::pointer(Some(to(of))),
            Made::Record(list) => {
                let mut offset = 0;
                let mut members = Vec::new();
                for (number, (named, of)) in list.iter().enumerate() {
                    let spelled = if *named { format!("m{number}") } else { String::new() };
                    let (name, ty) = (types.intern(&spelled), to(of));
                    members.push(Member {
                        name,
                        ty,
                        offset,
                        bits: None,
                        role: Role::Field,
                        align: None,
                    });
                    offset += types.size(ty).unwrap_or(0);
                }
                let (kind, align) = (Kind::Struct, Align::Inferred(8));
                Type::Record(Record { name, kind, size: offset, align, members, declared: None })
            }
        };
        types.push(ty);
    }
    types
}

/// Whether a type is wanted; the flag is whether the way leads only through members without names.
type Matches<'a> = &'a dyn Fn(TypeId, bool) -> bool;

/// Returns the places in a record that match, found by a look at every member, at any depth.
fn all(
    types: &Types,
    id: TypeId,
    (path, start, own): (&str, u64, bool),
    matches: Matches<'_>,
    out: &mut Vec<(u64, String)>,
) {
    let Type::Record(record) = types.get(id) else { return };
    for member in &record.members {
        let name = types.name(member.name);
        let dot = if path.is_empty() || name.is_empty() { "" } else { "." };
        let mut path = format!("{path}{dot}{name}");
        let (mut ty, begin) = (member.ty, start + 8 * member.offset);
        loop {
            if matches(ty, own) {
                out.push((begin, path));
                break;
            }
            ty = match types.get(ty) {
                Type::Typedef { to: Some(to), .. } => *to,
                Type::Array { element, .. } => {
                    path.push_str("[]");
                    *element
                }
                _ => {
                    all(types, ty, (&path, begin, own && name.is_empty()), matches, out);
                    break;
                }
            };
        }
    }
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    #[test]
    fn what_is_found_is_what_a_look_at_every_member_finds(made in made(), target in 0..14usize) {
        let types = types_of(&made);
        let Ok(targets) = Targets::of(&types, &format!("t{}", target % made.len())) else {
            return Ok(());
        };
        let is = |ty: TypeId, _: bool| targets.has(ty);
        let points = |ty: TypeId, own: bool| {
            let Type::Pointer { to: Some(to), .. } = types.get(ty) else { return false };
            let (mut to, mut hit) = (*to, targets.has(*to));
            while let Type::Typedef { to: Some(next), .. } | Type::Array { element: next, .. } =
                types.get(to)
            {
                to = *next;
                hit |= targets.has(to);
            }
            own && hit
        };
        let ways: [(Link, Matches<'_>); 2] =
            [(Link::Contains, &is), (Link::PointsTo, &points)];
        for (link, matches) in ways {
            let found = holders(&types, &targets, link).unwrap();
            for (name, id) in named(&types) {
                let mut expected = Vec::new();
                all(&types, id, ("", 0, true), matches, &mut expected);
                expected.sort();
                let got = found.iter().find(|holder| holder.id == id);
                let got: Vec<(u64, String)> = got.map_or_else(Vec::new, |holder| {
                    holder.places.iter().map(|place| (place.start, place.path.clone())).collect()
                });
                prop_assert_eq!(got, expected, "{:?} in {}", link, name);
            }
        }
    }
}

#[test]
fn types_that_contain_themselves_end() {
    let mut types = Types::new(8);
    let name = types.intern("t");
    let number = types.push(Type::Base { name, size: 8 });
    let id = TypeId(number.0 + 1);
    let [left, right, end] = ["left", "right", "end"].map(|name| types.intern(name));
    let member =
        |name, ty| Member { name, ty, offset: 0, bits: None, role: Role::Field, align: None };
    let members = vec![member(left, id), member(right, id), member(end, number)];
    let name = types.intern("outer");
    let align = Align::Inferred(8);
    types.push(Type::Record(Record {
        name,
        kind: Kind::Struct,
        size: 8,
        align,
        members,
        declared: None,
    }));
    let targets = Targets::of(&types, "t").unwrap();
    let error = holders(&types, &targets, Link::Contains).unwrap_err();
    assert!(error.to_string().contains("more than"), "{error}");
    assert!(holders(&types, &targets, Link::PointsTo).unwrap().is_empty());
}
