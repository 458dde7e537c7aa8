//! The laboratory's command works as one file: it contains the recorder's library.

use crate::support::{binary, copy_executable, have, said, stderr};
use std::process::Command;

#[test]
fn the_binary_alone_in_an_empty_folder_records_a_program_that_was_linked_with_what_it_wrote() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let command = folder.path().join("ledgerline-lab");
    copy_executable(binary(), &command);
    let inside = |name: &str| folder.path().join(name);
    let library = inside("libledgerline_record.so");
    said(Command::new(&command).args(["layout", "record", "--save-library"]).arg(&library));
    let source = "struct s { volatile long x; } object;\n\
                  int main(void) { for (int i = 0; i < 7; i++) object.x = 1; }\n";
    std::fs::write(inside("p.c"), source).unwrap();
    let run = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    run(Command::new("gcc").current_dir(folder.path()).args([
        "-g",
        "-O1",
        "-fsanitize=thread",
        "-c",
        "p.c",
    ]));
    run(Command::new("gcc").current_dir(folder.path()).args([
        "p.o",
        "-o",
        "p",
        "-L",
        ".",
        "-lledgerline_record",
        "-lpthread",
    ]));
    // The library that the program was linked with is removed: the preloaded one has the same name.
    std::fs::remove_file(&library).unwrap();
    let output = Command::new(&command)
        .args(["layout", "record", "--type", "s", "--"])
        .arg(inside("p"))
        .env_remove("LEDGERLINE_RECORD_LIBRARY")
        .output()
        .unwrap();
    let errors = stderr(&output);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("1 thread, 7 accesses"), "{errors}");
}
