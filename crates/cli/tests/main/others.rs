//! Other users of the machine get nothing of a run: its library and its ledger are the ones that the run made, or
//! nothing. Only root can make users, so these tests are skipped without it.

use crate::support::compiled::{Compiled, told};
use crate::support::user::User;
use crate::support::{account, groups, ledgerline, python, said, stderr};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the library that a run preloads.
fn preloaded() -> PathBuf {
    let listed = said(ledgerline().args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]));
    PathBuf::from(listed.trim().split(':').next().unwrap())
}

#[test]
fn the_name_of_a_library_that_is_gone_is_free_to_nobody_else() {
    let Some(user) = User::new() else { return };
    let source = "#include <unistd.h>
__attribute__((constructor)) static void start(void) { write(1, \"theirs\\n\", 7); }";
    let Some(evil) = Compiled::new(source, &["-shared", "-fPIC"]) else { return };
    let copy = user.copy(&evil.0, "evil.so");
    let library = preloaded();
    assert!(!library.exists(), "the run has ended");
    let mut command = user.command("cp");
    let copied = command.arg(&copy).arg(&library).output().unwrap();
    // An environment that was saved inside the run, and a program that its orphan starts.
    let output =
        Command::new("/bin/echo").arg("ours").env("LD_PRELOAD", &library).output().unwrap();
    if library.exists() {
        std::fs::remove_file(&library).unwrap();
    }
    assert_eq!(output.stdout, b"ours\n", "another user's code runs as root");
    assert!(!copied.status.success(), "{library:?} can be made by anybody");
    for folder in library.ancestors().skip(1) {
        let mut command = user.command("test");
        let may = command.arg("-w").arg(folder).status().unwrap().success();
        assert!(!may, "{folder:?} takes names from others");
    }
}

/// Runs a Python script; returns its output.
const ATTACKER: &str = r#"
import os, sys, time, fcntl
kind, name, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "memory":
    file = os.memfd_create(name, os.MFD_ALLOW_SEALING)
else:
    file = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
source = open(sys.argv[4], "rb")
os.ftruncate(file, size)
at = 0
while True:
    try: start = os.lseek(source.fileno(), at, os.SEEK_DATA)
    except OSError: break
    end = os.lseek(source.fileno(), start, os.SEEK_HOLE)
    os.lseek(source.fileno(), start, os.SEEK_SET)
    os.pwrite(file, source.read(end - start), start)
    at = end
if "sealed" in sys.argv:
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
os.chmod(file, 0o666)
print(file, flush=True)
sys.stdin.readline()
"#;

/// Returns the environment of a program of a run, and its ledger. The run has ended by then.
fn left() -> (Vec<(String, String)>, tempfile::NamedTempFile, u64) {
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::set_permissions(copy.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .unwrap();
    let script = format!("env; cp --sparse=always $LEDGERLINE_LEDGER {}", copy.path().display());
    let environment = said(ledgerline().args(["run", "--", "sh", "-c", &script]));
    let variables = environment.lines().filter_map(|line| line.split_once('='));
    let ours = variables.filter(|(name, _)| name.starts_with("LEDGERLINE_"));
    let size = copy.as_file().metadata().unwrap().len();
    (ours.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(), copy, size)
}

/// A process that outlives a run finds another process with the run's id, which has a ledger at the same descriptor.
/// Here the path leads to that process at once: the kernel reuses an id only after all others were used.
#[test]
fn a_ledger_of_somebody_else_at_the_path_of_a_run_that_ended_charges_nobody() {
    let (Some(user), Some(python)) = (User::new(), python()) else { return };
    let (environment, copy, size) = left();
    let name = |path: &str| {
        let run = &environment.iter().find(|(name, _)| name == "LEDGERLINE_RUN");
        let nonce = run.map_or("", |(_, value)| value.split('.').next().unwrap());
        path.replace("NONCE", nonce)
    };
    // The library stays in place while this run continues.
    let (mut holder, listed, _lines) =
        crate::support::started(&["sh", "-c", "echo $LD_PRELOAD; read line"]);
    let file = user.home().join("ledger");
    for (kind, name, more) in [
        ("memory", name("ledgerline-NONCE"), "sealed"),
        ("memory", name("ledgerline"), "sealed"),
        ("memory", name("ledgerline-NONCE"), "open"),
        ("file", file.display().to_string(), "open"),
    ] {
        let mut attacker = user.command(python);
        attacker.args(["-c", ATTACKER, kind, &name, &size.to_string()]).arg(copy.path()).arg(more);
        let mut attacker = attacker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(attacker.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let path = format!("/proc/{}/fd/{}", attacker.id(), line.trim());
        let before = std::fs::read(&path).map(|bytes| crc(&bytes)).unwrap();
        let mut victim = Command::new("/bin/ls");
        victim.envs(environment.iter().cloned()).env("LEDGERLINE_LEDGER", &path);
        let output = victim.env("LD_PRELOAD", &listed).arg("/").output().unwrap();
        let after = std::fs::read(&path).map(|bytes| crc(&bytes)).unwrap();
        drop(attacker.stdin.take());
        attacker.wait().unwrap();
        assert!(output.status.success(), "{kind} {name} {more}: {}", stderr(&output));
        assert_eq!(before, after, "{kind} {name} {more}: root's program was charged there");
        assert_eq!(stderr(&output), "", "it goes on as it would plain");
    }
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

fn crc(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Opening a foreign terminal or device could have effects.
#[test]
fn what_lies_at_the_path_of_a_run_that_ended_is_not_opened() {
    let (environment, ..) = left();
    let (mut holder, listed, _lines) =
        crate::support::started(&["sh", "-c", "echo $LD_PRELOAD; read line"]);
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let path = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).unwrap();
    let mut events = [0_u8; 64];
    // SAFETY: a descriptor of this test's own; the path ends in zero, and the buffer has the given length.
    let opened = unsafe {
        let watch = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
        assert!(libc::inotify_add_watch(watch, path.as_ptr(), libc::IN_OPEN) >= 0);
        let mut victim = Command::new("/bin/true");
        victim.envs(environment).env("LEDGERLINE_LEDGER", &pipe).env("LD_PRELOAD", &listed);
        let output = victim.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let length = libc::read(watch, events.as_mut_ptr().cast(), events.len());
        libc::close(watch);
        length > 0
    };
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(!opened, "the library opened somebody else's pipe");
}

/// A process that has dropped its rights still has a descriptor of the ledger, if it comes from a place without a path
/// to the ledger.
#[test]
fn a_process_that_dropped_its_rights_cannot_open_the_ledger_to_write() {
    let (Some(user), Some(python)) = (User::new(), python()) else { return };
    let script = "import os, sys
for descriptor in os.listdir('/proc/self/fd'):
    try:
        if 'memfd:ledgerline' in os.readlink('/proc/self/fd/' + descriptor):
            os.open('/proc/self/fd/' + descriptor, os.O_RDWR)
            print('opened')
    except OSError: pass
try:
    os.open(os.environ.get('LEDGERLINE_LEDGER', '/none'), os.O_RDWR)
    print('opened')
except OSError: pass
print('done')";
    let drop = format!(
        "exec setpriv --reuid={0} --regid={0} --clear-groups {python} -c \"$SCRIPT\"",
        user.uid
    );
    let there = ["sh", "-c", &drop];
    let elsewhere = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", &drop];
    for words in [&there[..], &elsewhere] {
        let mut run = ledgerline();
        run.args(["run", "--max", "200M", "--"]).args(words).env("SCRIPT", script);
        let output = run.output().unwrap();
        if stderr(&output).contains("unshare:") {
            eprintln!("skipped: {}", stderr(&output));
            continue;
        }
        assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{}", stderr(&output));
        assert!(stderr(&output).contains("Not accounted: "), "{}", stderr(&output));
    }
}

/// nginx and php-fpm do that: their workers are forked, drop their rights, and continue to allocate.
#[test]
fn a_forked_worker_that_dropped_its_rights_stays_charged_and_limited() {
    let (Some(user), Some(python)) = (User::new(), python()) else { return };
    let script = format!(
        "import os
if os.fork() == 0:
    os.setgroups([]); os.setgid({0}); os.setuid({0})
    kept = bytearray(20 << 20)
    try:
        bytearray(80 << 20)
        print('not limited')
    except MemoryError: print('limited')
    os._exit(0) if os.write(1, b'') == 0 else None
os.wait()",
        user.uid
    );
    let (output, account) = account(&["--max", "90M"], &[python, "-u", "-c", &script]);
    assert_eq!(output.stdout, b"limited\n", "{}", stderr(&output));
    assert_eq!(told(&account), []);
    let charged = groups(&account).iter().filter(|row| row["peak"].as_u64() > Some(20 << 20));
    assert!(charged.count() >= 2, "the root and the worker: {account:#}");
}

#[test]
fn the_file_of_a_ledger_is_its_users_alone() {
    let (mut child, _, _lines) = crate::support::started(&["sh", "-c", "echo; read line"]);
    let files = Path::new("/proc").join(child.id().to_string()).join("fd");
    let mut found = 0;
    for file in files.read_dir().unwrap().flatten() {
        let name = file.path().read_link().unwrap_or_default();
        if name.to_string_lossy().contains("memfd:ledgerline") {
            use std::os::unix::fs::MetadataExt;
            let mode = file.path().metadata().unwrap().mode();
            assert_eq!(mode & 0o7777, 0o600, "{name:?}");
            found += 1;
        }
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    child.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    assert!(found > 0, "{rest}");
}
