//! The series that the `metrics` facade gets from a ledger.

use ledgerline::export::metrics::Metrics;
use ledgerline::{Ledger, Limit};
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::collections::BTreeMap;

/// Returns all figures by name and group. Taking counters resets them to zero here.
fn figures(snapshotter: &Snapshotter) -> BTreeMap<(String, String), f64> {
    let figures = snapshotter.snapshot().into_vec().into_iter();
    let figure = |(key, _, _, value): (metrics_util::CompositeKey, _, _, DebugValue)| {
        let labels: Vec<_> = key.key().labels().collect();
        assert!(labels.len() <= 1 && labels.iter().all(|label| label.key() == "group"));
        let group = labels.first().map_or("", |label| label.value()).to_owned();
        let value = match (key.kind(), value) {
            (MetricKind::Gauge, DebugValue::Gauge(value)) => value.0,
            (MetricKind::Counter, DebugValue::Counter(value)) => value as f64,
            other => panic!("{other:?}"),
        };
        ((key.key().name().to_owned(), group), value)
    };
    figures.map(figure).collect()
}

#[test]
fn gauges_say_what_is_and_counters_what_was_counted_since_the_call_before() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let ledger = Ledger::new().unwrap();
        let tenant = ledger.root().create("acme").unwrap();
        tenant.set_max(Limit::units(1 << 20)).unwrap();
        let query = tenant.create("q1").unwrap();
        let held = query.try_charge(5000).unwrap();
        query.try_charge(2 << 20).unwrap_err();
        let mut metrics = Metrics::new(&ledger).depth(2);
        metrics.update();
        let now = figures(&snapshotter);
        let of = |now: &BTreeMap<(String, String), f64>, name: &str, group: &str| {
            now.get(&(name.to_owned(), group.to_owned())).copied()
        };
        for group in ["/", "/acme", "/acme/q1"] {
            assert_eq!(of(&now, "ledgerline_current_bytes", group), Some(5000.0));
            // Charges of the query, whichever limit refused them.
            assert_eq!(of(&now, "ledgerline_refused_total", group), Some(1.0), "{group}");
            assert!(of(&now, "ledgerline_peak_bytes", group) >= Some(5000.0));
        }
        assert_eq!(of(&now, "ledgerline_max_bytes", "/acme"), Some(f64::from(1 << 20)));
        assert_eq!(of(&now, "ledgerline_max_bytes", "/"), None, "a limit that there is not");
        assert_eq!(of(&now, "ledgerline_max_events_total", "/acme"), Some(1.0));
        assert_eq!(of(&now, "ledgerline_max_events_total", "/acme/q1"), Some(0.0));
        assert_eq!(of(&now, "ledgerline_subtree_max_events_total", "/"), Some(1.0));
        assert_eq!(of(&now, "ledgerline_groups", ""), Some(3.0));

        // An old count is not counted again.
        drop(held);
        tenant.set_max(Limit::MAX).unwrap();
        metrics.update();
        let now = figures(&snapshotter);
        assert_eq!(of(&now, "ledgerline_refused_total", "/acme"), Some(0.0));
        assert_eq!(of(&now, "ledgerline_uncharges_total", "/acme/q1"), Some(1.0));
        assert_eq!(of(&now, "ledgerline_current_bytes", "/acme"), Some(0.0));
        assert_eq!(of(&now, "ledgerline_max_bytes", "/acme"), Some(f64::INFINITY));
    });
}

#[test]
fn a_group_that_is_gone_holds_nothing_and_one_of_its_name_counts_on() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let ledger = Ledger::new().unwrap();
        let mut metrics = Metrics::new(&ledger);
        let key = |name: &str| (name.to_owned(), "/q".to_owned());
        let first = ledger.root().create("q").unwrap();
        let held = first.try_charge(100).unwrap();
        metrics.update();
        assert_eq!(figures(&snapshotter)[&key("ledgerline_current_bytes")], 100.0);
        drop(held);
        first.destroy().unwrap();
        metrics.update();
        let now = figures(&snapshotter);
        assert_eq!(now[&key("ledgerline_current_bytes")], 0.0);
        assert_eq!(now[&key("ledgerline_peak_bytes")], 0.0);
        let second = ledger.root().create("q").unwrap();
        let held = [second.try_charge(10).unwrap(), second.try_charge(20).unwrap()];
        metrics.update();
        let now = figures(&snapshotter);
        assert_eq!(now[&key("ledgerline_current_bytes")], 30.0);
        assert_eq!(now[&key("ledgerline_charges_total")], 2.0, "no more than its own");
        drop(held);
    });
}

#[test]
fn however_many_groups_there_are_the_labels_are_bounded() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let ledger = Ledger::builder().capacity(2000).anonymous().unwrap();
        let mut held = Vec::new();
        for index in 0..500 {
            let group = ledger.root().create(&format!("g{index}")).unwrap();
            held.push(group.try_charge(1000 + index).unwrap());
        }
        let mut metrics = Metrics::new(&ledger).groups(10);
        for _ in 0..3 {
            metrics.update();
            let now = figures(&snapshotter);
            let groups = now.keys().filter(|(name, _)| name == "ledgerline_current_bytes").count();
            assert_eq!(groups, 10);
            assert_eq!(now[&("ledgerline_unlisted_groups".to_owned(), String::new())], 491.0);
            let key = |group: &str| ("ledgerline_current_bytes".to_owned(), group.to_owned());
            assert!(now.contains_key(&key("/")) && now.contains_key(&key("/g499")));
        }
    });
}

/// Returns the groups that have figures.
fn labels(figures: &BTreeMap<(String, String), f64>) -> Vec<&str> {
    let of = figures.keys().filter(|(name, _)| name == "ledgerline_current_bytes");
    of.map(|(_, group)| &**group).collect()
}

/// Charges, refuses and ends a group below `above`, with an update in between.
fn request(above: ledgerline::Group<'_>, n: usize, metrics: &mut Metrics<'_>) {
    let request = above.create(&format!("r{n}")).unwrap();
    request.set_max(Limit::units(1 << 20)).unwrap();
    let held = request.try_charge(1000).unwrap();
    request.try_charge(2 << 20).unwrap_err();
    metrics.update();
    drop(held);
    request.destroy().unwrap();
}

#[test]
fn groups_that_come_and_go_have_no_series_and_their_counts_stay_above_them() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let ledger = Ledger::new().unwrap();
        let tenant = ledger.root().create("acme").unwrap();
        let mut metrics = Metrics::new(&ledger);
        (0..300).for_each(|n| request(tenant, n, &mut metrics));
        metrics.update();
        let now = figures(&snapshotter);
        assert_eq!(labels(&now), ["/", "/acme"]);
        let of = |name: &str| now[&(name.to_owned(), "/acme".to_owned())];
        assert_eq!(
            (of("ledgerline_refused_total"), of("ledgerline_charges_total")),
            (300.0, 300.0)
        );
        assert_eq!(of("ledgerline_subtree_max_events_total"), 300.0);
        assert_eq!(of("ledgerline_max_events_total"), 0.0);
    });
}

#[test]
fn however_many_groups_there_were_the_labels_are_bounded() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let ledger = Ledger::new().unwrap();
        let mut metrics = Metrics::new(&ledger).groups(5);
        (0..100).for_each(|n| request(ledger.root(), n, &mut metrics));
        assert_eq!(labels(&figures(&snapshotter)), ["/", "/r0", "/r1", "/r2", "/r3"]);
        // A path that had figures has them again.
        let again = ledger.root().create("r2").unwrap();
        let held = again.try_charge(77).unwrap();
        metrics.update();
        let key = |group: &str| ("ledgerline_current_bytes".to_owned(), group.to_owned());
        assert_eq!(figures(&snapshotter)[&key("/r2")], 77.0);
        drop(held);
        let mut more = Metrics::new(&ledger).groups(5).names(8);
        (100..200).for_each(|n| request(ledger.root(), n, &mut more));
        // The labels of both; two names are common to both.
        assert_eq!(labels(&figures(&snapshotter)).len(), 5 + 8 - 2);
    });
}

#[test]
fn a_filter_says_which_groups_have_figures_besides_the_root() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let ledger = Ledger::new().unwrap();
        let tenant = ledger.root().create("acme").unwrap();
        let [pool, other] = ["pool", "request-1"].map(|name| tenant.create(name).unwrap());
        other.create("pool").unwrap();
        let held = pool.try_charge(10).unwrap();
        let mut metrics = Metrics::new(&ledger).depth(2).filter(|group| group.name == "pool");
        metrics.update();
        assert_eq!(labels(&figures(&snapshotter)), ["/", "/acme/pool"]);
        drop(held);
    });
}
