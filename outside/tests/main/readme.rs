//! README's first example is the program in `examples/`, letter by letter, and prints readable text.

use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../../README.md");
const EXAMPLE: &str = include_str!("../../examples/readme.rs");

/// Returns the text between the fences of README's first block of a kind.
fn block(kind: &str) -> &'static str {
    let start = README.find(&format!("```{kind}\n")).expect("README has such a block");
    let text = &README[start + kind.len() + 4..];
    &text[..text.find("```").expect("a block ends")]
}

#[test]
fn readme_shows_the_example_that_is_compiled_here() {
    assert_eq!(block("rust"), EXAMPLE);
}

#[test]
fn the_example_prints_what_readme_says_it_prints() {
    // Built next to this test, by the same cargo.
    let this = std::env::current_exe().expect("a test knows where it is");
    let built = this.parent().and_then(Path::parent).expect("target/PROFILE/deps");
    let output = Command::new(built.join("examples/readme")).output().expect("the example runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).expect("text"), block("text"));
}
