//! Tests that the checked-in header is the one that the sources generate.

use std::path::Path;

/// The order in which the header declares the functions of these files.
const SOURCES: [&str; 12] = [
    "types", "abi", "ledger", "ended", "group", "charge", "limit", "read", "current", "block",
    "watch", "reclaim",
];

fn generated() -> String {
    let crate_ = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config =
        cbindgen::Config::from_file(crate_.join("cbindgen.toml")).expect("it is checked in");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES.iter().chain(&["cancel"]) {
        builder = builder.with_src(crate_.join("src").join(source).with_extension("rs"));
    }
    let mut header = Vec::new();
    builder.generate().expect("the sources parse").write(&mut header);
    String::from_utf8(header).expect("cbindgen writes text")
}

#[test]
fn the_header_is_what_the_sources_make() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/ledgerline.h");
    let header = generated();
    if std::env::var_os("LEDGERLINE_BLESS").is_some() {
        std::fs::write(&path, &header).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == header,
        "include/ledgerline.h differs; LEDGERLINE_BLESS=1 writes it anew"
    );
}

/// Detects sources that are missing in `SOURCES`: the header would lack their functions.
#[test]
fn every_function_says_its_errors_its_threads_and_its_signals() {
    let header = generated();
    let lines: Vec<&str> = header.lines().collect();
    let mut functions = 0;
    for (at, line) in lines.iter().enumerate() {
        let declares = line.contains("ledgerline_") && line.contains("(");
        if !declares
            || line.starts_with("//")
            || line.starts_with("static")
            || line.starts_with("    ")
        {
            continue;
        }
        if line.starts_with("typedef") || line.starts_with('#') {
            continue;
        }
        functions += 1;
        let above = lines[..at].iter().rev().take_while(|line| line.starts_with("//"));
        let text = above.copied().collect::<Vec<_>>().join("\n");
        for word in ["Errors:", "Threads:", "Signals:"] {
            assert!(text.contains(word), "{line} says nothing of its {word}");
        }
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let exported: usize = std::fs::read_dir(sources)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .map(|source| source.matches("#[unsafe(no_mangle)]").count())
        .sum();
    assert_eq!(functions, exported, "functions declared and exported");
}
