use super::*;
use crate::model::{Bits, Name, Role};
use proptest::prelude::*;

/// A table with records of numbers, one at a time.
struct Table(Types);

impl Table {
    fn new() -> Table {
        Table(Types::new(8))
    }

    fn number(&mut self, size: u64) -> TypeId {
        self.0.push(Type::Base { name: Name::NONE, size })
    }

    fn record(&mut self, kind: Kind, size: u64, members: Vec<Member>) -> TypeId {
        let align = Align::Inferred(0);
        let name = Name::NONE;
        self.0.push(Type::Record(Record { name, kind, size, align, members, declared: None }))
    }

    /// Returns a structure of numbers at `(offset, size)`.
    fn numbers(&mut self, size: u64, members: &[(u64, u64)]) -> TypeId {
        let members = members.iter().map(|&(at, size)| field(at, self.number(size))).collect();
        self.record(Kind::Struct, size, members)
    }

    fn inferred(&mut self, id: TypeId) -> u64 {
        infer(&mut self.0);
        let Type::Record(record) = self.0.get(id) else { panic!("not a record") };
        assert!(matches!(record.align, Align::Inferred(_)));
        record.align.bytes()
    }
}

fn field(offset: u64, ty: TypeId) -> Member {
    Member { name: Name::NONE, ty, offset, bits: None, role: Role::Field, align: None }
}

#[test]
fn a_record_is_aligned_as_its_widest_member() {
    for (size, members, expected) in [
        (0, &[][..], 1),
        (1, &[(0, 1)], 1),
        (16, &[(0, 1), (8, 8)], 8),
        (32, &[(0, 16), (16, 1)], 16),
        (12, &[(0, 2), (4, 4), (8, 2)], 4),
    ] {
        let mut table = Table::new();
        let id = table.numbers(size, members);
        assert_eq!(table.inferred(id), expected, "{size} bytes of {members:?}");
    }
}

#[test]
fn a_packed_record_is_not_aligned_beyond_what_its_offsets_and_size_allow() {
    for (size, members, expected) in [
        (5, &[(0, 4), (4, 1)][..], 1),
        (9, &[(0, 1), (1, 8)], 1),
        // #pragma pack(2)
        (6, &[(0, 1), (2, 4)], 2),
        // Every offset is possible; the size is not.
        (12, &[(0, 8), (8, 4)], 4),
    ] {
        let mut table = Table::new();
        let id = table.numbers(size, members);
        assert_eq!(table.inferred(id), expected, "{size} bytes of {members:?}");
    }
}

#[test]
fn one_packed_member_does_not_hide_the_padding_that_the_others_caused() {
    // struct { long a; char b; int c __attribute__((packed)); }
    let mut table = Table::new();
    let id = table.numbers(16, &[(0, 8), (8, 1), (9, 4)]);
    assert_eq!(table.inferred(id), 8, "packed, it would end at 13");
}

#[test]
fn what_was_asked_for_of_a_member_or_its_type_counts() {
    let mut table = Table::new();
    let number = table.number(4);
    let asked = Member { align: Some(64), ..field(64, number) };
    let first = field(0, number);
    let id = table.record(Kind::Struct, 128, vec![first.clone(), asked]);
    assert_eq!(table.inferred(id), 64);

    let aligned =
        table.0.push(Type::Typedef { name: Name::NONE, to: Some(number), align: Some(32) });
    let id = table.record(Kind::Struct, 64, vec![first.clone(), field(32, aligned)]);
    assert_eq!(table.inferred(id), 32);

    // A typedef may also ask for less.
    let loose = table.0.push(Type::Typedef { name: Name::NONE, to: Some(number), align: Some(1) });
    let first = field(0, table.number(1));
    let id = table.record(Kind::Struct, 5, vec![first, field(1, loose)]);
    assert_eq!(table.inferred(id), 1);
    assert_eq!(of(&table.0, loose), Some(1));
}

#[test]
fn records_within_records_are_worked_out_first_whatever_their_order_in_the_file() {
    let mut table = Table::new();
    let number = table.number(8);
    let outer = table.record(Kind::Struct, 0, vec![]);
    let union = table.record(Kind::Union, 16, vec![]);
    let inner = table.record(Kind::Struct, 16, vec![field(8, number)]);
    let array = table.0.push(Type::Array { element: inner, count: Some(1) });
    let set = |table: &mut Table, id, size, member| {
        let Type::Record(record) = table.0.get_mut(id) else { unreachable!() };
        record.size = size;
        record.members = vec![member];
    };
    set(&mut table, union, 16, field(0, array));
    set(&mut table, outer, 24, field(8, union));
    assert_eq!(table.inferred(outer), 8);
    assert_eq!(table.inferred(union), 8);
}

#[test]
fn what_the_file_says_stands() {
    let mut table = Table::new();
    let id = table.numbers(64, &[(0, 8)]);
    if let Type::Record(record) = table.0.get_mut(id) {
        record.align = Align::Known(64);
    }
    let outer = table.record(Kind::Struct, 128, vec![field(64, id)]);
    assert_eq!(table.inferred(outer), 64);
    assert!(matches!(table.0.get(id), Type::Record(Record { align: Align::Known(64), .. })));
}

#[test]
fn a_bitfield_counts_as_its_type_does_unless_it_lies_across_two_units() {
    let mut table = Table::new();
    let number = table.number(4);
    let bits = |offset, first, size| Member {
        bits: Some(Bits { offset: first, size }),
        ..field(offset, number)
    };
    let id = table.record(Kind::Struct, 4, vec![bits(0, 0, 20), bits(0, 20, 12)]);
    assert_eq!(table.inferred(id), 4);
    let id = table.record(Kind::Struct, 8, vec![bits(0, 0, 20), bits(2, 4, 20), bits(5, 0, 32)]);
    assert_eq!(table.inferred(id), 1);
}

#[test]
fn a_virtual_base_whose_place_is_unknown_still_counts() {
    let mut table = Table::new();
    let base = table.numbers(16, &[(0, 16)]);
    let pointer = table.0.push(Type::pointer(None));
    let base = Member { role: Role::VirtualBase { known: false }, ..field(0, base) };
    let id = table.record(Kind::Class, 32, vec![field(0, pointer), base]);
    assert_eq!(table.inferred(id), 16);
}

#[test]
fn eight_bytes_are_aligned_to_four_on_i386_and_atomic_ones_to_eight() {
    let mut table = Table(Types::new(4));
    table.0.widest_scalar_align = 4;
    let number = table.number(8);
    let long_double = table.number(12);
    let atomic = table.0.push(Type::Qualified { qualifier: "_Atomic", to: Some(number) });
    assert_eq!(of(&table.0, number), Some(4));
    assert_eq!(of(&table.0, long_double), Some(4));
    assert_eq!(of(&table.0, atomic), Some(8));
}

#[test]
fn what_contains_itself_ends() {
    let mut table = Table::new();
    let id = table.record(Kind::Struct, 8, vec![]);
    let array = table.0.push(Type::Array { element: id, count: Some(1) });
    let circle = table.0.push(Type::Qualified { qualifier: "const", to: None });
    table.0.set(circle, Type::Qualified { qualifier: "const", to: Some(circle) });
    if let Type::Record(record) = table.0.get_mut(id) {
        record.members = vec![field(0, array), field(0, circle)];
    }
    assert_eq!(table.inferred(id), 1);
    assert_eq!(of(&table.0, circle), None);
}

#[test]
fn a_million_records_within_one_another_need_no_stack() {
    let mut table = Table::new();
    let mut inner = table.number(8);
    let mut records: Vec<TypeId> = Vec::new();
    for _ in 0..1_000_000 {
        inner = table.record(Kind::Struct, 8, vec![field(0, inner)]);
        records.push(inner);
    }
    assert_eq!(table.inferred(inner), 8);
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    /// Lays out by the rules of C, then reads back.
    #[test]
    fn what_a_compiler_lays_out_is_inferred_as_it_aligned_it(
        sizes in prop::collection::vec((0u32..5).prop_map(|power| 1u64 << power), 1..12),
    ) {
        let align = *sizes.iter().max().unwrap();
        let mut end = 0u64;
        let mut members = Vec::new();
        for size in sizes {
            end = end.next_multiple_of(size);
            members.push((end, size));
            end += size;
        }
        let mut table = Table::new();
        let id = table.numbers(end.next_multiple_of(align), &members);
        prop_assert_eq!(table.inferred(id), align);
    }

    /// For any file, the result is a power of two, divides the size, and is at most the widest alignment.
    #[test]
    fn nothing_is_inferred_that_a_compiler_could_not_have_meant(
        size in 0u64..100,
        members in prop::collection::vec((0u64..100, 0u64..40), 0..8),
    ) {
        let mut table = Table::new();
        let id = table.numbers(size, &members);
        let align = table.inferred(id);
        prop_assert!(align.is_power_of_two() && align <= 16);
        prop_assert!(size % align == 0, "{size} bytes aligned to {align}");
    }
}
