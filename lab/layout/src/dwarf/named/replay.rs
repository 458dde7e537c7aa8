//! Reads chosen entries like a walk over the whole unit.

use super::super::entries::{Frame, Walk, shape_of};
use super::super::parsed::{File, Parsed, Shape};
use super::super::unit::Unit;
use super::select::{Depth, Selection};
use super::steps::{Met, Steps};
use super::survey::Survey;
use crate::Error;
use crate::leaf::keyword;
use gimli::UnitOffset;
use std::collections::HashMap;

/// Reads the chosen entries in the order of the unit.
pub(super) fn replay<'a>(
    unit: &Unit<'_, 'a>,
    steps: &mut Steps<'_, 'a>,
    survey: &Survey,
    selection: &Selection<'a>,
    files: Vec<File<'a>>,
) -> Result<Parsed<'a>, Error> {
    let mut walk = Walk::new(unit);
    let mut frames: HashMap<usize, Frame> = HashMap::new();
    let mut chosen: Vec<(usize, Depth)> =
        selection.chosen.iter().map(|(&at, chosen)| (at, chosen.depth)).collect();
    chosen.sort_unstable();
    for (at, depth) in chosen {
        let around = survey.container(at).and_then(|around| frames.get(&around));
        walk.frames = vec![around.copied().unwrap_or_default()];
        let types = walk.types();
        let shape = entry(&mut walk, unit, at)?;
        let named = match shape {
            Some(Shape::Record(kind)) if depth != Depth::Whole && walk.types() > types => {
                // A type that is needed by name alone becomes a declaration.
                walk.declare(types, keyword(kind));
                true
            }
            _ => depth == Depth::Around,
        };
        if let [_, inner] = walk.frames[..] {
            frames.insert(at, inner);
            if !named {
                steps.members(at, |met| {
                    match met {
                        Met::Member(step) => drop(entry(&mut walk, unit, step.start)?),
                        Met::End => walk.leave(),
                    }
                    Ok(())
                })?;
            }
        }
    }
    walk.frames.clear();
    walk.parsed(|| Ok(files))
}

/// Reads one entry. If it has children, it becomes the innermost frame.
fn entry<'a>(
    walk: &mut Walk<'_, 'a>,
    unit: &Unit<'_, 'a>,
    at: usize,
) -> Result<Option<Shape>, Error> {
    let mut entries = unit.entries(Some(UnitOffset(at)))?;
    let abbreviation = entries.read_abbreviation().map_err(|error| unit.broken(error))?;
    let Some(abbreviation) = abbreviation else { return Ok(None) };
    walk.entry(&mut entries, UnitOffset(at), abbreviation)?;
    Ok(shape_of(abbreviation.tag()))
}
