//! Checks whether a record keeps its rules.

use super::{Broken, File, MISSING, TypeRules, crossing};
use crate::Error;
use crate::leaf::{Expand, Leaf, find, leaves, record};
use crate::lines::Lines;
use crate::model::{TypeId, Types};
use crate::pick::{Pattern, pick};

/// Returns the rules that the types of a file break, in the order of the rules. Rules that name a missing type or
/// field count as broken as well, under the name [`MISSING`], unless it is optional. Their messages name similar
/// names.
///
/// The base is assumed to begin a line, unless a rule states the `base`.
///
/// # Errors
/// If the name of a type is not a valid pattern, or if no rule has the configuration.
pub fn check(
    types: &Types,
    rules: &File,
    configuration: Option<&str>,
) -> Result<Vec<Broken>, Error> {
    let mut broken = Vec::new();
    let mut grouped = std::collections::HashSet::new();
    for rules_of_type in rules.of(configuration)? {
        Pattern::new(&rules_of_type.name)?;
        let picked = match pick(types, std::slice::from_ref(&rules_of_type.name)) {
            Ok(picked) => picked,
            Err(_) if rules_of_type.optional => continue,
            Err(none) => {
                broken.push(Broken {
                    ty: rules_of_type.name.clone(),
                    rule: MISSING,
                    fields: Vec::new(),
                    message: none.to_string(),
                    declared: None,
                });
                continue;
            }
        };
        for (name, id) in picked {
            let Some((id, record)) = record(types, id) else { continue };
            let step = rules_of_type.base.unwrap_or(rules.line).max(record.align.bytes());
            let leaves = leaves(types, id, Expand::Anonymous);
            let line = rules.line;
            for (field, error) in rules_of_type.missing(types, (name, id)) {
                let (fields, message) = (vec![field.to_owned()], error.to_string());
                broken.push(Broken::of(types, (name, id), MISSING, fields, message));
            }
            let mut one = One { types, name, id, line, step, leaves, broken: &mut broken };
            one.check(rules_of_type, record.size);
            if rules.groups && grouped.insert(id) {
                broken.extend(crossing(types, name, id, Lines::of(rules.line)));
            }
        }
    }
    Ok(broken)
}

struct One<'a> {
    types: &'a Types,
    name: &'a str,
    id: TypeId,
    line: u64,
    /// The base is a multiple of this.
    step: u64,
    leaves: Vec<Leaf>,
    broken: &'a mut Vec<Broken>,
}

impl One<'_> {
    fn check(&mut self, rules: &TypeRules, size: u64) {
        for list in &rules.together {
            self.together(&self.all(list));
        }
        for (rule, one, others, distance) in rules.separate(self.line, |names| self.all(names)) {
            self.apart(rule, &one, &others, distance);
        }
        for one in &self.all(&rules.alone) {
            // The fields that contain it, and the fields within it, are left out.
            let others: Vec<Leaf> = (self.leaves.iter())
                .filter(|leaf| leaf.end() <= one.start || leaf.start >= one.end())
                .cloned()
                .collect();
            self.apart("alone", one, &others, self.line);
        }
        for one in &self.all(&rules.starts_line) {
            let elsewhere = |lines: &Lines| {
                !(one.offset() + lines.shift()).is_multiple_of(self.line)
                    || !one.start.is_multiple_of(8)
            };
            if let Some(lines) = self.placed(self.line).find(elsewhere) {
                let what = format!("{} does not begin a line{}", place(one), at(lines));
                self.add("starts_line", &[one], what);
            }
        }
        self.straddling(&rules.no_straddle);
        if let Some(most) = rules.max_lines
            && let Some(lines) = self.placed(self.line).find(|lines| lines.count(0, size) > most)
        {
            let count = lines.count(0, size);
            let what = format!("its {size} bytes touch {count} lines{}, not {most}", at(lines));
            self.add("max_lines", &[], what);
        }
        if let Some(most) = rules.size_max.filter(|&most| size > most) {
            self.add("size_max", &[], format!("it has {size} bytes, not {most}"));
        }
    }

    fn together(&mut self, list: &[Leaf]) {
        for lines in self.placed(self.line) {
            let first = list.iter().map(|leaf| lines.leaf(leaf).0).min();
            let last = list.iter().map(|leaf| lines.leaf(leaf).1).max();
            if first != last {
                let places: Vec<String> = list
                    .iter()
                    .map(|leaf| format!("{} on line {}", place(leaf), lines.leaf(leaf).0))
                    .collect();
                let what = format!("not on one line{}: {}", at(lines), places.join(", "));
                return self.add("together", &list.iter().collect::<Vec<_>>(), what);
            }
        }
    }

    fn apart(&mut self, rule: &'static str, one: &Leaf, others: &[Leaf], distance: u64) {
        let mut lines_of = self.placed(distance);
        let found = lines_of.find_map(|lines| {
            let shared: Vec<&Leaf> =
                others.iter().filter(|other| lines.share(one, other)).collect();
            (!shared.is_empty()).then_some((lines, shared))
        });
        if let Some((lines, shared)) = found {
            let names: Vec<String> = shared.iter().map(|leaf| place(leaf)).collect();
            let (one_place, at, names) = (place(one), at(lines), names.join(", "));
            let what = format!("{one_place} shares {distance} bytes{at} with {names}");
            let fields: Vec<&Leaf> = [one].into_iter().chain(shared).collect();
            self.add(rule, &fields, what);
        }
    }

    fn straddling(&mut self, names: &[String]) {
        let named = |name: &String| match name.as_str() {
            "*" => self.leaves.clone(),
            name => self.one(name).into_iter().collect(),
        };
        let list: Vec<Leaf> = names.iter().flat_map(named).collect();
        for leaf in &list {
            let straddles = |lines: &Lines| lines.straddles(leaf.offset(), leaf.size());
            if let Some(lines) = self.placed(self.line).find(straddles) {
                let (first, last) = lines.leaf(leaf);
                let what = format!("{} lies on lines {first} to {last}{}", place(leaf), at(lines));
                self.add("no_straddle", &[leaf], what);
            }
        }
    }

    /// Returns lines of a size, for every place that the base may have.
    fn placed(&self, size: u64) -> impl Iterator<Item = Lines> + use<> {
        Lines::of(size).placements(self.step)
    }

    /// Returns the fields with these names; missing ones are already reported, or optional.
    fn all(&self, names: &[String]) -> Vec<Leaf> {
        names.iter().filter_map(|name| self.one(name)).collect()
    }

    fn one(&self, name: &str) -> Option<Leaf> {
        find(self.types, self.id, name)
    }

    fn add(&mut self, rule: &'static str, fields: &[&Leaf], message: String) {
        let fields = fields.iter().map(|leaf| leaf.path.clone()).collect();
        self.broken.push(Broken::of(self.types, (self.name, self.id), rule, fields, message));
    }
}

fn place(leaf: &Leaf) -> String {
    format!("{} ({} bytes at {})", leaf.path, leaf.size(), leaf.offset())
}

/// Describes the place of the base, unless it is a line's start.
fn at(lines: Lines) -> String {
    match lines.shift() {
        0 => String::new(),
        shift => format!(" (base {shift} bytes into one)"),
    }
}
