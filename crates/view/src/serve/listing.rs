//! The groups of a ledger that metrics name, and the sum of the others.
//!
//! Metrics that name each of a million groups would overload the monitoring system. So at most `limit` groups are
//! listed, none of them more than `depth` levels below the root, and the rest is one row, `other`. Three things hold:
//!
//! * **A listed group's parent is listed.** So the unlisted groups form whole subtrees, and their sum is that of the
//!   topmost ones. The listed groups' own holdings and `other` add up to the root's.
//! * **No counter goes back.** If a program charges during a look, the look may find a little less than the previous
//!   one. Then the previous number stands, since readers of metrics would take a decrease for a restart. `other` adds
//!   up its groups' counts since the previous look, and never subtracts: a newly listed group leaves its earlier counts
//!   there. A group that leaves the list adds only its counts from then on.
//! * **The list seldom changes.** Room goes to the largest first. A group then stays listed while it lives, unless one
//!   that is twice as large finds no room: that one may replace the smallest that has been listed for five minutes.
//!
//! ```text
//! update      keep listed groups that live and have a listed parent
//!             give room to the largest whose parent is listed, repeatedly
//!             exchange: the smallest leaf for the largest without room, while that is twice as large
//!             add the counts of unlisted groups since the previous look to `other`
//! ```

use crate::serve::frame::{Frame, holds};
use crate::watch::{Counts, Row, State};
use ledgerline::GroupId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

/// The least time that a group stays listed, if it lives.
const STAY: Duration = Duration::from_secs(5 * 60);

/// The list of a ledger's metrics, from scrape to scrape.
#[derive(Debug)]
pub(crate) struct Listing {
    limit: usize,
    /// The most levels below the root of a listed group.
    depth: u32,
    /// The time since which a group is listed, by the clock of looks.
    since: HashMap<GroupId, Duration>,
    /// The largest counts of each group in any look.
    before: HashMap<GroupId, Counts>,
    other: Counts,
    /// The last look, and its result.
    last: Option<(u64, Listed)>,
}

/// The listed part of one look.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    /// The indexes of the listed groups, in the order of the look. The root is the first.
    pub(crate) places: Vec<usize>,
    /// The units that each of them holds itself, without the groups below it.
    pub(crate) own: Vec<i64>,
    /// The counts of each of them. They never go back.
    pub(crate) counted: Vec<Counts>,
    /// The number of groups that are not listed.
    pub(crate) others: usize,
    /// The sum of units that those hold.
    pub(crate) held: u64,
    /// The sum of their counts while they were not listed.
    pub(crate) counts: Counts,
}

/// Adds the counts since `before` to `sum`. A group's counts include those below it, except for its own events of
/// limits. So `topmost` is whether no group above it adds the same.
fn add_since(sum: &mut Counts, before: Counts, now: Counts, topmost: bool) {
    let own = Counts { max_events: now.max_events, high_events: now.high_events, ..before };
    let grown = if topmost { now } else { own }.zip(before, u64::saturating_sub);
    *sum = sum.zip(grown, u64::saturating_add);
}

impl Listing {
    /// Makes a listing of at most this many groups, the root among them, down to this level below the root.
    pub(crate) fn new(limit: usize, depth: u32) -> Listing {
        Listing {
            limit: limit.max(1),
            depth,
            since: HashMap::new(),
            before: HashMap::new(),
            other: Counts::default(),
            last: None,
        }
    }

    /// Returns the listed part of a look. A look that was seen before, or is older, gives the last result again.
    pub(crate) fn update(&mut self, frame: &Frame) -> Listed {
        if let Some((number, listed)) = &self.last
            && *number >= frame.number
        {
            return listed.clone();
        }
        let listed = self.list(frame);
        self.last = Some((frame.number, listed.clone()));
        listed
    }

    fn list(&mut self, frame: &Frame) -> Listed {
        let rows = &frame.look.rows;
        let is_listed = self.choose(frame);
        let clock = frame.look.clock;
        let chosen = rows.iter().zip(&is_listed).filter(|&(_, listed)| *listed);
        self.since = chosen
            .map(|(row, _)| (row.id, self.since.get(&row.id).copied().unwrap_or(clock)))
            .collect();

        let before = |row: &Row| self.before.get(&row.id).copied().unwrap_or_default();
        let counts: Vec<Counts> =
            rows.iter().map(|row| row.counts.zip(before(row), u64::max)).collect();
        let mut own: Vec<i64> = rows.iter().map(|row| holds(row).cast_signed()).collect();
        let (mut others, mut held) = (0, 0_u64);
        for (place, row) in rows.iter().enumerate().skip(1) {
            let parent = frame.parents[place];
            own[parent] = own[parent].saturating_sub(holds(row).cast_signed());
            if !is_listed[place] {
                let topmost = is_listed[parent];
                others += 1;
                held = held.saturating_add(if topmost { holds(row) } else { 0 });
                add_since(&mut self.other, before(row), counts[place], topmost);
            }
        }
        self.before.clear();
        self.before.extend(rows.iter().map(|row| row.id).zip(counts.iter().copied()));
        let places: Vec<usize> = (0..rows.len()).filter(|&place| is_listed[place]).collect();
        let own = places.iter().map(|&place| own[place]).collect();
        let counted = places.iter().map(|&place| counts[place]).collect();
        Listed { places, own, counted, others, held, counts: self.other }
    }

    /// Chooses whether each group is listed.
    fn choose(&self, frame: &Frame) -> Vec<bool> {
        let (rows, parents) = (&frame.look.rows, &frame.parents);
        let mut listed = vec![false; rows.len()];
        listed[0] = true;
        let mut many = 1;
        // The number of listed groups right below each: a group without any is a leaf, and may go.
        let mut below = vec![0_usize; rows.len()];
        // The unlisted groups with a listed parent, the largest first.
        let mut waiting: BinaryHeap<(u64, Reverse<usize>)> = BinaryHeap::new();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
        for place in 1..rows.len() {
            if rows[place].state != State::Live || rows[place].depth > self.depth {
                continue;
            }
            let parent = parents[place];
            children[parent].push(place);
            // A test may reduce the limit.
            if listed[parent] && many < self.limit && self.since.contains_key(&rows[place].id) {
                listed[place] = true;
                below[parent] += 1;
                many += 1;
            }
        }
        let offer = |waiting: &mut BinaryHeap<_>, listed: &[bool], parent: usize| {
            let open = children[parent].iter().filter(|&&child| !listed[child]);
            waiting.extend(open.map(|&child| (holds(&rows[child]), Reverse(child))));
        };
        for place in 0..rows.len() {
            if listed[place] {
                offer(&mut waiting, &listed, place);
            }
        }
        while many < self.limit
            && let Some((_, Reverse(place))) = waiting.pop()
        {
            listed[place] = true;
            below[parents[place]] += 1;
            many += 1;
            offer(&mut waiting, &listed, place);
        }
        self.exchange(frame, &mut listed, &mut below, waiting);
        listed
    }

    /// Replaces small groups by those that are twice as large and found no room.
    fn exchange(
        &self,
        frame: &Frame,
        listed: &mut [bool],
        below: &mut [usize],
        mut waiting: BinaryHeap<(u64, Reverse<usize>)>,
    ) {
        let (rows, parents) = (&frame.look.rows, &frame.parents);
        let may_go = |place: usize, below: &[usize]| {
            let since = self.since.get(&rows[place].id);
            let stayed = since.is_some_and(|&since| frame.look.clock.saturating_sub(since) >= STAY);
            place > 0 && below[place] == 0 && stayed
        };
        let mut leaves: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let leaf = |place: usize| Reverse((holds(&rows[place]), place));
        leaves.extend((0..rows.len()).filter(|&at| listed[at] && may_go(at, below)).map(leaf));
        while let (Some(&(large, Reverse(comes))), Some(&Reverse((small, goes)))) =
            (waiting.peek(), leaves.peek())
        {
            if large <= small.saturating_mul(2) {
                break;
            }
            if !listed[parents[comes]] {
                waiting.pop();
                continue;
            }
            leaves.pop();
            if !listed[goes] || below[goes] > 0 || parents[comes] == goes {
                continue;
            }
            waiting.pop();
            listed[goes] = false;
            below[parents[goes]] -= 1;
            listed[comes] = true;
            below[parents[comes]] += 1;
            if may_go(parents[goes], below) && listed[parents[goes]] {
                leaves.push(leaf(parents[goes]));
            }
        }
    }
}

#[cfg(test)]
mod tests;
