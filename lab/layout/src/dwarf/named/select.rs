//! Chooses the entries of a unit that a model of the wanted types needs.
//!
//! ```text
//! wanted ── what it holds by value, all the way down          whole
//!        ── what pointers and functions in that lead to       by name: a record without its members
//!        ── the namespaces, classes and functions around it   for their names
//! ```
//!
//! That is what the identity of a type depends on (`identity`), too, so types are told apart as in a read of all.

use super::super::attributes::Attributes;
use super::super::entries::{is_rust, shape_of};
use super::super::parsed::{Reference, Shape};
use super::super::unit::Unit;
use super::steps::{Met, Steps};
use super::survey::Survey;
use crate::Error;
use gimli::UnitOffset;
use std::collections::btree_map::{BTreeMap, Entry};

/// How much of an entry is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Depth {
    /// It has others in it.
    Around,
    /// Its name.
    Name,
    /// All.
    Whole,
}

/// Why a unit cannot be read in part.
pub(super) enum Stopped {
    /// It refers to another unit.
    Linked,
    Broken,
}

impl From<Error> for Stopped {
    fn from(_: Error) -> Stopped {
        Stopped::Broken
    }
}

/// The entries that are chosen, and what is still missing.
#[derive(Default)]
pub(super) struct Selection<'a> {
    pub chosen: BTreeMap<usize, Depth>,
    /// The names of types that are held by value and only declared here.
    pub declared: Vec<&'a [u8]>,
}

/// Chooses what the types that were found need.
pub(super) fn select<'a>(
    unit: &Unit<'_, 'a>,
    steps: &mut Steps<'_, 'a>,
    survey: &Survey,
) -> Result<Selection<'a>, Stopped> {
    let mut select = Select {
        unit,
        survey,
        selection: Selection::default(),
        waiting: Vec::new(),
        completed: Vec::new(),
    };
    for &at in &survey.completing {
        let says = select.read(at)?.1;
        if let Some(declaration) = select.inside(says.specification)? {
            select.completed.push((declaration, at));
        }
    }
    select.completed.sort_unstable();
    survey.targets.iter().for_each(|&at| select.take(at, Depth::Whole));
    while let Some((at, depth)) = select.waiting.pop() {
        select.follow(at, depth, steps)?;
    }
    Ok(select.selection)
}

struct Select<'u, 'a> {
    unit: &'u Unit<'u, 'a>,
    survey: &'u Survey,
    selection: Selection<'a>,
    waiting: Vec<(usize, Depth)>,
    /// Declarations, each with an entry that completes it; sorted.
    completed: Vec<(usize, usize)>,
}

impl<'a> Select<'_, 'a> {
    fn take(&mut self, at: usize, depth: Depth) {
        if !self.survey.may_be_type(at) {
            return;
        }
        match self.selection.chosen.entry(at) {
            Entry::Occupied(known) if *known.get() >= depth => return,
            Entry::Occupied(mut known) => drop(known.insert(depth)),
            Entry::Vacant(new) => drop(new.insert(depth)),
        }
        self.waiting.push((at, depth));
    }

    fn refer(&mut self, to: Reference, depth: Depth) -> Result<(), Stopped> {
        if let Some(at) = self.inside(to)? {
            self.take(at, depth);
        }
        Ok(())
    }

    /// Where in this unit something is; an error if it is in another one.
    fn inside(&self, to: Reference) -> Result<Option<usize>, Stopped> {
        if to == Reference::NONE {
            return Ok(None);
        }
        let Some(at) = self.unit.at.offset_of(to) else { return Err(Stopped::Linked) };
        Ok(Some(at))
    }

    /// An entry's shape, if it is a type, and what it says.
    fn read(&self, at: usize) -> Result<(Option<Shape>, Attributes<'a>), Stopped> {
        let mut entries = self.unit.entries(Some(UnitOffset(at)))?;
        let abbreviation = entries.read_abbreviation().map_err(|_| Stopped::Broken)?;
        let Some(abbreviation) = abbreviation else { return Ok((None, Attributes::default())) };
        let says = Attributes::read(self.unit, &mut entries, abbreviation)?;
        Ok((shape_of(abbreviation.tag()), says))
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
        let (shape, says) = self.read(at)?;
        let Some(shape) = shape else { return Ok(()) };
        if says.signature != Reference::NONE {
            return Err(Stopped::Linked);
        }
        self.refer(says.specification, Depth::Name)?;
        if says.declaration {
            if depth == Depth::Whole {
                self.complete(at);
                if matches!(shape, Shape::Record(_) | Shape::Enum) && !says.name.is_empty() {
                    self.selection.declared.push(says.name);
                }
            }
            return Ok(());
        }
        if depth == Depth::Around {
            return Ok(());
        }
        match shape {
            Shape::Record(_) => {
                // Only the enum tells that a record within it is one of its variants.
                if is_rust(self.unit.language)
                    && let Some(around) = self.survey.container(at)
                    && let (Some(Shape::Record(_)), _) = self.read(around)?
                {
                    self.take(around, Depth::Whole);
                }
                // Types without a name are known by what is in them.
                if says.name.is_empty() && says.specification == Reference::NONE {
                    depth = Depth::Whole;
                    self.selection.chosen.insert(at, depth);
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
            _ => self.refer(says.to, depth)?,
        }
        Ok(())
    }

    /// Takes what completes a declaration.
    fn complete(&mut self, declaration: usize) {
        let first = self.completed.partition_point(|&(of, _)| of < declaration);
        let found = self.completed[first..].iter().take_while(|&&(of, _)| of == declaration);
        let found: Vec<usize> = found.map(|&(_, at)| at).collect();
        found.into_iter().for_each(|at| self.take(at, Depth::Whole));
    }

    fn members(
        &mut self,
        at: usize,
        depth: Depth,
        steps: &mut Steps<'_, 'a>,
    ) -> Result<(), Stopped> {
        let mut met = Vec::new();
        steps.members(at, |member| {
            if let Met::Member(step) = member {
                met.push(step);
            }
            Ok(())
        })?;
        for step in met {
            let (_, says) = self.read(step.start)?;
            let is_part = step.tag != gimli::DW_TAG_member || !says.is_static();
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
