//! The example of the global allocator in `docs/calls.md` is compiled here, and it runs.

use std::process::Command;

const EXAMPLE: &str = include_str!("../../examples/readme.rs");
const PAGE: &str = include_str!("../../../../docs/calls.md");

#[test]
fn the_page_shows_the_example_that_is_compiled_here_and_it_runs() {
    assert!(PAGE.contains(&format!("```rust\n{EXAMPLE}```")));
    let built = std::env::current_exe().expect("this test is a file");
    let built = built.ancestors().nth(2).expect("in target/PROFILE/deps");
    let output = Command::new(built.join("examples/readme")).output().expect("the example runs");
    let printed = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "/q42 holds 500000 bytes");
    assert!(lines[1].starts_with("/q42 is full: "), "{printed}");
    assert!(lines[1].ends_with("of max 1.0M in use") && lines.len() == 2, "{printed}");
}
