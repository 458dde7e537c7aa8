//! A recording on one grid of time.

use crate::report::{Group, Recording};
use std::time::Duration;

/// The holdings of groups in columns of equal time.
pub(crate) struct Grid {
    start: Duration,
    /// The nanoseconds of a column.
    width: f64,
    columns: usize,
}

/// One group on the grid. The first column is that of its birth; those after its end are left out.
pub(crate) struct Track {
    /// The column of the first value.
    pub(crate) first: usize,
    /// The units held at the end of each column.
    pub(crate) last: Vec<u64>,
    /// The maximum in each column.
    pub(crate) most: Vec<u64>,
    /// Refusals and reclaimed units: the columns that have any, with the number.
    pub(crate) refused: Vec<(usize, u64)>,
    pub(crate) reclaimed: Vec<(usize, u64)>,
}

impl Grid {
    /// Makes a grid over a recording.
    pub(crate) fn new(recording: &Recording, columns: usize) -> Grid {
        let columns = columns.max(1);
        // A recording of one look has a width nevertheless.
        let length = recording.length().max(Duration::from_millis(1));
        Grid { start: recording.start, width: length.as_nanos() as f64 / columns as f64, columns }
    }

    /// Returns the column that a time lies in.
    pub(crate) fn column(&self, time: Duration) -> usize {
        let passed = time.saturating_sub(self.start).as_nanos() as f64;
        // A time at the border belongs to the column before it.
        ((passed / self.width).ceil() as usize).saturating_sub(1).min(self.columns - 1)
    }

    /// Puts a group on the grid.
    pub(crate) fn track(&self, group: &Group) -> Track {
        let first = group.points.first().map_or(group.born, |point| point.end());
        let first = self.column(first);
        let end = group.ended.map_or(self.columns - 1, |ended| self.column(ended)).max(first);
        let many = end - first + 1;
        let (mut last, mut most) = (vec![None; many], vec![0_u64; many]);
        let (mut refused, mut reclaimed) = (Vec::new(), Vec::new());
        for point in &group.points {
            let at = self.column(point.end()).clamp(first, end) - first;
            last[at] = Some(point.last);
            most[at] = most[at].max(point.most);
            add(&mut refused, first + at, point.refused);
            add(&mut reclaimed, first + at, point.reclaimed);
        }
        // Without a point, nothing changed.
        let mut held = 0;
        let last = last.into_iter().zip(&mut most).map(|(value, most)| {
            *most = (*most).max(held);
            held = value.unwrap_or(held);
            held
        });
        let last = last.collect();
        Track { first, last, most, refused, reclaimed }
    }
}

impl Track {
    /// Returns the units held at the end of a column.
    pub(crate) fn at(&self, column: usize) -> u64 {
        column.checked_sub(self.first).and_then(|at| self.last.get(at)).copied().unwrap_or(0)
    }
}

fn add(marks: &mut Vec<(usize, u64)>, column: usize, many: u64) {
    match marks.last_mut() {
        _ if many == 0 => {}
        Some((last, sum)) if *last == column => *sum = sum.saturating_add(many),
        _ => marks.push((column, many)),
    }
}

/// Returns the groups that are stacked, with the index of their parent. They are the root's children or, along a chain
/// of only children, those of the last one that has children.
pub(crate) fn stacked(recording: &Recording) -> (usize, Vec<usize>) {
    let mut below = 0;
    loop {
        let children = children(recording, below);
        let most = children.iter().copied().max_by_key(|&place| recording.groups[place].peak);
        match most {
            Some(only) if children.len() == 1 && !self::children(recording, only).is_empty() => {
                below = only;
            }
            _ => return (below, children),
        }
    }
}

/// Returns the children of a group, those with the largest peaks first.
pub(crate) fn children(recording: &Recording, place: usize) -> Vec<usize> {
    let parent = &recording.groups[place];
    let prefix = if parent.depth == 0 { "/" } else { &*format!("{}/", parent.path) };
    let is_child =
        |group: &Group| group.depth == parent.depth + 1 && group.path.starts_with(prefix);
    let mut children: Vec<usize> =
        (1..recording.groups.len()).filter(|&at| is_child(&recording.groups[at])).collect();
    children.sort_by_key(|&at| std::cmp::Reverse(recording.groups[at].peak));
    children
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Point;
    use std::time::UNIX_EPOCH;

    fn group(path: &str, points: &[(u64, u64, u64)]) -> Group {
        let point = |&(end, last, most): &(u64, u64, u64)| Point {
            start: Duration::from_secs(end - 1),
            length: Duration::from_secs(1),
            least: last,
            most,
            last,
            refused: u64::from(most > last),
            reclaimed: 0,
        };
        Group {
            path: path.to_owned(),
            depth: path.matches('/').count() as u32 - u32::from(path == "/"),
            pid: 0,
            program: String::new(),
            born: Duration::from_secs(points[0].0 - 1),
            ended: None,
            current: 0,
            peak: points.iter().map(|point| point.2).max().unwrap(),
            peak_at: None,
            charges: 0,
            refused: 0,
            reclaimed: 0,
            max: None,
            points: points.iter().map(point).collect(),
        }
    }

    fn recording(groups: Vec<Group>) -> Recording {
        Recording {
            title: String::new(),
            unit: "bytes".into(),
            at: UNIX_EPOCH,
            every: Duration::from_secs(1),
            start: Duration::from_secs(10),
            end: Duration::from_secs(20),
            how: None,
            left_out: 0,
            torn: 0,
            groups,
        }
    }

    #[test]
    fn a_value_is_held_until_the_next_one() {
        let mut group = group("/", &[(12, 5, 9), (15, 7, 7), (18, 0, 7)]);
        group.ended = Some(Duration::from_secs(18));
        let grid = Grid::new(&recording(Vec::new()), 10);
        let track = grid.track(&group);
        assert_eq!(track.first, 1);
        assert_eq!(track.last, [5, 5, 5, 7, 7, 7, 0]);
        assert_eq!(track.most, [9, 5, 5, 7, 7, 7, 7]);
        assert_eq!(track.refused, [(1, 1), (7, 1)]);
        assert_eq!((track.at(0), track.at(4), track.at(9)), (0, 7, 0));
        // In one column: the last value and the maximum.
        let track = Grid::new(&recording(Vec::new()), 1).track(&group);
        assert_eq!((track.last, track.most, track.refused), (vec![0], vec![9], vec![(0, 2)]));
    }

    #[test]
    fn an_only_child_is_looked_through() {
        let one = [(11, 1, 1)];
        let of = |paths: &[&str]| {
            let read = recording(paths.iter().map(|path| group(path, &one)).collect());
            let (below, stacked) = stacked(&read);
            let path = |at: usize| read.groups[at].path.clone();
            (path(below), stacked.into_iter().map(path).collect::<Vec<_>>())
        };
        let is = |below: &str, paths: &[&str]| {
            (below.to_owned(), paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["/", "/a", "/b", "/a/x"]), is("/", &["/a", "/b"]));
        assert_eq!(of(&["/", "/a", "/a/x", "/a/y"]), is("/a", &["/a/x", "/a/y"]));
        assert_eq!(of(&["/", "/a"]), is("/", &["/a"]));
        assert_eq!(of(&["/"]), is("/", &[]));
    }
}
