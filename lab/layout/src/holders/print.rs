//! Prints types that hold another: as text, as JSON.

use std::fmt::{self, Write};

use serde::Serialize;

use super::{Array, Holder, Place};
use crate::error::safe;
use crate::leaf::{self, keyword};
use crate::model::Types;
use crate::spell::spell;

#[derive(Serialize)]
struct Object<'a> {
    schema: &'static str,
    name: &'a str,
    kind: &'static str,
    size: u64,
    places: Vec<PlaceObject<'a>>,
}

#[derive(Serialize)]
struct PlaceObject<'a> {
    path: &'a str,
    #[serde(rename = "type")]
    ty: String,
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bit_offset: Option<u64>,
    size: u64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    arrays: &'a [Array],
}

/// Appends a type that holds another as one line of JSON: its `name`, `kind` and `size`, and its `places` by offset.
/// A place in arrays has `arrays`, the outermost first; the `count` of a flexible array is null.
pub fn json<'h>(types: &Types, holder: &'h Holder<'_>, out: &mut Vec<u8>) {
    let Some((_, record)) = leaf::record(types, holder.id) else { return };
    let place = |place: &'h Place| PlaceObject {
        path: &place.path,
        ty: spell(types, place.ty).to_string(),
        offset: place.start / 8,
        bit_offset: (!place.start.is_multiple_of(8)).then_some(place.start % 8),
        size: place.size,
        arrays: &place.arrays,
    };
    let places = holder.places.iter().map(place).collect();
    let (kind, size) = (keyword(record.kind), record.size);
    let schema = "ledgerline/layout-find.v1";
    let object = Object { schema, name: holder.name, kind, size, places };
    serde_json::to_writer(&mut *out, &object).expect("a vector takes all, and keys are texts");
    out.push(b'\n');
}

/// Appends a type that holds another, a row for each place, and an empty line.
pub fn text(types: &Types, holder: &Holder<'_>, out: &mut String) {
    // Writing to a text cannot fail.
    let _ = write(types, holder, out);
}

fn write(types: &Types, holder: &Holder<'_>, out: &mut String) -> fmt::Result {
    let Some((_, record)) = leaf::record(types, holder.id) else { return Ok(()) };
    write!(out, "{} ", keyword(record.kind))?;
    safe(out, holder.name)?;
    let longest = holder.places.iter().map(|place| place.path.len()).max();
    let width = longest.unwrap_or(0).clamp(4, 48);
    writeln!(out, "\n  offset   size  {:width$}  type", "path")?;
    for place in &holder.places {
        let Place { path, ty, start, size, arrays } = place;
        write!(out, "{:>8}{:>7}  ", start / 8, size)?;
        let from = out.len();
        safe(out, path)?;
        for _ in out.len() - from..width {
            out.push(' ');
        }
        write!(out, "  {}", spell(types, *ty))?;
        for (index, Array { count, stride }) in arrays.iter().enumerate() {
            out.push_str(if index == 0 { "  " } else { ", each " });
            match count {
                Some(1) => write!(out, "once")?,
                Some(count) => write!(out, "{count} times, {stride} bytes apart")?,
                None => write!(out, "any number of times, {stride} bytes apart")?,
            }
        }
        out.push('\n');
    }
    out.push('\n');
    Ok(())
}
