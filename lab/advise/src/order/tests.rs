use super::*;
use crate::pieces::Field;
use ledgerline_layout::model::TypeId;

/// Returns pieces of sizes and alignments, laid out like in C.
pub(crate) fn pieces(sizes: &[(u64, u64)]) -> Pieces {
    let mut list = Vec::new();
    let mut end = 0u64;
    for (number, &(size, align)) in sizes.iter().enumerate() {
        let offset = end.next_multiple_of(align);
        let name = format!("f{number}");
        let field = Field { name, ty: TypeId(0), start: 0, bits: None };
        list.push(Piece { fields: vec![field], offset, size, align, held: None });
        end = offset + size;
    }
    let align = sizes.iter().map(|size| size.1).max().unwrap_or(1);
    Pieces { list, dropped: Vec::new(), size: end.next_multiple_of(align), align }
}

#[test]
fn todays_order_lays_out_as_today() {
    let mut pieces = pieces(&[(8, 8), (4, 4), (1, 1), (8, 8), (64, 1), (2, 2)]);
    // An attribute put this member on a line of its own.
    pieces.list[5].offset = 128;
    pieces.size = 192;
    pieces.align = 64;
    let laid = Order::today(&pieces).lay(&pieces, &[true; 6]);
    let today: Vec<u64> = pieces.list.iter().map(|piece| piece.offset).collect();
    assert_eq!((laid.offsets, laid.size, laid.align), (today, 192, 64));
}

#[test]
fn holes_are_filled_by_what_nothing_touches_and_nothing_overlaps_what_is_held() {
    let mut pieces = pieces(&[(8, 8), (8, 8), (48, 8), (16, 8), (8, 8), (8, 8)]);
    pieces.list[3].held = Some(Held::Asked);
    let cold = [false, false, true, true, true, true];
    let mut order = Order::today(&pieces);
    order.begins[1] = 128;
    order.fill = true;
    let laid = order.lay(&pieces, &cold);
    // f2 fills the space behind f0, up to the piece held at 64; f4 and f5 follow that.
    assert_eq!(laid.offsets, [0, 128, 8, 64, 56, 80]);
    assert_eq!((laid.size, laid.align), (256, 128));
    let again = Order { sequence: sequence(&pieces, &laid), fill: false, ..order };
    assert_eq!(again.lay(&pieces, &cold), laid);
}

#[test]
fn the_fewest_moves_are_those_outside_the_longest_rise() {
    assert_eq!(moved(&[0, 1, 5, 2, 3, 4], |_| 1.0), [5]);
    assert_eq!(count_moved(&[0, 1, 5, 2, 3, 4]), 1);
    assert_eq!(moved(&[1, 0], |piece| if piece == 0 { 2.0 } else { 1.0 }), [1]);
    assert!(moved(&[], |_| 1.0).is_empty());
}
