//! Writes the rules as assertions that a compiler checks.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{File, TypeRules, groups};
use crate::Error;
use crate::leaf::{Leaf, find, record};
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

/// The rules as assertions, for a source file that has the types in scope.
///
/// Rules about the whole type and rules about fields become assertions. `base`, `no_straddle` of all fields and
/// `alone` need a look at the whole type, and are left to `check`. Sizes of fields are those of today. A bitfield has
/// no offset in either language, so a rule with a bitfield is left out.
///
/// # Errors
/// As for [`check`](super::check()), and if a rule names a type or a field that is not there and not optional.
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
    for of_type in rules.of(configuration)? {
        Pattern::new(&of_type.name)?;
        let picked = match pick(types, std::slice::from_ref(&of_type.name)) {
            Err(_) if of_type.optional => continue,
            picked => picked?,
        };
        for (name, id) in picked {
            if language == Language::Kernel {
                kernel(types, name, id, &mut out);
                continue;
            }
            if let Some((_, missing)) = of_type.missing(types, (name, id)).into_iter().next() {
                return Err(missing);
            }
            let typedef =
                record(types, id).is_some_and(|(_, record)| types.name(record.name).is_empty());
            let tag = match language {
                Language::C if !typedef => {
                    record(types, id).map_or("", |(_, record)| crate::leaf::keyword(record.kind))
                }
                _ => "",
            };
            let ty = format!("{tag} {name}").trim().to_owned();
            let one = One { types, id, name, ty, language, line: rules.line };
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
    Ok(out)
}

fn kernel(types: &Types, name: &str, id: TypeId, out: &mut String) {
    for group in groups(types, id) {
        for member in &group.members {
            let _ = writeln!(
                out,
                "CACHELINE_ASSERT_GROUP_MEMBER(struct {name}, {}, {});",
                group.name, member.path
            );
        }
        let size = group.bytes.1.saturating_sub(group.bytes.0);
        let _ =
            writeln!(out, "CACHELINE_ASSERT_GROUP_SIZE(struct {name}, {}, {size});", group.name);
    }
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
                let condition = format!(
                    "({} < {} || {} < {})",
                    self.last(&one, distance),
                    self.first(&other, distance),
                    self.last(&other, distance),
                    self.first(&one, distance)
                );
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

    /// The fields with these names that have offsets; optional ones that are missing are left out.
    fn all(&self, names: &[String]) -> Vec<Leaf> {
        let leaves = names.iter().filter_map(|name| find(self.types, self.id, name));
        leaves.filter(|leaf| !leaf.bitfield).collect()
    }

    fn offset(&self, leaf: &Leaf) -> String {
        // The fields of a tuple have numbers in the source.
        let path = leaf.path.replace(".__", ".");
        let path =
            path.strip_prefix("__").filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let path = path.unwrap_or(&leaf.path);
        match self.language {
            Language::Rust => format!("offset_of!({}, {path})", self.ty),
            _ => format!("offsetof({}, {path})", self.ty),
        }
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
