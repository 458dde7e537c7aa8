//! Prints a record as text: a row for each member, a rule where a line begins, holes in words.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use super::Options;
use super::accessed::{Touched, rate};
use crate::error::safe;
use crate::leaf::{self, bits_of, name_of, opens, start_of};
use crate::lines::{Gap, Lines, extremes, gaps};
use crate::model::{Align, Record, TypeId, Types};
use crate::spell::write_type;
use crate::variants::{covers, variants};

const DEEPEST: usize = 64;
/// After how many rows no more records are opened.
const MOST: usize = 1 << 16;
/// Up to how many characters names are aligned.
const WIDEST: usize = 32;

const FAINT: &str = "\x1b[2m";
const STRONG: &str = "\x1b[1m";
const WARN: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// One printed row, before it is known how wide the names are.
struct Row<'t> {
    name: &'t str,
    ty: TypeId,
    start: u64,
    bits: u64,
    bitfield: bool,
    depth: usize,
    /// Whether its place is known.
    placed: bool,
    /// The record that it opens.
    opened: Option<&'t Record>,
}

/// Appends a record, its summary, and an empty line. Types that are no records are left out.
pub fn text(types: &Types, name: &str, id: TypeId, options: &Options<'_>, out: &mut String) {
    let Some((id, record)) = leaf::record(types, id) else { return };
    let touched = options.accessed.and_then(|accessed| accessed.of(id));
    let page = Page { types, options, lines: Lines::of(options.line), touched };
    // Writing to a text cannot fail.
    let _ = page.record(name, id, record, out);
}

struct Page<'t> {
    types: &'t Types,
    options: &'t Options<'t>,
    lines: Lines,
    touched: Option<&'t Touched>,
}

impl<'t> Page<'t> {
    fn rows(&self, record: &'t Record, base: u64, depth: usize, rows: &mut Vec<Row<'t>>) {
        for member in &record.members {
            let start = base.saturating_add(start_of(member));
            let room = depth < DEEPEST && rows.len() < MOST;
            let opened = opens(self.types, member, self.options.expand).filter(|_| room);
            rows.push(Row {
                name: name_of(self.types, member),
                ty: member.ty,
                start,
                bits: bits_of(self.types, member),
                bitfield: member.bits.is_some(),
                depth,
                placed: member.place_known(),
                opened,
            });
            if let Some(inner) = opened {
                self.rows(inner, start, depth + 1, rows);
            }
        }
    }

    fn record(&self, name: &str, id: TypeId, record: &'t Record, out: &mut String) -> fmt::Result {
        let mut rows = Vec::with_capacity(record.members.len());
        self.rows(record, 0, 0, &mut rows);
        let width = rows
            .iter()
            .filter(|row| row.opened.is_none() || !row.name.is_empty())
            .map(|row| row.name.len() + 2 * row.depth + if row.bitfield { 3 } else { 0 })
            .max()
            .map_or(4, |width| width.clamp(4, WIDEST));
        let leaves = rows.iter().filter(|row| row.opened.is_none());
        let mut order = Vec::with_capacity(rows.len());
        let spans = leaves.flat_map(|row| covers(self.types, row.ty, row.start, row.bits));
        let (holes, padding) = gaps(spans, record.size, &mut order);
        self.paint(out, STRONG, |out| {
            out.write_str(leaf::keyword(record.kind))?;
            out.write_char(' ')?;
            safe(out, name)
        })?;
        out.write_str("\n  offset   size  ")?;
        if self.touched.is_some() {
            out.write_str(" reads  writes  ")?;
        }
        writeln!(out, "{:width$}  type", "name")?;
        let mut left = &holes[..];
        let mut line = None;
        for row in &rows {
            while let [hole, rest @ ..] = left
                && hole.start < row.start
            {
                self.gap(out, hole, "hole", &mut line)?;
                left = rest;
            }
            self.row(out, row, width, &mut line)?;
        }
        // The variants of an enum all begin before what none of them uses.
        for hole in left {
            self.gap(out, hole, "hole", &mut line)?;
        }
        if let Some(padding) = &padding {
            self.gap(out, padding, "padding", &mut line)?;
        }
        self.summary(out, record, &holes, padding)?;
        if rows.iter().any(|row| !row.placed) {
            out.write_str(
                "  ?: the file says neither place nor size in it; what seems empty may be that\n",
            )?;
        }
        self.bases(out, id, record)?;
        self.variants(out, record)?;
        out.write_char('\n')
    }

    /// A rule where a line begins.
    fn rule(&self, out: &mut String, offset: u64, line: &mut Option<u64>) -> fmt::Result {
        let now = self.lines.line(offset);
        // The arms of a union begin again on its first line.
        if *line == Some(now) {
            return Ok(());
        }
        *line = Some(now);
        self.paint(out, FAINT, |out| {
            out.write_str("  -- line ")?;
            number(out, now, 0)?;
            out.write_str(" --------")
        })?;
        out.write_char('\n')
    }

    fn row(
        &self,
        out: &mut String,
        row: &Row<'t>,
        width: usize,
        line: &mut Option<u64>,
    ) -> fmt::Result {
        let offset = row.start / 8;
        let bytes = if row.bits == 0 { 0 } else { (row.start % 8 + row.bits).div_ceil(8) };
        if row.placed {
            self.rule(out, offset, line)?;
            number(out, offset, 8)?;
            number(out, bytes, 7)?;
        } else {
            write!(out, "{:>8}{:>7}", '?', '?')?;
        }
        let rates = self.touched.map(|touched| touched.of(row.start, row.bits));
        match &rates {
            // The record that it opens has the rates.
            Some(_) if row.opened.is_some() => out.push_str("                "),
            Some(rates) => write!(out, "{:>8}{:>8}", rate(rates.reads), rate(rates.writes))?,
            None => {}
        }
        out.write_str("  ")?;
        for _ in 0..row.depth {
            out.write_str("  ")?;
        }
        let from = out.len();
        safe(out, row.name)?;
        if row.bitfield {
            write!(out, ":{}", row.bits)?;
        }
        if let (Some(opened), true) = (row.opened, row.name.is_empty()) {
            out.write_str(leaf::keyword(opened.kind))?;
            self.reach(out, offset, bytes)?;
            return out.write_char('\n');
        }
        for _ in out.len() - from + 2 * row.depth..width {
            out.write_char(' ')?;
        }
        out.write_str("  ")?;
        write_type(out, self.types, Some(row.ty), 32)?;
        if row.opened.is_some() {
            out.write_str(" >")?;
            self.reach(out, offset, bytes)?;
            return out.write_char('\n');
        }
        self.reach(out, offset, bytes)?;
        if let Some(rates) = rates.filter(|rates| !rates.by.is_empty()) {
            self.paint(out, FAINT, |out| {
                out.write_str("  ")?;
                safe(out, &rates.who())
            })?;
        }
        out.write_char('\n')
    }

    /// Up to which line a member goes, where that is not the one it begins on.
    fn reach(&self, out: &mut String, offset: u64, bytes: u64) -> fmt::Result {
        if bytes == 0 {
            return Ok(());
        }
        let (_, last) = self.lines.range(offset, bytes);
        if self.lines.straddles(offset, bytes) {
            self.paint(out, WARN, |out| write!(out, "  straddles, to line {last}"))
        } else if last > self.lines.line(offset) {
            self.paint(out, FAINT, |out| write!(out, "  to line {last}"))
        } else {
            Ok(())
        }
    }

    fn gap(&self, out: &mut String, gap: &Gap, what: &str, line: &mut Option<u64>) -> fmt::Result {
        self.rule(out, gap.start / 8, line)?;
        number(out, gap.start / 8, 8)?;
        out.write_str("         ")?;
        if self.touched.is_some() {
            out.write_str("                ")?;
        }
        self.paint(out, WARN, |out| {
            out.write_str(what)?;
            out.write_str(" of ")?;
            amount(out, gap.bits)
        })?;
        out.write_char('\n')
    }

    fn summary(
        &self,
        out: &mut String,
        record: &Record,
        holes: &[Gap],
        padding: Option<Gap>,
    ) -> fmt::Result {
        let count = self.lines.count(0, record.size);
        let plural = |count| if count == 1 { "" } else { "s" };
        out.write_str("  ")?;
        number(out, record.size, 0)?;
        write!(out, " byte{} on ", plural(record.size))?;
        number(out, count, 0)?;
        write!(out, " line{} of {}", plural(count), self.options.line)?;
        if holes.is_empty() {
            out.write_str("; no holes")?;
        } else {
            let bits = holes.iter().fold(0u64, |sum, hole| sum.saturating_add(hole.bits));
            write!(out, "; {} hole{} of ", holes.len(), plural(holes.len() as u64))?;
            amount(out, bits)?;
        }
        if let Some(padding) = padding {
            out.write_str("; padding of ")?;
            amount(out, padding.bits)?;
        }
        if let Some(touched) = self.touched {
            let here: BTreeSet<u64> = touched
                .spans()
                .flat_map(|(first, last)| self.lines.line(first / 8)..=self.lines.line(last / 8))
                .collect();
            let plural = plural(here.len() as u64);
            write!(out, "\n  {} line{plural} touched; reads and writes an operation", here.len())?;
        }
        let how = match record.align {
            Align::Known(_) => "as the file says",
            Align::Inferred(_) => "as far as its members tell",
        };
        write!(out, "\n  aligned to {} {how}; ", record.align.bytes())?;
        out.write_str(match (self.options.base, record.align) {
            (Some(_), _) => "the rows assume that it begins a line\n",
            (None, Align::Known(bytes)) if bytes >= self.options.line => "it begins a line\n",
            (None, _) => "assumed to begin a line\n",
        })
    }

    /// What each variant of a Rust enum uses of it.
    fn variants(&self, out: &mut String, record: &'t Record) -> fmt::Result {
        let variants = variants(self.types, record);
        if variants.is_empty() {
            return Ok(());
        }
        out.write_str("    data    tag  padding  of each variant, in bytes\n")?;
        for variant in &variants {
            number(out, variant.data / 8, 8)?;
            match variant.niche {
                true => out.write_str("  niche")?,
                false => number(out, variant.tag / 8, 7)?,
            }
            number(out, variant.padding() / 8, 9)?;
            out.write_str("  ")?;
            safe(out, variant.name)?;
            self.paint(out, FAINT, |out| {
                for (index, gap) in variant.gaps.iter().enumerate() {
                    out.write_str(if index == 0 { "  unused: " } else { ", " })?;
                    write!(out, "{} at {}", gap.bits / 8, gap.start / 8)?;
                }
                Ok(())
            })?;
            out.write_char('\n')?;
        }
        Ok(())
    }

    /// Prints the best and the worst placement, if they are asked for.
    fn bases(&self, out: &mut String, id: TypeId, record: &Record) -> fmt::Result {
        let Some(align) = self.options.base else { return Ok(()) };
        let leaves = leaf::leaves(self.types, id, self.options.expand);
        let (best, worst) = extremes(self.lines, align, record.size, &leaves);
        for (what, placement) in [("best", best), ("worst", worst)] {
            let lines = placement.lines;
            write!(out, "  base a multiple of {align}, at {what}: {lines} line")?;
            out.write_str(if lines == 1 { "" } else { "s" })?;
            out.write_str(", ")?;
            match &placement.straddling[..] {
                [] => out.write_str("nothing straddles")?,
                straddling => {
                    for (index, &leaf) in straddling.iter().enumerate() {
                        out.write_str(if index == 0 { "" } else { ", " })?;
                        safe(out, &leaves[leaf].path)?;
                    }
                    out.write_str(if straddling.len() == 1 { " straddles" } else { " straddle" })?;
                }
            }
            write!(out, " (base {} ", plural_shifts(&placement.shifts))?;
            out.write_str("bytes into a line)\n")?;
        }
        Ok(())
    }

    fn paint(
        &self,
        out: &mut String,
        colour: &str,
        write: impl FnOnce(&mut String) -> fmt::Result,
    ) -> fmt::Result {
        if !self.options.colour {
            return write(out);
        }
        out.push_str(colour);
        write(out)?;
        out.push_str(PLAIN);
        Ok(())
    }
}

/// The first eight places of a base, in words.
fn plural_shifts(shifts: &[u64]) -> String {
    let mut text: Vec<String> = shifts.iter().take(8).map(u64::to_string).collect();
    if shifts.len() > 8 {
        text.push(format!("{} more", shifts.len() - 8));
    }
    text.join(", ")
}

/// Bytes and bits in words.
fn amount(out: &mut String, bits: u64) -> fmt::Result {
    let plural = |count| if count == 1 { "" } else { "s" };
    match (bits / 8, bits % 8) {
        (bytes, 0) => write!(out, "{bytes} byte{}", plural(bytes)),
        (0, bits) => write!(out, "{bits} bit{}", plural(bits)),
        (bytes, bits) => {
            write!(out, "{bytes} byte{} and {bits} bit{}", plural(bytes), plural(bits))
        }
    }
}

/// Writes a number to the right of `width` columns, as `{:>width$}` does, in a fraction of the time.
fn number(out: &mut String, value: u64, width: usize) -> fmt::Result {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value);
    for _ in digits.len()..width {
        out.push(' ');
    }
    out.write_str(digits)
}
