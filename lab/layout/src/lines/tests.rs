//! Checks lines and gaps against a map that paints every bit.

use super::*;
use crate::model::TypeId;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn leaf(start: u64, bits: u64) -> Leaf {
    Leaf { path: String::new(), ty: TypeId(0), start, bits, bitfield: false }
}

/// Returns the lines that a field's bytes lie on, one byte at a time.
fn painted(leaf: &Leaf, size: u64, shift: u64) -> BTreeSet<u64> {
    (leaf.start..leaf.end()).map(|bit| (bit / 8 + shift) / size).collect()
}

fn records() -> impl Strategy<Value = (u64, Vec<Leaf>)> {
    let field = (0u64..3200, prop_oneof![Just(0u64), 1u64..9, Just(64), 1u64..1200]);
    prop::collection::vec(field, 0..12).prop_map(|fields| {
        let leaves: Vec<Leaf> = fields.into_iter().map(|(start, bits)| leaf(start, bits)).collect();
        let end = leaves.iter().map(Leaf::end).max().unwrap_or(0).div_ceil(8);
        (end + end % 5, leaves)
    })
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    #[test]
    fn lines_and_fields_that_share_one_are_those_of_painted_bytes((_, leaves) in records(), shift in 0u64..128) {
        for size in [64, 128] {
            let lines = Lines::of(size).shifted(shift);
            for one in &leaves {
                let there = painted(one, size, shift % size);
                prop_assert_eq!(lines.count(one.offset(), one.size()), there.len() as u64);
                if let Some(&first) = there.first() {
                    prop_assert_eq!(lines.leaf(one), (first, *there.last().unwrap()));
                }
                let must = one.size().div_ceil(size);
                prop_assert_eq!(
                    lines.straddles(one.offset(), one.size()),
                    there.len() as u64 > must
                );
                for other in &leaves {
                    let share = !there.is_disjoint(&painted(other, size, shift % size));
                    prop_assert_eq!(lines.share(one, other), share);
                }
            }
        }
    }

    #[test]
    fn gaps_are_the_bits_that_nobody_painted((size, leaves) in records()) {
        let mut map = vec![false; size as usize * 8];
        let mut last = 0;
        for leaf in &leaves {
            map[leaf.start as usize..].iter_mut().take(leaf.bits as usize).for_each(|bit| *bit = true);
        }
        for (bit, painted) in map.iter().enumerate() {
            if *painted {
                last = bit + 1;
            }
        }
        // A field without bits begins there.
        let empty = leaves.iter().filter(|leaf| leaf.bits == 0).map(|leaf| leaf.start as usize);
        last = last.max(empty.max().unwrap_or(0));
        let spans = leaves.iter().map(|leaf| (leaf.start, leaf.bits));
        let (holes, padding) = gaps(spans, size, &mut Vec::new());
        let mut empty = vec![false; map.len()];
        for gap in holes.iter().chain(&padding) {
            prop_assert!(gap.bits > 0);
            for bit in gap.start..gap.start + gap.bits {
                prop_assert!(!std::mem::replace(&mut empty[bit as usize], true), "twice");
            }
        }
        for (bit, painted) in map.iter().enumerate() {
            prop_assert_eq!(empty[bit], !painted, "bit {}", bit);
        }
        prop_assert_eq!(padding.map(|gap| gap.start as usize), (last < map.len()).then_some(last));
        prop_assert!(holes.windows(2).all(|pair| pair[0].start + pair[0].bits < pair[1].start));
    }

    #[test]
    fn the_best_and_the_worst_place_are_those_of_trying_every_address(
        (size, leaves) in records(),
        power in 0u32..9,
    ) {
        let align = 1u64 << power;
        for line in [64u64, 128] {
            let cost = |address: u64| {
                let all = leaf(0, size * 8);
                let straddling = leaves
                    .iter()
                    .filter(|one| {
                        painted(one, line, address).len() as u64 > one.size().div_ceil(line)
                    })
                    .count();
                (painted(&all, line, address).len() as u64, straddling)
            };
            let places: Vec<u64> = (0..line).filter(|place| place % align == 0).collect();
            let (best, worst) = extremes(Lines::of(line), align, size, &leaves);
            for (found, wanted) in [
                (best, places.iter().map(|&place| cost(place)).min().unwrap()),
                (worst, places.iter().map(|&place| cost(place)).max().unwrap()),
            ] {
                prop_assert_eq!((found.lines, found.straddling.len()), wanted);
                let there: Vec<u64> =
                    places.iter().copied().filter(|&place| cost(place) == wanted).collect();
                prop_assert_eq!(found.shifts, there);
            }
        }
    }
}

#[test]
fn offsets_at_the_end_of_what_can_be_counted_do_not_overflow() {
    let lines = Lines::of(64).shifted(63);
    assert_eq!(lines.line(u64::MAX), u64::MAX / 64 + 1);
    assert_eq!(lines.count(u64::MAX, u64::MAX), 1);
    let (holes, padding) = gaps([(u64::MAX, 8)].into_iter(), u64::MAX, &mut Vec::new());
    assert_eq!((holes.len(), padding), (1, None));
}
