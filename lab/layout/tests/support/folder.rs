//! Folders of tests.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::{ThreadId, current};

/// Makes a new empty folder, named for the test. The tests of a program run at once, each on a thread of its own; it
/// is a mistake if two of them use one name.
pub fn folder(test: &str) -> PathBuf {
    static OWNERS: Mutex<Option<HashMap<String, ThreadId>>> = Mutex::new(None);
    let this = current().id();
    let owner = {
        let mut owners = OWNERS.lock().unwrap();
        *owners.get_or_insert_default().entry(test.to_owned()).or_insert(this)
    };
    assert_eq!(owner, this, "another test has the folder {test}");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
