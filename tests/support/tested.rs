//! Which build a test tries: the one that it was built with, or the one of the profile that `LEDGERLINE_TESTED` names
//! (`release`), in the same target directory. So the tests are built once, and try both.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The directory of the tested build's profile, for something that lies in the directory of this test's.
fn profile_of(own: &Path) -> PathBuf {
    match std::env::var_os("LEDGERLINE_TESTED") {
        Some(profile) => own.with_file_name(profile),
        None => own.to_owned(),
    }
}

/// The directory in which the tested build lies.
pub fn directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it lies");
    profile_of(test.ancestors().nth(2).expect("it lies in deps, below its profile"))
}

/// The tested command; `own` is the one that was built with this test.
pub fn command(own: &'static str) -> &'static str {
    static COMMAND: OnceLock<String> = OnceLock::new();
    COMMAND.get_or_init(|| {
        let own = Path::new(own);
        let directory = profile_of(own.parent().expect("it lies in a directory"));
        let command = directory.join(own.file_name().expect("it is a file"));
        assert!(
            command.is_file(),
            "no {command:?}: build the command in the profile LEDGERLINE_TESTED"
        );
        command.into_os_string().into_string().expect("its path is text")
    })
}

/// Whether the tested build is optimised: what is asserted of time holds there only.
pub fn is_optimised() -> bool {
    !directory().ends_with("debug")
}
