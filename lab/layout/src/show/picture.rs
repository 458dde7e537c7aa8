//! Draws records: a row for each line, a block for each field. The picture is an SVG, or a page of HTML with one.

use std::fmt::Write;

use super::Options;
use super::accessed::{Rates, Touched, rate};
use crate::leaf::{self, Leaf, leaves};
use crate::lines::Lines;
use crate::model::{TypeId, Types};
use crate::spell::spell;

/// The width of a line in pixels.
const WIDTH: u64 = 1024;
const HEIGHT: u64 = 34;
const MARGIN: u64 = 48;
/// The most lines of a record that are drawn; a text gives the number of the others.
const MOST: u64 = 512;

const STYLE: &str = "\
<style>
svg { background: #fff; font: 11px sans-serif; }
text { fill: #222; } .faint { fill: #777; }
.line { fill: #eee; stroke: #bbb; }
.field { fill: #9dc3e6; stroke: #466; } .other { fill: #c5dff2; stroke: #466; }
.hot { fill: #e8503a; pointer-events: none; } .warm { fill: #e0a800; pointer-events: none; }
@media (prefers-color-scheme: dark) {
svg { background: #181a1b; } text { fill: #eee; } .faint { fill: #999; }
.line { fill: #262a2c; stroke: #444; }
.field { fill: #2f5d85; stroke: #9bb; } .other { fill: #24455f; stroke: #9bb; }
}
</style>
";

/// Draws the records one under the other, as one SVG document that needs nothing else.
///
/// A field on several lines has a block on each. Blocks that overlap, as in a union, share the height. A block's
/// title names the field, its type and its bytes. With [`Options::accessed`], touched fields are tinted, more
/// strongly the hotter they are: red if they are written, yellow if they are only read. Their titles have the rates.
pub fn svg(types: &Types, picked: &[(&str, TypeId)], options: &Options<'_>) -> String {
    let mut body = String::new();
    let mut top = 8;
    for &(name, id) in picked {
        let Some((id, record)) = leaf::record(types, id) else { continue };
        let lines = Lines::of(options.line);
        let touched = options.accessed.and_then(|accessed| accessed.of(id));
        let leaves = leaves(types, id, options.expand);
        let picture = Picture { types, name, lines, touched, leaves };
        top = picture.draw(record.size, top, &mut body);
    }
    let width = WIDTH + 2 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{top}\" \
         viewBox=\"0 0 {width} {top}\">\n{STYLE}{body}</svg>\n"
    )
}

/// Draws the document of [`svg`] within a page.
pub fn html(types: &Types, picked: &[(&str, TypeId)], options: &Options<'_>) -> String {
    let picture = svg(types, picked, options);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Layout</title>\n\
         <meta name=\"color-scheme\" content=\"light dark\"></head><body>\n{picture}</body></html>\n"
    )
}

struct Picture<'a> {
    types: &'a Types,
    name: &'a str,
    lines: Lines,
    touched: Option<&'a Touched>,
    leaves: Vec<Leaf>,
}

impl Picture<'_> {
    /// Draws the record from `top`; returns the top of the next.
    fn draw(&self, size: u64, top: u64, out: &mut String) -> u64 {
        let count = self.lines.count(0, size);
        let drawn = count.min(MOST);
        let more = if drawn < count { format!(", the first {MOST} drawn") } else { String::new() };
        let first = top + 24;
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"{}\">{}: {size} bytes, {count} lines of {}{more}</text>",
            top + 16,
            escaped(self.name),
            self.lines.size(),
        );
        for line in 0..drawn {
            let y = first + line * HEIGHT;
            let bytes = self.lines.size().min(size - line * self.lines.size());
            let width = bytes * WIDTH / self.lines.size();
            let _ = writeln!(
                out,
                "<text class=\"faint\" x=\"8\" y=\"{}\">{}</text>\
                 <rect class=\"line\" x=\"{MARGIN}\" y=\"{y}\" width=\"{width}\" height=\"30\"/>",
                y + 19,
                line * self.lines.size(),
            );
        }
        // The number of overlapping blocks that are stacked, and the place of each among them.
        let mut order: Vec<&Leaf> = self.leaves.iter().filter(|leaf| leaf.bits > 0).collect();
        order.sort_by_key(|leaf| leaf.start);
        let mut left = &order[..];
        while !left.is_empty() {
            let (mut end, mut together) = (0, 0);
            while let Some(leaf) =
                left.get(together).filter(|leaf| together == 0 || leaf.start < end)
            {
                end = end.max(leaf.end());
                together += 1;
            }
            for (index, leaf) in left[..together].iter().enumerate() {
                self.field(leaf, (index, together), first, drawn, out);
            }
            left = &left[together..];
        }
        first + drawn * HEIGHT + 16
    }

    fn field(
        &self,
        leaf: &Leaf,
        (index, of): (usize, usize),
        first: u64,
        drawn: u64,
        out: &mut String,
    ) {
        let bits = self.lines.size() * 8;
        let rates =
            self.touched.map(|touched| touched.of(leaf.start, leaf.bits)).unwrap_or_default();
        let heat = self.touched.map_or(0.0, |touched| touched.heat(&rates));
        let said = self.touched.map(|_| said(&rates)).unwrap_or_default();
        let straddles = self.lines.straddles(leaf.offset(), leaf.size());
        let straddles = if straddles { ", straddles lines" } else { "" };
        let height = 30.0 / of as f64;
        let path = escaped(&leaf.path);
        let (from, to) = (leaf.start / bits, (leaf.end() - 1) / bits);
        for line in from..=to.min(drawn.saturating_sub(1)) {
            let start = leaf.start.max(line * bits) - line * bits;
            let end = leaf.end().min((line + 1) * bits) - line * bits;
            let scale = WIDTH as f64 / bits as f64;
            let (x, width) = (MARGIN as f64 + start as f64 * scale, (end - start) as f64 * scale);
            let y = (first + line * HEIGHT) as f64 + height * index as f64;
            let class = if line == from { "field" } else { "other" };
            let place =
                format!("x=\"{x:.1}\" y=\"{y:.2}\" width=\"{width:.1}\" height=\"{height:.2}\"");
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" {place}><title>{path}: {}, {} bytes at {}{straddles}{said}</title></rect>",
                escaped(&spell(self.types, leaf.ty).to_string()),
                leaf.size(),
                leaf.offset(),
            );
            if heat > 0.0 {
                let _ = writeln!(
                    out,
                    "<rect class=\"{}\" {place} fill-opacity=\"{:.2}\"/>",
                    if rates.writes > 0.0 { "hot" } else { "warm" },
                    // Rates differ by orders of magnitude, and every touched field must be visible.
                    0.1 + 0.7 * heat.sqrt(),
                );
            }
            // The name is drawn if it has room; a character takes about six pixels.
            let room = (width / 6.2) as usize;
            if line == from && of == 1 && leaf.path.chars().count() < room {
                let _ =
                    writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{path}</text>", x + 3.0, y + 19.0);
            }
        }
    }
}

/// Returns the rates for a block's title.
fn said(rates: &Rates<'_>) -> String {
    if rates.none() {
        return ", not touched".to_owned();
    }
    let who = if rates.by.is_empty() { String::new() } else { format!(" ({})", rates.who()) };
    let text = format!(
        ", {} reads and {} writes an operation{who}",
        rate(rates.reads).replace('-', "no"),
        rate(rates.writes).replace('-', "no"),
    );
    escaped(&text)
}

fn escaped(text: &str) -> String {
    html_escape::encode_double_quoted_attribute(text).replace(char::is_control, "\u{fffd}")
}
