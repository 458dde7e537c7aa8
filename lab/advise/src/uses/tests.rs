use ledgerline_layout::model::{Align, Kind as RecordKind, Member, Record, Role as MemberRole};

use super::*;
use crate::profile::{Access, Phase as ProfilePhase, Role as ProfileRole};
use ledgerline_coherence::machine::Machine;

/// `struct outer { long usage; struct { long *next; long twice[2][3]; } slots[4]; long tail[]; }`
fn outer() -> (Types, TypeId) {
    let mut types = Types::new(8);
    let name = types.intern("long");
    let long = types.push(Type::Base { name, size: 8 });
    let pointer = types.push(Type::pointer(Some(long)));
    let row = types.push(Type::Array { element: long, count: Some(3) });
    let rows = types.push(Type::Array { element: row, count: Some(2) });
    let record = |types: &mut Types, size, members: &[(&str, TypeId, u64)]| {
        let members = members
            .iter()
            .map(|&(name, ty, offset)| Member {
                name: types.intern(name),
                ty,
                offset,
                bits: None,
                role: MemberRole::Field,
                align: None,
            })
            .collect();
        let (name, kind) = (types.intern("outer"), RecordKind::Struct);
        let align = Align::Inferred(8);
        types.push(Type::Record(Record { name, kind, size, align, members, declared: None }))
    };
    let slot = record(&mut types, 56, &[("next", pointer, 0), ("twice", rows, 8)]);
    let slots = types.push(Type::Array { element: slot, count: Some(4) });
    let tail = types.push(Type::Array { element: long, count: None });
    let members = [("usage", long, 0), ("slots", slots, 8), ("tail", tail, 232)];
    let outer = record(&mut types, 232, &members);
    (types, outer)
}

#[test]
fn paths_with_indices_and_nested_members_are_found() {
    let (types, id) = outer();
    let at = |path| find(&types, id, path).map(|spot| (spot.offset, spot.size));
    assert_eq!(at("usage"), Some((0, 8)));
    assert_eq!(at("slots"), Some((8, 224)));
    assert_eq!(at("slots[2]"), Some((8 + 112, 56)));
    assert_eq!(at("slots[2].twice"), Some((8 + 112 + 8, 48)));
    assert_eq!(at("slots[2].twice[1][2]"), Some((8 + 112 + 8 + 40, 8)));
    assert_eq!(at("tail[3]"), Some((256, 8)));
    for wrong in ["", "slots[4]", "slots[x]", "slots[1", "slots[1]x", "usage[0]", "slots[1].no"] {
        assert_eq!(at(wrong), None, "{wrong}");
    }
    assert_eq!(at("tail[18446744073709551615]"), None);
    assert!(find(&types, id, "slots[0].next").unwrap().awaited);
    assert!(find(&types, id, "slots").unwrap().divided);
}

fn profile(field: &str) -> TypeProfile {
    let access = Access { field: field.to_owned(), kind: Kind::Load, times: 1.0 };
    let phase = ProfilePhase { name: "all".to_owned(), times: 1.0, accesses: vec![access] };
    let role = ProfileRole {
        name: "all".to_owned(),
        share: 1.0,
        work_ns: 1.0,
        basis: Default::default(),
        phases: vec![phase],
    };
    TypeProfile { name: "outer".to_owned(), instances: Instances::Shared, roles: vec![role] }
}

#[test]
fn a_field_that_is_not_there_is_one_line_with_near_names() {
    let (types, id) = outer();
    let error = Uses::resolve(&types, id, &profile("usgae")).unwrap_err();
    assert_eq!(error.to_string(), "outer has no field \"usgae\"; did you mean `usage`?");
    let known = Uses::resolve_known(&types, id, &profile("usgae")).unwrap();
    assert_eq!((known.spots.len(), &*known.unknown), (0, &["usgae".to_owned()][..]));
    assert_eq!(Uses::resolve(&types, id, &profile("usage")).unwrap().rates(0), (1.0, 0.0));
}

#[test]
fn how_far_a_program_asks_ahead_is_a_share_of_what_each_machine_allows() {
    let settings = Machine::built_in("zen4-2vcpu").unwrap().best();
    let hides = Some(Hides { lead: 0.5, window: 7_000 });
    let settled = Settled { hides, ..Settled::default() };
    for (allows, lead) in [(0, 0), (80_000, 40_000)] {
        let on = settled.on(&Settings { lead: allows, ..settings.clone() });
        assert_eq!((on.lead, on.window), (lead, 7_000));
    }
    // Without times, these are the machine's settings.
    assert_eq!(Settled::default().on(&settings), settings);
}
