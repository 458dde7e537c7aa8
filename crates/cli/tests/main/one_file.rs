//! The command works as one file: the preloaded library is embedded, is placed where every process of a run finds it,
//! and is removed when no process needs it.

use crate::support::user::User;
use crate::support::{self, binary, have, ledgerline, python, scratch, stderr};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Far more than any step here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder of this test's own, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = scratch(name);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn command(&self) -> PathBuf {
        let copy = self.0.join("ledgerline");
        support::copy_executable(binary(), &copy);
        copy
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the library's file, as a program of a run sees it.
fn placed(list: &str) -> PathBuf {
    PathBuf::from(list.trim().split(':').next().unwrap())
}

fn is_root() -> bool {
    let root = Path::new("/proc/self").metadata().unwrap().uid() == 0;
    if !root {
        eprintln!("skipped: only root becomes another user, or mounts");
    }
    root
}

/// Returns a shell for `script` in its own mount namespace, where each of `places` is a new file system with options.
/// `$COMMAND` is the command, in any place.
fn mounted(places: &[(&str, &str)], script: &str) -> Option<Command> {
    if !is_root() || !have("unshare") {
        return None;
    }
    let mounts: String = places
        .iter()
        .map(|(place, options)| format!("mount -t tmpfs -o mode=755,{options} none {place} && "))
        .collect();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("exec 9<\"$BINARY\" && {mounts}{script}")]);
    command.env("BINARY", binary()).env("COMMAND", "/proc/self/fd/9").stdin(Stdio::null());
    for name in ["LD_PRELOAD", "LEDGERLINE_PRELOAD", "LEDGERLINE_PERCPU", "TMPDIR"] {
        command.env_remove(name);
    }
    for name in ["HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    // Checks that this machine allows such mounts at all.
    let trial =
        Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/tmp"]).output();
    if !trial.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: nothing can be mounted here");
        return None;
    }
    Some(command)
}

#[test]
fn the_binary_alone_in_an_empty_folder_runs_a_program() {
    let folder = Folder::new("alone");
    let account = folder.0.join("account.json");
    let output = Command::new(folder.command())
        .args(["run", "--max", "64M", "--json"])
        .arg(&account)
        .args(["--", "sh", "-c", "echo $LD_PRELOAD"])
        .env_remove("LD_PRELOAD")
        .env_remove("LEDGERLINE_PRELOAD")
        .output()
        .unwrap();
    let library = placed(&said(&output));
    assert!(library.is_absolute() && !library.starts_with(&folder.0), "{library:?}");
    let account: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&account).unwrap()).unwrap();
    assert!(support::number(&support::groups(&account)[0], "charges") > 0, "{account:#}");
    assert!(!library.exists(), "{library:?} is left");
}

#[test]
fn a_library_beside_the_command_is_none_of_its_business() {
    let folder = Folder::new("beside");
    let command = folder.command();
    let beside = folder.0.join("libledgerline_preload.so");
    std::fs::write(&beside, "of another version").unwrap();
    let output =
        Command::new(command).args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).output().unwrap();
    assert_ne!(placed(&said(&output)), beside);
    assert!(!stderr(&output).contains("ERROR"), "{}", stderr(&output));
}

#[test]
fn two_runs_at_a_time_have_files_of_their_own_and_one_within_another_preloads_once() {
    let start = |wait: &str| {
        let mut command = ledgerline();
        command.args(["run", "--", "sh", "-c", &format!("echo $LD_PRELOAD; {wait}")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let (mut first, second) = (start("read line; ls -d /"), start(":"));
    let one = first_line(&mut first);
    let other = said(&second.wait_with_output().unwrap());
    // The second has ended and swept meanwhile; the first still has its own.
    assert!(one != other && placed(&one).exists() && !placed(&other).exists(), "{one} {other}");
    let output = first.wait_with_output().unwrap();
    assert!(output.status.success() && !stderr(&output).contains("ERROR"), "{}", stderr(&output));
    assert!(!placed(&one).exists());

    let inner = format!("{} run -- sh -c 'echo $LD_PRELOAD'", binary());
    let output = ledgerline().args(["run", "--", "sh", "-c", &inner]).output().unwrap();
    assert_eq!(said(&output).matches("ledgerline-preload-").count(), 1, "{}", said(&output));
}

/// Returns the first line of a process's output.
fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let mut output = BufReader::with_capacity(1, child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    child.stdout = Some(output.into_inner());
    line
}

#[test]
fn a_run_that_was_killed_leaves_a_file_while_its_program_lives_and_the_next_run_removes_it() {
    let mut killed = ledgerline()
        .args([
            "run",
            "--",
            "sh",
            "-c",
            "echo $LD_PRELOAD; read line; ls -d /; exec sh -c 'read line'",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let library = placed(&first_line(&mut killed));
    killed.kill().unwrap();
    // A wait would close the program's input.
    let mut program = killed.stdin.take().unwrap();
    assert!(!killed.wait().unwrap().success());
    assert!(library.exists());
    let next = || said(&ledgerline().args(["run", "true"]).output().unwrap());
    next();
    assert!(library.exists(), "the program still lives");
    // It executes another program, which finds the library and prints no message about it.
    std::io::Write::write_all(&mut program, b"\n").unwrap();
    assert_eq!(first_line(&mut killed), "/\n");
    drop(program);
    let mut errors = String::new();
    killed.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "");
    until("the next run leaves it", || {
        next();
        !library.exists()
    });
}

#[test]
fn a_process_that_outlives_the_run_executes_on_without_a_word() {
    let folder = Folder::new("orphan");
    let (go, errors, done) = (folder.0.join("go"), folder.0.join("errors"), folder.0.join("done"));
    let script = format!(
        "echo $LD_PRELOAD; (while [ ! -e '{}' ]; do sleep 0.01; done; ls -d / >&2; echo >'{}') \
         >/dev/null 2>'{}' & true",
        go.display(),
        done.display(),
        errors.display()
    );
    let output = ledgerline().args(["run", "--", "sh", "-c", &script]).output().unwrap();
    let library = placed(&said(&output));
    assert!(library.exists(), "{library:?} is gone");
    std::fs::write(&go, "").unwrap();
    until("the orphan does not end", || done.exists());
    assert_eq!(std::fs::read_to_string(&errors).unwrap(), "/\n");
    until("the next run leaves it", || {
        said(&ledgerline().args(["run", "true"]).output().unwrap());
        !library.exists()
    });
}

#[test]
fn a_process_that_is_nothing_but_changes_of_program_keeps_the_file() {
    let folder = Folder::new("chain");
    let (script, done) = (folder.0.join("chain.sh"), folder.0.join("done"));
    let text = format!(
        "[ $1 = 0 ] && echo >'{}' && exit\n[ $1 = 500 ] && echo $LD_PRELOAD && read line\n\
         exec sh '{}' $(($1-1))\n",
        done.display(),
        script.display()
    );
    std::fs::write(&script, text).unwrap();
    let mut killed = ledgerline()
        .args(["run", "--", "sh"])
        .args([script.as_os_str(), OsStr::new("500")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let library = placed(&first_line(&mut killed));
    killed.kill().unwrap();
    drop(killed.stdin.take());
    killed.wait().unwrap();
    // Each of these checks the users of the file, at any moment of the changes.
    until("the next runs leave it", || {
        said(&ledgerline().args(["run", "true"]).output().unwrap());
        done.exists() && !library.exists()
    });
    let mut errors = String::new();
    killed.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors.lines().next(), None);
}

#[test]
fn a_program_that_becomes_another_user_starts_others_without_a_word_and_finds_it_itself() {
    if !is_root() || !have("setpriv") {
        return;
    }
    // Python maps its own libraries; a program that it executes could not open the ledger, and gets no library.
    let script = "import os, sys, ctypes; os.setgroups([]); os.setgid(65534); os.setuid(65534); \
                  print(open('/proc/self/maps').read()); sys.stdout.flush(); \
                  os.execv('/bin/cat', ['cat', '/proc/self/maps'])";
    let Some(python) = python() else { return };
    let output = ledgerline().args(["run", "--", python, "-c", script]).output().unwrap();
    let said = said(&output);
    let (before, after) = said.split_at(said.find("/cat").unwrap_or_else(|| panic!("{said}")));
    assert!(before.contains("/ledgerline-preload-"), "{said}");
    assert!(!after.contains("/ledgerline-preload-") && !said.contains("ERROR"), "{said}");
}

#[test]
fn another_user_runs_the_command_and_leaves_nothing() {
    let Some(user) = User::new() else { return };
    let command = user.copy(Path::new(binary()), "ledgerline");
    let run = || {
        let mut run = user.command(&command);
        run.args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).env_remove("LEDGERLINE_PRELOAD");
        run
    };
    let library = placed(&said(&run().output().unwrap()));
    assert!(library.starts_with(user.home()) && !library.exists(), "{library:?}");
    assert!(stderr(&run().output().unwrap()).starts_with("ledgerline: sh"), "no warning");

    // A user without a folder that is closed to others starts nothing, with an explanation.
    let output = run().env("HOME", "/").env("TMPDIR", "/tmp").output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]));
    let said = stderr(&output);
    for part in ["other users may write to /tmp", "/.cache/ledgerline: ", "set XDG_CACHE_HOME"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_place_where_nothing_may_be_executed_is_passed_over_and_where_all_are_each_is_named() {
    let script = "\"$COMMAND\" run -- sh -c 'echo $LD_PRELOAD'; \
                  ls -A /var/lib/ledgerline /run/ledgerline-lib";
    let Some(mut some) = mounted(&[("/var/lib", "noexec"), ("/run", "rw")], script) else {
        return;
    };
    let said = said(&some.output().unwrap());
    let library = placed(said.lines().next().unwrap());
    assert_eq!(library.parent(), Some(Path::new("/run/ledgerline-lib")), "{said}");
    // Nothing is left in any of them.
    let left = said.lines().skip(1).collect::<String>();
    assert_eq!(left, "/run/ledgerline-lib:/var/lib/ledgerline:", "{said}");

    let places = [("/var/lib", "noexec"), ("/run", "size=12k"), ("/mnt", "ro")];
    let script = "HOME=/mnt TMPDIR=/tmp \"$COMMAND\" run true";
    let output = mounted(&places, script).unwrap().output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let message = stderr(&output);
    for part in [
        "/var/lib/ledgerline: no program may be executed there (noexec); ",
        "/run/ledgerline-lib: No space left on device (os error 28)",
        "/mnt/.cache/ledgerline: Read-only file system (os error 30)",
        "/tmp: other users may write to /tmp",
        "set XDG_CACHE_HOME",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let output = mounted(
        &[("/var/lib", "noexec"), ("/run", "noexec"), ("/mnt", "rw")],
        "chmod 700 /mnt && TMPDIR=/mnt \"$COMMAND\" run -- sh -c 'echo $LD_PRELOAD'",
    );
    let output = output.unwrap().output().unwrap();
    let library = placed(&self::said(&output));
    assert_eq!(library.parent(), Some(Path::new("/mnt")), "{library:?}");
    let warning = "warning: the library lies in /mnt, which is closed to other users";
    assert!(stderr(&output).contains(warning), "{}", stderr(&output));
}

#[test]
fn namespaces_of_a_program_keep_the_place() {
    // Like systemd restricts services, and sandboxes restrict programs.
    let script = "\"$COMMAND\" run -- unshare -mpf sh -c \
        'mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm && cat /proc/self/maps' 2>&1";
    let Some(mut command) = mounted(&[], script) else { return };
    let said = said(&command.output().unwrap());
    assert!(said.contains("/ledgerline-preload-") && !said.contains("ERROR"), "{said}");
}

#[test]
fn what_others_put_in_the_way_is_neither_used_nor_removed() {
    let script = "\
        mkdir /var/lib/ledgerline && cd /var/lib/ledgerline && \
        for i in a b c d e f g h; do \
            printf forged >ledgerline-preload-AAAAAAA$i.so; \
            chown 65534 ledgerline-preload-AAAAAAA$i.so; \
        done && \
        ln -s /etc/hostname ledgerline-preload-BBBBBBBB.so && mkdir ledgerline-preload-CCCCCCCC.so && \
        mkfifo ledgerline-preload-DDDDDDDD.so && \
        printf left >ledgerline-preload-EEEEEEEE.so && \
        before=$(ls) && \"$COMMAND\" run -- sh -c 'echo $LD_PRELOAD' && \
        i=0 && while [ -e ledgerline-preload-EEEEEEEE.so ] && [ $i -lt 999 ]; do \
            \"$COMMAND\" run true; i=$((i+1)); \
        done && \
        echo \"$before\" && echo then && ls";
    let Some(mut command) = mounted(&[("/var/lib", "rw")], script) else { return };
    let said = said(&command.output().unwrap());
    let mut lines = said.lines();
    let library = placed(lines.next().unwrap());
    let before: BTreeSet<&str> = lines.by_ref().take_while(|line| *line != "then").collect();
    let mut after: BTreeSet<&str> = lines.collect();
    let place = Some(Path::new("/var/lib/ledgerline"));
    assert_eq!((before.len(), library.parent()), (12, place), "{said}");
    assert!(!before.contains(library.file_name().and_then(OsStr::to_str).unwrap()), "{said}");
    // Only files that this user could have left are swept. If a process on the machine is just starting, a later run
    // does that.
    assert!(after.insert("ledgerline-preload-EEEEEEEE.so"), "{said}");
    assert_eq!(before, after);
}

#[test]
fn a_place_that_belongs_to_another_user_is_passed_over() {
    let script = "chown 65534 /var/lib && \"$COMMAND\" run -- sh -c 'echo $LD_PRELOAD'";
    let Some(mut command) = mounted(&[("/var/lib", "rw"), ("/run", "rw")], script) else {
        return;
    };
    let library = placed(&said(&command.output().unwrap()));
    assert_eq!(library.parent(), Some(Path::new("/run/ledgerline-lib")));
}
