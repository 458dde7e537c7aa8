//! The broken rules, and their reports for people and machines.

use serde_json::{Value, json};

use crate::leaf::record;
use crate::model::{TypeId, Types};

/// The rule of a [`Broken`] for a type or field that the rules name and that is missing.
pub const MISSING: &str = "missing";

/// A rule that does not hold, or one that cannot, because a type or field is missing ([`MISSING`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The type; its name in the rules, if it is missing.
    pub ty: String,
    /// The rule, as the file spells it.
    pub rule: &'static str,
    /// The fields that break it.
    pub fields: Vec<String>,
    /// The description in words.
    pub message: String,
    /// The place of the type's declaration: file and line.
    pub declared: Option<(String, u32)>,
}

impl Broken {
    /// Returns a rule that a type of this name breaks.
    pub(super) fn of(
        types: &Types,
        (name, id): (&str, TypeId),
        rule: &'static str,
        fields: Vec<String>,
        message: String,
    ) -> Broken {
        let place = record(types, id).and_then(|(_, record)| record.declared);
        let declared = place.map(|place| (types.name(place.file).to_owned(), place.line));
        Broken { ty: name.to_owned(), rule, fields, message, declared }
    }
}

/// Each rule with its requirement.
const RULES: [(&str, &str); 10] = [
    ("together", "Fields that are used together lie on one line"),
    ("apart", "Fields that different CPUs write share no line"),
    ("max_lines", "The type touches no more lines than this"),
    ("no_straddle", "A field touches no more lines than it must"),
    ("starts_line", "A field begins a line"),
    ("size_max", "The type has no more bytes than this"),
    ("alone", "A field shares its line with no other"),
    ("no_rmw_with_read_mostly", "What many write lies on no line of what is hardly ever written"),
    ("group", "A marked group crosses no line that it need not cross"),
    (MISSING, "What the rules name is there"),
];

/// Returns a line for each broken rule.
pub fn text(broken: &[Broken]) -> String {
    let line = |broken: &Broken| {
        let place = match &broken.declared {
            Some((file, line)) => format!(" ({file}:{line})"),
            None => String::new(),
        };
        format!("{}: {}: {}{place}\n", broken.ty, broken.rule, broken.message)
    };
    broken.iter().map(line).collect()
}

/// Returns an object with `holds`, and with `broken`: a type, a rule, fields and a message each.
pub fn json(broken: &[Broken]) -> Value {
    let one = |broken: &Broken| {
        let (file, line) = broken.declared.clone().unzip();
        json!({
            "type": broken.ty, "rule": broken.rule, "fields": broken.fields,
            "message": broken.message, "file": file, "line": line,
        })
    };
    let list: Vec<Value> = broken.iter().map(one).collect();
    json!({ "schema": "ledgerline/layout-check.v1", "holds": broken.is_empty(), "broken": list })
}

/// Returns a SARIF 2.1.0 log. If the file does not state the place of a type's declaration, `checked` stands for it.
pub fn sarif(broken: &[Broken], checked: &str) -> Value {
    let rules: Vec<Value> = RULES
        .iter()
        .map(|(id, text)| json!({ "id": id, "shortDescription": { "text": text } }))
        .collect();
    let result = |broken: &Broken| {
        let physical = match &broken.declared {
            Some((file, line)) => json!({
                "artifactLocation": { "uri": uri(file) },
                "region": { "startLine": (*line).max(1) },
            }),
            None => json!({ "artifactLocation": { "uri": uri(checked) } }),
        };
        json!({
            "ruleId": broken.rule,
            "ruleIndex": RULES.iter().position(|rule| rule.0 == broken.rule),
            "level": "error",
            "message": { "text": format!("{}: {}", broken.ty, broken.message) },
            "locations": [{
                "physicalLocation": physical,
                "logicalLocations": [{ "fullyQualifiedName": broken.ty, "kind": "type" }],
            }],
        })
    };
    let results: Vec<Value> = broken.iter().map(result).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "ledgerline layout check",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            } },
            "results": results,
        }],
    })
}

/// Returns a path as a URI reference. All characters that are not unreserved are escaped.
fn uri(path: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' | b'+' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    path.bytes().map(escape).collect()
}
