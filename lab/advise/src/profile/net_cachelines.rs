//! The kernel's tables of its networking structures, `Documentation/networking/net_cachelines/*.rst`. They list the
//! fields that the fast path of transmission and of reception reads, or reads and writes.
//!
//! ```text
//! tcp_sock struct fast path usage breakdown
//! =========================================
//!
//! ===== ========= =================== =================== ==========
//! Type  Name      fastpath_tx_access  fastpath_rx_access  Comments
//! ===== ========= =================== =================== ==========
//! u32   snd_nxt   read_write          read_mostly         who uses it
//! ===== ========= =================== =================== ==========
//! ```
//!
//! Until 2024 there were no rules around the table, a dash stood for no access, and the first row named the type. Both
//! forms are read, and so are several tables in one text.
//!
//! A table has the paths that touch a field, but not how often. So half of the CPUs are taken to transmit and half to
//! receive. A packet is an operation with [`WORK_NS`](super::WORK_NS) of other work, and touches each field once:
//! `read_mostly` is a load, `read_write` a load and a store. All CPUs are taken to share one object. That is right for
//! a device or a namespace and wrong for a socket, whose `instances` must be corrected. Such a profile tells which CPUs
//! share which lines, but its nanoseconds mean little. Fields that the given types do not have are left out, since
//! tables serve several versions and configurations.

use ledgerline_layout::Error;
use ledgerline_layout::pick::named;

use super::fields::find;
use super::{Access, Instances, Kind, Known, Profile, Role, TypeProfile};

/// The columns by which a table is recognized.
const COLUMNS: [&str; 4] = ["Type", "Name", "fastpath_tx_access", "fastpath_rx_access"];
/// The end of a title.
const TITLE: &str = "fast path usage breakdown";

/// Returns whether a text has such a table.
pub(super) fn is(text: &str) -> bool {
    text.lines().any(|line| columns(line).is_some())
}

/// The begins of the columns that are read: name, transmission, reception, and the column behind.
type Columns = [usize; 4];

/// Returns the columns of the table whose header this line is.
fn columns(line: &str) -> Option<Columns> {
    let mut starts = words(line);
    let mut next = |wanted: &str| starts.next().filter(|(_, word)| *word == wanted);
    next(COLUMNS[0])?;
    let [name, tx, rx] = [next(COLUMNS[1])?.0, next(COLUMNS[2])?.0, next(COLUMNS[3])?.0];
    let after = starts.next().map_or(usize::MAX, |(start, _)| start);
    Some([name, tx, rx, after])
}

/// Returns the words of a line, and the column in which each begins.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut column = 0;
    let mut rest = line;
    std::iter::from_fn(move || {
        let trimmed = rest.trim_start();
        column += rest[..rest.len() - trimmed.len()].chars().count();
        let end = trimmed.find(char::is_whitespace).unwrap_or(trimmed.len());
        let (word, left) = trimmed.split_at(end);
        let start = column;
        column += word.chars().count();
        rest = left;
        (!word.is_empty()).then_some((start, word))
    })
}

/// The table of one type.
#[derive(Default)]
struct Table {
    name: String,
    /// The accesses of transmission and of reception.
    paths: [Vec<Access>; 2],
    line: usize,
}

pub(super) fn parse(text: &str, source: &str, known: &Known<'_>) -> Result<Profile, Error> {
    let mut tables: Vec<Table> = Vec::new();
    let (mut title, mut inside): (Option<&str>, Option<Columns>) = (None, None);
    for (number, line) in text.lines().enumerate() {
        if let Some(before) = line.trim_end().strip_suffix(TITLE) {
            (title, inside) = (before.split_whitespace().next(), None);
        } else if let Some(columns) = columns(line) {
            let name = title.unwrap_or_default().to_owned();
            tables.push(Table { name, line: number + 1, ..Table::default() });
            inside = Some(columns);
        } else if let (Some(columns), Some(table)) = (inside, tables.last_mut()) {
            row(line, columns, table)
                .map_err(|error| error.within(format_args!("line {}", number + 1)))?;
        }
    }
    for (index, table) in tables.iter().enumerate() {
        if tables[..index].iter().any(|before| before.name == table.name) {
            return Err(Error::new(format!("a second table of {:?}", table.name))
                .within(format_args!("line {}", table.line))
                .advise("keep one"));
        }
    }
    let types = tables.into_iter().map(|table| of_type(table, known));
    let types = types.collect::<Result<Vec<TypeProfile>, Error>>()?;
    Ok(Profile { source: source.to_owned(), types, ..Profile::default() })
}

fn row(line: &str, [name, tx, rx, after]: Columns, table: &mut Table) -> Result<(), Error> {
    let mut words = words(line).peekable();
    let Some(&(_, first)) = words.peek() else { return Ok(()) };
    if first.bytes().all(|byte| byte == b'=') {
        return Ok(());
    }
    let mut cells: [&str; 3] = [""; 3];
    for (start, word) in words {
        let cell = match start {
            _ if start >= after => break,
            _ if start >= rx => &mut cells[2],
            _ if start >= tx => &mut cells[1],
            _ if start >= name => &mut cells[0],
            _ => continue,
        };
        if cell.is_empty() {
            *cell = word;
        }
    }
    let field = cells[0].split('[').next().unwrap_or_default();
    // The old tables began with the type itself: `..struct  ..tcp_sock`.
    if first.starts_with("..") && field.starts_with("..") {
        if table.name.is_empty() {
            table.name = field.trim_start_matches('.').to_owned();
        }
        return Ok(());
    }
    for (cell, path) in cells[1..].iter().zip(&mut table.paths) {
        let kinds: &[Kind] = match *cell {
            "" | "-" => &[],
            "read_mostly" | "read" => &[Kind::Load],
            "read_write" => &[Kind::Load, Kind::Store],
            "write_mostly" | "write" => &[Kind::Store],
            other => {
                return Err(Error::new(format!("the access of {field:?} is {other:?}"))
                    .advise("write read_mostly, read_write, write_mostly or leave it out"));
            }
        };
        for &kind in kinds {
            path.push(Access { field: field.to_owned(), kind, times: 1.0 });
        }
    }
    Ok(())
}

fn of_type(table: Table, known: &Known<'_>) -> Result<TypeProfile, Error> {
    let Table { name, mut paths, line } = table;
    if name.is_empty() {
        return Err(Error::new("the table has no title")
            .within(format_args!("line {line}"))
            .advise(format!("put `TYPE struct {TITLE}` above it")));
    }
    let touched = paths.iter().any(|path| !path.is_empty());
    if let Some(types) = known.types
        && let Some((_, id)) = named(types).into_iter().find(|(named, _)| *named == name)
    {
        for path in &mut paths {
            path.retain(|access| find(types, id, &access.field).is_some());
        }
    }
    let mut roles: Vec<Role> = ["tx", "rx"]
        .into_iter()
        .zip(paths)
        .filter(|(_, accesses)| !accesses.is_empty())
        .map(|(role, accesses)| Role::supposed(role, 0.5, accesses))
        .collect();
    if let [only] = &mut roles[..] {
        only.share = 1.0;
    }
    if roles.is_empty() {
        let error = Error::new(format!("the table of {name} begins here and names no field"));
        let advice = if touched {
            "the type at hand has none of those that the fast path touches"
        } else {
            "the columns of access hold read_mostly or read_write"
        };
        return Err(error.within(format_args!("line {line}")).advise(advice));
    }
    Ok(TypeProfile { name, instances: Instances::Shared, roles })
}
