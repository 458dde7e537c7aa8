//! Chooses the entries of a unit that a model of the wanted types needs.
//!
//! ```text
//! wanted ── what it holds by value, all the way down          whole
//!        ── what pointers and functions in that lead to       by name: a record without its members
//!        ── the namespaces, classes and functions around it   for their names
//! ```
//!
//! The identity of a type depends on the same entries (`identity`), so types are distinguished as in a read of the
//! whole file.
//!
//! The choice also has a digest: a hash of the properties of each entry, in the order in which they are followed,
//! with references as the numbers of entries in that order. Of two units with one digest, the second adds nothing.

use super::super::entries::{is_c, is_rust};
use super::super::parsed::{File, Reference, Shape};
use super::super::unit::Unit;
use super::reading::{Reading, Says, Stopped};
use super::steps::{Met, Step, Steps};
use super::survey::Survey;
use foldhash::fast::{FixedState, FoldHasher};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash, Hasher};

/// The part of an entry that is needed.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Depth {
    /// It encloses others.
    Around,
    /// Its name.
    Name,
    /// All of it.
    Whole,
}

/// The chosen entries, and the missing ones.
#[derive(Default)]
pub(super) struct Selection<'a> {
    pub chosen: HashMap<usize, Chosen, FixedState>,
    /// The names of types that are held by value and only declared here.
    pub declared: Vec<&'a [u8]>,
    /// Another unit with the same digest has the same types. `None` if there is no digest.
    pub digest: Option<u64>,
}

/// The state of a chosen entry.
#[derive(Clone, Copy)]
pub(super) struct Chosen {
    pub depth: Depth,
    /// The number of entries chosen before it.
    number: u32,
}

/// Chooses the entries that the found types need. `files` are the source files of the unit.
pub(super) fn select<'a>(
    unit: &Unit<'_, 'a>,
    steps: &mut Steps<'_, 'a>,
    survey: &Survey,
    files: &[File<'a>],
) -> Result<Selection<'a>, Stopped> {
    let header = &unit.at.header;
    let mut digest = FixedState::with_seed(3).build_hasher();
    (header.version(), header.address_size(), unit.language).hash(&mut digest);
    let mut select = Select {
        unit,
        survey,
        files,
        reading: Reading::new(unit),
        selection: Selection::default(),
        waiting: Vec::new(),
        completed: Vec::new(),
        // If names have scopes, a type also depends on the entries around it, so there is no digest.
        digest: is_c(unit.language).then_some(digest),
    };
    for &at in &survey.completing {
        let says = select.reading.says(at, steps)?;
        if let Some(declaration) = select.inside(says.specification)? {
            select.completed.push((declaration, at));
        }
    }
    select.completed.sort_unstable();
    survey.targets.iter().for_each(|&at| select.take(at, Depth::Whole));
    while let Some((at, depth)) = select.waiting.pop() {
        select.follow(at, depth, steps)?;
    }
    Ok(Selection { digest: select.digest.map(|state| state.finish()), ..select.selection })
}

struct Select<'u, 'a> {
    unit: &'u Unit<'u, 'a>,
    survey: &'u Survey,
    files: &'u [File<'a>],
    reading: Reading<'u, 'a>,
    selection: Selection<'a>,
    waiting: Vec<(usize, Depth)>,
    /// Declarations, each with an entry that completes it; sorted.
    completed: Vec<(usize, usize)>,
    digest: Option<FoldHasher<'static>>,
}

impl<'a> Select<'_, 'a> {
    fn take(&mut self, at: usize, depth: Depth) {
        if !self.survey.may_be_type(at) {
            return;
        }
        let number = self.selection.chosen.len() as u32;
        let number = match self.selection.chosen.entry(at) {
            Entry::Occupied(mut known) => {
                let Chosen { depth: before, number } = *known.get();
                if before < depth {
                    known.insert(Chosen { depth, number });
                    self.waiting.push((at, depth));
                }
                number
            }
            Entry::Vacant(new) => {
                new.insert(Chosen { depth, number });
                self.waiting.push((at, depth));
                number
            }
        };
        self.note((number, depth));
    }

    fn refer(&mut self, to: Reference, depth: Depth) -> Result<(), Stopped> {
        match self.inside(to)? {
            Some(at) => self.take(at, depth),
            None => self.note(None::<u32>),
        }
        Ok(())
    }

    /// Adds a value to the digest.
    fn note(&mut self, what: impl Hash) {
        if let Some(digest) = &mut self.digest {
            what.hash(digest);
        }
    }

    /// Adds an entry's properties to the digest; its references are noted when they are followed.
    fn note_all(&mut self, says: &Says<'a>) {
        match says.digest {
            Some(digest) => self.note(digest),
            None => self.digest = None,
        }
    }

    /// Returns the place in this unit of a reference's target; an error if it is in another unit.
    fn inside(&self, to: Reference) -> Result<Option<usize>, Stopped> {
        if to == Reference::NONE {
            return Ok(None);
        }
        self.unit.at.offset_of(to).map(Some).ok_or(Stopped::Linked)
    }

    fn follow(
        &mut self,
        at: usize,
        mut depth: Depth,
        steps: &mut Steps<'_, 'a>,
    ) -> Result<(), Stopped> {
        if let Some(around) = self.survey.container(at) {
            self.take(around, Depth::Around);
        }
        let says = self.reading.says(at, steps)?;
        let Some(shape) = says.shape else { return Ok(()) };
        if says.signature != Reference::NONE {
            return Err(Stopped::Linked);
        }
        let nameless = matches!(shape, Shape::Record(_)) && says.name.is_empty(self.unit);
        let number = self.selection.chosen[&at].number;
        // For an entry that is only named it does not matter whether it is defined here.
        let is_named =
            says.digest.is_some() && !nameless && (depth != Depth::Whole || says.declaration);
        if let Shape::Record(kind) = shape
            && is_named
        {
            self.note((number, depth, kind as u8, says.name));
        } else {
            self.note((number, depth));
            self.note_all(&says);
            if let Shape::Record(_) = shape {
                self.note(self.file(says.file));
            }
        }
        self.refer(says.specification, Depth::Name)?;
        if says.declaration {
            if depth == Depth::Whole {
                self.complete(at);
                if matches!(shape, Shape::Record(_) | Shape::Enum) && !says.name.is_empty(self.unit)
                {
                    self.selection.declared.push(says.name.text(self.unit));
                }
            }
            return Ok(());
        }
        if depth == Depth::Around {
            return Ok(());
        }
        match shape {
            Shape::Record(_) => {
                // Only the enum shows that a record within it is one of its variants.
                if is_rust(self.unit.language)
                    && let Some(around) = self.survey.container(at)
                    && let Some(Shape::Record(_)) = self.reading.says(around, steps)?.shape
                {
                    self.take(around, Depth::Whole);
                }
                // Types without a name are known by their content.
                if nameless && says.specification == Reference::NONE {
                    depth = Depth::Whole;
                    self.selection.chosen.insert(at, Chosen { depth, number });
                }
                if depth == Depth::Whole {
                    self.members(at, depth, steps)?;
                }
            }
            Shape::Pointer | Shape::LvalueReference | Shape::RvalueReference => {
                self.refer(says.to, Depth::Name)?;
            }
            Shape::MemberPointer => {
                self.refer(says.to, Depth::Name)?;
                self.refer(says.class, Depth::Name)?;
            }
            Shape::Function { .. } => {
                self.refer(says.to, Depth::Name)?;
                self.members(at, Depth::Name, steps)?;
            }
            Shape::Enum => self.refer(says.to, Depth::Whole)?,
            Shape::Array { .. } => {
                for dimension in Self::met(at, steps)? {
                    let says = self.reading.says(dimension.start, steps)?;
                    self.note_all(&says);
                }
                self.refer(says.to, depth)?;
            }
            _ => self.refer(says.to, depth)?,
        }
        Ok(())
    }

    /// Returns the name of a source file, without its folder: a header has several paths.
    fn file(&self, number: u64) -> &'a [u8] {
        let file = self.files.get(self.unit.file_index(number) as usize);
        let name = file.map_or(&b""[..], |file| file.name);
        name.rsplit(|&byte| byte == b'/').next().unwrap_or(name)
    }

    /// Takes the entry that completes a declaration.
    fn complete(&mut self, declaration: usize) {
        let first = self.completed.partition_point(|&(of, _)| of < declaration);
        let found = self.completed[first..].iter().take_while(|&&(of, _)| of == declaration);
        let found: Vec<usize> = found.map(|&(_, at)| at).collect();
        found.into_iter().for_each(|at| self.take(at, Depth::Whole));
    }

    /// Returns the parts of the type at `at`.
    fn met(at: usize, steps: &mut Steps<'_, 'a>) -> Result<Vec<Step>, Stopped> {
        let mut met = Vec::new();
        steps.members(at, |member| {
            if let Met::Member(step) = member {
                met.push(step);
            }
            Ok(())
        })?;
        Ok(met)
    }

    fn members(
        &mut self,
        at: usize,
        depth: Depth,
        steps: &mut Steps<'_, 'a>,
    ) -> Result<(), Stopped> {
        for step in Self::met(at, steps)? {
            let says = self.reading.says(step.start, steps)?;
            self.note_all(&says);
            let is_part = step.tag != gimli::DW_TAG_member || !says.is_static;
            let refers = matches!(
                step.tag,
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance | gimli::DW_TAG_formal_parameter
            );
            if is_part && refers {
                self.refer(says.to, depth)?;
            } else {
                self.inside(says.to)?;
            }
        }
        Ok(())
    }
}
