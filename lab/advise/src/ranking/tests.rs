use super::*;

#[test]
fn a_field_covers_what_lies_in_it_and_of_an_array_the_elements_that_are_named() {
    for (field, path) in [
        ("usage", "usage"),
        ("memory", "memory.usage"),
        ("stat", "stat[13]"),
        ("stat[0..5]", "stat[5]"),
        ("stat[0..6] (was stat[0..0])", "stat[6]"),
        ("stat[0..5]", "stat"),
    ] {
        assert!(covers(field, path), "{field} {path}");
    }
    for (field, path) in [
        ("usage", "usage2"),
        ("memory.usage", "memory"),
        ("stat[0..5]", "stat[6]"),
        ("stat[0..5]", "stat_cpu"),
    ] {
        assert!(!covers(field, path), "{field} {path}");
    }
}

#[test]
fn a_path_through_a_renamed_field_has_its_new_name() {
    let names: Renames =
        [("a", "b"), ("c.d", "e")].map(|(old, new)| (old.to_owned(), new.to_owned())).into();
    let now = |path| translated(path, &names);
    assert_eq!(now("a").as_deref(), Some("b"));
    assert_eq!(now("a[3].x").as_deref(), Some("b[3].x"));
    assert_eq!(now("c.d.f").as_deref(), Some("e.f"));
    assert_eq!((now("c"), now("ab"), now("x.a")), (None, None, None));
}
