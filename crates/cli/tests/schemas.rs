//! Every output in JSON is as its schema in `docs/schemas` says. Benchmarks, calibrations and reproductions take longer:
//! `bench.rs`, `calibrate.rs` and `reproduce.rs` hold theirs.

#[path = "schemas/accounting.rs"]
mod accounting;
#[path = "schemas/held.rs"]
mod held;
#[path = "schemas/laboratory.rs"]
mod laboratory;
mod support;

use serde_json::Value;
use std::collections::BTreeSet;

/// The subcommands that have `--json`, and the schemas of what they print.
const JSON: [(&str, &[&str]); 20] = [
    ("run", &["account"]),
    ("show", &["groups", "group-files", "group-change", "counters"]),
    ("set", &["set"]),
    ("top", &["top", "ledgers"]),
    ("report", &["report"]),
    ("doctor", &["doctor"]),
    // `fleet.rs` holds it, which has stores.
    ("fleet show", &["fleet"]),
    ("fleet top", &["fleet"]),
    ("layout show", &["layout-show"]),
    ("layout find", &["layout-find"]),
    ("layout check", &["layout-check"]),
    ("layout advise", &["layout-advise"]),
    ("layout trial", &["layout-trial"]),
    ("layout diff", &["layout-diff"]),
    ("layout record", &["layout-record"]),
    ("bench", &["bench"]),
    (
        "reproduce",
        &["reproduce-row", "reproduce-reported", "reproduce-curve", "reproduce-published"],
    ),
    ("calibrate", &["calibrate"]),
    // They have no such option: their addresses answer in JSON.
    ("fleet serve", &["serve-fleet"]),
    ("serve", &["serve-ledgers", "serve-groups", "serve-history", "serve-change"]),
];

/// The subcommands below one that have an option `--json`.
fn with_json(path: &[String], found: &mut BTreeSet<String>) {
    let output = support::ledgerline().args(path).arg("--help").output().expect("the command runs");
    let help = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{path:?}");
    if help.lines().any(|line| line.trim_start().starts_with("--json")) {
        // The suites of the benchmark have one format.
        let suite = path.first().is_some_and(|first| first == "bench");
        found.insert(if suite { "bench".to_owned() } else { path.join(" ") });
    }
    let commands = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    for line in commands.lines().take_while(|line| !line.trim().is_empty()) {
        let name = line.split_whitespace().next().unwrap_or_default();
        // (Descriptions that are wrapped begin further right.)
        if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
            with_json(&[path, &[name.to_owned()]].concat(), found);
        }
    }
}

#[test]
fn every_option_json_has_a_schema_and_every_schema_an_output() {
    let mut found = BTreeSet::new();
    with_json(&[], &mut found);
    let known: BTreeSet<String> = JSON
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .filter(|name| !name.ends_with("serve"))
        .collect();
    assert_eq!(found, known);
    let named: BTreeSet<&str> = JSON.iter().flat_map(|(_, schemas)| *schemas).copied().collect();
    let there: BTreeSet<&str> = held::all().iter().map(|(name, _)| &**name).collect();
    assert_eq!(named, there);
}

/// Calls with every place of a schema that describes a value.
fn each<'s>(at: &str, schema: &'s Value, told: &mut impl FnMut(&str, &'s Value)) {
    told(at, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        each(&format!("{at}/{name}"), property, told);
    }
    for (name, property) in schema["$defs"].as_object().into_iter().flatten() {
        each(&format!("{at}/$defs/{name}"), property, told);
    }
    if schema["items"].is_object() {
        each(&format!("{at}/items"), &schema["items"], told);
    }
    for one in schema["anyOf"].as_array().into_iter().flatten() {
        each(&format!("{at}/anyOf"), one, told);
    }
}

#[test]
fn schemas_are_of_draft_2020_12_closed_and_say_what_each_field_is() {
    for (name, schema) in held::all() {
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{name}");
        let id = schema["$id"].as_str().unwrap_or_default();
        assert!(id.ends_with(&format!("/schemas/{name}.v1.json")), "{name}: {id}");
        assert!(jsonschema::meta::is_valid(schema), "{name}");
        // Builds it, with all that it refers to.
        held::validator(name);
        each(name, schema, &mut |at, place| {
            if place.get("properties").is_some() && place.get("$ref").is_none() {
                assert_eq!(place["additionalProperties"], false, "{at} lets anything in");
            }
            for (field, of) in place["properties"].as_object().into_iter().flatten() {
                let said = of.get("description").is_some() || of.get("$ref").is_some();
                assert!(said || of.get("items").is_some(), "{at}/{field} does not say what it is");
            }
        });
    }
}
