use super::*;
use crate::model::{Member, Role, Type};
use crate::sketch::words;
use proptest::strategy::Strategy;

fn compared(old: &str, new: &str) -> Option<Difference> {
    let (mut before, mut after) = (Types::new(8), Types::new(8));
    let (a, b) = (words(&mut before, "t", old), words(&mut after, "t", new));
    compare("t", Sides { old: (&before, a), new: (&after, b) }, 64)
}

fn said(old: &str, new: &str) -> String {
    let mut out = String::new();
    text(&compared(old, new).expect("a change"), &mut out);
    out
}

#[test]
fn what_is_where_it_was_is_no_change() {
    assert_eq!(compared("a b c[40] |d", "a b c[40] |d"), None);
}

#[test]
fn whoever_leaves_a_line_and_whom_it_meets_are_named() {
    let text = said(
        "usage min low high max emin min_usage children_min_usage elow low_usage \
         children_low_usage watermark failcnt parent",
        "usage |emin min_usage children_min_usage elow low_usage children_low_usage watermark \
         failcnt |min low high max parent",
    );
    assert!(text.contains("t: 112 -> 192 bytes, 2 -> 3 lines, aligned to 8 -> 64"), "{text}");
    assert!(text.contains("`usage` left the line of"), "{text}");
    let usage = text.lines().find(|line| line.starts_with("  `usage` left")).unwrap();
    assert!(usage.contains("`min, low, high, max`"), "{text}");
    let parent = text.lines().find(|line| line.starts_with("  `parent` left")).unwrap();
    assert!(parent.contains("now shares one with `min, low, high, max`"), "{text}");
    assert!(text.contains("cause: the record is aligned to 64 (was 8)"), "{text}");
}

#[test]
fn what_was_inserted_is_the_cause_of_what_moved() {
    let text = said("a b c d e f stat_cpu stat[34]", "a b new[2] c d e f stat_cpu stat[34]");
    let causes: Vec<&str> = text.lines().filter(|line| line.contains("cause:")).collect();
    assert_eq!(causes.len(), 1, "{text}");
    let cause = "`new` was inserted (long[2], 16 bytes at 16), which moved 6 members after it";
    assert!(causes[0].contains(cause), "{text}");
    let moved = text.lines().find(|line| line.starts_with("  `stat_cpu` left")).unwrap();
    assert!(moved.contains("`a, b, c, d, e, f`") || moved.contains("`a, b`"), "{text}");
    assert!(moved.contains("`stat[0..6] (was stat[0..0])`"), "{text}");
}

#[test]
fn what_was_removed_resized_renamed_or_put_elsewhere_is_told_apart() {
    assert!(said("a gone c", "a c").contains("cause: `gone` was removed (long, 8 bytes at 8)"));
    assert!(said("a b[2] c", "a b[4] c").contains("`b` grew from 16 to 32 bytes, which moved 1"));
    assert!(said("a b[4] c", "a b[2] c").contains("`b` shrank from 32 to 16 bytes"));
    let text = said("a name c", "a other c");
    assert!(text.contains("`name` is called `other` now"), "{text}");
    assert!(!text.contains("inserted") && !text.contains("removed"), "{text}");
    let text = said("first a name[3] c", "first new a other[3] c");
    assert!(text.contains("`name` is called `other` now"), "{text}");
    assert!(text.contains("`new` was inserted"), "{text}");
    let text = said("a b c d", "d a b c");
    assert_eq!(text.matches("cause:").count(), 1, "{text}");
    assert!(text.contains("`d` was put elsewhere among the others (from 24 to 0)"), "{text}");
    let text = said("a b", "a |b");
    assert!(text.contains("`b` has 56 bytes more of padding before it"), "{text}");
    assert!(text.contains("`a` left the line of `b`"), "{text}");
}

/// Returns a record `name` whose last member is a record `inner`.
fn around(types: &mut Types, name: &str, fields: &str, inner: TypeId) -> TypeId {
    let outer = words(types, name, fields);
    let size = types.size(inner).unwrap();
    let member = types.intern("inner");
    let Type::Record(record) = types.get_mut(outer) else { panic!("words make a record") };
    let (role, offset) = (Role::Field, record.size);
    record.members.push(Member { name: member, ty: inner, offset, bits: None, role, align: None });
    record.size += size;
    outer
}

#[test]
fn members_are_followed_into_records_within_records_and_out_again() {
    let flat = "usage max parent stat[9]";
    let (mut before, mut after) = (Types::new(8), Types::new(8));
    let old = words(&mut before, "t", flat);
    let inner = words(&mut after, "limits", "max parent");
    let inner = around(&mut after, "shared", "seen", inner);
    let new = around(&mut after, "t", "usage stat[9]", inner);
    let (old, new) = ((&before, old), (&after, new));
    let into = compare("t", Sides { old, new }, 64).expect("a change");
    let out = compare("t", Sides { old: new, new: old }, 64).expect("a change");
    for difference in [into, out] {
        let mut said = String::new();
        text(&difference, &mut said);
        let touched =
            said.lines().filter(|line| line.contains("inserted") || line.contains("removed"));
        // Only `seen` was added and removed.
        assert!(touched.clone().all(|line| line.contains("seen")), "{said}");
        assert_eq!(touched.count(), 1, "{said}");
        assert!(said.contains("inner.inner.max` "), "{said}");
    }
}

#[test]
fn json_says_what_the_text_says() {
    let value = json(&compared("a b c d e f g h i", "a new b c d e f g h i").unwrap());
    assert_eq!(value["causes"][0]["field"], "new");
    assert_eq!(value["causes"][0]["what"], "inserted");
    let met = value["changes"].as_array().unwrap();
    assert!(met.iter().any(|change| change["fields"][0] == "h"), "{value}");
}

/// Returns all pairs of fields on one line, of words in this order on lines of eight.
fn sharing(order: &[usize]) -> std::collections::BTreeSet<(usize, usize)> {
    let mut pairs = std::collections::BTreeSet::new();
    for (at, &one) in order.iter().enumerate() {
        for (place, &other) in order.iter().enumerate() {
            if one < other && at / 8 == place / 8 {
                pairs.insert((one, other));
            }
        }
    }
    pairs
}

proptest::proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    #[test]
    fn the_pairs_that_parted_and_met_are_those_of_looking_at_every_pair(
        order in proptest::sample::subsequence((0..40).collect::<Vec<usize>>(), 1..40),
        shuffled in proptest::strategy::Just((0..40).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let after: Vec<usize> = shuffled.into_iter().filter(|field| order.contains(field)).collect();
        let fields = |order: &[usize]| -> String {
            order.iter().map(|field| format!("f{field} ")).collect()
        };
        let pairs = |pick: fn(&Change) -> &Vec<Mates>| {
            let mut found = std::collections::BTreeSet::new();
            let changes = compared(&fields(&order), &fields(&after)).map_or(Vec::new(), |d| d.changes);
            for change in &changes {
                for one in &change.fields {
                    for other in pick(change).iter().flat_map(|mates| &mates.0) {
                        let number = |name: &str| name[1..].parse::<usize>().unwrap();
                        let (a, b) = (number(one), number(other));
                        assert!(found.insert((a.min(b), a.max(b))), "said twice");
                    }
                }
            }
            found
        };
        let (was, is) = (sharing(&order), sharing(&after));
        proptest::prop_assert_eq!(pairs(|change| &change.left), &was - &is);
        proptest::prop_assert_eq!(pairs(|change| &change.joined), &is - &was);
    }
}
