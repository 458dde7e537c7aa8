//! Files that a person has looked at.

/// Compares with a file of the crate's `tests/golden`; with LEDGERLINE_BLESS set, writes it to be looked at.
pub fn same(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("LEDGERLINE_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name} differs; LEDGERLINE_BLESS=1 writes it anew");
}
