//! Every output in JSON follows its schema in `docs/schemas`. Benchmarks take longer: `bench.rs` checks theirs. The
//! laboratory's outputs are checked by the tests of its command.

mod accounting;

use crate::{held, support};
use serde_json::Value;

/// The subcommands with `--json`, and the schemas of their outputs.
const JSON: [(&str, &[&str]); 11] = [
    ("run", &["account"]),
    ("show", &["groups", "group-files", "group-change", "counters"]),
    ("set", &["set"]),
    ("top", &["top", "ledgers"]),
    ("report", &["report"]),
    ("doctor", &["doctor"]),
    // `fleet.rs` checks it, since it has stores.
    ("fleet show", &["fleet"]),
    ("fleet top", &["fleet"]),
    ("bench", &["bench"]),
    // These have no such option: their addresses answer in JSON.
    ("fleet serve", &["serve-fleet"]),
    ("serve", &["serve-ledgers", "serve-groups", "serve-history", "serve-change"]),
];

#[test]
fn every_option_json_has_a_schema_and_every_schema_an_output() {
    held::check_options(support::ledgerline, &support::ELSEWHERE, &JSON, held::of_accounting);
}

/// Calls `told` with every place of a schema that describes a value.
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
        // Builds it, with all of its references.
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
