//! The promises of a book, after each of many random steps and in the outcomes that README.md states.

use ledgerline_fleet::book::{Book, View, What};
use ledgerline_fleet::message::Reply;
use proptest::prelude::*;

use crate::support::check;
use crate::support::world::{Deed, Operation, Step, World, steps};

/// Runs the steps on a book, and checks all invariants after each.
fn run(scale: u64, steps: &[Step]) {
    let mut world = World::new(scale);
    let mut book = Book::new();
    for change in world.founding() {
        book.administer(world.now, &change).expect("the first budgets");
    }
    let mut remembered = book.clone();
    let mut before = book.view(world.now);
    let mut forgot = false;
    for step in steps {
        let mut lost = false;
        world.step(step, |now, deed| match deed {
            Deed::Send(message) => {
                message.check("a").expect("nodes keep the protocol");
                let reply = book.apply(now, message);
                check::levels(message, &reply);
                repeats(&mut book, now, message, &reply);
                Some(reply)
            }
            Deed::Change(change) => {
                // A change may be rejected: budgets are created and deleted.
                let _ = book.administer(now, change);
                None
            }
            Deed::Remember => {
                remembered = book.clone();
                None
            }
            Deed::Forget => {
                lost = true;
                book = remembered.clone();
                None
            }
        });
        let after = book.view(world.now);
        check::sums(&after);
        check::refusals(&world, &after);
        if !lost {
            check::growth(&before, &after);
        }
        forgot |= lost;
        // After lost writes, leases may add up to more than can be counted. The book then adopts as much as it can count.
        if scale == 1 || !forgot {
            check::beliefs(&world, &after);
        }
        let adopted = after.events.iter().any(|event| matches!(event.what, What::Adopted { .. }));
        assert!(forgot || !adopted, "nothing was lost, and yet {:?}", after.events);
        before = after;
    }
}

/// Asserts that a repeated message gets the same answer, and changes nothing.
fn repeats(book: &mut Book, now: u64, message: &ledgerline_fleet::message::Sync, reply: &Reply) {
    if message.bye {
        return;
    }
    let before = book.clone();
    let again = book.apply(now, message);
    assert_eq!(book.view(now), before.clone().view(now), "{message:?}");
    if let (Reply::Synced { lines, .. }, Reply::Synced { lines: repeated, .. }) = (reply, again) {
        let leases = |lines: &[ledgerline_fleet::message::Granted]| {
            lines.iter().map(|line| line.lease).collect::<Vec<_>>()
        };
        assert_eq!(leases(lines), leases(&repeated), "{message:?}");
    }
}

/// A message in which a node names all of its budgets. It wants a unit of the first even if no level below grows.
fn names_all(node: usize, answered: bool) -> Step {
    let numbers = [(65, 102), (0, 0), (0, 0), (0, 0), (0, 0)];
    Step::Sync { node, mask: 0x1f, numbers, heard: true, answered }
}

/// The store lost its writes, and the terms became shorter before the node named the lease again.
#[test]
fn a_lease_is_kept_while_its_node_believes_in_it_after_lost_writes_and_shorter_terms() {
    let shorter = Operation::Terms { ttl: Some(1), grace: Some(0) };
    let unheard =
        Step::Sync { node: 2, mask: 0, numbers: [(0, 0); 5], heard: false, answered: false };
    let steps = [
        names_all(1, true),
        Step::Forget,
        Step::Operate(shorter),
        names_all(1, false),
        unheard,
        Step::Wait { ms: 1 },
    ];
    run(1, &steps);
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 2_000))]

    #[test]
    fn what_always_holds_holds_after_each_step(steps in steps(120)) {
        run(1, &steps);
    }

    #[test]
    fn it_holds_where_sums_of_wants_and_uses_exceed_what_can_be_counted(steps in steps(60)) {
        run(1 << 45, &steps);
    }

    #[test]
    fn a_book_that_was_written_and_read_is_the_same(steps in steps(60)) {
        let mut world = World::new(3);
        let mut book = Book::new();
        for change in world.founding() {
            book.administer(world.now, &change).expect("the first budgets");
        }
        for step in &steps {
            world.step(step, |now, deed| match deed {
                Deed::Send(message) => Some(book.apply(now, message)),
                Deed::Change(change) => {
                    let _ = book.administer(now, change);
                    None
                }
                Deed::Remember | Deed::Forget => None,
            });
        }
        book.nudged();
        let written = serde_json::to_string(&book).expect("a book is plain data");
        prop_assert_eq!(&serde_json::from_str::<Book>(&written).expect("what was written"), &book);
        let view = book.view(world.now);
        let written = serde_json::to_string(&view).expect("so is a view");
        prop_assert_eq!(serde_json::from_str::<View>(&written).expect("what was written"), view);
    }
}
