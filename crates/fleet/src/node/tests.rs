//! Tests of the node alone.

use super::*;
use crate::message::{Granted, Refusal, Reply, Sync};

const TTL: u64 = 3_000;
const GRACE: u64 = 1_000;

fn node(at_end: AtEnd) -> Node {
    let mut node = Node::new("n", 7, Settings { at_end, reserve: 10 });
    node.open(0, "/o/j");
    node
}

fn say(node: &mut Node, now: u64, used: u64) -> Sync {
    let mut turn = node.begin(now, Scope::All, |_| Reading { used, refused: 0 });
    for lower in turn.lowers() {
        lower.done(lower.to().max(used), used);
    }
    node.say(now, turn)
}

fn grant(message: &Sync, lease: u64) -> Reply {
    let line = Granted {
        lease,
        asked: 0,
        wanted: 0,
        due: 0,
        limit: 1_000,
        leased: lease,
        state: State::Open,
    };
    let lines = vec![line; message.lines.len()];
    Reply::Synced { sequence: message.sequence, at: 1, ttl: TTL, grace: GRACE, lines }
}

fn hear(node: &mut Node, now: u64, message: &Sync, lease: u64) -> Vec<Action> {
    node.take(now, message.sequence, grant(message, lease))
}

#[test]
fn a_reply_to_an_older_message_raises_nothing() {
    let mut node = node(AtEnd::Shrink);
    let first = say(&mut node, 0, 0);
    let second = say(&mut node, 1, 0);
    assert!(hear(&mut node, 2, &first, 50).is_empty());
    assert_eq!(hear(&mut node, 2, &second, 20).len(), 2);
    assert!(hear(&mut node, 3, &second, 30).is_empty(), "a reply counts once");
    assert_eq!(node.holding("/o/j").unwrap().max, 20);
}

#[test]
fn a_reply_that_comes_after_its_lease_has_ended_raises_nothing() {
    let mut node = node(AtEnd::Shrink);
    let message = say(&mut node, 0, 0);
    assert!(hear(&mut node, TTL, &message, 50).is_empty());
    assert_eq!(node.holding("/o/j").unwrap().max, 0);
}

#[test]
fn a_lease_is_measured_from_before_the_message_was_sent() {
    let mut node = node(AtEnd::Shrink);
    let message = say(&mut node, 100, 0);
    hear(&mut node, 900, &message, 50);
    assert_eq!(node.until(), Some(100 + TTL));
    assert!(node.end(100 + TTL - 1).is_empty());
    assert!(node.end(100 + TTL).contains(&Action::Lower { path: "/o/j".to_owned(), max: 0 }));
    assert!(say(&mut node, 100 + TTL, 0).ended);
}

#[test]
fn a_message_says_for_how_long_the_node_relies_on_its_leases_and_until_when_the_book_keeps_them() {
    let mut node = node(AtEnd::Shrink);
    let first = say(&mut node, 100, 0);
    assert_eq!((first.until, first.left), (0, 0));
    hear(&mut node, 900, &first, 50);
    let second = say(&mut node, 1_000, 0);
    assert_eq!((second.until, second.left), (1 + TTL + GRACE, 100 + TTL - 1_000 + GRACE));
    node.end(100 + TTL);
    let last = say(&mut node, 100 + TTL, 0);
    assert!(last.ended && last.left == 0);
    last.check("o").unwrap();
}

#[test]
fn a_lease_that_was_lowered_and_is_granted_again_raises_its_group() {
    let mut node = node(AtEnd::Shrink);
    let first = say(&mut node, 0, 0);
    hear(&mut node, 1, &first, 1_000);
    let soon = say(&mut node, TTL / 3, 0);
    hear(&mut node, TTL / 3 + 1, &soon, 1_000);
    let lowered = say(&mut node, TTL / 3 + TTL, 0);
    assert!(lowered.lines.iter().all(|line| line.lease <= 20), "{lowered:?}");
    let actions = hear(&mut node, TTL / 3 + TTL + 1, &lowered, 300);
    assert!(actions.contains(&Action::Raise { path: "/o/j".to_owned(), max: 300 }), "{actions:?}");
}

#[test]
fn a_charge_that_begins_to_wait_makes_a_turn_due_at_once() {
    let mut node = node(AtEnd::Shrink);
    let first = say(&mut node, 0, 0);
    hear(&mut node, 1, &first, 50);
    assert!(node.due().unwrap() > 500);
    node.need(20, "/o/j", 300);
    assert_eq!(node.due(), Some(20));
}

#[test]
fn a_burst_is_expected_to_go_on_by_what_is_used_and_the_reserve_and_no_further() {
    let mut node = node(AtEnd::Shrink);
    let burst = say(&mut node, 1, 100);
    // 100 in use, at most 110 more, and a reserve of 10.
    assert!(burst.lines.iter().all(|line| line.want == 220), "{burst:?}");
}

#[test]
fn a_node_that_is_asked_for_idle_units_keeps_what_it_uses_and_its_reserve() {
    let mut node = node(AtEnd::Shrink);
    let first = say(&mut node, 0, 50);
    let granted = Granted {
        lease: 500,
        asked: 490,
        wanted: 0,
        due: 0,
        limit: 1_000,
        leased: 500,
        state: State::Open,
    };
    let lines = vec![granted; first.lines.len()];
    let reply = Reply::Synced { sequence: 1, at: 1, ttl: TTL, grace: GRACE, lines };
    node.take(1, 1, reply);
    let second = uses(&mut node, 250, 50);
    assert_eq!(second.lines[1].lease, 60);
}

#[test]
fn a_node_that_goes_on_keeps_its_max_and_claims_no_lease() {
    let mut node = node(AtEnd::GoOn);
    let message = say(&mut node, 0, 0);
    hear(&mut node, 1, &message, 50);
    assert_eq!(node.end(TTL), [Action::Tell(Event::Ended)]);
    assert_eq!(node.holding("/o/j").unwrap().max, 50);
    let message = say(&mut node, TTL, 40);
    assert!(message.ended && message.lines.iter().all(|line| line.lease == 0 && line.used == 40));
}

#[test]
fn a_charge_that_waits_is_asked_for_on_each_level() {
    let mut node = node(AtEnd::Shrink);
    node.need(5, "/o/j", 300);
    assert_eq!(node.due(), Some(0));
    let message = say(&mut node, 5, 100);
    assert!(message.lines.iter().all(|line| line.want >= 400));
    let turn = node.due().unwrap();
    node.served(6, "/o/j", 300);
    assert_eq!(node.due(), Some(turn), "nobody has heard yet that it was refused");
    assert!(say(&mut node, 6, 100).lines.iter().all(|line| line.want < 300));
}

#[test]
fn a_charge_that_waited_in_vain_waits_in_the_book_for_a_moment_only() {
    let mut node = node(AtEnd::Shrink);
    node.need(0, "/o/j", 300);
    let message = say(&mut node, 0, 100);
    hear(&mut node, 1, &message, 200);
    let turn = node.due().unwrap();
    node.served(10, "/o/j", 300);
    let soon = node.due().unwrap();
    assert!(soon <= TTL / 3 / 8 && soon < turn, "{soon} of {turn}");
    assert!(say(&mut node, soon, 100).lines.iter().all(|line| line.urgent == 0));
}

#[test]
fn idle_units_are_given_back_only_when_they_have_been_idle_for_a_lease() {
    let mut node = node(AtEnd::Shrink);
    let first = say(&mut node, 0, 0);
    hear(&mut node, 1, &first, 1_000);
    let soon = say(&mut node, TTL / 3, 0);
    assert!(soon.lines.iter().all(|line| line.lease == 1_000 && line.want == 1_000));
    hear(&mut node, TTL / 3 + 1, &soon, 1_000);
    let later = say(&mut node, TTL / 3 + TTL, 0);
    assert!(later.lines.iter().all(|line| line.lease <= 20));
}

/// Begins a turn in which the lowest level and those above use `used` units.
fn uses(node: &mut Node, now: u64, used: u64) -> Sync {
    let mut turn = node.begin(now, Scope::All, |_| Reading { used, refused: 0 });
    for lower in turn.lowers() {
        lower.done(lower.to(), used);
    }
    node.say(now, turn)
}

fn replies(node: &mut Node, now: u64, message: &Sync, lines: [(u64, u64); 2]) {
    let granted = |(lease, wanted)| Granted {
        lease,
        asked: 0,
        wanted,
        due: 0,
        limit: 1_000,
        leased: lease,
        state: State::Open,
    };
    let lines = lines.map(granted).to_vec();
    let reply = Reply::Synced { sequence: message.sequence, at: 1, ttl: TTL, grace: GRACE, lines };
    node.take(now, message.sequence, reply);
}

#[test]
fn a_level_that_nobody_opened_keeps_what_those_below_it_hold_and_gives_the_rest_back_with_them() {
    let mut node = node(AtEnd::Shrink);
    node.need(0, "/o/j", 300);
    let first = uses(&mut node, 0, 0);
    let said = |message: &Sync| {
        let numbers = |line: &message::Line| (line.lease, line.want, line.least, line.urgent);
        message.lines.iter().map(numbers).collect::<Vec<_>>()
    };
    assert_eq!(said(&first), [(0, 310, 0, 300), (0, 310, 310, 300)]);
    // The level below is full: additional units above would lie idle, and go back at once.
    replies(&mut node, 1, &first, [(310, 0), (200, 0)]);
    let second = uses(&mut node, 2, 150);
    assert_eq!(said(&second), [(200, 460, 200, 450), (200, 460, 460, 450)]);
}

#[test]
fn what_is_freed_while_others_wait_is_looked_for_and_given_back_in_one_message() {
    let mut node = node(AtEnd::Shrink);
    let first = uses(&mut node, 0, 0);
    replies(&mut node, 1, &first, [(500, 0), (500, 0)]);
    let full = uses(&mut node, 2, 500);
    replies(&mut node, 3, &full, [(500, 0), (500, 80)]);
    assert!(node.is_awaited());
    let later = node.due().unwrap();
    node.freed(300, |_| Reading { used: 500, refused: 0 });
    assert_eq!(node.due(), Some(later));
    node.freed(350, |_| Reading { used: 200, refused: 0 });
    assert_eq!(node.due(), Some(350));
    let freed = uses(&mut node, 350, 200);
    let leases: Vec<u64> = freed.lines.iter().map(|line| line.lease).collect();
    assert_eq!(leases, [420, 420], "as much as is waited for, on each level");
    replies(&mut node, 351, &freed, [(420, 0), (420, 0)]);
    assert!(!node.is_awaited());
    node.nudged(352, &Nudge::Waits("/o/j".to_owned()));
    assert!(node.is_awaited(), "and so where the store says it between turns");
}

#[test]
fn a_budget_that_is_closed_is_given_back_and_forgotten() {
    let mut node = node(AtEnd::Shrink);
    let first = say(&mut node, 0, 0);
    hear(&mut node, 1, &first, 50);
    node.close(2, "/o/j");
    let last = say(&mut node, 2, 0);
    assert!(last.lines.iter().all(|line| (line.lease, line.want) == (0, 0)));
    hear(&mut node, 3, &last, 0);
    assert_eq!(node.budgets().count(), 0);
    assert_eq!(node.due(), None);
}

#[test]
fn delays_after_errors_double_up_to_the_time_between_turns() {
    let mut node = node(AtEnd::Shrink);
    let mut now = 0;
    for error in 0..12 {
        let message = say(&mut node, now, 0);
        node.failed(now, message.sequence);
        let delay = node.due().unwrap() - now;
        let most = (25 << error).min(1_000);
        assert!((most / 2..=most + 1).contains(&delay), "{delay} after {error} errors");
        now += delay;
    }
}

#[test]
fn a_node_that_is_fenced_says_nothing_more_and_its_leases_end() {
    let mut node = node(AtEnd::Shrink);
    let first = say(&mut node, 0, 0);
    hear(&mut node, 1, &first, 50);
    let second = say(&mut node, 2, 0);
    assert_eq!(node.take(3, second.sequence, Reply::Fenced), [Action::Tell(Event::Fenced)]);
    assert_eq!(node.due(), None);
    assert_eq!(node.holding("/o/j").unwrap().max, 50);
    assert!(!node.end(TTL).is_empty());
    assert_eq!(node.holding("/o/j").unwrap().max, 0);
}

#[test]
fn refusals_are_told_until_a_reply_says_that_they_are_noted_each_under_its_number() {
    let mut node = node(AtEnd::Shrink);
    let told = |message: &Sync| {
        let told = |one: &Refusal| (one.number, one.group.clone(), one.units, one.count, one.age);
        message.refusals.iter().map(told).collect::<Vec<_>>()
    };
    node.refused(0, "/o/j", "/o/j/q", 5, 1);
    node.refused(10, "/o/j", "/o/j/q", 3, 2);
    node.refused(10, "/others", "/others", 3, 2);
    let first = say(&mut node, 20, 0);
    assert_eq!(told(&first), [(1, "/o/j/q".to_owned(), 5, 3, 10)]);
    node.refused(30, "/o/j", "/o/j/q", 4, 1);
    node.refused(30, "/o", "/o/j/q", 4, 1);
    let second = say(&mut node, 30, 0);
    let expected = [
        (1, "/o/j/q".to_owned(), 5, 3, 20),
        (2, "/o/j/q".to_owned(), 4, 1, 0),
        (3, "/o/j/q".to_owned(), 4, 1, 0),
    ];
    assert_eq!(told(&second), expected, "what was said stays as it was said");
    assert_eq!(second.refusals[2].budget, "/o");
    node.refused(35, "/o/j", "/elsewhere", 9, 1);
    hear(&mut node, 40, &first, 50);
    hear(&mut node, 40, &second, 50);
    let third = say(&mut node, 50, 0);
    assert_eq!(told(&third), [(4, "/o/j".to_owned(), 9, 1, 15)], "no group of the budget");
    third.check("o").unwrap();
    for number in 0..100 {
        node.refused(60, "/o", &format!("/o/{number}"), 1, 1);
    }
    let full = say(&mut node, 60, 0);
    assert_eq!(full.refusals.len(), crate::message::MAX_REFUSALS);
    full.check("o").unwrap();
}
