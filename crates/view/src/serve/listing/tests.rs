use super::*;
use crate::watch::Look;
use std::time::{Instant, SystemTime};

/// A group of a synthetic ledger: its number, its parent's index, its holding and its counts.
#[derive(Clone, Copy, Debug)]
struct Made {
    id: u32,
    parent: usize,
    held: u64,
    charges: u64,
    live: bool,
}

fn made(id: u32, parent: usize, held: u64, charges: u64) -> Made {
    Made { id, parent, held, charges, live: true }
}

/// Returns a look at groups in depth-first order.
fn frame(number: u64, clock: u64, groups: &[Made]) -> Frame {
    let mut depths = Vec::new();
    let rows = groups.iter().enumerate().map(|(place, group)| {
        let depth = if place == 0 { 0 } else { depths[group.parent] + 1 };
        depths.push(depth);
        Row {
            depth,
            state: if group.live { State::Live } else { State::Exited },
            current: group.held,
            peak: group.held,
            counts: Counts {
                charges: group.charges,
                refused: group.charges / 2,
                max_events: group.charges / 3,
                subtree_max_events: group.charges / 2,
                ..Counts::default()
            },
            ..Row::new(GroupId::from_parts(group.id, 1), &format!("/{}", group.id))
        }
    });
    let look = Look {
        at: SystemTime::UNIX_EPOCH,
        clock: Duration::from_secs(clock),
        unit: "bytes",
        steady: true,
        damaged: false,
        rows: rows.collect(),
    };
    let rates = vec![crate::watch::Rates::default(); groups.len()];
    Frame::new(number, look, rates, Instant::now(), Duration::ZERO)
}

fn ids(listed: &Listed, groups: &[Made]) -> Vec<u32> {
    listed.places.iter().map(|&place| groups[place].id).collect()
}

/// Checks the invariants of every look, for any list.
fn check(listed: &Listed, groups: &[Made], limit: usize) {
    assert!(listed.places.len() <= limit, "{} of {limit} are listed", listed.places.len());
    assert_eq!(listed.places[0], 0, "the root is listed");
    for &place in &listed.places {
        assert!(listed.places.contains(&groups[place].parent), "a listed group's parent is listed");
    }
    assert_eq!(listed.others + listed.places.len(), groups.len());
    let own: i64 = listed.own.iter().sum();
    assert_eq!(
        own + listed.held.cast_signed(),
        groups[0].held.cast_signed(),
        "it adds up to the root"
    );
}

#[test]
fn groups_too_far_below_the_root_are_others_and_take_no_room() {
    let groups = [
        made(0, 0, 100, 9),
        made(1, 0, 90, 9),
        made(2, 1, 80, 8),
        made(3, 2, 70, 7),
        made(4, 0, 1, 0),
    ];
    let listed = Listing::new(4, 1).update(&frame(1, 0, &groups));
    assert_eq!(ids(&listed, &groups), [0, 1, 4]);
    assert_eq!((listed.others, listed.held, listed.counts.charges), (2, 80, 8));
    check(&listed, &groups, 4);
}

#[test]
fn the_largest_are_listed_and_the_rest_is_one_sum() {
    let groups = [
        made(0, 0, 100, 10),
        made(1, 0, 60, 6),
        made(2, 1, 50, 5),
        made(3, 0, 30, 3),
        made(4, 0, 8, 1),
    ];
    let listed = Listing::new(3, u32::MAX).update(&frame(1, 0, &groups));
    assert_eq!(ids(&listed, &groups), [0, 1, 2]);
    assert_eq!((listed.others, listed.held), (2, 38));
    assert_eq!(listed.own, [2, 10, 50]);
    assert_eq!(listed.counts.charges, 4);
    check(&listed, &groups, 3);
}

#[test]
fn a_group_of_an_ended_process_is_never_listed_and_what_it_counted_is_kept() {
    let mut groups = vec![made(0, 0, 50, 10), made(1, 0, 40, 4), made(2, 0, 10, 2)];
    let mut listing = Listing::new(10, u32::MAX);
    assert_eq!(listing.update(&frame(1, 0, &groups)).others, 0);
    groups[1] = Made { charges: 7, live: false, ..groups[1] };
    groups[0].held = 10;
    let listed = listing.update(&frame(2, 1, &groups));
    assert_eq!(ids(&listed, &groups), [0, 2]);
    assert_eq!((listed.held, listed.counts.charges), (0, 3), "what it counted since it was listed");
    check(&listed, &groups, 10);
}

#[test]
fn a_listed_group_stays_for_five_minutes_though_a_larger_one_waits() {
    let mut groups = vec![made(0, 0, 110, 1), made(1, 0, 10, 1), made(2, 0, 9, 1)];
    let mut listing = Listing::new(2, u32::MAX);
    assert_eq!(ids(&listing.update(&frame(1, 0, &groups)), &groups), [0, 1]);
    groups[2].held = 100;
    assert_eq!(ids(&listing.update(&frame(2, 299, &groups)), &groups), [0, 1]);
    assert_eq!(ids(&listing.update(&frame(3, 300, &groups)), &groups), [0, 2]);
    // No exchange for one that is a little larger.
    groups[1].held = 150;
    groups[0].held = 250;
    assert_eq!(ids(&listing.update(&frame(4, 900, &groups)), &groups), [0, 2]);
}

#[test]
fn the_same_look_asked_for_twice_counts_once() {
    let groups = [made(0, 0, 3, 9), made(1, 0, 2, 5), made(2, 0, 1, 4)];
    let mut listing = Listing::new(2, u32::MAX);
    let look = frame(1, 0, &groups);
    let first = listing.update(&look);
    assert_eq!(listing.update(&look), first);
    assert_eq!(first.counts.charges, 4);
}

/// A group below a tenant: its number, its holding, its charges, whether it lives.
type Below = (u32, u64, u64, bool);

/// Groups come, grow, shrink, end and go at random, with a `limit` that is far too small: no counter of `other` ever
/// goes back, no listed group's does while it is listed, and every sum is right.
#[test]
fn no_counter_goes_back_whoever_comes_and_goes() {
    for seed in crate::seed::seeds(0, 20, 2_000) {
        let mut state = seed;
        let mut below = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most.max(1)
        };
        let limit = 2 + below(6) as usize;
        let mut listing = Listing::new(limit, u32::MAX);
        // A list of tenants, and one level below that: children by tenant.
        let mut tenants: Vec<(u32, Vec<Below>)> = Vec::new();
        let mut next = 1_u32;
        let mut before: Option<Counts> = None;
        let mut left = 0;
        let mut last_listed: Vec<u32> = Vec::new();
        let mut named: HashMap<u32, Counts> = HashMap::new();
        let mut dipped = false;
        for turn in 0..200_u64 {
            if below(6) == 0 {
                tenants.push((next, Vec::new()));
                next += 1;
            }
            for tenant in &mut tenants {
                if below(3) == 0 {
                    tenant.1.push((next, below(1000), 0, true));
                    next += 1;
                }
                for group in &mut tenant.1 {
                    group.2 += below(10);
                    group.1 = if group.3 { below(1000) } else { 0 };
                    group.3 &= below(12) != 0;
                }
                if below(5) == 0 && !tenant.1.is_empty() {
                    let at = below(tenant.1.len() as u64) as usize;
                    tenant.1.remove(at);
                }
            }
            if below(20) == 0 && !tenants.is_empty() {
                let at = below(tenants.len() as u64) as usize;
                tenants.remove(at);
            }
            let mut groups = vec![made(0, 0, 0, 0)];
            for (id, children) in &tenants {
                let parent = groups.len();
                groups.push(made(*id, 0, 0, 0));
                for &(id, held, charges, live) in children {
                    // A look beside a charge may find a little less than the previous one.
                    let charges = charges.saturating_sub(below(12));
                    groups.push(Made { live, ..made(id, parent, held, charges) });
                    groups[parent].held += held;
                    groups[parent].charges += charges;
                }
                groups[0].held += groups[parent].held;
                groups[0].charges += groups[parent].charges;
            }
            let listed = listing.update(&frame(turn + 1, turn * 40, &groups));
            check(&listed, &groups, limit);
            let counts = listed.counts;
            if let Some(before) = before {
                assert!(counts.charges >= before.charges, "seed {seed}, turn {turn}");
                assert!(counts.refused >= before.refused && counts.max_events >= before.max_events);
            }
            before = Some(counts);
            let now = ids(&listed, &groups);
            let counted: HashMap<u32, Counts> =
                now.iter().copied().zip(listed.counted.iter().copied()).collect();
            for (id, now) in &counted {
                let before = named.get(id).copied().unwrap_or_default();
                assert_eq!(now.zip(before, u64::max), *now, "seed {seed}, turn {turn}, group {id}");
            }
            dipped |= listed
                .places
                .iter()
                .zip(&listed.counted)
                .any(|(&place, counted)| counted.charges > groups[place].charges);
            named = counted;
            let lives = |id: &&u32| groups.iter().any(|group| group.id == **id && group.live);
            left += last_listed.iter().filter(lives).filter(|id| !now.contains(id)).count();
            last_listed = now;
        }
        assert!(seed > 0 || left > 0, "some groups gave up their place, so that this was tried");
        assert!(dipped, "some look found less than the one before");
    }
}
