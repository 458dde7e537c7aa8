//! The function library behaves like the book, on a real server.

use std::cell::RefCell;

use ledgerline_fleet::book::Book;
use ledgerline_fleet::store::redis::Address;
use ledgerline_fleet::store::{Options, Redis, Store};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::Commands;

use crate::support::server::{self, Server};
use crate::support::world::{Deed, ORGANISATION, Step, World, steps};

/// A store on a server that takes the time from a key.
struct Clocked {
    store: Redis,
    raw: redis::Connection,
    prefix: String,
    runtime: tokio::runtime::Runtime,
}

const CLOCK: &str = "clock";

impl Clocked {
    fn new(server: &Server, prefix: &str) -> Self {
        let address = format!("redis://127.0.0.1:{}", server.port);
        let mut raw = redis::Client::open(address.as_str()).unwrap().get_connection().unwrap();
        let library = Redis::LIBRARY.replace(
            "redis.call('TIME')",
            &format!("{{ 0, redis.call('GET', '{CLOCK}') * 1000 }}"),
        );
        assert_ne!(library, Redis::LIBRARY);
        redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(library).exec(&mut raw).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options =
            Options { prefix: prefix.to_owned(), timeout: std::time::Duration::from_secs(60) };
        let store = Redis::new(Address::Server(address), options).unwrap();
        Self { store, raw, prefix: prefix.to_owned(), runtime }
    }

    fn set_clock(&mut self, now: u64) {
        let _: () = self.raw.set(CLOCK, now).unwrap();
    }

    /// Copies all keys of the book to others, or back.
    fn copy(&mut self, from: &str, to: &str) {
        for key in [
            "settings",
            "budgets",
            "nodes",
            "incarnations",
            "holds",
            "index",
            "ends",
            "events",
            "refusals",
        ] {
            let [from, to] = [from, to]
                .map(|organisation| format!("{{{}:v1:{organisation}}}:{key}", self.prefix));
            let _: () = self.raw.del(&to).unwrap();
            let _: () = redis::cmd("COPY").arg(from).arg(to).query(&mut self.raw).unwrap();
        }
    }
}

fn run(store: &RefCell<Clocked>, scale: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut store = store.borrow_mut();
    let store = &mut *store;
    let _: () = redis::cmd("FLUSHALL").query(&mut store.raw).unwrap();
    let mut world = World::new(scale);
    let mut book = Book::new();
    store.set_clock(world.now);
    for change in world.founding() {
        book.administer(world.now, &change).unwrap();
        store.runtime.block_on(store.store.administer(ORGANISATION, &change)).unwrap();
    }
    let mut remembered = book.clone();
    store.copy(ORGANISATION, "remembered");
    for step in steps {
        let mut differs = None;
        world.step(step, |now, deed| {
            store.set_clock(now);
            match deed {
                Deed::Send(message) => {
                    let expected = book.apply(now, message);
                    let got =
                        store.runtime.block_on(store.store.sync(ORGANISATION, message)).unwrap();
                    if got != expected {
                        differs = Some(format!("{message:?}\nbook  {expected:?}\nredis {got:?}"));
                    }
                    return Some(expected);
                }
                Deed::Change(change) => {
                    let expected =
                        book.administer(now, change).map_err(|rejected| rejected.to_string());
                    let got = store.runtime.block_on(store.store.administer(ORGANISATION, change));
                    let got = got.map_err(|error| error.detail);
                    if got != expected {
                        differs = Some(format!("{change:?}: book {expected:?}, redis {got:?}"));
                    }
                }
                Deed::Remember => {
                    remembered = book.clone();
                    store.copy(ORGANISATION, "remembered");
                }
                Deed::Forget => {
                    book = remembered.clone();
                    store.copy("remembered", ORGANISATION);
                }
            }
            None
        });
        prop_assert!(differs.is_none(), "{}", differs.unwrap_or_default());
        store.set_clock(world.now);
        let view = store.runtime.block_on(store.store.view(ORGANISATION)).unwrap();
        let mut expected = book.view(world.now);
        prop_assert_eq!(&view, &expected);
        expected.budgets.iter_mut().for_each(|budget| budget.holds.clear());
        let mut paths: Vec<String> =
            expected.budgets.iter().map(|budget| budget.path.clone()).collect();
        paths.push(format!("/{ORGANISATION}/none"));
        let totals = store.runtime.block_on(store.store.totals(ORGANISATION, &paths)).unwrap();
        let expected: Vec<_> = expected.budgets.into_iter().map(Some).chain([None]).collect();
        prop_assert_eq!(totals, expected);
    }
    Ok(())
}

#[test]
fn the_functions_answer_as_the_book_does() {
    let Some(server) = server::redis(&[]) else { return };
    let store = RefCell::new(Clocked::new(&server, "test"));
    for scale in [1, 1 << 45, 12_345_678_901] {
        let mut runner = TestRunner::new(crate::cases::few(file!(), 100));
        runner
            .run(&steps(80), |steps| run(&store, scale, &steps))
            .unwrap_or_else(|failed| panic!("{failed}"));
    }
}
