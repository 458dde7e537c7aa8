//! The head of a file: the place of its records, and their events.
//!
//! A file has a header with the places of its sections. A pipe has only a magic number and a size; its events come as
//! records.

use std::io::{Read, Seek, SeekFrom};

use ledgerline_layout::Error;

use super::bytes::{Bytes, Order};
use super::event::{Event, Events};

/// The size of a pipe's header, and of a file's.
const OF_PIPE: u64 = 16;
const OF_FILE: usize = 104;
/// The largest size of the events' descriptions, of their numbers and of their names.
const LARGEST: u64 = 16 << 20;
/// The number of the section with the names of events.
pub(super) const NAMES: u64 = 12;

/// The number of bytes of records that follow the file's position. `None` if all of the rest are records: in a pipe, or
/// in a file whose writer was killed before it wrote the size.
pub(super) type Records = Option<u64>;

/// Returns the byte order that the first eight bytes of a file give; `None` for another file.
pub(super) fn order(magic: &[u8]) -> Option<Order> {
    match magic {
        b"PERFILE2" => Some(Order::Little),
        b"2ELIFREP" => Some(Order::Big),
        _ => None,
    }
}

/// Reads the head behind the magic number, and leaves the file at the first record.
pub(super) fn read(
    file: &mut (impl Read + Seek),
    order: Order,
    events: &mut Events,
) -> Result<Records, Error> {
    let mut head = [0; OF_FILE];
    file.read_exact(&mut head[8..16]).map_err(|error| cut("its header", &error))?;
    let size = Bytes::new(&head[8..], order).u64();
    if size == Some(OF_PIPE) {
        return Ok(None);
    }
    file.read_exact(&mut head[16..]).map_err(|error| cut("its header", &error))?;
    let mut at = Bytes::new(&head[16..], order);
    let mut number = || at.u64().unwrap_or_default();
    let of_event = number();
    let [described, data, _] = [(); 3].map(|()| Section { start: number(), size: number() });
    let features = [(); 4].map(|()| number());
    read_events(file, order, of_event, described, events)?;
    if let Some(index) = place_of(NAMES, &features) {
        // The table of the other sections is behind the records.
        let at = data.start.checked_add(data.size).and_then(|end| end.checked_add(16 * index));
        let at = at.ok_or_else(|| Error::new("its header says that it is longer than any file"))?;
        // A file without names can be read if its samples have their kinds.
        if let Ok(table) = (Section { start: at, size: 16 }).read(file, "its sections")
            && let mut table = Bytes::new(&table, order)
            && let (Some(start), Some(size)) = (table.u64(), table.u64())
            && let Ok(bytes) = (Section { start, size }).read(file, "the names of its events")
        {
            name(Bytes::new(&bytes, order), events);
        }
    }
    file.seek(SeekFrom::Start(data.start)).map_err(|error| cut("its records", &error))?;
    Ok(Some(data.size).filter(|&size| size > 0))
}

/// Reads the descriptions of events. Each ends with the place of the numbers by which samples name it.
fn read_events(
    file: &mut (impl Read + Seek),
    order: Order,
    of_event: u64,
    described: Section,
    events: &mut Events,
) -> Result<(), Error> {
    let wrong = || Error::new("the descriptions of its events make no sense");
    let bytes = described.read(file, "the descriptions of its events")?;
    let each = usize::try_from(of_event).ok().filter(|&each| each >= 64 + 16).ok_or_else(wrong)?;
    // Several events may claim the same place for their numbers, so the sum is limited.
    let mut room = LARGEST;
    for bytes in bytes.chunks_exact(each) {
        let (described, ids) = bytes.split_at(each - 16);
        let event = Event::read(described, order).ok_or_else(wrong)?;
        let mut ids = Bytes::new(ids, order);
        let section = Section { start: ids.u64().unwrap_or(0), size: ids.u64().unwrap_or(0) };
        room = room.checked_sub(section.size).ok_or_else(wrong)?;
        let ids = section.read(file, "the numbers of its events")?;
        events.add(event, numbers(&ids, order)).ok_or_else(wrong)?;
    }
    Ok(())
}

/// Returns the numbers in these bytes.
pub(super) fn numbers(bytes: &[u8], order: Order) -> impl Iterator<Item = u64> {
    let mut at = Bytes::new(bytes, order);
    std::iter::from_fn(move || at.u64())
}

/// Reads the section of names: the number of events, the size of a description, and for each event its description, the
/// number of its numbers, its name and the numbers. Events behind a truncation have no name.
pub(super) fn name(mut at: Bytes<'_>, events: &mut Events) -> Option<()> {
    let (count, size) = (at.u32()?, at.u32()?);
    for index in 0..count {
        at.skip(1, size.into())?;
        let (ids, length) = (at.u32()?, at.u32()?);
        let text = at.take(length.into())?;
        at.skip(ids.into(), 8)?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        events.name(index as usize, &String::from_utf8_lossy(&text[..end]));
    }
    Some(())
}

/// Returns the index of a feature's section among those that a file has.
fn place_of(feature: u64, features: &[u64; 4]) -> Option<u64> {
    let has = |feature: u64| features[feature as usize / 64] >> (feature % 64) & 1 == 1;
    has(feature).then(|| (0..feature).filter(|&before| has(before)).count() as u64)
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
struct Section {
    start: u64,
    size: u64,
}

impl Section {
    /// Returns its bytes. Allocates no more than the file has.
    fn read(self, file: &mut (impl Read + Seek), what: &str) -> Result<Vec<u8>, Error> {
        if self.size > LARGEST {
            return Err(Error::new(format!("{what} would be {} bytes", self.size)));
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.start)).map_err(|error| cut(what, &error))?;
        let read = file.by_ref().take(self.size).read_to_end(&mut bytes);
        read.map_err(|error| cut(what, &error))?;
        if (bytes.len() as u64) < self.size {
            return Err(Error::new(format!("{what} are cut off")));
        }
        Ok(bytes)
    }
}

fn cut(what: &str, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::new(format!("{what} is cut off")),
        _ => Error::new(format!("{what} cannot be read ({error})")),
    }
}
