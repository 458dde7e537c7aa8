//! A recording survives the death of its writer, at any moment.

use super::support::{EVERY, look, settings};
use ledgerline_view::report::{LEAST_SIZE, Recorder, Recording};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// The variable with the file that the killed process writes.
const FILE: &str = "LEDGERLINE_TEST_RECORDING";

#[test]
fn what_was_written_is_read_whenever_the_writer_is_killed() {
    if let Some(file) = std::env::var_os(FILE) {
        return write(file.as_ref());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.rec");
    let mut random = 88_172_645_463_325_252_u64;
    let (mut replaced, mut longest) = (0, 0);
    for _ in 0..20 {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "report::killed::what_was_written_is_read_whenever_the_writer_is_killed",
                "--nocapture",
            ])
            .env(FILE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(writer.stdout.take().unwrap()).lines();
        // It has begun; then it continues for some looks, usually enough to make the file anew at least once.
        let first = said.by_ref().map_while(Result::ok).find_map(|line| line.parse::<u32>().ok());
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut last = first;
        for _ in 0..random % 3000 {
            last = said.next().and_then(Result::ok).and_then(|line| line.parse().ok()).or(last);
        }
        writer.kill().unwrap();
        writer.wait().unwrap();

        // Everything that it reported as written exists.
        let last = last.expect("it wrote something");
        let read = Recording::open(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(read.length() >= EVERY * last, "{:?} of {last}", read.length());
        assert_eq!(read.groups.len(), 10);
        // Every refusal from the first look to the last existing one, whole or merged.
        let refused: u64 = read.root().points.iter().map(|point| point.refused).sum();
        assert_eq!(refused, u64::from(number_of(&read)), "after {last}");
        let length = path.metadata().unwrap().len();
        assert!(length <= LEAST_SIZE);
        longest = longest.max(last);
        // Without merging it can hold no more than some 2000 looks.
        replaced += u32::from(last > 3000);
    }
    assert!(replaced > 0, "no file was made anew: {longest} looks at most");
    // A kill between making and renaming the second file leaves that, and it is never read.
    let others = std::fs::read_dir(folder.path()).unwrap().filter_map(Result::ok);
    assert!(others.map(|other| other.file_name()).all(|name| {
        name == "job.rec" || name.to_string_lossy().starts_with(".ledgerline-record")
    }));
}

/// Returns the number of the last look of a recording.
fn number_of(recording: &Recording) -> u32 {
    (recording.length().as_nanos() / EVERY.as_nanos()) as u32
}

/// Writes until it is killed, and reports its progress.
fn write(path: &std::path::Path) {
    let mut recorder = Recorder::create(path, settings(LEAST_SIZE)).unwrap();
    let mut out = std::io::stdout().lock();
    for number in 0.. {
        recorder.push(&look(number)).unwrap();
        // It is not killed at first: the file is nearly full before the first report.
        if number > 1800 && writeln!(out, "{number}").is_err() {
            return;
        }
    }
}
