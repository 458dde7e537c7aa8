//! The bytes of a Rust enum that each variant uses.
//!
//! An enum has the size of its largest variant and of the tag that distinguishes variants. The tag lies beside the
//! data, or in a niche: in bytes of a field of one variant, as values that the field never takes. The values that the
//! field does take stand for that variant.
//!
//! ```text
//! enum { First(u8, u32), Second(u64), Third }    tag of 1 byte at 0, 16 bytes
//! First    T a . .  b b b b  . . . . . . . .     data 5, padding 10
//! Second   T . . .  . . . .  x x x x x x x x     data 8, padding 7
//! Third    T . . .  . . . .  . . . . . . . .     data 0, padding 15
//! ```
//!
//! Bytes that no variant and no tag uses are holes of the enum itself, and its padding where they end it. A variant that
//! can never be, as one of its fields has no value, is listed like others: the file does not say it.

use crate::leaf::{Leaf, bits_of, name_of, record, start_of};
use crate::lines::{Gap, gaps};
use crate::model::{Kind, Member, Record, Role, Type, TypeId, Types};

/// One variant of an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant<'t> {
    /// Its name.
    pub name: &'t str,
    /// The number of bits that its fields cover.
    pub data: u64,
    /// The number of bits of the tag beside its fields; 0 if the tag is a niche in them or there is none.
    pub tag: u64,
    /// Whether the tag is a niche in its fields.
    pub niche: bool,
    /// The bits that neither its fields nor the tag cover, the padding at the end included.
    pub gaps: Vec<Gap>,
}

impl Variant<'_> {
    /// Returns the number of bits of the enum that it leaves unused.
    pub fn padding(&self) -> u64 {
        Gap::sum(&self.gaps)
    }
}

/// Returns the variants of a Rust enum, in the order of the file; none for other records.
pub fn variants<'t>(types: &'t Types, of: &'t Record) -> Vec<Variant<'t>> {
    if of.kind != Kind::Enum {
        return Vec::new();
    }
    let tag = of.members.iter().find(|member| member.role == Role::Discriminant);
    let tag = tag.map(|tag| (start_of(tag), bits_of(types, tag))).filter(|&(_, bits)| bits > 0);
    let bits = of.size.saturating_mul(8);
    let mut order = Vec::new();
    let mut unused = |spans: &[(u64, u64)]| {
        let (mut holes, padding) = gaps(spans.iter().copied(), of.size, &mut order);
        holes.extend(padding);
        // A malformed file may place fields behind the end.
        holes.retain(|gap| gap.start.saturating_add(gap.bits) <= bits);
        holes
    };
    let variant = |member: &'t Member| {
        let (_, inner) =
            record(types, member.ty).filter(|(_, inner)| inner.kind == Kind::Variant)?;
        let mut spans: Vec<_> = fields(types, inner, start_of(member)).collect();
        let data = bits.saturating_sub(Gap::sum(&unused(&spans)));
        let niche = tag.is_some_and(|(start, bits)| {
            let end = start.saturating_add(bits);
            spans.iter().any(|&(at, bits)| bits > 0 && at < end && start < at.saturating_add(bits))
        });
        spans.extend(tag);
        let gaps = unused(&spans);
        let tag = bits.saturating_sub(Gap::sum(&gaps)).saturating_sub(data);
        Some(Variant { name: name_of(types, member), data, tag, niche, gaps })
    };
    of.members.iter().filter(|member| member.role == Role::Variant).filter_map(variant).collect()
}

/// Returns the first bit of each field of a variant, and the number of its bits.
fn fields<'t>(
    types: &'t Types,
    variant: &'t Record,
    base: u64,
) -> impl Iterator<Item = (u64, u64)> + use<'t> {
    let span =
        move |member: &Member| (base.saturating_add(start_of(member)), bits_of(types, member));
    variant.members.iter().map(span).filter(|&(_, bits)| bits > 0)
}

/// Returns the bits that a field of this type covers. For a variant they are those of its fields, since the variant
/// itself has the size of its enum. Among types without bits only an array has a place.
pub fn covers(
    types: &Types,
    ty: TypeId,
    start: u64,
    bits: u64,
) -> impl Iterator<Item = (u64, u64)> {
    let variant = record(types, ty).filter(|(_, inner)| inner.kind == Kind::Variant);
    let placed = bits > 0 || matches!(types.get(types.resolve(ty)), Type::Array { .. });
    let own = (variant.is_none() && placed).then_some((start, bits));
    own.into_iter()
        .chain(variant.into_iter().flat_map(move |(_, inner)| fields(types, inner, start)))
}

/// Returns the bits that the fields of a record do not cover, like [`gaps`]; for an enum, those that no variant
/// covers.
pub fn uncovered(types: &Types, leaves: &[Leaf], size: u64) -> (Vec<Gap>, Option<Gap>) {
    let spans = leaves.iter().flat_map(|leaf| covers(types, leaf.ty, leaf.start, leaf.bits));
    gaps(spans, size, &mut Vec::new())
}
