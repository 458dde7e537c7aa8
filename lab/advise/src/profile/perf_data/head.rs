//! The head of a file: where its records lie, and the events that they are of.
//!
//! A file has a header with the places of its sections. What was written into a pipe has only a magic number and a
//! size; the events come as records.

use std::io::{Read, Seek, SeekFrom};

use ledgerline_layout::Error;

use super::bytes::{Bytes, Order};
use super::event::{Event, Events};

/// The size that the header of a pipe has, and that of a file.
const OF_PIPE: u64 = 16;
const OF_FILE: usize = 104;
/// Events are described in no more bytes, their numbers and their names in no more.
const LARGEST: u64 = 16 << 20;
/// The section that has the names of events, by its number.
pub(super) const NAMES: u64 = 12;

/// How many bytes of records follow from where the file was left. `None` where all that follows is records: in a pipe, or a
/// file whose writer was killed before it knew.
pub(super) type Records = Option<u64>;

/// Which order of bytes a file's first eight say; `None` for another file.
pub(super) fn order(magic: &[u8]) -> Option<Order> {
    match magic {
        b"PERFILE2" => Some(Order::Little),
        b"2ELIFREP" => Some(Order::Big),
        _ => None,
    }
}

/// Reads the head behind the magic number, and leaves the file where its records begin.
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
        // Where the sections of what else a file says begin and end is written behind its records.
        let at = data.start.checked_add(data.size).and_then(|end| end.checked_add(16 * index));
        let at = at.ok_or_else(|| Error::new("its header says that it is longer than any file"))?;
        // A file without names can be read, as long as samples say what they are.
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
    // Several events may say that their numbers lie in the same place.
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

/// The numbers that bytes are.
pub(super) fn numbers(bytes: &[u8], order: Order) -> impl Iterator<Item = u64> {
    let mut at = Bytes::new(bytes, order);
    std::iter::from_fn(move || at.u64())
}

/// Reads the section of names: how many events, the size of a description, and for each event its description, how
/// many numbers it has, its name and the numbers. What is cut off stays without a name.
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

/// The how manieth section is that of a feature, among those that a file has.
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
    /// Its bytes, of which no more are asked for than the file has.
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
