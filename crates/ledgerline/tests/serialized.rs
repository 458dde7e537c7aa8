//! The serde forms of snapshots, statistics and limits, written and read. This is its own binary: with `serde_json` beside
//! them, comparisons with `[]` in other tests are ambiguous.

use ledgerline::{Ledger, Limit};
use serde_json::{Value, from_str, json, to_value};

#[test]
fn a_snapshot_and_the_statistics_of_a_group_are_serialized_by_their_fields() {
    let ledger = Ledger::builder().items(&["rows"]).anonymous().unwrap();
    let tenant = ledger.root().create("acme").unwrap();
    tenant.set_max("1M".parse().unwrap()).unwrap();
    let held = tenant.try_charge(4096).unwrap();
    tenant.try_charge(2 << 20).unwrap_err();
    tenant.add_stat(ledger.item("rows").unwrap(), 7);
    let snapshot = to_value(ledger.snapshot()).unwrap();
    assert_eq!((&snapshot["unit"], &snapshot["damaged"]), (&json!("bytes"), &json!(false)));
    let group = &snapshot["groups"][1];
    let id = tenant.id().to_string();
    for (field, value) in [
        ("id", json!(id)),
        ("path", json!("/acme")),
        ("current", json!(4096)),
        ("max", json!(1 << 20)),
        ("high", Value::Null),
        ("low", json!(0)),
        ("refused", json!(1)),
        ("state", json!("live")),
    ] {
        assert_eq!(group[field], value, "{field}");
    }
    assert_eq!(group["events"]["max"], 1);
    assert!(group["peak"]["value"].as_u64() >= Some(4096));
    let stat = to_value(tenant.stat()).unwrap();
    let rows = stat["lines"].as_array().unwrap().iter().find(|line| line["name"] == "rows");
    assert_eq!(rows, Some(&json!({"name": "rows", "own": 7, "subtree": 7})));
    assert_eq!(to_value(tenant.events()).unwrap()["max"], 1);
    drop(held);
}

#[test]
fn a_limit_is_read_from_a_number_a_size_or_nothing_and_reads_back() {
    for (text, limit) in [
        ("1024", Limit::units(1024)),
        ("\"1.5G\"", Limit::units(3 << 29)),
        ("\"max\"", Limit::MAX),
        ("null", Limit::MAX),
        ("0", Limit::ZERO),
    ] {
        assert_eq!(from_str::<Limit>(text).unwrap(), limit, "{text}");
        let again = serde_json::to_string(&limit).unwrap();
        assert_eq!(from_str::<Limit>(&again).unwrap(), limit, "{text}");
    }
    for (text, why) in
        [("-1", "integer `-1`"), ("\"5MB\"", "write 5M"), ("1.5", "a number of units")]
    {
        let error = from_str::<Limit>(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
