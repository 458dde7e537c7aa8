//! Prints a record as one JSON object.

use serde::Serialize;

use super::Options;
use super::accessed::Rates;
use crate::leaf::{self, Leaf, leaves};
use crate::lines::{Gap, Lines, Placement, extremes};
use crate::model::{Align, TypeId, Types};
use crate::spell::spell;
use crate::variants::{Variant, uncovered, variants};

#[derive(Serialize)]
struct Object<'a> {
    schema: &'static str,
    name: &'a str,
    kind: &'static str,
    size: u64,
    align: u64,
    align_known: bool,
    line_size: u64,
    lines: u64,
    holes: Vec<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    padding: Option<Span>,
    members: Vec<Field<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variants: Vec<Part<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<Base>,
}

#[derive(Serialize)]
struct Span {
    offset: u64,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bit_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bit_size: Option<u64>,
}

#[derive(Serialize)]
struct Field<'a> {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    #[serde(flatten)]
    span: Span,
    line: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    straddles: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    rates: Option<Rates<'a>>,
}

/// A variant of a Rust enum.
#[derive(Serialize)]
struct Part<'a> {
    name: &'a str,
    data: u64,
    tag: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    niche: bool,
    padding: u64,
    gaps: Vec<Span>,
}

#[derive(Serialize)]
struct Base {
    align: u64,
    best: Place,
    worst: Place,
}

#[derive(Serialize)]
struct Place {
    shifts: Vec<u64>,
    lines: u64,
    straddling: Vec<String>,
}

impl Span {
    /// Returns a span of bytes, with the bits if those are not whole bytes.
    fn of(offset: u64, size: u64, in_bits: bool, (start, bits): (u64, u64)) -> Span {
        let bit_offset = in_bits.then_some(start % 8);
        Span { offset, size, bit_offset, bit_size: in_bits.then_some(bits) }
    }
}

fn span(gap: &Gap) -> Span {
    let in_bits = !gap.start.is_multiple_of(8) || !gap.bits.is_multiple_of(8);
    Span::of(gap.start / 8, gap.bits / 8, in_bits, (gap.start, gap.bits))
}

fn place(placement: Placement, leaves: &[Leaf]) -> Place {
    let straddling = placement.straddling.iter().map(|&index| leaves[index].path.clone()).collect();
    Place { shifts: placement.shifts, lines: placement.lines, straddling }
}

/// Appends a record as one line of JSON.
///
/// `holes` are the bytes before the last member that no member covers. A hole that is not whole bytes also has
/// `bit_offset` and `bit_size`. `line` counts from 0. `straddles` is true for a member on more lines than it needs,
/// and left out for others. With [`Options::accessed`], members of a type in it get the `reads` and `writes` of an
/// operation, 0 for an untouched member, and `by` if roles are distinguished. A Rust enum has `variants`, each with
/// the bytes of its `data`, of the `tag` beside that, and of `padding`, which lies in the `gaps`; `niche` is true if
/// the tag lies in the variant's own data. The `holes` of an enum are the bytes that no variant uses. Types other
/// than records are left out.
pub fn json<'t>(
    types: &'t Types,
    name: &str,
    id: TypeId,
    options: &Options<'_>,
    out: &mut Vec<u8>,
) {
    let Some((id, record)) = leaf::record(types, id) else { return };
    let leaves = leaves(types, id, options.expand);
    let lines = Lines::of(options.line);
    let (holes, padding) = uncovered(types, &leaves, record.size);
    let part = |variant: Variant<'t>| Part {
        data: variant.data / 8,
        tag: variant.tag / 8,
        niche: variant.niche,
        padding: variant.padding() / 8,
        gaps: variant.gaps.iter().map(span).collect(),
        name: variant.name,
    };
    let base = options.base.map(|align| {
        let (best, worst) = extremes(lines, align, record.size, &leaves);
        Base { align, best: place(best, &leaves), worst: place(worst, &leaves) }
    });
    let touched = options.accessed.and_then(|accessed| accessed.of(id));
    let members = leaves
        .into_iter()
        .map(|leaf| Field {
            rates: touched.map(|touched| touched.of(leaf.start, leaf.bits)),
            ty: spell(types, leaf.ty).to_string(),
            span: Span::of(leaf.offset(), leaf.size(), leaf.bitfield, (leaf.start, leaf.bits)),
            line: lines.line(leaf.offset()),
            straddles: lines.straddles(leaf.offset(), leaf.size()),
            name: leaf.path,
        })
        .collect();
    let object = Object {
        schema: "ledgerline/layout-show.v1",
        name,
        kind: leaf::keyword(record.kind),
        size: record.size,
        align: record.align.bytes(),
        align_known: matches!(record.align, Align::Known(_)),
        line_size: options.line,
        lines: lines.count(0, record.size),
        holes: holes.iter().map(span).collect(),
        padding: padding.as_ref().map(span),
        members,
        variants: variants(types, record).into_iter().map(part).collect(),
        base,
    };
    serde_json::to_writer(&mut *out, &object).expect("a vector takes all, and keys are texts");
    out.push(b'\n');
}
