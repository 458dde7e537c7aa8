//! The pages of a command's manual, and its completions, as they stand beside what `--help` says.

use crate::support::{have, said, stderr};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A command whose pages are read.
pub struct Pages {
    pub command: fn() -> Command,
    pub name: &'static str,
    /// Subcommands whose help is another command's.
    pub elsewhere: &'static [&'static str],
}

impl Pages {
    /// What `--help` of a subcommand says.
    pub fn help(&self, path: &[String]) -> String {
        said((self.command)().args(path).arg("--help"))
    }

    fn is_elsewhere(&self, path: &[String]) -> bool {
        self.elsewhere.contains(&&*path.join(" "))
    }

    /// Every subcommand that --help names, by the words that call it; first the command itself, by none.
    fn subcommands(&self) -> Vec<Vec<String>> {
        let mut found: Vec<Vec<String>> = vec![Vec::new()];
        let mut at = 0;
        while at < found.len() {
            let help =
                if self.is_elsewhere(&found[at]) { String::new() } else { self.help(&found[at]) };
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

    /// Each subcommand has a page with the options and examples of its help. Returns the names of the pages.
    pub fn check(&self) -> BTreeSet<String> {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("made/for/it");
        said((self.command)().arg("man").arg(&pages));
        let all = self.subcommands();
        let name = |path: &[String]| [&[self.name.to_owned()], path].concat().join("-");
        let names: BTreeSet<_> = all.iter().map(|path| name(path) + ".1").collect();
        let written = fs::read_dir(&pages).unwrap();
        let written: BTreeSet<_> =
            written.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(written, names);
        if !have("man") {
            return names;
        }
        for path in &all {
            let name = name(path);
            let page = read(&pages.join(format!("{name}.1")));
            for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"] {
                assert!(page.lines().any(|line| line == heading), "{name}: no {heading}");
            }
            if self.is_elsewhere(path) {
                assert!(page.contains("ledgerline-lab"), "{name} does not say who has it");
                continue;
            }
            let help = self.help(path);
            let usage = help.lines().find_map(|line| line.strip_prefix("Usage: "));
            let usage = usage.expect("a usage");
            assert!(page.lines().any(|line| line.trim() == usage), "{name}: no line {usage:?}");
            assert_eq!(options(&page), options(&help), "{name}");
            assert!(squeezed(&page).contains(&examples(&help)), "{name}: {}", examples(&help));
        }
        names
    }

    /// Where pages cannot be written, it says where.
    pub fn check_unwritable(&self) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let output = (self.command)().arg("man").arg(file.join("pages")).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = stderr(&output);
        assert!(
            error.starts_with("ledgerline: man: ") && error.contains("file/pages: "),
            "{error}"
        );
    }

    /// Each shell's script has these words, and the shell reads it. Then bash completes each line, of which the last word is
    /// the one that is typed.
    pub fn check_completions(&self, words: &[&str], lines: &[(&[&str], &[&str])]) {
        let folder = tempfile::tempdir().unwrap();
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let script = said((self.command)().args(["completions", shell]));
            for word in words {
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
        for (line, expected) in lines {
            assert_eq!(self.completed(&folder.path().join("bash"), line), *expected, "{line:?}");
        }
    }

    /// What a shell of its own completes `line` to.
    fn completed(&self, script: &Path, line: &[&str]) -> Vec<String> {
        let program = r#"
            name=$1; . "$2"; shift 2
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            $(complete -p $name | sed 's/.*-F \([^ ]*\).*/\1/') $name "${@: -1}" "${@: -2:1}"
            printf '%s\n' "${COMPREPLY[@]}""#;
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", program, "bash", self.name]).arg(script).args(line);
        said(&mut bash).lines().map(str::to_owned).collect()
    }
}

/// The long options that a text of --help or a page describes. Its text about them is indented further.
pub fn options(help: &str) -> BTreeSet<String> {
    let first = |line: &str| {
        let text = line.trim_start();
        let long = text.find("--").filter(|at| *at == 0 || (*at == 4 && text.starts_with('-')))?;
        let name: String = text[long..].chars().take_while(|it| !" [=".contains(*it)).collect();
        (line.len() - text.len() <= 7).then_some(name)
    };
    help.lines().filter_map(first).collect()
}

/// A text with one blank between two words, wherever its lines end.
pub fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The examples that a text of --help ends with.
pub fn examples(help: &str) -> String {
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
