//! Subcommands of the laboratory are passed to `ledgerline-lab`; without it, the user learns where it comes from.

use crate::support::{ELSEWHERE, binary, check_unread, copy_executable, executable, said, stderr};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A stand-in for the laboratory: prints its name, its process, its words and its input.
const STAND_IN: &str = r#"#!/bin/sh
printf '%s\n' "NAME $$ $#"
for word; do printf '<%s>\n' "$word"; done
cat
echo 'to standard error' >&2
exit 47
"#;

/// A copy of the command in its own folder, and another folder, which is the only addition to PATH.
struct Installed {
    folder: tempfile::TempDir,
}

impl Installed {
    fn new() -> Installed {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir(folder.path().join("beside")).unwrap();
        std::fs::create_dir(folder.path().join("path")).unwrap();
        copy_executable(binary(), &folder.path().join("beside/ledgerline"));
        Installed { folder }
    }

    fn lab(&self, folder: &str) -> PathBuf {
        self.folder.path().join(folder).join("ledgerline-lab")
    }

    /// Puts the stand-in for the laboratory there.
    fn put(&self, folder: &str) {
        executable(&self.lab(folder), STAND_IN.replace("NAME", folder).as_bytes());
    }

    /// Returns the command, with a PATH without another laboratory.
    fn command(&self) -> Command {
        let mut command = Command::new(self.folder.path().join("beside/ledgerline"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let others = std::env::split_paths(&path);
        let others = others.filter(|folder| !folder.join("ledgerline-lab").exists());
        let own = self.folder.path().join("path");
        command.env("PATH", std::env::join_paths([own].into_iter().chain(others)).unwrap());
        command.stdin(Stdio::null());
        command
    }
}

/// Returns words that a shell, an option parser or an encoding would change.
fn words() -> Vec<&'static OsStr> {
    const WORDS: [&[u8]; 13] = [
        b"--", b"show", b"", b"a b", b"--quick", b"-h", b"--help", b"--", b"--x=y", b"-", b"*",
        b"$X", b"\xff\n",
    ];
    WORDS.map(OsStr::from_bytes).to_vec()
}

/// Returns the expected output of the stand-in with that name, for words after a subcommand's.
fn told(name: &str, process: u32, subcommand: &str, words: &[&OsStr], input: &[u8]) -> Vec<u8> {
    let subcommand: Vec<&OsStr> = subcommand.split(' ').map(OsStr::new).collect();
    let all = [&subcommand[..], words].concat();
    let mut told = format!("{name} {process} {}\n", all.len()).into_bytes();
    for word in all {
        told.extend([b"<", word.as_bytes(), b">\n"].concat());
    }
    told.extend(input);
    told
}

/// Runs the command with an input; returns its process as well.
fn run(mut command: Command, input: &[u8]) -> (u32, Output) {
    let pipe = Stdio::piped;
    let mut child = command.stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    (child.id(), child.wait_with_output().unwrap())
}

/// Checks that the command becomes the stand-in with that name, with all words, and that the caller has both ends of
/// it.
fn check_handed_over(installed: &Installed, name: &str) {
    let input = b"one\0two\xff\n";
    let (all, help) = (words(), [OsStr::new("--help")]);
    for subcommand in ELSEWHERE {
        for words in [&all[..], &all[1..], &help, &[]] {
            let mut command = installed.command();
            command.args(subcommand.split(' ')).args(words);
            let (process, output) = run(command, input);
            let expected = told(name, process, subcommand, words, input);
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&expected),
                "{subcommand}"
            );
            assert_eq!(output.stdout, expected, "{subcommand}");
            assert_eq!(stderr(&output), "to standard error\n", "{subcommand}");
            assert_eq!(output.status.code(), Some(47), "{subcommand}");
        }
        // So does `help`, since the laboratory knows more about it.
        let help = format!("help {subcommand}");
        let mut command = installed.command();
        command.args(help.split(' '));
        let (process, output) = run(command, b"");
        assert_eq!(output.stdout, told(name, process, &help, &[], b""), "{help}");
    }
}

#[test]
fn a_laboratory_beside_the_command_gets_all_words_input_and_output_and_its_status_is_the_commands()
{
    let installed = Installed::new();
    installed.put("beside");
    // It comes before those in PATH.
    installed.put("path");
    check_handed_over(&installed, "beside");
}

#[test]
fn a_laboratory_in_path_gets_the_same() {
    let installed = Installed::new();
    installed.put("path");
    // Neither a folder nor a file without permission to execute is a laboratory.
    std::fs::create_dir(installed.lab("beside")).unwrap();
    check_handed_over(&installed, "path");
    std::fs::remove_dir(installed.lab("beside")).unwrap();
    std::fs::write(installed.lab("beside"), STAND_IN).unwrap();
    check_handed_over(&installed, "path");
}

#[test]
fn a_command_that_is_found_by_a_link_has_the_laboratory_beside_what_the_link_leads_to() {
    let installed = Installed::new();
    installed.put("beside");
    let link = installed.folder.path().join("link");
    std::os::unix::fs::symlink(installed.folder.path().join("beside/ledgerline"), &link).unwrap();
    let output = Command::new(link).args(["layout", "show"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(47), "{}", stderr(&output));
    assert!(output.stdout.starts_with(b"beside "), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_signal_ends_the_laboratory_as_it_would_end_the_command() {
    let installed = Installed::new();
    executable(&installed.lab("beside"), b"#!/bin/sh\nkill -TERM $$\n");
    let status = installed.command().args(["calibrate", "--quick"]).status().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
}

#[test]
fn without_a_laboratory_the_status_is_127_and_one_line_says_how_to_install_it() {
    let installed = Installed::new();
    for subcommand in ELSEWHERE {
        for words in [&["--help"][..], &["show", "--json"], &[]] {
            let mut command = installed.command();
            command.args(subcommand.split(' ')).args(words);
            let output = command.output().unwrap();
            let error = stderr(&output);
            assert_eq!((output.status.code(), &*output.stdout), (Some(127), &b""[..]), "{error}");
            let first = subcommand.split(' ').next().unwrap();
            assert!(error.starts_with(&format!("ledgerline: {first}: ")), "{error}");
            for part in ["`ledgerline-lab`", "`cargo install --path lab/cli`", "Debian", "PyPI"] {
                assert!(error.contains(part), "no {part}: {error}");
            }
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
    check_unread(|| {
        let mut command = installed.command();
        command.args(["layout", "show", "/no/such/file"]);
        command
    });
    // Its advice can be followed.
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/cli/Cargo.toml").exists());
}

#[test]
fn a_laboratory_that_cannot_be_executed_is_named_with_status_126() {
    let installed = Installed::new();
    executable(&installed.lab("beside"), b"#!/no/such/interpreter\n");
    let output = installed.command().args(["reproduce", "memcg-layout"]).output().unwrap();
    let error = stderr(&output);
    assert_eq!((output.status.code(), &*output.stdout), (Some(126), &b""[..]), "{error}");
    let lab = installed.lab("beside");
    assert!(error.starts_with(&format!("ledgerline: reproduce: {}: ", lab.display())), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn help_lists_what_the_laboratory_has_and_says_so() {
    let installed = Installed::new();
    let mut listed = Vec::new();
    for above in [&[][..], &["bench"]] {
        let help = said(installed.command().args(above).arg("--help"));
        let (_, commands) = help.split_once("\nCommands:\n").expect("a list");
        let mut name = "";
        for line in commands.lines().take_while(|line| !line.is_empty()) {
            if !line.starts_with("   ") {
                name = line.split_whitespace().next().expect("a name");
            }
            if line.ends_with("(ledgerline-lab)") {
                listed.push([above, &[name]].concat().join(" "));
            }
        }
    }
    let mut expected = ELSEWHERE.map(str::to_owned);
    expected.sort();
    listed.sort();
    assert_eq!(listed, expected);
}
