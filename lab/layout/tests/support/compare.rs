//! Compares a record with pahole's output for it: size, lines, padding, and each member's place, bits, hole before it
//! and line, down into members whose type has no name.

use ledgerline_layout::model::{Kind, Member, Name, Record, Type, TypeId, Types};

use super::pahole::{Place, Printed, Row};

const LINE: u64 = 64;

/// Returns the differences, each in a line.
pub fn compare(types: &Types, record: &Record, theirs: &Printed) -> Vec<String> {
    let mut differ = Differ { types, line: 0, found: Vec::new() };
    let mut say = |what: &str, ours: u64, theirs: u64| {
        // pahole prints a summary for structures alone.
        if record.kind != Kind::Union && ours != theirs {
            differ.found.push(format!("{what} is {ours}, pahole: {theirs}"));
        }
    };
    say("size", record.size, theirs.size);
    say("lines", record.size.div_ceil(LINE), theirs.lines);
    say("members", record.members.len() as u64, theirs.members);
    let end = record.members.iter().map(|member| end(types, member)).max().unwrap_or(0);
    say("padding", 8 * record.size - end, theirs.padding);
    differ.rows(record, 0, &theirs.rows);
    differ.found
}

struct Differ<'a> {
    types: &'a Types,
    /// The last line that a member was seen to begin.
    line: u64,
    found: Vec<String>,
}

impl Differ<'_> {
    fn rows(&mut self, record: &Record, base: u64, rows: &[Row]) {
        let mut members = record.members.iter();
        let mut before = 0;
        let mut hole = 0;
        let mut said = None;
        let line = self.line;
        for row in rows {
            if record.kind == Kind::Union {
                // pahole's line within one member holds neither for the next member nor behind the union.
                self.line = line;
            }
            match row {
                Row::Hole(bits) => hole += bits,
                Row::Line { line, ago } => said = Some((*line, *ago)),
                Row::Member { text, .. } | Row::Group { text, .. } => {
                    let Some(member) = members.next() else {
                        self.found.push(format!("we lack {text}"));
                        continue;
                    };
                    let (start, end) = (start(member), end(self.types, member));
                    if record.kind != Kind::Union {
                        let ours = start.saturating_sub(before);
                        if ours != hole {
                            self.found
                                .push(format!("hole before {text} is {ours}, pahole: {hole}"));
                        }
                    }
                    before = before.max(end);
                    hole = 0;
                    self.line_of(member, base, said.take());
                    self.member(member, base, row);
                }
            }
        }
        if record.kind == Kind::Union {
            self.line = line;
        }
        for member in members {
            self.found.push(format!("pahole lacks {}", self.types.name(member.name)));
        }
    }

    fn line_of(&mut self, member: &Member, base: u64, said: Option<(u64, u64)>) {
        let offset = base + member.offset;
        let ours = (offset / LINE > self.line).then_some((offset / LINE, offset % LINE));
        self.line = self.line.max(offset / LINE);
        if ours != said {
            let name = self.types.name(member.name);
            self.found.push(format!("line of {name} is {ours:?}, pahole: {said:?}"));
        }
    }

    fn member(&mut self, member: &Member, base: u64, row: &Row) {
        let (Row::Member { text, place } | Row::Group { text, place, .. }) = row else { return };
        let name = self.types.name(member.name);
        let ours = Place {
            offset: base + member.offset,
            bit: member.bits.map(|bits| bits.offset.into()),
            size: self.types.size(member.ty).unwrap_or(0),
        };
        if ours != *place {
            self.found.push(format!("{name} is at {ours:?}, pahole: {place:?}"));
        }
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        if !name.is_empty() && !text.split(|character| !is_word(character)).any(|word| word == name)
        {
            self.found.push(format!("{name} is called {text} by pahole"));
        }
        if let Row::Group { rows, .. } = row
            && let Some(inner) = inner(self.types, member.ty)
        {
            // A pointer points to another object.
            if text.starts_with("} *") {
                let before = std::mem::take(&mut self.line);
                self.rows(inner, 0, rows);
                self.line = before;
            } else {
                self.rows(inner, base + member.offset, rows);
            }
        }
    }
}

/// Returns the record that is printed within a member.
fn inner(types: &Types, mut id: TypeId) -> Option<&Record> {
    loop {
        id = match types.get(id) {
            Type::Record(record) if record.name == Name::NONE => return Some(record),
            Type::Array { element, .. } => *element,
            Type::Pointer { to: Some(to), .. } | Type::Qualified { to: Some(to), .. } => *to,
            _ => return None,
        };
    }
}

/// Returns its first bit.
fn start(member: &Member) -> u64 {
    8 * member.offset + member.bits.map_or(0, |bits| bits.offset.into())
}

/// Returns the first bit after it.
fn end(types: &Types, member: &Member) -> u64 {
    match member.bits {
        Some(bits) => start(member) + u64::from(bits.size),
        None => start(member) + 8 * types.size(member.ty).unwrap_or(0),
    }
}
