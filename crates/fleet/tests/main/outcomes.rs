//! The outcomes that README.md states, one by one, on the book.

use ledgerline_fleet::book::{
    Book, BudgetView, Change, Full, Moved, Refused, Rejected, Terms, What,
};
use ledgerline_fleet::message::{Granted, Line, Malformed, Nudge, Refusal, Reply, State, Sync};

const TTL: u64 = 100;
const GRACE: u64 = 50;

/// Returns a book with `/a` of 100 units, and leases of 100 ms with 50 ms of grace.
fn book() -> Book {
    let mut book = Book::new();
    book.administer(0, &Change::from(Terms { ttl: TTL, grace: GRACE })).unwrap();
    set(&mut book, "/a", 100, 0);
    book
}

/// Returns such a book of long ago, so that a store that restores it has lost its last writes only.
fn old() -> Book {
    let mut book = Book::new();
    book.administer(0, &Change::from(Terms { ttl: 1, grace: 0 })).unwrap();
    set(&mut book, "/a", 100, 0);
    book.administer(5, &Change::from(Terms { ttl: TTL, grace: GRACE })).unwrap();
    book
}

fn set(book: &mut Book, path: &str, limit: u64, minimum: u64) {
    let change = Change::Set { path: path.to_owned(), limit: Some(limit), minimum: Some(minimum) };
    book.administer(0, &change).unwrap();
}

/// A process, and its view of `/a`.
struct Process {
    message: Sync,
    lease: u64,
    used: u64,
    urgent: u64,
}

impl Process {
    fn new(node: &str, incarnation: u64) -> Self {
        let (node, lines) = (node.to_owned(), Vec::new());
        let message = Sync {
            node,
            incarnation,
            sequence: 0,
            taken: 0,
            until: 0,
            left: 0,
            ended: false,
            bye: false,
            lines,
            refusals: Vec::new(),
        };
        Self { message, lease: 0, used: 0, urgent: 0 }
    }

    /// Returns the next message.
    fn says(&mut self, want: u64) -> Sync {
        self.message.sequence += 1;
        let (path, lease) = ("/a".to_owned(), self.lease.min(want));
        let Self { used, urgent, .. } = *self;
        let line = Line {
            path,
            lease,
            used,
            want,
            least: want,
            urgent,
            next: urgent,
            waited: 0,
            refused: 0,
        };
        self.message.lines = vec![line];
        self.message.clone()
    }

    /// Sends the next message and takes its reply.
    fn sync(&mut self, book: &mut Book, now: u64, want: u64) -> Granted {
        let message = self.says(want);
        let reply = book.apply(now, &message);
        let Reply::Synced { sequence, at, ttl, grace, lines } = reply else { panic!("{reply:?}") };
        self.message.taken = sequence;
        self.message.until = at + ttl + grace;
        self.message.left = ttl + grace;
        self.lease = lines[0].lease;
        lines[0].clone()
    }
}

/// Returns the nudge to sync for nodes of `/a`.
fn sync() -> Nudge {
    Nudge::Sync("/a".to_owned())
}

fn budget(book: &Book, now: u64) -> BudgetView {
    book.clone().view(now).budgets[0].clone()
}

/// Returns the events of nodes.
fn events(book: &Book, now: u64) -> Vec<What> {
    let events = book.clone().view(now).events.into_iter().map(|event| event.what);
    events.filter(|what| !matches!(what, What::Set { .. } | What::Terms { .. })).collect()
}

#[test]
fn of_two_nodes_of_one_name_the_newer_has_it_and_the_olders_leases_count_until_they_end() {
    let mut book = book();
    let (mut older, mut newer) = (Process::new("node", 1), Process::new("node", 2));
    older.sync(&mut book, 0, 60);
    assert_eq!(newer.sync(&mut book, 10, 60).lease, 40);
    assert_eq!(book.apply(20, &older.says(90)), Reply::Fenced);
    assert_eq!(budget(&book, 20).leased, 100);
    assert_eq!(newer.sync(&mut book, TTL + GRACE - 1, 60).lease, 40);
    assert_eq!(newer.sync(&mut book, TTL + GRACE, 60).lease, 60);
    assert_eq!(
        book.apply(TTL + GRACE, &older.says(90)),
        Reply::Fenced,
        "it does not take the name back"
    );
    assert_eq!(events(&book, 200)[0], What::Fenced { incarnation: 1 });
}

#[test]
fn a_limit_below_what_is_leased_puts_the_budget_over_and_asks_all() {
    let mut book = book();
    let (mut one, mut two) = (Process::new("one", 1), Process::new("two", 2));
    (one.used, two.used) = (60, 20);
    one.sync(&mut book, 0, 60);
    two.sync(&mut book, 0, 40);
    set(&mut book, "/a", 50, 0);
    assert_eq!(book.nudged().into_iter().collect::<Vec<_>>(), [sync()]);
    let granted = one.sync(&mut book, 10, 90);
    assert_eq!((granted.lease, granted.state), (60, State::Over { by: 50 }), "nothing is granted");
    let granted = two.sync(&mut book, 10, 40);
    // The 20 idle units, and its share of the 30 units in use that are over: 20 of 80, rounded up.
    assert_eq!((granted.lease, granted.asked), (40, 20 + 8));
    two.used = 10;
    two.sync(&mut book, 20, 10);
    one.used = 40;
    assert_eq!(one.sync(&mut book, 20, 40).state, State::Open);
    assert_eq!(budget(&book, 20).over, 0);
}

#[test]
fn a_budget_that_is_deleted_while_leased_goes_with_its_last_lease() {
    let mut book = book();
    let mut one = Process::new("one", 1);
    one.sync(&mut book, 0, 60);
    book.administer(1, &Change::Delete { path: "/a".to_owned() }).unwrap();
    assert_eq!(
        one.sync(&mut book, 2, 90),
        Granted {
            lease: 60,
            asked: 60,
            wanted: 0,
            due: 0,
            limit: 100,
            leased: 60,
            state: State::Closing
        }
    );
    assert_eq!(
        Process::new("two", 2).sync(&mut book, 2, 10),
        Granted {
            lease: 0,
            asked: 0,
            wanted: 0,
            due: 0,
            limit: 100,
            leased: 60,
            state: State::Closing
        }
    );
    assert_eq!(one.sync(&mut book, 3, 0).state, State::Closing);
    assert_eq!(book.view(3).budgets, []);
    assert_eq!(one.sync(&mut book, 4, 10).state, State::Unknown);
}

#[test]
fn a_budget_with_others_below_it_is_not_deleted_and_none_is_created_below_nothing() {
    let mut book = book();
    set(&mut book, "/a/b", 10, 0);
    let delete = Change::Delete { path: "/a".to_owned() };
    assert_eq!(book.administer(0, &delete), Err(Rejected::HasBudgetsBelow("/a".to_owned())));
    let orphan = Change::Set { path: "/a/x/y".to_owned(), limit: Some(1), minimum: None };
    assert_eq!(book.administer(0, &orphan), Err(Rejected::NoBudget("/a/x".to_owned())));
}

#[test]
fn a_node_that_leaves_frees_its_leases_at_once_and_what_comes_later_is_late() {
    let mut book = book();
    let mut one = Process::new("one", 1);
    one.sync(&mut book, 0, 60);
    let late = one.says(60);
    let bye = Sync { bye: true, ..one.says(0) };
    book.apply(1, &bye);
    assert_eq!(budget(&book, 1).leased, 0);
    assert_eq!(book.apply(2, &late), Reply::Late { sequence: 3 });
    assert_eq!(budget(&book, 2).leased, 0);
    assert_eq!(Process::new("one", 2).sync(&mut book, 3, 100).lease, 100);
    assert_eq!(events(&book, 3), [], "to start again is no event");
}

#[test]
fn units_of_a_node_that_dies_come_back_after_lease_and_grace() {
    let mut book = book();
    Process::new("dead", 1).sync(&mut book, 0, 100);
    let mut other = Process::new("other", 2);
    assert_eq!(other.sync(&mut book, TTL + GRACE - 1, 100).lease, 0);
    assert_eq!(other.sync(&mut book, TTL + GRACE, 100).lease, 100);
}

#[test]
fn a_store_that_lost_writes_adopts_what_nodes_hold_and_says_by_how_much_it_is_over() {
    let mut book = old();
    let (mut one, mut two) = (Process::new("one", 1), Process::new("two", 2));
    one.sync(&mut book, 0, 10);
    two.sync(&mut book, 0, 10);
    let earlier = book.clone();
    one.sync(&mut book, 1, 80);
    let mut book = earlier;
    assert_eq!(two.sync(&mut book, 2, 90).lease, 90, "the book does not know better");
    let granted = one.sync(&mut book, 3, 80);
    assert_eq!((granted.lease, granted.state), (80, State::Over { by: 70 }));
    let adopted = What::Adopted { path: "/a".to_owned(), units: 70, over: 70 };
    assert_eq!(events(&book, 3)[0], adopted);
    assert!(two.sync(&mut book, 4, 95).asked > 0);
    assert_eq!(two.sync(&mut book, 5, 20).state, State::Open, "it comes back as nodes give back");
}

#[test]
fn a_message_that_comes_after_its_leases_have_ended_is_no_lost_write() {
    let mut book = book();
    let mut one = Process::new("one", 1);
    one.sync(&mut book, 0, 60);
    let late = one.says(60);
    book.apply(TTL + GRACE, &late);
    assert!(
        !book
            .view(TTL + GRACE)
            .events
            .iter()
            .any(|event| matches!(event.what, What::Adopted { .. }))
    );
}

#[test]
fn a_late_message_after_expiry_is_not_adopted_when_the_clock_goes_back() {
    let mut book = book();
    let (mut one, mut two) = (Process::new("one", 1), Process::new("two", 2));
    one.sync(&mut book, 0, 10);
    let late = one.says(10);
    one.sync(&mut book, 20, 0);
    assert_eq!(two.sync(&mut book, 175, 100).lease, 100);
    for back in [140, 1] {
        let mut book = book.clone();
        let _reply = book.apply(back, &late);
        assert!(budget(&book, back).leased <= 100);
    }
}

#[test]
fn a_lease_whose_writes_were_lost_is_kept_as_long_as_its_node_believes_in_it_whatever_the_terms_became()
 {
    let mut book = old();
    let (mut one, mut two) = (Process::new("one", 1), Process::new("two", 2));
    let earlier = book.clone();
    one.sync(&mut book, 0, 60);
    let mut book = earlier;
    book.administer(1, &Change::from(Terms { ttl: 1, grace: 0 })).unwrap();
    // The answer is lost, so the node relies on the first promise.
    let said = Sync { left: TTL + GRACE - 2, ..one.says(60) };
    book.apply(2, &said);
    assert_eq!(two.sync(&mut book, TTL + GRACE - 1, 100).lease, 40);
    assert_eq!(two.sync(&mut book, TTL + GRACE, 100).lease, 100);
}

#[test]
fn a_message_of_before_the_terms_became_shorter_is_late_after_its_leases_were_given_back() {
    let mut book = book();
    let (mut one, mut two) = (Process::new("one", 1), Process::new("two", 2));
    one.sync(&mut book, 0, 60);
    let late = one.says(60);
    book.administer(1, &Change::from(Terms { ttl: 1, grace: 0 })).unwrap();
    one.message.ended = true;
    one.message.left = 0;
    one.lease = 0;
    one.sync(&mut book, 2, 0);
    assert_eq!(two.sync(&mut book, 4, 100).lease, 100);
    book.apply(4, &late);
    assert_eq!(budget(&book, 4).leased, 100);
}

#[test]
fn a_lease_is_adopted_once_for_each_loss_of_writes() {
    let mut book = old();
    let mut one = Process::new("one", 1);
    one.sync(&mut book, 0, 10);
    let earlier = book.clone();
    one.sync(&mut book, 1, 80);
    let mut book = earlier;
    assert_eq!(one.sync(&mut book, 2, 80).lease, 80, "adopted");
    assert_eq!(one.sync(&mut book, 3, 20).lease, 20, "given back");
    // Nothing was lost since, so a node that claims more now has no right to it.
    one.lease = 80;
    let claims = Sync { taken: 4, ..one.says(80) };
    set(&mut book, "/a", 20, 0);
    book.apply(4, &claims);
    assert_eq!(budget(&book, 4).leased, 20);
    let adopted =
        |event: &&ledgerline_fleet::book::Event| matches!(event.what, What::Adopted { .. });
    assert_eq!(book.view(4).events.iter().filter(adopted).count(), 1);
}

#[test]
fn a_late_message_of_a_process_that_ended_takes_its_name_from_no_other() {
    let mut book = book();
    let mut dead = Process::new("node", 1);
    dead.sync(&mut book, 0, 10);
    let late = dead.says(50);
    let mut alive = Process::new("node", 2);
    alive.sync(&mut book, TTL + GRACE, 60);
    assert_eq!(book.apply(TTL + GRACE + 1, &late), Reply::Fenced);
    assert_eq!(alive.sync(&mut book, TTL + GRACE + 2, 70).lease, 70);
    let told = events(&book, TTL + GRACE + 2);
    assert_eq!(told, [What::Ended { incarnation: 1 }], "and no more");
}

#[test]
fn a_clock_that_goes_back_a_little_stands_still_and_one_that_tells_two_times_in_turns_runs_no_faster()
 {
    let mut book = book();
    let mut one = Process::new("one", 1);
    one.sync(&mut book, 1_000, 60);
    // Two members of a store answer in turns, and the clock of one is 100 ms behind.
    let mut other = Process::new("other", 2);
    for now in 0..TTL + GRACE {
        other.sync(&mut book, 1_000 + now - 100 * (now % 2), 0);
        assert_eq!(budget(&book, 1_000 + now).leased, 60, "after {now}");
    }
    assert_eq!(budget(&book, 1_000 + TTL + GRACE).leased, 0);
}

#[test]
fn a_grace_that_was_made_longer_is_none_of_leases_that_were_promised_before() {
    let mut book = book();
    let (mut one, mut two) = (Process::new("one", 1), Process::new("two", 2));
    one.sync(&mut book, 0, 60);
    let longer = |grace| Change::Terms { ttl: None, grace: Some(grace) };
    book.administer(50, &longer(4 * GRACE)).unwrap();
    book.administer(60, &longer(8 * GRACE)).unwrap();
    // Its units go to others at the promised time. A message that comes later is late; the book has lost no writes.
    let late = one.says(60);
    assert_eq!(two.sync(&mut book, TTL + GRACE, 100).lease, 100);
    book.apply(TTL + GRACE + 1, &late);
    assert_eq!(budget(&book, TTL + GRACE + 1).over, 0);
    // Later promises have the longer grace: a message within that time shows that writes were lost.
    let before = book.clone();
    let granted = two.sync(&mut book, 1_000, 90);
    assert_eq!(granted.lease, 90);
    let mut book = before;
    let later = two.says(90);
    book.apply(1_000 + TTL + 7 * GRACE, &later);
    assert_eq!(budget(&book, 1_000 + TTL + 7 * GRACE).leased, 90);
}

#[test]
fn a_clock_that_is_set_back_ends_leases_late_and_by_no_more_than_one_promise() {
    let mut book = book();
    let mut one = Process::new("one", 1);
    one.sync(&mut book, 1_000_000, 60);
    one.sync(&mut book, 1_000, 60);
    assert_eq!(budget(&book, 1_000 + TTL + GRACE - 1).leased, 60);
    assert_eq!(budget(&book, 1_000 + TTL + GRACE).leased, 0);
}

#[test]
fn shorter_terms_free_nothing_before_the_time_that_was_promised() {
    let mut book = book();
    let mut one = Process::new("one", 1);
    one.sync(&mut book, 0, 60);
    book.administer(1, &Change::from(Terms { ttl: 1, grace: 0 })).unwrap();
    // The reply is lost, so the node relies on the old terms.
    book.apply(2, &one.says(60));
    assert_eq!(budget(&book, TTL + GRACE - 1).leased, 60);
}

#[test]
fn a_node_that_is_drained_is_asked_for_all_and_gets_no_more() {
    let mut book = book();
    let mut one = Process::new("one", 1);
    one.used = 60;
    one.sync(&mut book, 0, 60);
    book.administer(1, &Change::Drain { node: "one".to_owned(), on: true }).unwrap();
    assert!(book.nudged().contains(&sync()));
    let granted = one.sync(&mut book, 2, 90);
    assert_eq!((granted.lease, granted.asked, granted.state), (60, 60, State::Drained));
    book.administer(3, &Change::Drain { node: "one".to_owned(), on: false }).unwrap();
    assert_eq!(one.sync(&mut book, 4, 90).lease, 90);
}

#[test]
fn what_is_used_without_a_lease_is_not_granted_to_others() {
    let mut book = book();
    let (mut one, mut two) = (Process::new("one", 1), Process::new("two", 2));
    one.sync(&mut book, 0, 80);
    (one.used, one.lease, one.message.ended) = (80, 0, true);
    assert_eq!(one.sync(&mut book, 10, 0).lease, 0);
    assert_eq!(budget(&book, 10).excess, 80);
    assert_eq!(two.sync(&mut book, 11, 100).lease, 20);
}

#[test]
fn nodes_share_what_is_left_by_need_and_small_wants_do_not_starve() {
    let mut book = book();
    let mut holder = Process::new("holder", 9);
    holder.sync(&mut book, 0, 100);
    let (mut large, mut small) = (Process::new("large", 1), Process::new("small", 2));
    large.sync(&mut book, 0, 90);
    small.sync(&mut book, 0, 30);
    holder.sync(&mut book, 1, 60);
    assert_eq!(
        large.sync(&mut book, 2, 90).lease,
        30,
        "40 are left, and it needs three quarters of 120"
    );
    set(&mut book, "/a", 1_000_000, 0);
    let mut tiny = Process::new("tiny", 3);
    large.sync(&mut book, 3, 1 << 40);
    holder.sync(&mut book, 3, 10);
    assert_eq!(tiny.sync(&mut book, 4, 1).lease, 1);
}

#[test]
fn a_minimum_is_kept_for_nodes_that_lack_it() {
    let mut book = book();
    set(&mut book, "/a", 100, 30);
    let (mut greedy, mut late) = (Process::new("greedy", 1), Process::new("late", 2));
    late.sync(&mut book, 0, 1);
    assert_eq!(greedy.sync(&mut book, 1, 1_000).lease, 100 - 30);
    assert_eq!(late.sync(&mut book, 2, 1_000).lease, 30);
}

#[test]
fn idle_units_are_asked_for_as_far_as_they_are_needed() {
    let mut book = book();
    let (mut idle, mut busy) = (Process::new("idle", 1), Process::new("busy", 2));
    idle.sync(&mut book, 0, 100);
    book.nudged();
    assert_eq!(idle.sync(&mut book, 1, 100).asked, 0, "nobody needs them");
    busy.sync(&mut book, 2, 25);
    assert!(book.nudged().contains(&sync()), "those who hold idle units hear of it");
    assert_eq!(idle.sync(&mut book, 3, 100).asked, 25);
    idle.sync(&mut book, 4, 75);
    assert!(book.nudged().contains(&sync()), "and those who wait, when there are some");
    assert_eq!(busy.sync(&mut book, 5, 25).lease, 25);
}

#[test]
fn a_charge_that_waits_gets_all_of_what_it_needs_before_the_rest_is_shared() {
    let mut book = book();
    let mut holder = Process::new("holder", 9);
    holder.used = 40;
    holder.sync(&mut book, 0, 100);
    let (mut ahead, mut waits) = (Process::new("ahead", 1), Process::new("waits", 2));
    ahead.sync(&mut book, 0, 200);
    holder.sync(&mut book, 1, 40);
    waits.urgent = 50;
    // In proportion it would get 51 of 251, which is 13, but half of a charge is useless.
    assert_eq!(waits.sync(&mut book, 2, 51).lease, 51, "its charge, and its part of the rest");
    assert_eq!(ahead.sync(&mut book, 3, 200).lease, 9);
    // Units that do not cover all of the need are shared, as long as no charge of another node waits.
    waits.urgent = 90;
    holder.used = 30;
    holder.sync(&mut book, 4, 30);
    let more = waits.sync(&mut book, 5, 90).lease - 51;
    assert!((1..10).contains(&more), "{more} of 10");
    ahead.urgent = 200;
    assert_eq!(ahead.sync(&mut book, 6, 200).lease, 9, "its part would serve nobody");
    holder.used = 0;
    holder.sync(&mut book, 7, 0);
    assert_eq!(waits.sync(&mut book, 8, 90).lease, 90, "all of it is there again");
}

#[test]
fn who_waits_for_units_that_nobody_has_idle_is_told_of_to_those_who_may_free_some() {
    let mut book = book();
    let (mut busy, mut waits) = (Process::new("busy", 1), Process::new("waits", 2));
    busy.used = 100;
    assert_eq!(busy.sync(&mut book, 0, 100).wanted, 0);
    book.nudged();
    waits.urgent = 30;
    waits.sync(&mut book, 1, 30);
    let told: Vec<Nudge> = book.nudged().into_iter().collect();
    assert_eq!(told, [Nudge::Waits("/a".to_owned())]);
    let granted = busy.sync(&mut book, 2, 100);
    assert_eq!((granted.asked, granted.wanted), (0, 30), "none of them is idle");
    set(&mut book, "/a", 100, 80);
    assert_eq!(busy.sync(&mut book, 3, 100).wanted, 20, "nobody has to give its minimum");
    waits.urgent = 0;
    waits.sync(&mut book, 4, 60);
    let granted = busy.sync(&mut book, 5, 100);
    assert_eq!(granted.wanted, 0, "what a node merely looks ahead for, no charge waits for");
}

/// Returns a refusal on a node.
fn refusal(number: u64, group: &str, units: u64, age: u64) -> Refusal {
    let (budget, group) = ("/a".to_owned(), group.to_owned());
    Refusal { number, budget, group, units, count: 1, age }
}

#[test]
fn a_refusal_is_noted_once_with_who_asked_and_when_and_stays_when_the_node_leaves() {
    let mut book = book();
    let (mut one, mut two) = (Process::new("one", 1), Process::new("two", 2));
    one.sync(&mut book, 1_000, 60);
    two.message.refusals = vec![refusal(1, "/a/q1", 50, 100), refusal(2, "/a/q1", 70, 30)];
    // The reply is lost, so all refusals are sent again, with newer ones.
    let said = two.says(90);
    book.apply(1_000, &said);
    book.apply(1_010, &said);
    two.message.refusals.push(refusal(3, "/a/q2", 40, 0));
    two.sync(&mut book, 1_020, 90);
    let noted = |book: &mut Book, now| {
        let told = |refused: Refused| {
            assert_eq!((&*refused.node, refused.incarnation, &*refused.budget), ("two", 2, "/a"));
            let Refused { since, at, group, full, units, count, .. } = refused;
            (since, at, group, full, units, count)
        };
        book.view(now).refusals.into_iter().map(told).collect::<Vec<_>>()
    };
    let expected = vec![
        (900, 970, "/a/q1".to_owned(), Full::Limit, 70, 2),
        // 40 units are its own by now.
        (1_020, 1_020, "/a/q2".to_owned(), Full::Lease, 40, 1),
    ];
    assert_eq!(noted(&mut book, 1_020), expected);
    // Its leases end, and the book forgets everything but the refusals. The node returns with refusals whose acknowledgement it
    // never received.
    two.message.taken = 0;
    two.sync(&mut book, 10_000, 0);
    assert_eq!(noted(&mut book, 10_000), expected);
    two.message.refusals = vec![refusal(4, "/a/q1", 10, 0)];
    two.sync(&mut book, 100_000, 0);
    two.message.refusals = vec![refusal(4, "/a/q1", 10, 0), refusal(5, "/a/q1", 20, 0)];
    let bye = Sync { bye: true, lines: Vec::new(), ..two.says(0) };
    book.apply(100_001, &bye);
    let later = noted(&mut book, 200_000);
    assert_eq!(later[..2], expected);
    let episode = (100_000, 100_001, "/a/q1".to_owned(), Full::Lease, 20, 2);
    assert_eq!(later[2], episode, "long after the first, and told as the node left");
}

#[test]
fn a_refusal_says_that_the_budget_is_deleted_or_the_node_drained_in_a_row_of_its_own() {
    let mut book = book();
    let mut one = Process::new("one", 1);
    one.sync(&mut book, 0, 60);
    let mut refuses = |book: &mut Book, now: u64| {
        one.message.refusals = vec![refusal(now, "/a/q1", 500, 0)];
        one.sync(book, now, 60);
    };
    refuses(&mut book, 1);
    let drain = |on| Change::Drain { node: "one".to_owned(), on };
    book.administer(2, &drain(true)).unwrap();
    refuses(&mut book, 3);
    refuses(&mut book, 4);
    book.administer(5, &drain(false)).unwrap();
    refuses(&mut book, 6);
    book.administer(7, &Change::Delete { path: "/a".to_owned() }).unwrap();
    refuses(&mut book, 8);
    one.sync(&mut book, 9, 0);
    assert!(book.view(9).budgets.is_empty());
    one.message.refusals = vec![refusal(10, "/a/q1", 500, 0)];
    book.apply(10, &one.says(0));
    let told = |one: Refused| (one.full, one.count, one.at);
    let told: Vec<_> = book.view(10).refusals.into_iter().map(told).collect();
    assert_eq!(told, [(Full::Drained, 2, 4), (Full::Limit, 2, 6), (Full::Deleted, 2, 10)]);
}

#[test]
fn of_more_refusals_than_a_book_keeps_the_last_stay() {
    let mut book = book();
    let mut node = Process::new("one", 1);
    for number in 1..=70 {
        node.message.refusals = vec![refusal(number, &format!("/a/q{number}"), 1, 0)];
        node.sync(&mut book, number, 1);
    }
    let groups: Vec<String> = book.view(70).refusals.into_iter().map(|one| one.group).collect();
    assert_eq!(groups.len(), Book::REFUSALS);
    assert_eq!((&*groups[0], &*groups[63]), ("/a/q7", "/a/q70"));
}

#[test]
fn a_refusal_that_is_not_of_its_budget_or_out_of_order_breaks_the_protocol() {
    let mut node = Process::new("one", 1);
    for wrong in [
        vec![refusal(1, "/ab/q", 1, 0)],
        vec![refusal(1, "/a/\n", 1, 0)],
        vec![refusal(0, "/a", 1, 0)],
        vec![refusal(2, "/a", 1, 0), refusal(2, "/a/q", 1, 0)],
        (1..40).map(|number| refusal(number, "/a", 1, 0)).collect(),
    ] {
        node.message.refusals = wrong;
        assert_eq!(node.says(0).check("a"), Err(Malformed::Refusals));
    }
}

#[test]
fn of_the_terms_what_is_given_is_set_alone() {
    let mut book = book();
    book.administer(0, &Change::Terms { ttl: Some(7), grace: None }).unwrap();
    book.administer(0, &Change::Terms { ttl: None, grace: Some(8) }).unwrap();
    let view = book.view(0);
    assert_eq!((view.ttl, view.grace), (7, 8));
    let zero = Change::Terms { ttl: Some(0), grace: None };
    assert_eq!(book.administer(0, &zero), Err(Rejected::Malformed(Malformed::Terms)));
}

#[test]
fn an_emptied_book_grants_nothing_before_the_nodes_have_said_what_they_hold() {
    let mut before = book();
    let (mut one, mut two) = (Process::new("one", 1), Process::new("two", 2));
    one.sync(&mut before, 0, 40);
    two.sync(&mut before, 0, 60);
    let mut book = Book::new();
    book.administer(20, &Change::from(Terms { ttl: TTL, grace: GRACE })).unwrap();
    let change = Change::Set { path: "/a".to_owned(), limit: Some(100), minimum: None };
    book.administer(20, &change).unwrap();
    let granted = one.sync(&mut book, 21, 90);
    assert_eq!((granted.lease, granted.state), (40, State::Learning));
    assert_eq!(book.view(21).learning, TTL + GRACE);
    let mut new = Process::new("new", 3);
    assert_eq!(new.sync(&mut book, 100, 30).lease, 0);
    assert_eq!(two.sync(&mut book, 140, 60).lease, 60, "in its time, by its own promise");
    assert_eq!(budget(&book, 140).leased, 100);
    // The later node had leases as well, so other nodes may report as late.
    let end = 140 + TTL + GRACE;
    assert_eq!(new.sync(&mut book, end - 1, 30).state, State::Learning);
    assert_ne!(new.sync(&mut book, end, 30).state, State::Learning);
}

#[test]
fn each_change_is_noted_with_who_made_it_and_what_was_before() {
    let mut book = Book::new();
    let by = |change| Change::By { who: "root@host".to_owned(), change: Box::new(change) };
    let limit = |limit| Change::Set { path: "/a".to_owned(), limit: Some(limit), minimum: None };
    book.administer(1, &by(limit(100))).unwrap();
    book.administer(2, &by(limit(100))).unwrap();
    book.administer(3, &by(limit(60))).unwrap();
    book.administer(4, &by(Change::Terms { ttl: Some(7), grace: None })).unwrap();
    book.administer(5, &by(Change::Drain { node: "n".to_owned(), on: true })).unwrap();
    book.administer(6, &by(Change::Repair)).unwrap();
    book.administer(7, &Change::Delete { path: "/a".to_owned() }).unwrap();
    let told: Vec<_> =
        book.view(8).events.into_iter().map(|event| (event.at, event.node, event.what)).collect();
    let moved = |from, to| Moved { from, to };
    let set = |limit, minimum| What::Set { path: "/a".to_owned(), limit, minimum };
    let who = || "root@host".to_owned();
    let expected = [
        (1, who(), set(moved(None, 100), moved(None, 0))),
        (3, who(), set(moved(Some(100), 60), moved(Some(0), 0))),
        (4, who(), What::Terms { ttl: moved(Some(10_000), 7), grace: moved(Some(5_000), 5_000) }),
        (5, who(), What::Drained { node: "n".to_owned(), on: true }),
        (6, who(), What::Repaired { budgets: 0 }),
        (7, String::new(), What::Deleted { path: "/a".to_owned() }),
    ];
    assert_eq!(told, expected, "what changes nothing is not noted");
}

/// Semaphores in Redis kept a key for each name ever used (redisson 4100), and quotas counted removed objects (kubernetes 63981).
#[test]
fn nodes_that_come_and_are_killed_leave_neither_units_nor_rows() {
    let mut book = book();
    let empty = serde_json::to_value(&book).unwrap();
    let mut now = 0;
    for number in 1..=200 {
        let mut node = Process::new(&format!("node {number}"), number);
        assert_eq!(node.sync(&mut book, now, 100).lease, 100, "{number}");
        // Every other node leaves, and the rest are killed.
        if number % 2 == 0 {
            let bye = Sync { bye: true, lines: Vec::new(), ..node.says(0) };
            book.apply(now + 1, &bye);
        }
        now += TTL + GRACE + 1;
    }
    assert_eq!(budget(&book, now).leased, 0);
    book.view(now);
    let left = serde_json::to_value(&book).unwrap();
    for part in ["budgets", "nodes", "ends", "refusals"] {
        assert_eq!(left[part], empty[part], "{part}");
    }
}
