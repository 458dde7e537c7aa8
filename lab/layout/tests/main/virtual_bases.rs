//! Virtual bases are shown at the compiler's places: each once, at the end of the whole object.

use crate::support::compile::compile;
use crate::support::folder;
use ledgerline_layout::dwarf;
use ledgerline_layout::leaf::Expand;
use ledgerline_layout::model::Types;
use ledgerline_layout::pick::pick;
use ledgerline_layout::show::{self, Options};
use serde_json::Value;

/// The compiler itself checks the sizes.
const SOURCE: &str = "
struct VB { long v; };
struct D1 : virtual VB { long a; };
struct D2 : virtual VB { long b; };
struct DD : D1, D2 { long c; } dd;
struct Empty {};
struct Unknown : virtual Empty { long x; } unknown;
static_assert(sizeof(DD) == 48 && sizeof(D1) == 24, \"the ABI of Itanium\");
";

/// Returns the types of the source; `None` without a compiler.
fn types(test: &str) -> Option<Types> {
    let folder = folder(test);
    std::fs::write(folder.join("source.cpp"), SOURCE).unwrap();
    compile("g++", &folder, &["-g", "-c", "source.cpp"])?;
    Some(dwarf::open(&folder.join("source.o")).unwrap())
}

fn text(types: &Types, name: &str, expand: Expand) -> String {
    let mut out = String::new();
    let options = Options { expand, ..Options::default() };
    for (name, id) in pick(types, &[name.to_owned()]).unwrap() {
        show::text(types, name, id, &options, &mut out);
    }
    out
}

#[test]
fn a_virtual_base_stands_once_at_the_end_and_no_padding_in_its_place() {
    let Some(types) = types("virtual-bases-once") else { return };
    let said = text(&types, "DD", Expand::Anonymous);
    assert!(!said.contains("padding") && said.contains("no holes"), "{said}");
    let rows: Vec<Vec<&str>> = said
        .lines()
        .filter(|line| line.starts_with("   ") && !line.contains("offset"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let wanted = [
        ["0", "16", "D1", "struct", "D1"].to_vec(),
        ["16", "16", "D2", "struct", "D2"].to_vec(),
        ["32", "8", "c", "long", "int"].to_vec(),
        ["40", "8", "VB", "struct", "VB"].to_vec(),
    ];
    assert_eq!(rows, wanted, "{said}");
}

#[test]
fn opened_bases_have_their_virtual_bases_outside_of_them() {
    let Some(types) = types("virtual-bases-opened") else { return };
    let (_, id) = pick(&types, &["DD".to_owned()]).unwrap()[0];
    let mut out = Vec::new();
    let options = Options { expand: Expand::All, ..Options::default() };
    show::json(&types, "DD", id, &options, &mut out);
    let json: Value = serde_json::from_slice(&out).unwrap();
    let members: Vec<(&str, u64, u64)> = (json["members"].as_array().unwrap().iter())
        .map(|one| {
            let number = |key: &str| one[key].as_u64().unwrap();
            (one["name"].as_str().unwrap(), number("offset"), number("size"))
        })
        .collect();
    let wanted = [
        ("D1._vptr.D1", 0, 8),
        ("D1.a", 8, 8),
        ("D2._vptr.D2", 16, 8),
        ("D2.b", 24, 8),
        ("c", 32, 8),
        ("VB", 40, 8),
    ];
    assert_eq!(members, wanted);
    // As an object of its own, a base has it.
    assert!(text(&types, "D1", Expand::Anonymous).contains("\n      16      8  VB "));
}

#[test]
fn a_virtual_base_whose_place_is_not_known_is_shown_at_none() {
    let Some(types) = types("virtual-bases-unknown") else { return };
    let said = text(&types, "Unknown", Expand::Anonymous);
    assert!(said.contains("\n       ?      ?  Empty "), "{said}");
    assert!(said.contains("  ?: the file says neither place"), "{said}");
}
