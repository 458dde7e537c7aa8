//! Finds types by name or pattern, and near names if there is no such type.

use std::collections::HashMap;

use globset::{GlobBuilder, GlobMatcher};

use crate::Error;
use crate::leaf::{Expand, leaves, record};
use crate::model::{Name, Type, TypeId, Types};
use crate::spell::plural;

/// The advice if no type has a name that resembles the wanted one.
pub(crate) const ALL: &str = "`layout show FILE --all` prints all there are";

/// A name or a pattern with `*`, `?`, `[…]`, `{a,b}`.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    glob: Option<GlobMatcher>,
}

impl Pattern {
    /// Reads a pattern. A leading `struct`, `union`, `class` or `enum` is ignored.
    ///
    /// # Errors
    /// If the text is not a valid pattern.
    pub fn new(text: &str) -> Result<Pattern, Error> {
        let bare = ["struct ", "union ", "class ", "enum "]
            .iter()
            .find_map(|keyword| text.strip_prefix(keyword))
            .unwrap_or(text);
        let glob = bare
            .contains(['*', '?', '[', '{'])
            .then(|| GlobBuilder::new(bare).build().map(|glob| glob.compile_matcher()))
            .transpose()
            .map_err(|error| Error::new(format!("{text:?} is no pattern: {error}")))?;
        Ok(Pattern { text: bare.to_owned(), glob })
    }

    /// Returns the pattern without a leading keyword.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the name that the pattern means, if it has no wildcards.
    pub fn exact(&self) -> Option<&str> {
        self.glob.is_none().then_some(&self.text)
    }

    /// Returns whether the pattern means a name. A text always means the name that equals it, even if it has
    /// wildcards.
    pub fn matches(&self, name: &str) -> bool {
        name == self.text || self.glob.as_ref().is_some_and(|glob| glob.is_match(name))
    }
}

/// Returns the records with a name, of their own or by a typedef, each with that name, in the order of the file.
pub fn named(types: &Types) -> Vec<(&str, TypeId)> {
    let by_typedef: HashMap<TypeId, &str> = typedefs(types).rev().collect();
    types
        .records()
        .filter_map(|(id, record)| match types.name(record.name) {
            "" => by_typedef.get(&id).map(|&name| (name, id)),
            name => Some((name, id)),
        })
        .collect()
}

/// Returns the targets of typedefs, each with the typedef's name.
fn typedefs(types: &Types) -> impl DoubleEndedIterator<Item = (TypeId, &str)> {
    types.iter().filter_map(|(_, ty)| match ty {
        Type::Typedef { name, to: Some(to), .. } => Some((*to, types.name(*name))),
        _ => None,
    })
}

/// Returns the anonymous records that a typedef gives this name.
fn by_typedef<'t>(types: &'t Types, wanted: &str) -> HashMap<TypeId, &'t str> {
    typedefs(types)
        .filter(|&(to, name)| {
            name == wanted && matches!(types.get(to), Type::Record(of) if of.name == Name::NONE)
        })
        .collect()
}

/// Returns the records with names of their own that typedefs of this name lead to.
fn through_typedefs<'t>(types: &'t Types, wanted: &str) -> Vec<(&'t str, TypeId)> {
    let wanted = typedefs(types).filter(|&(_, name)| name == wanted);
    wanted
        .filter_map(|(to, _)| record(types, to))
        .filter(|(_, record)| record.name != Name::NONE)
        .map(|(id, record)| (types.name(record.name), id))
        .collect()
}

/// Describes in words the type that has a name which no record has.
fn otherwise(types: &Types, wanted: &str) -> Option<String> {
    let named = |name: &Name| types.name(*name) == wanted;
    types.iter().find_map(|(_, ty)| match ty {
        Type::Enum { name, size } if named(name) => {
            Some(format!("an enumeration of {size} byte{}", plural(*size)))
        }
        Type::Base { name, size } if named(name) => {
            Some(format!("a number of {size} byte{}", plural(*size)))
        }
        Type::Declaration { name, .. } if named(name) => Some("declared alone here".to_owned()),
        Type::Typedef { name, .. } if named(name) => Some("a typedef of no structure".to_owned()),
        _ => None,
    })
}

/// Returns the records that patterns mean, each once, in the order of the patterns. An anonymous record has the name
/// of its first typedef, or of another one that equals the text. A record with a name is also found by its typedefs,
/// unless a record has theirs.
///
/// # Errors
/// If a pattern means no record. The error names similar names.
pub fn pick<'t>(types: &'t Types, patterns: &[String]) -> Result<Vec<(&'t str, TypeId)>, Error> {
    let named = named(types);
    let mut picked = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for text in patterns {
        let pattern = Pattern::new(text)?;
        let aliases = by_typedef(types, &pattern.text);
        let mut found: Vec<(&str, TypeId)> = named
            .iter()
            .filter_map(|&(name, id)| match pattern.matches(name) {
                true => Some((name, id)),
                false => aliases.get(&id).map(|&alias| (alias, id)),
            })
            .collect();
        if found.is_empty() && pattern.exact().is_some() {
            found = through_typedefs(types, &pattern.text);
        }
        if found.is_empty() {
            if let Some(what) = otherwise(types, &pattern.text) {
                let error = Error::new(format!("{text:?} is {what}: it has no fields"));
                return Err(error.advise("name a structure, a class or a union"));
            }
            let error = Error::new(format!("there is no type {text:?}"));
            if named.is_empty() {
                return Err(error.advise(
                    "nor any structure: -g1, and Rust's \"line-tables-only\", leave types out; build it with -g",
                ));
            }
            return Err(advise_near(error, &pattern.text, named.iter().map(|entry| entry.0), ALL));
        }
        picked.extend(found.into_iter().filter(|&(_, id)| seen.insert(id)));
    }
    Ok(picked)
}

/// Advises the fields of a type that resemble `wanted`, or the command that prints all of them.
pub fn advise_field(error: Error, types: &Types, id: TypeId, wanted: &str) -> Error {
    let mut known = leaves(types, id, Expand::All);
    known.extend(leaves(types, id, Expand::Anonymous));
    let names = known.iter().map(|leaf| leaf.path.as_str());
    advise_near(error, wanted, names, "`layout show FILE TYPE --expand` prints all of them")
}

/// Advises the names that resemble `wanted`; if there are none, advises something else.
pub fn advise_near<'n>(
    error: Error,
    wanted: &str,
    names: impl Iterator<Item = &'n str>,
    otherwise: &str,
) -> Error {
    error.advise(near(wanted, names).unwrap_or_else(|| otherwise.to_owned()))
}

/// Returns a type's name without its scopes: the part after the last `::` outside of brackets.
pub fn last_part(name: &str) -> &str {
    let (mut depth, mut start, mut before) = (0usize, 0, 0);
    for (at, byte) in name.bytes().enumerate() {
        let before = std::mem::replace(&mut before, byte);
        match byte {
            // It belongs to an arrow.
            b'>' if before == b'-' => {}
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b':' if depth == 0 => start = at + 1,
            _ => {}
        }
    }
    &name[start..]
}

/// Returns a question with up to three names that resemble `wanted`.
pub fn near<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let plain = |name: &str| -> String {
        name.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect()
    };
    let bare = plain(wanted);
    let likeness = |name: &str| match name {
        // The spelling or the scope differs.
        _ if plain(name) == bare => 2.0,
        _ if last_part(name) == wanted => 1.5,
        _ if last_part(name).split('<').next() == Some(wanted) => 1.2,
        _ => strsim::jaro_winkler(wanted, name),
    };
    let mut close: Vec<(f64, &str)> =
        names.map(|name| (likeness(name), name)).filter(|(likeness, _)| *likeness > 0.8).collect();
    close.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    close.dedup_by_key(|entry| entry.1);
    close.truncate(3);
    let names: Vec<String> = close.iter().map(|(_, name)| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| format!("did you mean {}?", names.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::last_part;

    #[test]
    fn namespaces_are_left_away_and_arguments_stay() {
        assert_eq!(last_part("counter"), "counter");
        assert_eq!(last_part("a::b::counter"), "counter");
        assert_eq!(last_part("a::pool<b::c>"), "pool<b::c>");
        assert_eq!(last_part("a::pool<fn() -> b::c>"), "pool<fn() -> b::c>");
        assert_eq!(last_part(""), "");
    }
}
