use ledgerline_layout::model::{Align, Bits};

use super::*;

/// A member: name, bytes of its type, offset, and the offset and number of its bits.
type Given = (&'static str, u64, u64, Option<(u8, u8)>);

/// A record of members.
fn record(kind: Kind, size: u64, members: &[Given]) -> (Types, TypeId) {
    let mut types = Types::new(8);
    let mut list = Vec::new();
    for &(name, bytes, offset, bits) in members {
        let base = types.intern("number");
        let base = types.push(Type::Base { name: base, size: bytes.max(1) });
        let ty =
            if bytes == 0 { types.push(Type::Array { element: base, count: None }) } else { base };
        let (name, bits) = (types.intern(name), bits.map(|(offset, size)| Bits { offset, size }));
        list.push(Member { name, ty, offset, bits, role: Role::Field, align: None });
    }
    let (name, align) = (types.intern("it"), Align::Inferred(8));
    let id =
        types.push(Type::Record(Record { name, kind, size, align, members: list, declared: None }));
    (types, id)
}

fn names(pieces: &Pieces) -> Vec<Vec<String>> {
    let fields = |piece: &Piece| piece.fields.iter().map(|field| field.name.clone()).collect();
    pieces.list.iter().map(fields).collect()
}

#[test]
fn bitfields_of_a_unit_stay_together_and_a_flexible_array_comes_last() {
    // struct { long a; char b; int c:4, d:12; long e; long tail[]; }
    let (types, id) = record(
        Kind::Struct,
        24,
        &[
            ("a", 8, 0, None),
            ("b", 1, 8, None),
            ("c", 4, 8, Some((8, 4))),
            ("d", 4, 8, Some((12, 12))),
            ("e", 8, 16, None),
            ("tail", 0, 24, None),
        ],
    );
    let pieces = Pieces::of(&types, id, "it", &Freedom::default()).unwrap();
    // `b` lies in the unit of the bits.
    assert_eq!(names(&pieces), [vec!["a"], vec!["b", "c", "d"], vec!["e"], vec!["tail"]]);
    let unit = &pieces.list[1];
    assert_eq!((unit.offset, unit.size, unit.align), (8, 3, 4));
    assert_eq!(unit.fields.iter().map(|f| f.start).collect::<Vec<_>>(), [0, 8, 12]);
    assert_eq!(pieces.list[3].held, Some(Held::Last));
    assert_eq!((pieces.at(10), pieces.at(4096), pieces.at(12)), (Some(1), Some(3), None));
}

#[test]
fn a_packed_member_asks_for_no_more_than_its_place_gives() {
    let members = [("a", 1, 0, None), ("b", 8, 1, None), ("c", 4, 10, None)];
    let (types, id) = record(Kind::Struct, 14, &members);
    let pieces = Pieces::of(&types, id, "it", &Freedom::default()).unwrap();
    assert_eq!(pieces.list.iter().map(|piece| piece.align).collect::<Vec<_>>(), [1, 1, 2]);
}

#[test]
fn what_has_no_order_is_refused() {
    let (types, id) = record(Kind::Union, 8, &[("a", 8, 0, None), ("b", 4, 0, None)]);
    let error = Pieces::of(&types, id, "it", &Freedom::default()).unwrap_err().to_string();
    assert!(error.starts_with("it is a union: its members share their bytes; "), "{error}");
    let freedom = Freedom { opened: vec!["a".to_owned()], ..Freedom::default() };
    let (types, id) = record(Kind::Struct, 8, &[("a", 8, 0, None)]);
    let error = Pieces::of(&types, id, "it", &freedom).unwrap_err().to_string();
    assert!(error.starts_with("it has no member \"a\" that can be opened"), "{error}");
}

#[test]
fn a_file_that_lies_about_sizes_is_survived() {
    let huge = u64::MAX / 8;
    let members = [("a", huge, 0, None), ("b", 8, huge - 3, None), ("c", huge, u64::MAX - 9, None)];
    let (types, id) = record(Kind::Struct, u64::MAX, &members);
    let error = Pieces::of(&types, id, "it", &Freedom::default()).unwrap_err().to_string();
    assert!(error.starts_with("it has 18446744073709551615 bytes; "), "{error}");
    let (types, id) = record(Kind::Struct, 64, &members);
    let error = Pieces::of(&types, id, "it", &Freedom::default()).unwrap_err().to_string();
    assert!(error.starts_with("it has 64 bytes, and members beyond them; "), "{error}");
}
