//! The contents of a `layout.toml`.

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;

use crate::Error;
use crate::leaf::{Leaf, find};
use crate::model::{TypeId, Types};
use crate::pick::{advise_field, advise_near};

/// The largest file of rules.
const LARGEST: u64 = 16 << 20;

fn line() -> u64 {
    64
}

fn yes() -> bool {
    true
}

/// A file of rules.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The bytes of a line: 64 or 128.
    #[serde(default = "line")]
    pub line: u64,
    /// Whether the kernel's markers of groups are followed in the named types.
    #[serde(default = "yes")]
    pub groups: bool,
    /// The rules.
    #[serde(default, rename = "type")]
    pub types: Vec<TypeRules>,
}

/// The rules of one type, or of all that a pattern means.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TypeRules {
    /// A name or a pattern.
    pub name: String,
    /// Whether the type may be missing, for instance from some of the kernels that the rules are for. Then its rules
    /// do not count.
    pub optional: bool,
    /// Fields that may be missing. If one is, the rules hold for the others.
    pub optional_fields: Vec<String>,
    /// The configurations in which the rules hold; they hold in all if it is empty.
    pub when: Vec<String>,
    /// The base is a multiple of this and otherwise unknown; the rules hold in every such place.
    pub base: Option<u64>,
    /// Lists of fields; the fields of a list lie on one line.
    pub together: Vec<Vec<String>>,
    /// Fields that share no line.
    pub apart: Vec<Apart>,
    /// The most lines that the record may touch.
    pub max_lines: Option<u64>,
    /// Fields that touch no more lines than necessary; `*` means all fields.
    pub no_straddle: Vec<String>,
    /// Fields that begin a line.
    pub starts_line: Vec<String>,
    /// The most bytes that the record may have.
    pub size_max: Option<u64>,
    /// Fields that share their lines with no other.
    pub alone: Vec<String>,
    /// Fields that many CPUs write, and fields that are hardly ever written; they share no line.
    pub no_rmw_with_read_mostly: Option<Mixed>,
}

/// Fields that share no line with others.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Apart {
    /// Each of these ...
    pub fields: Vec<String>,
    /// ... shares no line with each of these.
    pub from: Vec<String>,
    /// Or: no two of these share a line.
    pub among: Vec<String>,
    /// 64, or 128 for processors that fetch lines in pairs; the default is the file's `line`.
    pub distance: Option<u64>,
}

/// Two sorts of fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    /// Fields that many CPUs read, modify and write.
    pub rmw: Vec<String>,
    /// Fields that many CPUs read and hardly any CPU writes.
    pub read_mostly: Vec<String>,
}

/// A rule's name, a field, the fields that it must stay away from, and the distance in bytes.
pub(super) type Separate = (&'static str, Leaf, Vec<Leaf>, u64);

impl TypeRules {
    /// Returns the fields that the rules name. `*`, which stands for all fields in `no_straddle`, is left out there.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let apart = self.apart.iter().flat_map(|rule| [&rule.fields, &rule.from, &rule.among]);
        let mixed = self.no_rmw_with_read_mostly.iter();
        let lists = self.together.iter().chain(apart);
        let lists = lists.chain(mixed.flat_map(|mixed| [&mixed.rmw, &mixed.read_mostly]));
        let lists = lists.chain([&self.starts_line, &self.alone]).flatten();
        let straddling = self.no_straddle.iter().filter(|name| *name != "*");
        lists.chain(straddling).map(String::as_str)
    }

    /// Returns the fields that the rules name, that a type lacks and that are not optional, each once, with similar
    /// names.
    pub(super) fn missing<'r>(
        &'r self,
        types: &Types,
        (name, id): (&str, TypeId),
    ) -> Vec<(&'r str, Error)> {
        let mut seen = HashSet::new();
        let mut list = Vec::new();
        for field in self.names() {
            let optional = self.optional_fields.iter().any(|optional| optional == field);
            if seen.insert(field) && !optional && find(types, id, field).is_none() {
                let error = Error::new(format!("{name} has no field {field:?}"));
                list.push((field, advise_field(error, types, id, field)));
            }
        }
        list
    }

    /// Returns the fields that must share no line of `line` bytes, or of the size in a rule; `all` finds them by
    /// their names.
    pub(super) fn separate(
        &self,
        line: u64,
        all: impl Fn(&[String]) -> Vec<Leaf>,
    ) -> Vec<Separate> {
        let mut list: Vec<Separate> = Vec::new();
        for rule in &self.apart {
            let distance = rule.distance.unwrap_or(line);
            let (fields, from, mut among) = (all(&rule.fields), all(&rule.from), all(&rule.among));
            list.extend(fields.into_iter().map(|one| ("apart", one, from.clone(), distance)));
            while !among.is_empty() {
                let one = among.remove(0);
                list.push(("apart", one, among.clone(), distance));
            }
        }
        if let Some(mixed) = &self.no_rmw_with_read_mostly {
            let (rmw, read) = (all(&mixed.rmw), all(&mixed.read_mostly));
            let rule = "no_rmw_with_read_mostly";
            list.extend(rmw.into_iter().map(|one| (rule, one, read.clone(), line)));
        }
        list
    }
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// An error of one line names the file, the place and the mistake.
    pub fn read(path: &Path) -> Result<File, Error> {
        let cannot =
            |error: std::io::Error| Error::new(format!("it cannot be read: {error}")).in_file(path);
        let length = path.metadata().map_err(cannot)?.len();
        if length > LARGEST {
            return Err(Error::new(format!("{length} bytes are no file of rules")).in_file(path));
        }
        let text = std::fs::read_to_string(path).map_err(cannot)?;
        File::parse(&text).map_err(|error| error.in_file(path))
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// The errors of [`File::read`], but without the name of a file.
    pub fn parse(text: &str) -> Result<File, Error> {
        let file: File = toml::from_str(text).map_err(|error| Error::of_toml(text, &error))?;
        let two = |what: &str, bytes: Option<u64>| match bytes {
            None | Some(64 | 128) => Ok(()),
            Some(bytes) => Err(Error::new(format!("{what} = {bytes}")).advise("give 64 or 128")),
        };
        two("line", Some(file.line))?;
        for rules in &file.types {
            if rules.name.is_empty() {
                return Err(Error::new("a [[type]] has no name").advise("add name = \"...\""));
            }
            let within = |error: Error| error.within(format_args!("type {:?}", rules.name));
            for apart in &rules.apart {
                two("distance", apart.distance).map_err(within)?;
                if apart.among.is_empty() == (apart.fields.is_empty() || apart.from.is_empty()) {
                    let error = Error::new("apart needs `fields` and `from`, or `among` alone");
                    return Err(within(error));
                }
            }
            // A misspelled optional field would go unnoticed.
            for field in &rules.optional_fields {
                if !rules.names().any(|name| name == field) {
                    let error = Error::new(format!("no rule names the optional field {field:?}"));
                    return Err(within(advise_near(error, field, rules.names(), "take it out")));
                }
            }
            if rules.base.is_some_and(|base| !base.is_power_of_two()) {
                return Err(within(Error::new("base is no power of two").advise("give 8, say")));
            }
        }
        Ok(file)
    }

    /// Returns the rules that hold in a configuration.
    ///
    /// # Errors
    /// If no rule mentions the configuration.
    pub fn of(&self, configuration: Option<&str>) -> Result<Vec<&TypeRules>, Error> {
        let named = self.types.iter().flat_map(|rules| rules.when.iter().map(String::as_str));
        if let Some(wanted) = configuration
            && !named.clone().any(|name| name == wanted)
        {
            let error = Error::new(format!("no rule has the configuration {wanted:?}"));
            return Err(advise_near(error, wanted, named, "add when = [...] to a [[type]]"));
        }
        let holds = |rules: &&TypeRules| {
            rules.when.is_empty() || rules.when.iter().any(|when| Some(&**when) == configuration)
        };
        Ok(self.types.iter().filter(holds).collect())
    }
}
