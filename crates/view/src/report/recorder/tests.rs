//! Recordings of synthetic looks, read again.

use super::*;
use crate::report::Recording;
use crate::watch::Counts;

fn row(index: u32, path: &str, current: u64, peak: u64) -> Row {
    Row { pid: index, current, peak, ..Row::new(GroupId::from_parts(index, 1), path) }
}

fn look(tenth: u64, rows: Vec<Row>) -> Look {
    let clock = Duration::from_secs(50) + Duration::from_millis(100) * tenth as u32;
    let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000) + clock;
    Look { at, clock, unit: "bytes", steady: true, damaged: false, rows }
}

fn settings(size: u64) -> Settings {
    Settings { title: "a job".to_owned(), every: Duration::from_millis(100), size }
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) % below
}

#[test]
fn what_was_looked_at_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.rec");
    let mut recorder = Recorder::create(&path, settings(1 << 20)).unwrap();
    let refused = |refused| Counts { refused, ..Counts::default() };
    let before = Row { counts: refused(9), ..row(0, "/", 100, 500) };
    recorder.push(&look(0, vec![before])).unwrap();
    let root = |current, many| Row { counts: refused(many), ..row(0, "/", current, 500) };
    let limited = |current, many, state| Row {
        counts: refused(many),
        state,
        max: Some(4096),
        ..row(7, "/sort.7", current, 300)
    };
    recorder.push(&look(1, vec![root(250, 9), limited(150, 0, State::Live)])).unwrap();
    recorder.push(&look(2, vec![root(250, 9), limited(150, 0, State::Live)])).unwrap();
    recorder.push(&look(3, vec![root(350, 11), limited(250, 2, State::Live)])).unwrap();
    recorder.push(&look(5, vec![root(100, 11), limited(200, 2, State::Exited)])).unwrap();
    recorder.push(&look(6, vec![root(90, 11)])).unwrap();
    recorder.end("exit code 3").unwrap();

    let read = Recording::open(&path).unwrap();
    assert_eq!((&*read.title, &*read.unit, read.torn), ("a job", "bytes", 0));
    assert_eq!(read.how.as_deref(), Some("exit code 3"));
    assert_eq!(read.length(), Duration::from_millis(600));
    let [root, sort] = &read.groups[..] else { panic!("{read:?}") };
    let lasts: Vec<u64> = root.points.iter().map(|point| point.last).collect();
    assert_eq!(lasts, [100, 250, 350, 100, 90]);
    assert_eq!(root.refused, 11);
    let refused =
        |group: &crate::report::Group| group.points.iter().map(|p| p.refused).sum::<u64>();
    assert_eq!(refused(root), 2, "what was refused before the recording is not in it");
    assert_eq!(root.peak_at, None, "the peak was before the recording");
    assert_eq!((sort.pid, sort.peak, sort.max, refused(sort)), (7, 300, Some(4096), 2));
    assert_eq!(sort.current, 200, "what it held at its end");
    assert_eq!(sort.points.last().unwrap().last, 0);
    assert_eq!(sort.points[0].most, 300, "a peak that no look met");
    let at = |tenth: u64| Some(look(tenth, Vec::new()).clock);
    assert_eq!((Some(sort.born), sort.ended, sort.peak_at), (at(1), at(5), at(1)));
}

#[test]
fn the_file_stays_as_small_as_asked_for_and_keeps_all_refusals_of_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.rec");
    let mut recorder = Recorder::create(&path, settings(LEAST_SIZE)).unwrap();
    let mut state = crate::seed::seed(1);
    let (mut largest, mut replaced) = (0, 0);
    let mut most = 0;
    for tenth in 0..20_000 {
        let mut rows = vec![row(0, "/", random(&mut state, 1 << 40), 1 << 41)];
        rows[0].counts.refused = tenth;
        for index in 1..6 {
            let mut row =
                row(index, &format!("/group.{index}"), random(&mut state, 1 << 40), 1 << 40);
            row.counts.charges = tenth;
            most = most.max(row.current);
            rows.push(row);
        }
        recorder.push(&look(tenth, rows)).unwrap();
        let length = path.metadata().unwrap().len();
        replaced += u64::from(length < largest);
        largest = largest.max(length);
        assert!(length <= LEAST_SIZE, "{length}");
        if tenth % 997 == 0 {
            Recording::open(&path).unwrap();
        }
    }
    assert!(replaced > 0, "it became too long at least once");
    let read = Recording::open(&path).unwrap();
    assert_eq!(read.groups.len(), 6);
    assert_eq!(read.length(), Duration::from_millis(100) * 19_999);
    assert_eq!(read.root().points.iter().map(|point| point.refused).sum::<u64>(), 19_999);
    let seen = read.groups[1..].iter().flat_map(|group| &group.points).map(|point| point.most);
    assert_eq!(seen.max(), Some(most), "the most that was seen is not averaged away");
    let lengths: Vec<u128> =
        read.root().points.iter().map(|point| point.length.as_nanos()).collect();
    assert!(lengths[0] > 4 * lengths[lengths.len() - 1], "coarser with age: {lengths:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
}

#[test]
fn any_number_of_groups_fits_and_the_largest_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.rec");
    let mut recorder = Recorder::create(&path, settings(LEAST_SIZE)).unwrap();
    for tenth in 0..3000_u64 {
        let mut rows = vec![row(0, "/", 1 << 30, 1 << 30), row(1, "/large", 1 << 29, 1 << 29)];
        let new = |n: u64| row(n as u32, &format!("/{}.{n}", "small".repeat(20)), 5000, 9000 + n);
        rows.extend((tenth * 3..tenth * 3 + 20).map(|n| new(n + 2)));
        recorder.push(&look(tenth, rows)).unwrap();
        assert!(path.metadata().unwrap().len() <= LEAST_SIZE);
    }
    let read = Recording::open(&path).unwrap();
    assert!(read.left_out > 0);
    let large = read.groups.iter().find(|group| group.path == "/large").unwrap();
    assert_eq!((large.born, large.ended), (look(0, Vec::new()).clock, None));
    assert_eq!(read.root().points[0].start, look(0, Vec::new()).clock);
}

#[test]
fn a_recording_that_breaks_off_anywhere_is_read_up_to_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.rec");
    let mut recorder = Recorder::create(&path, settings(1 << 20)).unwrap();
    for tenth in 0..50 {
        recorder.push(&look(tenth, vec![row(0, "/", tenth * 10, 1000)])).unwrap();
    }
    let whole = std::fs::read(&path).unwrap();
    let mut before = 0;
    for length in 0..whole.len() {
        match Recording::parse(&whole[..length]) {
            Ok(read) => {
                assert!(read.length() <= Duration::from_millis(4900));
                assert!(read.root().points.len() >= before, "more bytes never say less");
                before = read.root().points.len();
            }
            Err(_) => assert_eq!(before, 0, "readable once is readable later, too"),
        }
    }
    assert_eq!(before, 49);
}

#[test]
fn what_is_no_file_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Recorder::create(folder.path(), settings(0)).is_err());
    assert!(Recorder::create(Path::new("/dev/null"), settings(0)).is_err());
    assert!(Recorder::create(&folder.path().join("no/such"), settings(0)).is_err());
    // A link stays, and its target is replaced.
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    std::fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    Recorder::create(&link, settings(0)).unwrap();
    assert!(link.is_symlink() && std::fs::read(&file).unwrap().starts_with(b"ledgrec\n"));
}
