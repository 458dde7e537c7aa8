//! Parses pahole's output into rows.

/// A type that was printed.
#[derive(Debug)]
pub struct Printed {
    pub name: String,
    pub rows: Vec<Row>,
    pub size: u64,
    /// Lines of 64 bytes.
    pub lines: u64,
    pub members: u64,
    /// Bits after the last member.
    pub padding: u64,
}

/// A row between the braces.
#[derive(Debug)]
pub enum Row {
    Member {
        /// The declaration.
        text: String,
        place: Place,
    },
    /// A member of a type without a name, whose members are printed in it.
    Group {
        /// The text after the closing brace.
        text: String,
        rows: Vec<Row>,
        place: Place,
    },
    /// Unused bits before the next member.
    Hole(u64),
    /// The next member is the first to begin in this line, `ago` bytes after its start.
    Line { line: u64, ago: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub offset: u64,
    /// The first bit of a bitfield within its unit.
    pub bit: Option<u64>,
    pub size: u64,
}

/// Returns all structures and unions of the text.
pub fn parse(text: &str) -> Vec<Printed> {
    let mut lines = text.lines().map(str::trim);
    let mut all = Vec::new();
    while let Some(line) = lines.next() {
        let Some(head) = line.strip_suffix('{') else { continue };
        let mut words = head.split_whitespace();
        if !matches!(words.next(), Some("struct" | "union")) {
            continue;
        }
        let name = words.next().unwrap_or_default().to_string();
        let mut printed = Printed { name, rows: vec![], size: 0, lines: 0, members: 0, padding: 0 };
        let mut sums = Sums::default();
        printed.rows = rows(&mut lines, &mut sums).0;
        (printed.size, printed.lines, printed.members) = (sums.size, sums.lines, sums.members);
        printed.padding = 8 * sums.padding + sums.bit_padding;
        all.push(printed);
    }
    all
}

#[derive(Default)]
struct Sums {
    size: u64,
    lines: u64,
    members: u64,
    padding: u64,
    bit_padding: u64,
}

/// Returns the rows up to the closing brace, and the line of that brace.
fn rows<'a>(lines: &mut impl Iterator<Item = &'a str>, sums: &mut Sums) -> (Vec<Row>, &'a str) {
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let numbers = || numbers(line);
        if line.starts_with('}') {
            return (found, line);
        }
        if line.starts_with("/*") {
            if line.contains("hole, try to pack") {
                let unit = if line.contains(" bit") { 1 } else { 8 };
                found.push(Row::Hole(unit * numbers()[0]));
            } else if line.contains("--- cacheline") {
                let ago = numbers().get(2).copied().unwrap_or(0);
                found.push(Row::Line { line: numbers()[0], ago });
            } else if line.starts_with("/* size:") {
                [sums.size, sums.lines, sums.members] = [0, 1, 2].map(|index| numbers()[index]);
            } else if line.starts_with("/* padding:") {
                sums.padding = numbers()[0];
            } else if line.starts_with("/* bit_padding:") {
                sums.bit_padding = numbers()[0];
            }
            continue;
        }
        if line.ends_with('{') {
            let (rows, end) = rows(lines, &mut Sums::default());
            if let Some((text, place)) = declaration(end) {
                found.push(Row::Group { text, rows, place });
            }
        } else if let Some((text, place)) = declaration(line) {
            found.push(Row::Member { text, place });
        }
    }
    (found, "")
}

/// Parses `type name; /* offset size */`, or `/* offset:bit size */`.
fn declaration(line: &str) -> Option<(String, Place)> {
    let (text, comment) = line.rsplit_once("/*")?;
    let numbers = numbers(comment);
    let place = match (&*numbers, comment.contains(':')) {
        (&[offset, size], false) => Place { offset, bit: None, size },
        (&[offset, bit, size], true) => Place { offset, bit: Some(bit), size },
        _ => return None,
    };
    Some((text.trim().trim_end_matches(';').to_string(), place))
}

fn numbers(text: &str) -> Box<[u64]> {
    text.split(|character: char| !character.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .map(|digits| digits.parse().unwrap())
        .collect()
}
