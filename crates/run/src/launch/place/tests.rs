//! Tests on generated places.

use super::*;
use std::os::unix::fs::symlink;

const BYTES: &[u8] = b"what a library holds";

fn folder() -> tempfile::TempDir {
    ledgerline_view::terminal::folder::make("place").unwrap()
}

/// Returns the file in the first of these folders that accepts it, and whether it is for all users.
fn placed(base: &Path, places: &[&Path]) -> Result<Placed, Failure> {
    let place = |folder: &&Path| Place { folder: folder.to_path_buf(), is_made: true };
    let places: Vec<_> = places.iter().map(place).collect();
    put_in(&places, base, "preload", BYTES)
}

fn put_into(base: &Path, places: &[&Path]) -> Result<NamedTempFile, Failure> {
    placed(base, places).map(|placed| placed.file)
}

fn files(folder: &Path) -> Vec<OsString> {
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    files
}

/// Sweeps until this file is gone: a starting process on the machine may delay that for a moment.
fn sweep_away(file: &Path) {
    let start = std::time::Instant::now();
    while file.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "{file:?} is not swept");
        sweep(file.parent().unwrap());
    }
}

#[test]
fn a_file_holds_the_library_for_all_and_goes_unless_it_is_left() {
    let folder = folder();
    let mut first = put_into(folder.path(), &[folder.path()]).unwrap();
    let second = put_into(folder.path(), &[folder.path()]).unwrap();
    assert_ne!(first.path(), second.path());
    for placed in [&first, &second] {
        assert_eq!(fs::read(placed.path()).unwrap(), BYTES);
        assert_eq!(placed.path().metadata().unwrap().mode() & 0o7777, 0o555);
        assert!(is_name("preload", placed.path().file_name().unwrap()));
    }
    drop(second);
    first.disable_cleanup(true);
    let path = first.path().to_owned();
    drop(first);
    assert_eq!(files(folder.path()), [path.file_name().unwrap()]);
}

#[test]
fn the_next_place_is_taken_where_one_fails_and_each_is_named_where_all_do() {
    let folder = folder();
    let (gone, spaced) = (folder.path().join("a/b/c"), folder.path().join("a b"));
    fs::create_dir(&spaced).unwrap();
    let put = |places: &[&Path]| put_into(folder.path(), places);
    let placed = put(&[&gone, &spaced, folder.path()]).unwrap();
    assert_eq!(placed.path().parent(), Some(folder.path()));
    let failure = put(&[&gone, &spaced]).err().unwrap();
    assert_eq!(failure.code(), 125);
    let expected = format!("{}: No such file", gone.display());
    assert!(failure.message().contains(&expected), "{failure:?}");
    let expected = format!("{}: LD_PRELOAD cannot carry a space", spaced.display());
    assert!(failure.message().contains(&expected), "{failure:?}");
}

#[test]
fn a_folder_in_which_others_may_make_names_is_no_place_nor_is_what_lies_below() {
    let folder = folder();
    let (open, below) = (folder.path().join("open"), folder.path().join("open/below"));
    fs::create_dir_all(&below).unwrap();
    // The sticky bit protects a name only while its file exists.
    for mode in [0o777, 0o775, 0o1777, 0o1775] {
        fs::set_permissions(&open, Permissions::from_mode(mode)).unwrap();
        for place in [&open, &below, &below.join("made")] {
            let failure = put_into(folder.path(), &[place]).unwrap_err();
            assert!(failure.message().contains("other users may write to"), "{failure:?}");
        }
        assert!(files(&open) == ["below"] && files(&below).is_empty());
    }
    if geteuid().is_root() {
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&open, Some(65534), None).unwrap();
        let failure = put_into(folder.path(), &[&below]).unwrap_err();
        assert!(failure.message().contains("belongs to another user"), "{failure:?}");
    }
}

#[test]
fn a_folder_that_is_open_to_all_comes_before_one_that_is_closed() {
    let folder = folder();
    let [closed, open] = ["closed", "open"].map(|name| folder.path().join(name));
    fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let made = placed(folder.path(), &[&closed, &open]).unwrap();
    assert!(made.for_all && made.file.path().starts_with(&open));
    assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o755, "whatever the umask is");
    let made = placed(folder.path(), &[&closed]).unwrap();
    assert!(!made.for_all && made.file.path().starts_with(&closed));
}

#[test]
fn what_was_left_is_swept_unless_its_run_lives_or_a_process_uses_it() {
    let folder = folder();
    // Names are searched on the whole machine: another process that runs this test has others.
    let path = |letter| {
        folder.path().join(format!("ledgerline-preload-{letter}{:07}.so", std::process::id()))
    };
    let [left, locked, mapped, listed, linked] = ['a', 'b', 'c', 'd', 'e'].map(path);
    for file in [&left, &locked, &mapped, &listed] {
        fs::write(file, BYTES).unwrap();
    }
    symlink(&left, &linked).unwrap();
    let other = folder.path().join("ledgerline-preload-mine.so");
    fs::write(&other, BYTES).unwrap();
    let lock = File::open(&locked).unwrap();
    lock.lock().unwrap();
    // A script maps no file, so the interpreter has it open only; a mapping is what a preload leaves.
    let file = File::open(&mapped).unwrap();
    // SAFETY: a new mapping that is not read.
    let start = unsafe {
        libc::mmap(null_mut(), 1, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    assert_ne!(start, libc::MAP_FAILED);
    let mut user = std::process::Command::new("cat")
        .env("LISTED", format!("x:{}", listed.display()))
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();

    sweep_away(&left);
    let name = |path: &PathBuf| path.file_name().unwrap().to_owned();
    assert_eq!(files(folder.path()), [&locked, &mapped, &listed, &linked, &other].map(name));

    drop(user.stdin.take());
    user.wait().unwrap();
    // SAFETY: the mapping from above.
    unsafe { libc::munmap(start, 1) };
    drop(lock);
    sweep_away(&locked);
    assert_eq!(files(folder.path()), [name(&linked), name(&other)]);
}

#[test]
fn a_process_that_changes_its_program_all_the_time_is_never_seen_with_a_part_of_its_environment() {
    let folder = folder();
    let script = folder.path().join("again.sh");
    fs::write(&script, format!("exec sh {}", script.display())).unwrap();
    // The name is behind so many other variables that an environment read in pieces loses it. Variables are sorted.
    let name = format!("ledgerline-preload-z{:07}.so", std::process::id());
    let mut command = std::process::Command::new("sh");
    command.arg(&script).env("Z_LISTED", format!("/{name}"));
    for number in 0..10 {
        command.env(format!("PADDING_{number}"), "x".repeat(10_000));
    }
    let mut user = command.spawn().unwrap();
    let names = HashSet::from([name.as_bytes()]);
    // On a busy machine it may be executing at each look, and then nothing is reported.
    let start = std::time::Instant::now();
    let (mut told, mut missed) = (0, false);
    while !missed && told < 400 && start.elapsed() < Duration::from_secs(60) {
        if let Some(used) = used(&names) {
            told += 1;
            missed = !used.contains(OsStr::new(&name));
        }
    }
    user.kill().unwrap();
    user.wait().unwrap();
    assert!(!missed, "missed after {told} looks");
    assert!(told > 0);
}

#[test]
fn who_has_no_environment_does_not_wait_for_one() {
    let mut without = std::process::Command::new("cat");
    let mut without = without.env_clear().stdin(std::process::Stdio::piped()).spawn().unwrap();
    let process = PathBuf::from(format!("/proc/{}", without.id()));
    assert_eq!(fs::read(process.join("environ")).unwrap(), b"");
    assert!(!begins(&process));
    drop(without.stdin.take());
    let start = std::time::Instant::now();
    while !fs::read_to_string(process.join("stat")).unwrap().contains(" Z ") {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
    }
    assert!(!begins(&process));
    without.wait().unwrap();
    assert!(!begins(&process));
}

#[test]
fn only_names_that_are_made_here_count() {
    for (name, is) in [
        ("ledgerline-preload-a1B2c3D4.so", true),
        ("ledgerline-record-a1B2c3D4.so", false),
        ("ledgerline-preload-a1B2c3D.so", false),
        ("ledgerline-preload-a1B2c3D45.so", false),
        ("ledgerline-preload-a1B2c3D-.so", false),
        ("ledgerline-preload-a1B2c3D4", false),
        ("libledgerline_preload.so", false),
    ] {
        assert_eq!(is_name("preload", OsStr::new(name)), is, "{name}");
    }
}

#[test]
fn a_file_that_reads_otherwise_is_refused() {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, BYTES).unwrap();
    let file = File::open(&path).unwrap();
    assert!(compare(&file, BYTES).is_ok());
    assert!(compare(&file, b"what a library hold!").is_err());
}
