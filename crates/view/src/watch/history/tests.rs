//! Histories of synthetic looks.

use super::*;
use crate::watch::Counts;
use std::time::UNIX_EPOCH;

fn row(index: u32, path: &str, current: u64, peak: u64) -> Row {
    Row { current, peak, ..Row::new(GroupId::from_parts(index, 1), path) }
}

fn look(second: u64, rows: Vec<Row>) -> Look {
    let clock = Duration::from_secs(second);
    Look { at: UNIX_EPOCH, clock, unit: "bytes", steady: true, damaged: false, rows }
}

fn history(groups: usize) -> History {
    History::new(Duration::from_secs(1), 100, groups)
}

fn paths(history: &History) -> Vec<&str> {
    let mut paths: Vec<&str> = history.iter().map(|group| &*group.path).collect();
    paths.sort_unstable();
    paths
}

#[test]
fn only_what_was_counted_since_the_first_look_is_counted() {
    let mut history = history(10);
    let with = |row: Row, refused, reclaimed| {
        let counts = Counts { refused, reclaimed, ..row.counts };
        Row { counts, ..row }
    };
    history.push(&look(0, vec![with(row(0, "/", 5, 9), 100, 50)]));
    // A group that is new since then counted everything since then.
    let rows = vec![with(row(0, "/", 5, 9), 103, 57), with(row(1, "/a", 5, 9), 2, 1)];
    history.push(&look(1, rows));
    let sums = |index| {
        let points = history.get(GroupId::from_parts(index, 1)).unwrap().series.points();
        (points.iter().map(|p| p.refused).sum(), points.iter().map(|p| p.reclaimed).sum())
    };
    let (root, a): ((u64, u64), (u64, u64)) = (sums(0), sums(1));
    assert_eq!((root, a), ((3, 7), (2, 1)));
}

#[test]
fn a_peak_between_two_looks_is_in_the_series() {
    let mut history = history(10);
    history.push(&look(0, vec![row(0, "/", 5, 900)]));
    history.push(&look(1, vec![row(0, "/", 5, 900)]));
    let most = |history: &History| history.get(GroupId::from_parts(0, 1)).unwrap().series.most();
    assert_eq!(most(&history), 5, "the peak may be of long ago");
    history.push(&look(2, vec![row(0, "/", 5, 901)]));
    assert_eq!(most(&history), 901);
}

#[test]
fn groups_that_ended_long_ago_make_room_first() {
    let mut history = history(4);
    let rows = |names: &[(u32, &str)]| {
        let groups = names.iter().map(|&(index, path)| row(index, path, 10, 10));
        [row(0, "/", 50, 50)].into_iter().chain(groups).collect()
    };
    history.push(&look(0, rows(&[(1, "/a"), (2, "/b"), (3, "/c")])));
    history.push(&look(1, rows(&[(2, "/b"), (3, "/c")])));
    history.push(&look(2, rows(&[(2, "/b")])));
    assert_eq!(paths(&history), ["/", "/a", "/b", "/c"], "as long as there is room");
    history.push(&look(3, rows(&[(2, "/b"), (4, "/d")])));
    assert_eq!(paths(&history), ["/", "/b", "/c", "/d"]);
    history.push(&look(4, rows(&[(2, "/b"), (4, "/d"), (5, "/e")])));
    assert_eq!(paths(&history), ["/", "/b", "/d", "/e"]);
    // All live: a group that is not larger gets no room.
    history.push(&look(5, rows(&[(2, "/b"), (4, "/d"), (5, "/e"), (6, "/f")])));
    assert_eq!(paths(&history), ["/", "/b", "/d", "/e"]);
    let mut many = rows(&[(2, "/b"), (4, "/d"), (5, "/e"), (6, "/f")]);
    many.push(row(7, "/large", 100, 100));
    history.push(&look(6, many));
    assert_eq!(history.len(), 4);
    assert!(paths(&history).contains(&"/large") && paths(&history).contains(&"/"));
}

#[test]
fn what_ended_holds_nothing_and_is_seen_no_more() {
    let mut history = history(4);
    history.push(&look(0, vec![row(0, "/", 5, 5), row(1, "/a.7", 5, 5)]));
    for second in 1..4 {
        let exited = Row { state: State::Exited, ..row(1, "/a.7", 5, 5) };
        history.push(&look(second, vec![row(0, "/", 0, 5), exited]));
    }
    let group = history.get(GroupId::from_parts(1, 1)).unwrap();
    assert!(group.ended);
    assert_eq!(group.seen, Duration::from_secs(1));
    assert_eq!(group.series.points().last().unwrap().last, 0);
    let damaged = Row { state: State::Damaged, ..row(2, "/wild", 0, 0) };
    history.push(&look(4, vec![row(0, "/", 0, 5), damaged]));
    assert_eq!(paths(&history), ["/", "/a.7"], "a damaged row says nothing");
}

#[test]
fn the_bound_holds_whatever_comes_and_goes() {
    let mut history = history(7);
    let mut random = crate::seed::seed(12345);
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % below
    };
    for second in 0..500 {
        let mut rows = vec![row(0, "/", 1, 1)];
        for index in 1..30 {
            if next(3) == 0 {
                let peak = next(1000);
                let state = if next(4) == 0 { State::Exited } else { State::Live };
                rows.push(Row { state, ..row(index, &format!("/{index}"), peak / 2, peak) });
            }
        }
        history.push(&look(second, rows));
        assert!(history.len() <= 7);
        assert!(paths(&history).contains(&"/"));
    }
}
