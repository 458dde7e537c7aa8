//! A full disk, simulated by a limit on the length of files. A separate process, since the limit is the process's.

#[path = "main/report/support/mod.rs"]
mod support;

use ledgerline_view::report::{Recorder, Recording};
use support::{EVERY, look, settings};

fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: setrlimit reads a live struct; SIGXFSZ is ignored, so that the write fails instead.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
}

#[test]
fn a_full_disk_costs_no_more_than_the_looks_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.rec");
    let mut recorder = Recorder::create(&path, settings(1 << 20)).unwrap();
    limit_files(20_000);
    let mut failures = Vec::new();
    for number in 0..2000 {
        if recorder.push(&look(number)).is_err() {
            failures.push(number);
            let read = Recording::open(&path).unwrap();
            assert_eq!(read.torn, 0, "what is torn is cut off");
            assert!(read.length() < EVERY * number);
        }
    }
    assert!(failures.len() > 5, "it is tried again: {failures:?}");
    assert!(failures.windows(2).all(|pair| pair[1] - pair[0] >= 10), "not more than once a second");

    // There is room again. The changes since then are noted, and nothing is counted twice.
    limit_files(libc::RLIM_INFINITY);
    for number in 2000..2100 {
        recorder.push(&look(number)).unwrap();
    }
    let read = Recording::open(&path).unwrap();
    assert_eq!(read.length(), EVERY * 2099);
    assert_eq!(read.root().points.iter().map(|point| point.refused).sum::<u64>(), 2099);
    assert_eq!(read.root().points.last().unwrap().last, look(2099).rows[0].current);

    // A file that is too long and cannot be made anew stays unchanged.
    let mut number = 2100;
    while path.metadata().unwrap().len() < (1 << 20) - (64 << 10) {
        recorder.push(&look(number)).unwrap();
        number += 1;
    }
    limit_files(20_000);
    let mut refused = 0;
    for _ in 0..3000 {
        refused += u32::from(recorder.push(&look(number)).is_err());
        number += 1;
    }
    assert!(refused > 0);
    assert!(path.metadata().unwrap().len() <= 1 << 20);
    limit_files(libc::RLIM_INFINITY);
    for _ in 0..20 {
        let _ = recorder.push(&look(number));
        number += 1;
    }
    let read = Recording::open(&path).unwrap();
    assert_eq!(
        read.root().points.iter().map(|point| point.refused).sum::<u64>(),
        u64::from(number - 1)
    );
}
