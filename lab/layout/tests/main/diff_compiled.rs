//! Differences between two compiled builds of a structure.

use std::path::Path;

use crate::compile;
use ledgerline_layout::diff::{Sides, compare, json, text};
use ledgerline_layout::model::Types;
use ledgerline_layout::pick::pick;
use ledgerline_layout::show;

fn types(name: &str, structure: &str) -> Option<Types> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("diff-{name}.c"));
    std::fs::write(&source, format!("#include <stdbool.h>\nstruct t {structure} t;\n")).unwrap();
    compile::types(&source, &[])
}

/// Returns the text, and the causes by the words of JSON; empty for no change. `None` without a compiler.
fn said(name: &str, old: &str, new: &str) -> Option<(String, Vec<String>)> {
    let (old, new) = (types(&format!("{name}-old"), old)?, types(&format!("{name}-new"), new)?);
    let find = |types| pick(types, &["t".to_owned()]).unwrap()[0].1;
    let sides = Sides { old: (&old, find(&old)), new: (&new, find(&new)) };
    let Some(difference) = compare("t", sides, 64) else { return Some(Default::default()) };
    let mut out = String::new();
    text(&difference, &mut out);
    let causes = json(&difference)["causes"].as_array().unwrap().clone();
    let what = causes.iter().map(|cause| cause["what"].as_str().unwrap().to_owned());
    Some((out, what.collect()))
}

#[test]
fn a_bitfield_that_becomes_a_byte_or_wider_is_told() {
    let cases = [
        (
            "{ long a; unsigned x:1; }",
            "{ long a; bool x; }",
            "`x` is 1 byte now (was a bitfield of 1 bit), _Bool",
        ),
        (
            "{ long a; bool x; }",
            "{ long a; unsigned x:1; }",
            "`x` is a bitfield of 1 bit now (was 1 byte), unsigned int",
        ),
        ("{ int y:4, x:1; }", "{ int y:4, x:3; }", "`x` grew from 1 to 3 bits"),
        ("{ int x:9; }", "{ int x:2; }", "`x` shrank from 9 to 2 bits"),
    ];
    for (index, (old, new, wanted)) in cases.into_iter().enumerate() {
        let Some((said, what)) = said(&format!("bits-{index}"), old, new) else { return };
        assert!(said.contains(&format!("cause: {wanted}\n")), "{old} {new}: {said}");
        assert!(said.contains(" 1 line, aligned to"), "{said}");
        assert_eq!(what, ["rewidened"], "{said}");
    }
    let same = "{ long a; unsigned x:1; }";
    assert_eq!(said("bits-same", same, same), Some(Default::default()));
}

#[test]
fn padding_that_comes_or_goes_behind_the_last_field_is_told() {
    let flexible = ("{ long a; int n, m; char data[]; }", "{ long a; int n; char data[]; }");
    let Some((grew, what)) = said("flexible", flexible.0, flexible.1) else { return };
    assert!(
        grew.contains("cause: the record has 4 bytes of padding behind `data` (was 0)"),
        "{grew}"
    );
    assert_eq!(what, ["removed", "padded"], "{grew}");
    let (shrank, _) = said("flexible-back", flexible.1, flexible.0).unwrap();
    assert!(
        shrank.contains("cause: the record has 0 bytes of padding behind `data` (was 4)"),
        "{shrank}"
    );
    // If another change explains it, the padding of other records is not a cause of its own.
    let (removed, what) = said("last", "{ long a; int b, c; }", "{ long a; int b; }").unwrap();
    assert_eq!(what, ["removed"], "{removed}");
    // Debug information has no bitfields without a name.
    let (unnamed, what) = said("unnamed", "{ int a; }", "{ int a; int :8; }").unwrap();
    assert!(
        unnamed.contains("cause: the record has 4 bytes of padding behind `a` (was 0)"),
        "{unnamed}"
    );
    assert_eq!(what, ["padded"], "{unnamed}");
}

#[test]
fn what_lies_before_an_array_of_any_length_is_a_hole() {
    let cases = [
        (
            "{ int n; char t; long a[]; }",
            "       5         hole of 3 bytes\n       8      0  a",
            "1 hole of 3 bytes\n",
        ),
        (
            "{ int n; char t; long a[0]; }",
            "       5         hole of 3 bytes\n       8      0  a",
            "1 hole of 3 bytes\n",
        ),
        // Its elements begin in the padding behind the last field.
        ("{ int n; char t; char a[]; }", "       5      0  a", "no holes; padding of 3 bytes\n"),
        (
            "{ char c; union { struct {} e; long a[0]; }; }",
            "       1         hole of 7 bytes\n",
            "1 hole of 7 bytes\n",
        ),
    ];
    for (index, (structure, row, summary)) in cases.into_iter().enumerate() {
        let Some(types) = types(&format!("any-length-{index}"), structure) else { return };
        let (name, id) = pick(&types, &["t".to_owned()]).unwrap()[0];
        let mut said = String::new();
        show::text(&types, name, id, &show::Options::default(), &mut said);
        assert!(said.contains(row) && said.contains(summary), "{structure}: {said}");
    }
}
