//! Whether a document is as its schema in `docs/schemas` says, and whether the schema says enough to notice a change.

#![allow(dead_code, reason = "each program of tests uses a part of this")]

use jsonschema::{Registry, Validator};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Items of an array that are changed one after the other.
const ITEMS: usize = 3;

/// Every schema by its name: `account` of `account.v1.json`.
pub fn all() -> &'static [(String, Value)] {
    static ALL: OnceLock<Vec<(String, Value)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
        let read = |entry: std::fs::DirEntry| {
            let file = entry.file_name().into_string().expect("text");
            let name = file.strip_suffix(".v1.json").unwrap_or_else(|| panic!("a name: {file}"));
            let text = std::fs::read_to_string(entry.path()).expect("a file");
            let schema =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
            (name.to_owned(), schema)
        };
        let entries = std::fs::read_dir(folder).expect("the schemas");
        entries.map(|entry| read(entry.expect("an entry"))).collect()
    })
}

/// What checks documents of a name; the schemas that it refers to come from the same folder.
pub fn validator(name: &str) -> Validator {
    static REGISTRY: OnceLock<Registry<'static>> = OnceLock::new();
    let registry = REGISTRY.get_or_init(|| {
        let id = |schema: &Value| schema["$id"].as_str().expect("an id").to_owned();
        let mut registry = Registry::new();
        for (_, schema) in all() {
            registry = registry.add(id(schema), schema.clone()).expect("its id is an address");
        }
        registry.prepare().expect("what they refer to is there")
    });
    let (_, schema) = all()
        .iter()
        .find(|(other, _)| other == name)
        .unwrap_or_else(|| panic!("there is no docs/schemas/{name}.v1.json"));
    let built = jsonschema::options().with_registry(registry).build(schema);
    built.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The document is as its schema says, and would not be if any value of it were another kind of thing, if any object had
/// a field more, or if a field that must be there were not.
pub fn held(name: &str, document: &Value) {
    assert_eq!(document["schema"], format!("ledgerline/{name}.v1"), "{document}");
    let validator = validator(name);
    let wrong: Vec<String> = (validator.iter_errors(document))
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{name}: {wrong:#?}\n{document:#}");
    let refused = |changed: &Value, what: &str, place: &str| {
        assert!(!validator.is_valid(changed), "{name}: {what} at {place:?} is not noticed");
    };
    let mut places = Vec::new();
    walk(document, &mut String::new(), &mut places);
    for place in &places {
        let mut changed = document.clone();
        *changed.pointer_mut(place).expect("it was there") = json!({ "no such field": [[true]] });
        refused(&changed, "another kind of value", place);
        let mut changed = document.clone();
        let Some(Value::Object(object)) = changed.pointer_mut(place) else { continue };
        object.insert("no such field".to_owned(), json!({ "no such field": [[true]] }));
        refused(&changed, "a field more", place);
    }
    let required = all().iter().find(|(other, _)| other == name).map(|(_, of)| &of["required"]);
    for field in required.and_then(Value::as_array).expect("a list of fields") {
        let mut changed = document.clone();
        changed.as_object_mut().expect("an object").remove(field.as_str().expect("a name"));
        refused(&changed, "a field less", field.as_str().unwrap_or_default());
    }
}

/// The same of a document whose own first field names its schema.
pub fn held_as_it_says(document: &Value) {
    let says = document["schema"].as_str().unwrap_or_else(|| panic!("no schema: {document}"));
    let name = says.strip_prefix("ledgerline/").and_then(|name| name.strip_suffix(".v1"));
    held(name.unwrap_or_else(|| panic!("no name: {says}")), document);
}

/// The pointers to all values; of an array to the first few alone.
fn walk(value: &Value, place: &mut String, places: &mut Vec<String>) {
    places.push(place.clone());
    let mut enter = |step: &str, value: &Value| {
        let length = place.len();
        place.push('/');
        place.push_str(&step.replace('~', "~0").replace('/', "~1"));
        walk(value, place, places);
        place.truncate(length);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| enter(name, value)),
        Value::Array(items) => {
            items
                .iter()
                .take(ITEMS)
                .enumerate()
                .for_each(|(at, item)| enter(&at.to_string(), item));
        }
        _ => {}
    }
}

/// Whether `ledgerline-lab` prints documents of that name.
pub fn of_laboratory(name: &str) -> bool {
    ["layout-", "reproduce-", "calibrate"].iter().any(|start| name.starts_with(start))
        || is_of_both(name)
}

/// Whether `ledgerline` prints documents of that name. Every name is this command's or the laboratory's.
pub fn of_accounting(name: &str) -> bool {
    !of_laboratory(name) || is_of_both(name)
}

/// Rows of benchmarks come from suites of both commands.
fn is_of_both(name: &str) -> bool {
    name == "bench"
}

/// The subcommands of a command that have an option `--json` are those of the list, and so are the schemas that are its own.
/// The list has the name of each subcommand, and the schemas of what it prints. Names that end in `serve` have no such option:
/// their addresses answer in JSON. `elsewhere` are subcommands of which another command tells.
pub fn check_options(
    command: impl Fn() -> Command,
    elsewhere: &[&str],
    json: &[(&str, &[&str])],
    own: impl Fn(&str) -> bool,
) {
    let mut found = BTreeSet::new();
    with_json(&command, elsewhere, &[], &mut found);
    let known: BTreeSet<String> = json
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .filter(|name| !name.ends_with("serve"))
        .collect();
    assert_eq!(found, known);
    let named: BTreeSet<&str> = json.iter().flat_map(|(_, schemas)| *schemas).copied().collect();
    let there = all().iter().map(|(name, _)| &**name).filter(|name| own(name));
    assert_eq!(named, there.collect());
}

/// The subcommands below one that have an option `--json`.
fn with_json(
    command: &impl Fn() -> Command,
    elsewhere: &[&str],
    path: &[String],
    found: &mut BTreeSet<String>,
) {
    if elsewhere.contains(&&*path.join(" ")) {
        return;
    }
    let output = command().args(path).arg("--help").output().expect("the command runs");
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
        // Descriptions that are wrapped begin further right.
        if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
            with_json(command, elsewhere, &[path, &[name.to_owned()]].concat(), found);
        }
    }
}
