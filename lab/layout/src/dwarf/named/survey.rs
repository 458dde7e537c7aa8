//! Finds the entries of a unit that have wanted names, and the namespaces, classes and functions that enclose its
//! types.
//!
//! In C a name has no scope, so there the second does not matter, and every entry without a wanted name in it is
//! skipped as a whole.

use super::steps::{Sort, Steps};
use super::wanted::{Hits, Wanted};
use crate::Error;

/// No container: the unit itself.
const OUTERMOST: u32 = u32::MAX;

/// The findings in a unit.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The entries of types that have wanted names.
    pub targets: Vec<usize>,
    /// The entries of types, and of entries that may enclose types, in the order of the unit. Each has the number of
    /// its innermost container. Empty in C.
    nodes: Vec<(usize, u32)>,
    /// Entries that complete others.
    pub completing: Vec<usize>,
}

impl Survey {
    /// Looks through a unit. `flat` means that names have no scopes.
    pub(super) fn of(
        steps: &mut Steps<'_, '_>,
        hits: &Hits,
        wanted: &Wanted,
        flat: bool,
    ) -> Result<Survey, Error> {
        let mut survey = Survey::default();
        let mut containers = Vec::new();
        let mut at = steps.first()?;
        while at < steps.end() && (!flat || hits.within(at, usize::MAX)) {
            let step = steps.step(at)?;
            at = step.next;
            if step.is_end() {
                containers.pop();
                continue;
            }
            let is_type = matches!(step.sort, Sort::Record | Sort::Type);
            let is_container = matches!(step.sort, Sort::Record | Sort::Container);
            if is_type && hits.within(step.start, step.next) && steps.is_wanted(&step, wanted)? {
                survey.targets.push(step.start);
            }
            let mut container = containers.last().copied().unwrap_or(OUTERMOST);
            if !flat && (is_type || is_container) {
                survey.nodes.push((step.start, container));
                if is_container {
                    container = (survey.nodes.len() - 1) as u32;
                }
                if step.completes {
                    survey.completing.push(step.start);
                }
            }
            if step.children {
                match step.sibling {
                    Some(sibling) if flat && !hits.within(step.next, sibling) => at = sibling,
                    _ => containers.push(container),
                }
            }
        }
        Ok(survey)
    }

    /// Returns whether a type's entry may begin at `at`.
    pub(super) fn may_be_type(&self, at: usize) -> bool {
        self.nodes.is_empty() || self.node(at).is_some()
    }

    /// Returns the entry that the one at `at` is in, if that matters for names.
    pub(super) fn container(&self, at: usize) -> Option<usize> {
        let (_, container) = self.nodes[self.node(at)?];
        self.nodes.get(container as usize).map(|&(at, _)| at)
    }

    fn node(&self, at: usize) -> Option<usize> {
        self.nodes.binary_search_by_key(&at, |&(start, _)| start).ok()
    }
}
