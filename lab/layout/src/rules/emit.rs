//! Writes the rules as assertions that a compiler checks.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{File, Group, TypeRules, groups};
use crate::Error;
use crate::leaf::{Leaf, find, keyword, record};
use crate::model::{TypeId, Types};
use crate::pick::{Pattern, pick};

/// The language in which assertions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `const _: () = assert!(...)` with `offset_of!`.
    Rust,
    /// `_Static_assert` with `offsetof`, since C11.
    C,
    /// The kernel's macros, for the groups that its markers name.
    Kernel,
}

/// Returns the rules as assertions, for a source file that has the types in scope.
///
/// Rules about the whole type and rules about fields become assertions. `base`, `no_straddle` of all fields and
/// `alone` need the whole type, and are left to `check`. Sizes of fields are those of today. A bitfield has no offset
/// in either language, so a rule with a bitfield is left out. C has no name for types of C++ and Rust, and Rust has
/// none for closures and other types without a name in the source. A comment lists the rules that were left out.
/// Rust's names are whole paths, which the crate that has the types knows by `extern crate self as` its own name; a
/// comment explains that as well.
///
/// # Errors
/// The errors of [`check`](super::check()); also if a rule names a missing type or field that is not optional.
pub fn emit(
    types: &Types,
    rules: &File,
    configuration: Option<&str>,
    language: Language,
) -> Result<String, Error> {
    let mut out = match language {
        Language::Rust => "const _: () = {\n    use core::mem::offset_of;\n".to_owned(),
        Language::C => "#include <stddef.h>\n".to_owned(),
        Language::Kernel => String::new(),
    };
    let mut crates = BTreeSet::new();
    for of_type in rules.of(configuration)? {
        Pattern::new(&of_type.name)?;
        let picked = match pick(types, std::slice::from_ref(&of_type.name)) {
            Err(_) if of_type.optional => continue,
            picked => picked?,
        };
        for (name, id) in picked {
            // A typedef's name needs no keyword.
            let tagged = record(types, id).filter(|(_, record)| {
                language == Language::C && !types.name(record.name).is_empty()
            });
            let tag = tagged.map_or("", |(_, record)| keyword(record.kind));
            let ty = format!("{tag} {name}").trim().to_owned();
            let one = One { types, id, name, ty, language, line: rules.line };
            one.left_out(of_type, &mut out);
            if language == Language::Kernel {
                one.groups(&mut out);
                continue;
            }
            if !one.has_name() {
                continue;
            }
            if language == Language::Rust
                && let Some((of, _)) = name.split_once("::")
                && is_word(of)
            {
                crates.insert(of.to_owned());
            }
            if let Some((_, missing)) = of_type.missing(types, (name, id)).into_iter().next() {
                return Err(missing);
            }
            let mut lines = BTreeSet::new();
            for (condition, what) in one.conditions(of_type) {
                if lines.insert(condition.clone()) {
                    one.write(&condition, &what, &mut out);
                }
            }
        }
    }
    if language == Language::Rust {
        out.push_str("};\n");
    }
    for of in crates {
        let how = format!("// (In {of} itself: `extern crate self as {of};` at its root.)\n");
        out.insert_str(0, &how);
    }
    Ok(out)
}

fn is_word(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

struct One<'a> {
    types: &'a Types,
    id: TypeId,
    name: &'a str,
    ty: String,
    language: Language,
    line: u64,
}

impl One<'_> {
    /// Returns whether the language has a name for the type.
    fn has_name(&self) -> bool {
        match self.language {
            Language::C => is_word(self.name),
            // `{closure_env#0}`, `{impl#3}`; and of C++ `(anonymous)`.
            Language::Rust => !self.name.contains(['{', '#', '(']),
            Language::Kernel => true,
        }
    }

    /// Lists the rules that become no assertion.
    fn left_out(&self, rules: &TypeRules, out: &mut String) {
        let mut left: Vec<String> = Vec::new();
        let size = rules.max_lines.or(rules.size_max).or(rules.base);
        if self.language == Language::Kernel {
            if size.is_some() || rules.names().next().is_some() || !rules.no_straddle.is_empty() {
                left.push("all but the groups".to_owned());
            }
        } else if !self.has_name() {
            let language = if self.language == Language::C { "C" } else { "Rust" };
            left.push(format!("{language} has no name for the type"));
        } else {
            if let Some(base) = rules.base {
                left.push(format!("base = {base} (the assertions hold where it begins a line)"));
            }
            if !rules.alone.is_empty() {
                left.push(format!("alone = {}", rules.alone.join(", ")));
            }
            if rules.no_straddle.iter().any(|name| name == "*") {
                left.push("no_straddle = *".to_owned());
            }
            let find = |name: &str| find(self.types, self.id, name);
            let is_bitfield = |name: &&str| find(name).is_some_and(|leaf| leaf.bitfield);
            let bitfields: BTreeSet<&str> = rules.names().filter(is_bitfield).collect();
            left.extend(bitfields.into_iter().map(|name| format!("{name}, a bitfield")));
        }
        if !left.is_empty() {
            let indent = if self.language == Language::Rust { "    " } else { "" };
            let (name, left) = (self.name, left.join("; "));
            let _ = writeln!(out, "{indent}// {name}, left to `ledgerline layout check`: {left}");
        }
    }

    fn groups(&self, out: &mut String) {
        let name = self.name;
        for Group { name: of, bytes: (begin, end), members } in groups(self.types, self.id) {
            for Leaf { path, .. } in &members {
                let _ =
                    writeln!(out, "CACHELINE_ASSERT_GROUP_MEMBER(struct {name}, {of}, {path});");
            }
            let size = end.saturating_sub(begin);
            let _ = writeln!(out, "CACHELINE_ASSERT_GROUP_SIZE(struct {name}, {of}, {size});");
        }
    }

    fn conditions(&self, rules: &TypeRules) -> Vec<(String, String)> {
        let mut list = Vec::new();
        for names in &rules.together {
            let leaves = self.all(names);
            let Some((first, rest)) = leaves.split_first() else { continue };
            let here = self.first(first, self.line);
            list.push((format!("{} == {here}", self.last(first, self.line)), names.join(", ")));
            for other in rest {
                for end in [self.first(other, self.line), self.last(other, self.line)] {
                    list.push((format!("{end} == {here}"), names.join(", ")));
                }
            }
        }
        for (_, one, others, distance) in rules.separate(self.line, |names| self.all(names)) {
            for other in others {
                let (first, last) = (self.first(&one, distance), self.last(&one, distance));
                let (begin, end) = (self.first(&other, distance), self.last(&other, distance));
                let condition = format!("({last} < {begin} || {end} < {first})");
                list.push((condition, format!("{} apart from {}", one.path, other.path)));
            }
        }
        for leaf in self.all(&rules.starts_line) {
            let condition = format!("{} % {} == 0", self.offset(&leaf), self.line);
            list.push((condition, format!("{} begins a line", leaf.path)));
        }
        let named: Vec<String> =
            rules.no_straddle.iter().filter(|name| *name != "*").cloned().collect();
        for leaf in self.all(&named) {
            let most = leaf.size().div_ceil(self.line).max(1) - 1;
            let (first, last) = (self.first(&leaf, self.line), self.last(&leaf, self.line));
            list.push((format!("{last} - {first} <= {most}"), format!("{} whole", leaf.path)));
        }
        let size = match self.language {
            Language::Rust => format!("core::mem::size_of::<{}>()", self.ty),
            _ => format!("sizeof({})", self.ty),
        };
        let lines = rules.max_lines.map(|lines| lines.saturating_mul(self.line));
        for most in [rules.size_max, lines].into_iter().flatten() {
            list.push((format!("{size} <= {most}"), "size".to_owned()));
        }
        list
    }

    /// Returns the fields with these names that have offsets, without missing optional ones.
    fn all(&self, names: &[String]) -> Vec<Leaf> {
        let leaves = names.iter().filter_map(|name| find(self.types, self.id, name));
        leaves.filter(|leaf| !leaf.bitfield).collect()
    }

    fn offset(&self, leaf: &Leaf) -> String {
        if self.language != Language::Rust {
            return format!("offsetof({}, {})", self.ty, leaf.path);
        }
        // The fields of a tuple have numbers in the source.
        let number = |part: &str| {
            let number = part.strip_prefix("__").filter(|rest| rest.parse::<u32>().is_ok());
            number.unwrap_or(part).to_owned()
        };
        let path: Vec<_> = leaf.path.split('.').map(number).collect();
        format!("offset_of!({}, {})", self.ty, path.join("."))
    }

    fn first(&self, leaf: &Leaf, line: u64) -> String {
        format!("{} / {line}", self.offset(leaf))
    }

    fn last(&self, leaf: &Leaf, line: u64) -> String {
        format!("({} + {}) / {line}", self.offset(leaf), leaf.size().max(1) - 1)
    }

    fn write(&self, condition: &str, what: &str, out: &mut String) {
        let _ = match self.language {
            Language::Rust => writeln!(out, "    assert!({condition});"),
            _ => writeln!(out, "_Static_assert({condition}, \"{}: {what}\");", self.name),
        };
    }
}
