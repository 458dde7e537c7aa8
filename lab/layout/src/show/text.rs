//! Prints a record as text: a row for each member, a rule at each line's start, holes in words.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use super::Options;
use super::accessed::{Touched, rate};
use crate::error::safe;
use crate::leaf::{self, bits_of, name_of, opens, start_of};
use crate::lines::{Gap, Lines, extremes, gaps};
use crate::model::{Align, Record, TypeId, Types};
use crate::spell::{plural, write_type};
use crate::variants::{covers, variants};

const DEEPEST: usize = 64;
/// The number of rows after which no more records are opened.
const MOST: usize = 1 << 16;
/// The width in characters up to which names are aligned.
const WIDEST: usize = 32;
/// The most places of a base that are printed.
const MOST_SHIFTS: usize = 8;

const FAINT: &str = "\x1b[2m";
const STRONG: &str = "\x1b[1m";
const WARN: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// One row, before the width of the names is known.
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

/// Appends a record, its summary, and an empty line. Types other than records are left out.
pub fn text(types: &Types, name: &str, id: TypeId, options: &Options<'_>, out: &mut String) {
    let Some((id, record)) = leaf::record(types, id) else { return };
    let touched = options.accessed.and_then(|accessed| accessed.of(id));
    let lines = Lines::of(options.line);
    let mut page = Page { types, options, lines, touched, line: None, out };
    // Writing to a text cannot fail.
    let _ = page.record(name, id, record);
}

struct Page<'t> {
    types: &'t Types,
    options: &'t Options<'t>,
    lines: Lines,
    touched: Option<&'t Touched>,
    /// The line that the last rule begins.
    line: Option<u64>,
    out: &'t mut String,
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

    fn record(&mut self, name: &str, id: TypeId, record: &'t Record) -> fmt::Result {
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
        self.paint(STRONG, |out| {
            out.write_str(leaf::keyword(record.kind))?;
            out.write_char(' ')?;
            safe(out, name)
        })?;
        self.out.push_str("\n  offset   size  ");
        if self.touched.is_some() {
            self.out.push_str(" reads  writes  ");
        }
        writeln!(self.out, "{:width$}  type", "name")?;
        let mut left = &holes[..];
        for row in &rows {
            while let [hole, rest @ ..] = left
                && hole.start < row.start
            {
                self.gap(hole, "hole")?;
                left = rest;
            }
            self.row(row, width)?;
        }
        // The variants of an enum all begin before the bytes that none of them uses.
        left.iter().try_for_each(|hole| self.gap(hole, "hole"))?;
        padding.iter().try_for_each(|padding| self.gap(padding, "padding"))?;
        self.summary(record, &holes, padding)?;
        if rows.iter().any(|row| !row.placed) {
            self.out.push_str(
                "  ?: the file says neither place nor size in it; what seems empty may be that\n",
            );
        }
        self.bases(id, record)?;
        self.variants(record)?;
        self.out.write_char('\n')
    }

    /// Returns a rule at a line's start.
    fn rule(&mut self, offset: u64) -> fmt::Result {
        let now = self.lines.line(offset);
        // The arms of a union begin again on its first line.
        if self.line.replace(now) == Some(now) {
            return Ok(());
        }
        self.paint(FAINT, |out| {
            out.write_str("  -- line ")?;
            number(out, now, 0)?;
            out.write_str(" --------")
        })?;
        self.out.write_char('\n')
    }

    fn row(&mut self, row: &Row<'t>, width: usize) -> fmt::Result {
        let offset = row.start / 8;
        let bytes = if row.bits == 0 { 0 } else { (row.start % 8 + row.bits).div_ceil(8) };
        if row.placed {
            self.rule(offset)?;
            number(self.out, offset, 8)?;
            number(self.out, bytes, 7)?;
        } else {
            write!(self.out, "{:>8}{:>7}", '?', '?')?;
        }
        let out = &mut *self.out;
        let rates = self.touched.map(|touched| touched.of(row.start, row.bits));
        match &rates {
            // The record that it opens has the rates.
            Some(_) if row.opened.is_some() => out.push_str("                "),
            Some(rates) => write!(out, "{:>8}{:>8}", rate(rates.reads), rate(rates.writes))?,
            None => {}
        }
        out.write_str("  ")?;
        (0..row.depth).for_each(|_| out.push_str("  "));
        let from = out.len();
        safe(out, row.name)?;
        if row.bitfield {
            write!(out, ":{}", row.bits)?;
        }
        if let (Some(opened), true) = (row.opened, row.name.is_empty()) {
            out.write_str(leaf::keyword(opened.kind))?;
        } else {
            for _ in out.len() - from + 2 * row.depth..width {
                out.write_char(' ')?;
            }
            out.write_str("  ")?;
            write_type(out, self.types, Some(row.ty), 32)?;
            out.write_str(if row.opened.is_some() { " >" } else { "" })?;
        }
        self.reach(offset, bytes)?;
        if let Some(rates) = rates.filter(|rates| row.opened.is_none() && !rates.by.is_empty()) {
            self.paint(FAINT, |out| {
                out.write_str("  ")?;
                safe(out, &rates.who())
            })?;
        }
        self.out.write_char('\n')
    }

    /// Prints the last line of a member, if it differs from the first.
    fn reach(&mut self, offset: u64, bytes: u64) -> fmt::Result {
        if bytes == 0 {
            return Ok(());
        }
        let (_, last) = self.lines.range(offset, bytes);
        if self.lines.straddles(offset, bytes) {
            self.paint(WARN, |out| write!(out, "  straddles, to line {last}"))
        } else if last > self.lines.line(offset) {
            self.paint(FAINT, |out| write!(out, "  to line {last}"))
        } else {
            Ok(())
        }
    }

    fn gap(&mut self, gap: &Gap, what: &str) -> fmt::Result {
        self.rule(gap.start / 8)?;
        number(self.out, gap.start / 8, 8)?;
        self.out.push_str("         ");
        if self.touched.is_some() {
            self.out.push_str("                ");
        }
        self.paint(WARN, |out| {
            out.write_str(what)?;
            out.write_str(" of ")?;
            amount(out, gap.bits)
        })?;
        self.out.write_char('\n')
    }

    fn summary(&mut self, record: &Record, holes: &[Gap], padding: Option<Gap>) -> fmt::Result {
        let (count, out) = (self.lines.count(0, record.size), &mut *self.out);
        out.write_str("  ")?;
        number(out, record.size, 0)?;
        write!(out, " byte{} on ", plural(record.size))?;
        number(out, count, 0)?;
        write!(out, " line{} of {}", plural(count), self.options.line)?;
        if holes.is_empty() {
            out.write_str("; no holes")?;
        } else {
            write!(out, "; {} hole{} of ", holes.len(), plural(holes.len() as u64))?;
            amount(out, Gap::sum(holes))?;
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

    /// Prints the bytes of a Rust enum that each variant uses.
    fn variants(&mut self, record: &'t Record) -> fmt::Result {
        let variants = variants(self.types, record);
        if !variants.is_empty() {
            self.out.push_str("    data    tag  padding  of each variant, in bytes\n");
        }
        for variant in &variants {
            number(self.out, variant.data / 8, 8)?;
            match variant.niche {
                true => self.out.write_str("  niche")?,
                false => number(self.out, variant.tag / 8, 7)?,
            }
            number(self.out, variant.padding() / 8, 9)?;
            self.out.push_str("  ");
            safe(self.out, variant.name)?;
            self.paint(FAINT, |out| {
                for (index, gap) in variant.gaps.iter().enumerate() {
                    out.write_str(if index == 0 { "  unused: " } else { ", " })?;
                    write!(out, "{} at {}", gap.bits / 8, gap.start / 8)?;
                }
                Ok(())
            })?;
            self.out.push('\n');
        }
        Ok(())
    }

    /// Prints the best and the worst placement, if they are requested.
    fn bases(&mut self, id: TypeId, record: &Record) -> fmt::Result {
        let Some(align) = self.options.base else { return Ok(()) };
        let leaves = leaf::leaves(self.types, id, self.options.expand);
        let (best, worst) = extremes(self.lines, align, record.size, &leaves);
        for (what, placement) in [("best", best), ("worst", worst)] {
            let (out, lines) = (&mut *self.out, placement.lines);
            write!(
                out,
                "  base a multiple of {align}, at {what}: {lines} line{}, ",
                plural(lines)
            )?;
            for (index, &leaf) in placement.straddling.iter().enumerate() {
                out.write_str(if index == 0 { "" } else { ", " })?;
                safe(out, &leaves[leaf].path)?;
            }
            out.write_str(match placement.straddling.len() {
                0 => "nothing straddles",
                1 => " straddles",
                _ => " straddle",
            })?;
            let mut shifts: Vec<String> =
                placement.shifts.iter().take(MOST_SHIFTS).map(u64::to_string).collect();
            if placement.shifts.len() > MOST_SHIFTS {
                shifts.push(format!("{} more", placement.shifts.len() - MOST_SHIFTS));
            }
            writeln!(out, " (base {} bytes into a line)", shifts.join(", "))?;
        }
        Ok(())
    }

    fn paint(
        &mut self,
        colour: &str,
        write: impl FnOnce(&mut String) -> fmt::Result,
    ) -> fmt::Result {
        if !self.options.colour {
            return write(self.out);
        }
        self.out.push_str(colour);
        write(self.out)?;
        self.out.push_str(PLAIN);
        Ok(())
    }
}

/// Writes bytes and bits in words.
fn amount(out: &mut String, bits: u64) -> fmt::Result {
    match (bits / 8, bits % 8) {
        (bytes, 0) => write!(out, "{bytes} byte{}", plural(bytes)),
        (0, bits) => write!(out, "{bits} bit{}", plural(bits)),
        (bytes, bits) => {
            write!(out, "{bytes} byte{} and {bits} bit{}", plural(bytes), plural(bits))
        }
    }
}

/// Writes a number to the right of `width` columns, like `{:>width$}`, in a fraction of the time.
fn number(out: &mut String, value: u64, width: usize) -> fmt::Result {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value);
    for _ in digits.len()..width {
        out.push(' ');
    }
    out.write_str(digits)
}
