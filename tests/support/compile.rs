//! C that is compiled for the types in its debug information.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use ledgerline_layout::model::Types;

/// The object file of a source; `None`, and a line, where there is no compiler.
pub fn object(source: &Path, options: &[&str]) -> Option<PathBuf> {
    // Tests run at once and compile the same sources.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let object = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("compiled-{}-{number}.o", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-c", "-o"]).arg(&object).args(options).arg(source);
    match compiler.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{source:?}: {said}");
            Some(object)
        }
        Err(error) => {
            eprintln!("skipped: no C compiler: {error}");
            None
        }
    }
}

/// The types of a source; `None`, and a line, where there is no compiler.
pub fn types(source: &Path, options: &[&str]) -> Option<Types> {
    let object = object(source, options)?;
    let opened = ledgerline_layout::open(&object).expect("a compiler's debug information");
    std::fs::remove_file(&object).expect("nobody else knows of it");
    Some(opened.types)
}
