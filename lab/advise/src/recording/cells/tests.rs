use super::*;
use ledgerline_layout::model::{Align, Kind, Member, Name, Record, Role};
use proptest::prelude::*;

/// Returns a record with members at any offsets, so that some overlap like those of unions. Some are in a nested
/// record, some are arrays.
fn record(members: &[(u64, u64, u64)], size: u64) -> (Types, TypeId) {
    let mut types = Types::new(8);
    let name = types.intern("number");
    let mut list = Vec::new();
    for (index, &(offset, size, count)) in members.iter().enumerate() {
        let element = types.push(Type::Base { name, size });
        let ty = types.push(Type::Array { element, count: Some(count) });
        let ty = if count == 1 { element } else { ty };
        let name = types.intern(&format!("m{index}"));
        list.push(Member { name, ty, offset, bits: None, role: Role::Field, align: None });
    }
    let record = Record {
        name: Name::NONE,
        kind: Kind::Struct,
        size,
        align: Align::Inferred(1),
        members: list,
        declared: None,
    };
    let id = types.push(Type::Record(record));
    (types, id)
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    /// A byte counts for the first member that covers it; for the element, if elements are numbers.
    #[test]
    fn each_byte_belongs_to_the_first_field_that_covers_it(
        members in proptest::collection::vec((0..60u64, 1..9u64, 1..5u64), 0..12),
        size in 1..80u64,
    ) {
        let (types, id) = record(&members, size);
        let cells = Cells::of(&types, id, size as usize).unwrap();
        prop_assert_eq!(cells.map.len() as u64, size);
        let mut last = NO_CELL;
        for (byte, &cell) in (0..size).zip(&cells.map) {
            let owner = members.iter().enumerate().find_map(|(index, &(offset, size, count))| {
                let within = byte.checked_sub(offset).filter(|within| *within < size * count)?;
                Some(if count > 1 && size >= SMALLEST_ELEMENT {
                    format!("m{index}[{}]", within / size)
                } else {
                    format!("m{index}")
                })
            });
            let path = (cell != NO_CELL).then(|| cells.paths[usize::from(cell)].clone());
            prop_assert_eq!(path, owner, "byte {}", byte);
            // Cells are numbered in the order of their bytes.
            prop_assert!(cell == NO_CELL || last == NO_CELL || cell >= last);
            last = if cell == NO_CELL { last } else { cell };
        }
    }
}

#[test]
fn a_type_of_more_fields_than_there_are_numbers_is_refused() {
    let members: Vec<(u64, u64, u64)> = (0..70_000).map(|offset| (offset, 1, 1)).collect();
    let (types, id) = record(&members, 70_000);
    assert_eq!(Cells::of(&types, id, 70_000), None);
}
