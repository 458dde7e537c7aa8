//! The pages of the manual and the completions say what --help says, and what reads them accepts them.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use support::{have, ledgerline, stderr};

fn said(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

fn help(path: &[String]) -> String {
    said(ledgerline().args(path).arg("--help"))
}

/// Every subcommand that --help names, by the words that call it; first the command itself, by none.
fn subcommands() -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = vec![Vec::new()];
    let mut at = 0;
    while at < found.len() {
        let help = help(&found[at]);
        let listed = help.split_once("Commands:\n").map(|(_, rest)| rest).unwrap_or_default();
        for line in listed.lines().take_while(|line| !line.is_empty()) {
            let name = line.strip_prefix("  ").and_then(|line| line.split(' ').next());
            if let Some(name) = name.filter(|name| !name.is_empty() && *name != "help") {
                found.push([&found[at][..], &[name.to_owned()]].concat());
            }
        }
        at += 1;
    }
    found
}

/// The long options that a text of --help or a page describes. (What it says about them is indented further.)
fn options(help: &str) -> BTreeSet<String> {
    let first = |line: &str| {
        let text = line.trim_start();
        let long = text.find("--").filter(|at| *at == 0 || (*at == 4 && text.starts_with('-')))?;
        let name: String = text[long..].chars().take_while(|it| !" [=".contains(*it)).collect();
        (line.len() - text.len() <= 7).then_some(name)
    };
    help.lines().filter_map(first).collect()
}

/// A text with one blank between two words, wherever its lines end.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The examples that a text of --help ends with.
fn examples(help: &str) -> String {
    let lines = help.lines().skip_while(|line| !["Example:", "Examples:"].contains(line)).skip(1);
    squeezed(&lines.take_while(|line| line.starts_with("  ")).collect::<Vec<_>>().join("\n"))
}

/// A page as a reader sees it, so wide that no line is broken.
fn read(page: &Path) -> String {
    let mut man = Command::new("man");
    man.env("MANWIDTH", "1000").env("LC_ALL", "C.UTF-8").args(["--warnings", "-l"]).arg(page);
    let output: Output = man.output().expect("man starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{page:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn each_subcommand_has_a_page_with_the_options_and_examples_of_its_help() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("made/for/it");
    said(ledgerline().arg("man").arg(&pages));
    let all = subcommands();
    let names: BTreeSet<_> = all
        .iter()
        .map(|path| [&["ledgerline".to_owned()], &path[..]].concat().join("-") + ".1")
        .collect();
    let written = fs::read_dir(&pages).unwrap();
    let written: BTreeSet<_> =
        written.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(written, names);
    assert!(names.contains("ledgerline-run.1") && names.contains("ledgerline-layout-show.1"));
    if !have("man") {
        return;
    }
    for path in &all {
        let name = [&["ledgerline".to_owned()], &path[..]].concat().join("-");
        let page = read(&pages.join(format!("{name}.1")));
        let help = help(path);
        for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"] {
            assert!(page.lines().any(|line| line == heading), "{name}: no {heading}");
        }
        let usage = help.lines().find_map(|line| line.strip_prefix("Usage: ")).expect("a usage");
        assert!(page.lines().any(|line| line.trim() == usage), "{name}: no line {usage:?}");
        assert_eq!(options(&page), options(&help), "{name}");
        assert!(squeezed(&page).contains(&examples(&help)), "{name}: {}", examples(&help));
    }
    let run = help(&["run".to_owned()]);
    assert!(
        options(&run).contains("--max-heap")
            && examples(&run).contains("ledgerline run -- make -j8"),
        "what help was read for"
    );
}

#[test]
fn who_cannot_write_pages_is_told_where() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let output = ledgerline().arg("man").arg(file.join("pages")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    assert!(error.starts_with("ledgerline: man: ") && error.contains("file/pages: "), "{error}");
}

/// What a shell of its own completes `line` to; the last word is the one that is typed.
fn completed(script: &Path, line: &[&str]) -> Vec<String> {
    let program = r#"
        . "$1"; shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        $(complete -p ledgerline | sed 's/.*-F \([^ ]*\).*/\1/') ledgerline "${@: -1}" "${@: -2:1}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", program, "bash"]).arg(script).args(line);
    said(&mut bash).lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_subcommands_options_and_values() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = said(ledgerline().args(["completions", shell]));
        for word in ["ledgerline", "calibrate", "max-heap", "library"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
        let file = folder.path().join(shell);
        fs::write(&file, script).unwrap();
        if ["bash", "zsh", "fish"].contains(&shell) && have(shell) {
            said(Command::new(shell).arg("-n").arg(&file));
        }
    }
    if !have("bash") {
        return;
    }
    let bash = folder.path().join("bash");
    assert_eq!(completed(&bash, &["ledgerline", "ca"]), ["calibrate"]);
    assert_eq!(completed(&bash, &["ledgerline", "run", "--max"]), ["--max", "--max-heap"]);
    assert_eq!(
        completed(&bash, &["ledgerline", "run", "--by", ""]),
        ["thread", "process", "library"]
    );
    assert_eq!(completed(&bash, &["ledgerline", "layout", "ad"]), ["advise"]);
}
