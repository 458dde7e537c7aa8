//! An hour of each group in memory, coarser with age, within a bound for all groups of a ledger.

use crate::watch::History;
use std::time::Duration;

/// The most points of all groups of a ledger: 64 MiB of 48 bytes each.
const POINTS: usize = (64 << 20) / 48;
/// The most points of a group if there are few groups: each second of the last minute, and the hour before it in steps
/// of 4 seconds, 16, and a minute.
const POINTS_MOST: usize = 300;
/// With fewer points the history of an hour is too coarse to be useful.
const POINTS_LEAST: usize = 100;

/// Makes a history for a ledger with this many groups at its first look. Later groups share the same room.
pub(crate) fn of(step: Duration, groups: usize) -> History {
    let (points, groups) = room(groups);
    History::new(step, points, groups)
}

/// Returns the number of points per group, and the number of groups with points.
fn room(groups: usize) -> (usize, usize) {
    let points = (POINTS / (groups + groups / 4).max(1)).clamp(POINTS_LEAST, POINTS_MOST);
    (points, POINTS / points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_points_of_all_groups_stay_within_the_bound_however_many_there_are() {
        for groups in [0, 1, 100, 1000, 10_000, 1 << 20] {
            let (points, room) = room(groups);
            assert!(points * room <= POINTS, "{groups}: {points} points of {room} groups");
            assert!(room >= groups.min(10_000), "{groups}: {room}");
        }
    }
}
