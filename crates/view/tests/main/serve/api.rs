//! The content of `/api/…` and `/metrics` for a ledger.

use super::support::{LONG, Served, served};
use ledgerline::Limit;
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns samples by their names and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (name, value) =
                line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?} has no value"));
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line:?} has no number")))
        })
        .collect()
}

/// Returns a sample of the only ledger, by its family and group.
fn sample(samples: &BTreeMap<String, f64>, family: &str, group: &str) -> Option<f64> {
    let ends = format!(",group=\"{group}\"}}");
    let name = |name: &&String| name.starts_with(&format!("{family}{{")) && name.ends_with(&ends);
    samples.keys().find(name).map(|name| samples[name])
}

/// Waits for a look that is newer than the last known one.
fn next_look(served: &Served) {
    let at = |served: &Served| served.get("/api/ledgers/1/groups").json()["number"].as_u64();
    let (before, end) = (at(served), std::time::Instant::now() + LONG);
    while at(served) == before {
        assert!(std::time::Instant::now() < end, "no new look");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn groups_are_told_with_their_parents_limits_and_items() {
    let served = served(|_| ());
    let tenant = served.ledger.root().create("a \"b\" <i>").unwrap();
    tenant.set_max(Limit::units(1 << 20)).unwrap();
    let query = tenant.create("q1").unwrap();
    let _held = query.try_charge(4096).unwrap();
    query.try_charge(1 << 30).expect_err("there is a limit");
    query.add_stat(served.ledger.item("rows_read").unwrap(), 7);
    next_look(&served);

    let index = served.get("/api/ledgers").json();
    assert_eq!(index["interval"], 100);
    assert_eq!(index["ledgers"][0]["id"], 1);
    assert_eq!(index["ledgers"][0]["groups"], 3);
    assert_eq!(index["ledgers"][0]["current"], 4096);
    let document = served.get("/api/ledgers/1/groups").json();
    assert_eq!(document["unit"], "bytes");
    let groups = document["groups"].as_array().unwrap();
    assert_eq!(groups[0]["parent"], Value::Null);
    assert_eq!(groups[1]["parent"], groups[0]["id"]);
    assert_eq!(groups[2]["parent"], groups[1]["id"]);
    assert_eq!(groups[1]["path"], "/a \"b\" <i>");
    assert_eq!(groups[1]["max"], 1 << 20);
    assert_eq!(groups[2]["max"], Value::Null);
    assert_eq!((&groups[2]["current"], &groups[2]["refused"]), (&4096.into(), &1.into()));
    assert_eq!(groups[2]["items"]["rows_read"], 7);
    assert_eq!(groups[1]["max_events"], 1);

    for (path, status) in
        [("/api/ledgers/2/groups", 404), ("/api/ledgers/x/groups", 404), ("/api/ledgers/1", 404)]
    {
        assert_eq!(served.get(path).status, status, "{path}");
    }
}

#[test]
fn history_is_asked_for_by_path_or_number_and_has_what_was_refused() {
    let served = served(|_| ());
    let group = served.ledger.root().create("a b&c").unwrap();
    group.set_max(Limit::units(10_000)).unwrap();
    next_look(&served);
    let _held = group.try_charge(9_000).unwrap();
    group.try_charge(9_000).expect_err("there is a limit");
    next_look(&served);
    let by_path = served.get("/api/ledgers/1/history?group=/a%20b%26c").json();
    assert_eq!(by_path["path"], "/a b&c");
    let by_number = format!(
        "/api/ledgers/1/history?group={}",
        by_path["group"].as_str().unwrap().replace('#', "%23")
    );
    assert_eq!(served.get(&by_number).json()["path"], "/a b&c");
    let points = by_path["points"].as_array().unwrap();
    assert_eq!(points.iter().map(|point| point["refused"].as_u64().unwrap()).sum::<u64>(), 1);
    assert_eq!(points.last().unwrap()["last"], 9_000);
    assert!(points.iter().all(|point| point["least"].as_u64() <= point["most"].as_u64()));
    let now = by_path["at"].as_f64().unwrap();
    let (start, length) =
        (points[0]["at"].as_f64().unwrap(), points[0]["seconds"].as_f64().unwrap());
    assert!(
        start <= now + 0.01 && start + length >= now - 2.0 * LONG.as_secs_f64(),
        "{start} + {length}, {now}"
    );
    assert_eq!(served.get("/api/ledgers/1/history?group=/none").status, 404);
    assert_eq!(served.get("/api/ledgers/1/history").json()["path"], "/");
}

#[test]
fn without_history_a_group_has_no_points() {
    let served = served(|settings| settings.history = false);
    let hour = served.get("/api/ledgers/1/history").json();
    assert_eq!(hour["points"], Value::Array(Vec::new()));
}

/// In the form that the page reads.
#[test]
fn events_by_field_say_of_which_groups_each_changed() {
    let served = served(|_| ());
    let [still, grows] = ["still", "grows"].map(|name| served.ledger.root().create(name).unwrap());
    let _held = still.try_charge(100).unwrap();
    next_look(&served);
    let mut events = served.events_by("?by=field");
    let (kind, look) = events.next().unwrap();
    assert_eq!((&*kind, look["groups"].as_array().unwrap().len()), ("look", 3));
    let id = look["groups"].as_array().unwrap().iter().find(|group| group["name"] == "grows");
    let id = &id.unwrap()["id"];
    let _grown = grows.try_charge(4096).unwrap();
    let held = events.find_map(|(kind, change)| {
        assert_eq!(kind, "change");
        assert!(change.get("groups").is_none(), "{change:#}");
        let fields = change.get("fields")?;
        let of = fields["ids"].as_array().unwrap().iter().position(|one| one == id)?;
        let column = fields.get("current")?;
        let place = match column.get("at") {
            Some(at) => at.as_array().unwrap().iter().position(|at| *at == of)?,
            None => of,
        };
        Some(column["is"][place].clone())
    });
    assert_eq!(held.unwrap(), 4096);
    assert_eq!(served.get("/api/ledgers/1/events?by=colour").status, 400);
}

#[test]
fn events_are_everything_and_then_what_changed() {
    let served = served(|_| ());
    let still = served.ledger.root().create("still").unwrap();
    let _held = still.try_charge(100).unwrap();
    next_look(&served);
    let mut events = served.events();
    let (kind, look) = events.next().unwrap();
    assert_eq!((&*kind, look["groups"].as_array().unwrap().len()), ("look", 2));
    let grows = served.ledger.root().create("grows").unwrap();
    let mut number = look["number"].as_u64().unwrap();
    // The group comes, changes, and goes; unchanged fields are not repeated.
    let mut charges = vec![grows.try_charge(4096).unwrap()];
    let (mut id, mut changed) = (Value::Null, false);
    for (kind, change) in events {
        assert_eq!(kind, "change");
        number += 1;
        assert_eq!(change["number"], number, "no look is missing");
        let empty = Vec::new();
        let list = |name: &str| change[name].as_array().unwrap_or(&empty).clone();
        for new in list("new") {
            assert_eq!(new["name"], "grows");
            id = new["id"].clone();
            charges.push(grows.try_charge(4096).unwrap());
        }
        for group in list("groups") {
            let own = group["id"] == id || group["id"] == look["groups"][0]["id"];
            let rates_alone =
                group.as_object().unwrap().keys().all(|key| key == "id" || key == "rates");
            assert!(own || rates_alone, "still does nothing: {group}");
            if group["id"] == id && group["current"] == 8192 {
                changed = true;
                charges.clear();
                grows.destroy().unwrap();
            }
        }
        if list("gone").contains(&id) {
            break;
        }
    }
    assert!(changed, "the change was told before the end");
}

#[test]
fn metrics_add_up_and_name_no_more_groups_than_they_may() {
    let served = served(|settings| settings.groups = 10);
    let root = served.ledger.root();
    let mut charges = Vec::new();
    for tenant in 0..20 {
        let tenant = root.create(&format!("t{tenant}")).unwrap();
        charges.push(tenant.try_charge(1000).unwrap());
        for query in 0..10 {
            let query = tenant.create(&format!("q{query}")).unwrap();
            charges.push(query.try_charge(10 + charges.len() as u64).unwrap());
        }
    }
    next_look(&served);
    let answer = served.ask("/metrics", "Accept: application/openmetrics-text\r\n");
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(answer.body.ends_with("# EOF\n"));
    let samples = samples(&answer.body);
    let held: u64 = charges.iter().map(ledgerline::Charge::units).sum();
    assert_eq!(sample(&samples, "ledgerline_current_bytes", "/"), Some(held as f64));
    let of = |family: &str| {
        samples
            .iter()
            .filter(move |(name, _)| name.starts_with(&format!("{family}{{")))
            .map(|(_, value)| value)
            .collect::<Vec<_>>()
    };
    assert_eq!(of("ledgerline_self_bytes").into_iter().sum::<f64>(), held as f64);
    for family in [
        "ledgerline_current_bytes",
        "ledgerline_self_bytes",
        "ledgerline_charges_total",
        "ledgerline_refused_total",
    ] {
        assert_eq!(of(family).len(), 11, "ten groups and `other` in {family}");
    }
    assert_eq!(of("ledgerline_unlisted_groups"), [&(221.0 - 10.0)]);
    assert!(sample(&samples, "ledgerline_current_bytes", "other") > Some(0.0));
    assert_eq!(sample(&samples, "ledgerline_peak_bytes", "other"), None, "peaks do not add up");
}

#[test]
fn a_count_of_other_never_goes_back_while_groups_come_and_go() {
    let served = served(|settings| settings.groups = 3);
    let root = served.ledger.root();
    let mut last = 0.0;
    for turn in 0..8_u64 {
        let groups: Vec<_> =
            (0..6).map(|at| root.create(&format!("g{turn}-{at}")).unwrap()).collect();
        let charges: Vec<_> = groups
            .iter()
            .zip(1..)
            .map(|(group, at)| group.try_charge(at * (turn + 1) * 100).unwrap())
            .collect();
        next_look(&served);
        let samples = samples(&served.get("/metrics").body);
        let other =
            sample(&samples, "ledgerline_charges_total", "other").expect("it is always there");
        assert!(other > last, "{other} after {last}: those that were not listed charged");
        last = other;
        drop(charges);
        groups.into_iter().skip(turn as usize % 2).for_each(|group| {
            group.destroy().unwrap();
        });
    }
}

#[test]
fn metrics_escape_names_and_speak_the_format_that_is_asked_for() {
    let served = served(|_| ());
    let group = served.ledger.root().create("a\"b\\c{d=\"e\"} # f").unwrap();
    let _held = group.try_charge(77).unwrap();
    group.add_stat(served.ledger.item("rows_read").unwrap(), -3);
    next_look(&served);
    let text = served.get("/metrics");
    assert!(text.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    assert!(
        text.body.contains("# TYPE ledgerline_charges_total counter\n")
            && !text.body.contains("# EOF")
    );
    let openmetrics = served
        .ask("/metrics", "Accept: application/openmetrics-text; version=1.0.0, */*;q=0.1\r\n");
    assert!(openmetrics.body.contains("# TYPE ledgerline_charges counter\n"));
    assert!(openmetrics.body.contains("# UNIT ledgerline_current_bytes bytes\n"));
    for body in [&text.body, &openmetrics.body] {
        let samples = samples(body);
        let escaped = r#"/a\"b\\c{d=\"e\"} # f"#;
        assert_eq!(sample(&samples, "ledgerline_current_bytes", escaped), Some(77.0), "{body}");
        let item = samples
            .iter()
            .find(|(name, _)| name.contains(escaped) && name.contains(r#"item="rows_read""#));
        assert_eq!(item.map(|(_, value)| *value), Some(-3.0));
    }
}

#[test]
fn however_many_ask_a_ledger_is_looked_at_once_an_interval() {
    let served = served(|settings| settings.interval = LONG);
    let first = served.get("/api/ledgers/1/groups").json()["number"].clone();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for path in
                    ["/metrics", "/api/ledgers", "/api/ledgers/1/groups", "/api/ledgers/1/history"]
                {
                    assert_eq!(served.get(path).status, 200);
                }
            });
        }
    });
    assert_eq!(served.get("/api/ledgers/1/groups").json()["number"], first);
}

#[test]
fn while_nobody_asks_and_no_history_is_kept_nobody_looks() {
    let served = served(|settings| settings.history = false);
    let number = || served.get("/api/ledgers/1/groups").json()["number"].as_u64().unwrap();
    // It is looked at while there is a listener.
    assert_eq!(served.events().take(4).count(), 4);
    let before = number();
    std::thread::sleep(std::time::Duration::from_secs(1));
    // A listener may be noticed late once: one look more, and that of this request.
    let looks = number() - before;
    assert!(looks <= 2, "{looks} looks in ten intervals in which nobody asked");
}
