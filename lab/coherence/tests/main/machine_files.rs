//! A bad machine file is refused in one line, with file, line and reason.

use crate::golden;
use ledgerline_coherence::machine::{BUILT_IN, Machine};
use std::fmt::Write as _;

/// Each mistake's name, the text that it replaces in a good file, and the replacement.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("not TOML", "[topology]", "[topology"),
    ("a word for a number", "sockets = 2", "sockets = two"),
    ("a text for a number", "sockets = 2", "sockets = \"2\""),
    ("an unknown key", "hops = 1", "hops = 1\nracks = 3"),
    ("a missing key", "hops = 1\n", ""),
    (
        "a latency without a source",
        "near_clean = { value = 42.1, source = \"",
        "near_clean = { value = 42.1, note = \"",
    ),
    (
        "an empty source",
        "first_cache = { value = 1.6, source = \"Molka et al., ICPP 2015\"",
        "first_cache = { value = 1.6, source = \" \"",
    ),
    ("a negative latency", "value = 47.0", "value = -47.0"),
    ("a latency beyond its own bounds", "value = 47.0, source", "value = 47.0, low = 48.0, source"),
    ("a latency that is no number", "value = 47.0", "value = nan"),
    ("a range upside down", "low = 4.0, best = 12.0", "low = 14.0, best = 12.0"),
    (
        "a probability above one",
        "low = 0.5, best = 0.85, high = 1.0",
        "low = 0.5, best = 0.85, high = 1.5",
    ),
    ("no CPUs", "cores_per_complex = 18", "cores_per_complex = 0"),
    (
        "more CPUs than there are",
        "cores_per_complex = 18",
        "cores_per_complex = 4611686018427387904",
    ),
    ("three hops", "hops = 1", "hops = 3"),
    ("a needed latency left out", "remote_homed_at_owner", "# remote_homed_at_owner"),
    (
        "an atomic that takes less when its line comes from elsewhere",
        "\n[nuisance]",
        "\natomic_moved = { value = 1.0, source = \"a guess\" }\n[nuisance]",
    ),
    (
        "a share above one that a file may leave out",
        "[nuisance]",
        "[nuisance]\nupgrade_keep = { low = 0.0, best = 0.0, high = 2.0, source = \"a guess\" }",
    ),
    ("a table twice", "[latency_ns]", "[topology]"),
];

#[test]
fn every_mistake_is_told_in_one_line_that_says_where() {
    let (_, good) = BUILT_IN[0];
    let mut told = String::new();
    for (name, from, to) in MISTAKES {
        assert!(good.contains(from), "the good file has no `{from}`");
        let error = Machine::parse("box.toml", &good.replacen(from, to, 1)).unwrap_err();
        let line = error.to_string();
        assert!(!line.contains('\n') && line.starts_with("box.toml:"), "{line}");
        writeln!(told, "{name}\n    {line}").unwrap();
    }
    golden::same("machine_files.txt", &told);
}

#[test]
fn a_file_of_any_bytes_is_an_error_or_a_machine() {
    let (_, good) = BUILT_IN[0];
    for cut in (0..good.len()).step_by(37).filter(|&cut| good.is_char_boundary(cut)) {
        assert!(Machine::parse("cut", &good[..cut]).is_err() || cut + 37 > good.len());
    }
    assert!(Machine::parse("long", &"#".repeat((1 << 20) + 1)).is_err());
}
