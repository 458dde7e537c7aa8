//! The events that subscribers of `tracing` get for limits that were met.

use ledgerline::export::events::LimitEvents;
use ledgerline::{Ledger, Limit};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// One event: its level, and its fields as text.
type Told = (Level, BTreeMap<String, String>);

/// Keeps the events that it gets, and acts itself each time.
#[derive(Clone)]
struct Collector {
    told: Arc<Mutex<Vec<Told>>>,
    also: fn(),
}

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "ledgerline"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        (self.also)();
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        self.told.lock().unwrap().push((*event.metadata().level(), fields.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn with<T>(also: fn(), body: impl FnOnce(&dyn Fn() -> Vec<Told>) -> T) -> T {
    let collector = Collector { told: Arc::default(), also };
    let told = collector.told.clone();
    tracing::subscriber::with_default(collector, || {
        body(&|| std::mem::take(&mut *told.lock().unwrap()))
    })
}

#[test]
fn an_event_stands_for_all_that_happened_in_its_group_since_the_call_before() {
    with(
        || {},
        |told| {
            let ledger = Ledger::new().unwrap();
            let tenant = ledger.root().create("acme").unwrap();
            let query = tenant.create("q1").unwrap();
            tenant.set_max(Limit::units(1000)).unwrap();
            tenant.set_high(Limit::units(100));
            query.try_charge(2000).unwrap_err();
            let mut events = LimitEvents::new(ledger.root());
            assert_eq!(events.emit(), 0, "what was before is not told");
            assert!(told().is_empty());

            for _ in 0..1000 {
                query.try_charge(2000).unwrap_err();
            }
            assert!(told().is_empty(), "a charge emits nothing by itself");
            assert_eq!(events.emit(), 1);
            let now = told();
            let [(level, fields)] = &now[..] else { panic!("{now:?}") };
            assert_eq!(*level, Level::WARN);
            assert_eq!(fields["message"], "charges met the group's max");
            assert_eq!((&*fields["group"], &*fields["count"]), ("/acme", "1000"));
            assert_eq!((&*fields["max"], &*fields["current"]), ("1000", "0"));
            assert_eq!(events.emit(), 0);

            let held = query.try_charge(600).unwrap();
            events.emit();
            let now = told();
            assert_eq!(now[0].1["message"], "charges went over the group's high");
            assert_eq!((now[0].0, &*now[0].1["high"]), (Level::INFO, "100"));
            drop(held);
        },
    );
}

#[test]
fn what_caches_gave_back_is_told() {
    with(
        || {},
        |told| {
            let ledger: &'static Ledger = Ledger::new().unwrap().into_static();
            let tenant = ledger.root().create("acme").unwrap();
            tenant.set_max(Limit::units(100)).unwrap();
            let cache = tenant.create("cache").unwrap();
            let page = Mutex::new(Some(cache.try_charge(80).unwrap()));
            let _reclaimer = cache.add_reclaimer(0, move |_| {
                page.lock().unwrap().take().map_or(0, |page| page.units())
            });
            let mut events = LimitEvents::new(ledger.root());
            let held = tenant.create("q1").unwrap().try_charge(50).unwrap();
            events.emit();
            let now = told();
            let gave = now.iter().find(|told| told.1["message"] == "caches gave back memory");
            let (_, fields) = gave.expect("it was told");
            assert_eq!((&*fields["group"], &*fields["bytes"]), ("/acme/cache", "80"));
            drop(held);
        },
    );
}

#[test]
fn as_many_groups_as_asked_for_are_named_and_the_others_counted() {
    with(
        || {},
        |told| {
            let ledger = Ledger::new().unwrap();
            let groups: Vec<_> =
                (0..20).map(|index| ledger.root().create(&format!("g{index}")).unwrap()).collect();
            groups.iter().for_each(|group| group.set_max(Limit::units(10)).unwrap());
            let mut events = LimitEvents::new(ledger.root()).groups(3);
            for (index, group) in groups.iter().enumerate() {
                for _ in 0..=index {
                    group.try_charge(11).unwrap_err();
                }
            }
            assert_eq!(events.emit(), 20);
            let now = told();
            assert_eq!(now.len(), 4);
            assert_eq!(now[0].1["group"], "/g19", "who met limits most comes first");
            assert_eq!(
                (&*now[3].1["message"], &*now[3].1["count"]),
                ("more groups met limits", "17")
            );
        },
    );
}

#[test]
fn limits_that_were_set_are_told_as_they_are_now() {
    with(
        || {},
        |told| {
            let ledger = Ledger::new().unwrap();
            let tenant = ledger.root().create("acme").unwrap();
            let mut events = LimitEvents::new(ledger.root());
            tenant.set_max(Limit::units(10)).unwrap();
            tenant.set_max(Limit::units(1000)).unwrap();
            tenant.set_high(Limit::units(500));
            assert_eq!(events.emit(), 1);
            let now = told();
            let [(level, fields)] = &now[..] else { panic!("{now:?}") };
            assert_eq!((*level, &*fields["message"]), (Level::INFO, "limits were set"));
            assert_eq!((&*fields["group"], &*fields["count"]), ("/acme", "3"));
            assert_eq!((&*fields["max"], &*fields["high"]), ("1000", "500"));
        },
    );
}

#[test]
fn a_subtree_tells_of_itself_alone() {
    with(
        || {},
        |told| {
            let ledger = Ledger::new().unwrap();
            let (a, b) = (ledger.root().create("a").unwrap(), ledger.root().create("b").unwrap());
            let mut events = LimitEvents::new(a);
            for group in [a, b] {
                let below = group.create("below").unwrap();
                below.set_max(Limit::units(10)).unwrap();
                below.try_charge(11).unwrap_err();
            }
            assert_eq!(events.emit(), 1);
            assert_eq!(told()[0].1["group"], "/a/below");
            a.destroy_tree().unwrap();
            assert_eq!(events.emit(), 0, "a group that is gone has nothing to tell");
        },
    );
}

static SHARED: std::sync::LazyLock<Ledger> = std::sync::LazyLock::new(|| Ledger::new().unwrap());

#[test]
fn a_subscriber_may_charge_be_refused_and_take_snapshots_itself() {
    let busy = || {
        let group = SHARED.find("/q").unwrap();
        group.try_charge(11).unwrap_err();
        group.set_max(Limit::units(10)).unwrap();
        assert!(SHARED.snapshot().groups.len() >= 2);
    };
    with(busy, |told| {
        let group = SHARED.root().create("q").unwrap();
        group.set_max(Limit::units(10)).unwrap();
        let mut events = LimitEvents::new(SHARED.root());
        group.try_charge(11).unwrap_err();
        // The subscriber's own actions during a call are reported by the next call, and no sooner.
        for _ in 0..3 {
            assert_eq!(events.emit(), 1);
            let now = told();
            assert_eq!(now.len(), 1);
            assert_eq!(now[0].1["count"], "1");
        }
    });
}
