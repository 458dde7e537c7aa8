//! What a rule that does not hold is told by.

use crate::leaf::record;
use crate::model::{TypeId, Types};

/// The rule of a [`Broken`] that says that a type or a field which the rules name is not there.
pub const MISSING: &str = "missing";

/// A rule that does not hold, or one that cannot, because what it names is not there ([`MISSING`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The type; what the rules call it, if it is not there.
    pub ty: String,
    /// The rule, as the file spells it.
    pub rule: &'static str,
    /// The fields that break it.
    pub fields: Vec<String>,
    /// In words.
    pub message: String,
    /// Where the type was declared: file and line.
    pub declared: Option<(String, u32)>,
}

/// Where a type was declared: file and line.
pub(super) fn declared(types: &Types, id: TypeId) -> Option<(String, u32)> {
    let place = record(types, id)?.1.declared?;
    Some((types.name(place.file).to_owned(), place.line))
}
