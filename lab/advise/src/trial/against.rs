//! Reads the orders to try: today's, the one that advice proposes, and those in files.
//!
//! | content | format |
//! |---|---|
//! | names of members, one a line; `64` or `128` behind a name makes it begin a line, or a pair of lines | text |
//! | `ledgerline layout advise --json` | text that begins with `{` |
//! | another build, in which the type has been changed | any other file with debug information |

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::advice::Proposal;
use crate::cost::{PAIR, Place};
use crate::given::{self, Declared, Given};
use crate::pieces::{Freedom, Pieces};
use crate::profile::{Instances, TypeProfile};
use crate::uses::Uses;
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::{Error, leaf, open_named, pick};
use serde::Deserialize;

use crate::trial::Order;

/// The largest size of a written order.
const LARGEST_TEXT: u64 = 8 << 20;
/// The largest offset of a member.
const LARGEST_TYPE: u64 = 1 << 30;

/// A type whose order is tried.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The types of its file.
    pub types: &'a Types,
    /// The type.
    pub id: TypeId,
    /// Its profile.
    pub profile: &'a TypeProfile,
    /// The profile's accesses, resolved in the type.
    pub uses: &'a Uses,
    /// Its objects begin at multiples of this, if given.
    pub base: Option<u64>,
}

impl Subject<'_> {
    /// Returns today's order.
    #[must_use]
    pub fn today(&self) -> Order {
        order_of(self.types, self.id, self.uses, self.base)
    }

    /// Reads the order of a file.
    ///
    /// # Errors
    /// If the file cannot be read, or lacks the places of the type's members.
    pub fn read(&self, path: &Path) -> Result<Order, Error> {
        let order = match text_of(path).map_err(|error| error.in_file(path))? {
            Some(text) if text.trim_start().starts_with('{') => self.advised(&text),
            Some(text) => self.listed(&text),
            None => return self.rebuilt(path),
        };
        order.map_err(|error| error.in_file(path))
    }

    fn pieces(&self, names: impl Iterator<Item = String>) -> Result<Pieces, Error> {
        // `memory.usage` moves on its own, so `memory` is taken apart.
        let mut opened = Vec::new();
        for name in names.filter(|name| !name.contains('{')) {
            for (at, _) in name.match_indices('.') {
                let member = name[..at].to_owned();
                if !opened.contains(&member) {
                    opened.push(member);
                }
            }
        }
        let freedom = Freedom { opened, ..Freedom::default() };
        Pieces::of(self.types, self.id, &self.profile.name, &freedom)
    }

    fn listed(&self, text: &str) -> Result<Order, Error> {
        let declared = declared(text);
        if declared.is_empty() {
            let error = Error::new("it names no member");
            return Err(error.advise("name the members in their order, one a line"));
        }
        let pieces = self.pieces(declared.iter().map(|declared| declared.name.clone()))?;
        let Given { size, place } =
            given::lay(&pieces, self.uses, self.today().place.base, &declared)?;
        Ok(Order { size, place })
    }

    fn advised(&self, text: &str) -> Result<Order, Error> {
        let advice: Advised = serde_json::from_str(text).map_err(|error| {
            let error = Error::new(format!("this is no advice: {error}"));
            error.advise("write it by `ledgerline layout advise --json`")
        })?;
        if advice.name != self.profile.name {
            let (name, other) = (&self.profile.name, &advice.name);
            return Err(Error::new(format!("it is about {other}, not about {name}")));
        }
        let Some(proposal) = advice.proposal else {
            return Err(Error::new("this advice proposes nothing").advise("leave --against out"));
        };
        let pieces = self.pieces(proposal.members.iter().map(|member| member.name.clone()))?;
        let mut offsets = Vec::with_capacity(self.uses.spots.len());
        for spot in &self.uses.spots {
            let piece = pieces.at(spot.offset).map(|index| &pieces.list[index]);
            let member = piece.and_then(|piece| {
                let here = |member: &&Member| member.name == piece.name();
                proposal.members.iter().find(here).filter(|member| member.was == piece.offset)
            });
            let Some(member) = member.filter(|member| member.offset < LARGEST_TYPE) else {
                let error = Error::new(format!("it does not say where {} lies", spot.path));
                return Err(error.advise("it is advice about another build: write it again"));
            };
            offsets.push(member.offset + (spot.offset - member.was));
        }
        let today = self.today().place.base;
        let base = if proposal.align > pieces.align { today.max(proposal.align) } else { today };
        let size = proposal.size.min(LARGEST_TYPE);
        let row = self.uses.instances.row();
        let row = row.map(|row| row.of_size(pieces.size, size, proposal.align));
        Ok(Order { size, place: Place { offsets, base, row } })
    }

    fn rebuilt(&self, path: &Path) -> Result<Order, Error> {
        let name = &self.profile.name;
        let build = open_named(path, std::slice::from_ref(name))?;
        let picked = pick::pick(&build.types, std::slice::from_ref(name));
        let picked = picked.map_err(|error| error.in_file(path))?;
        let Some(&(_, id)) = picked.iter().find(|(other, _)| other == name) else {
            return Err(Error::new(format!("there is no type {name:?}")).in_file(path));
        };
        // The row is left out here: its stride is derived from today's below.
        let alone = TypeProfile { instances: Instances::PerCpu, ..self.profile.clone() };
        let uses = Uses::resolve(&build.types, id, &alone);
        let mut uses = uses.map_err(|error| error.in_file(path))?;
        uses.instances = self.profile.instances;
        let mut order = order_of(&build.types, id, &uses, self.base);
        let align = leaf::record(&build.types, id).map_or(1, |(_, record)| record.align.bytes());
        let row = order.place.row;
        order.place.row = row.map(|row| row.of_size(self.today().size, order.size, align));
        Ok(order)
    }
}

impl From<&Proposal> for Order {
    fn from(proposal: &Proposal) -> Order {
        Order { size: proposal.size, place: proposal.place.clone() }
    }
}

/// Returns the places of a type's fields in a build.
fn order_of(types: &Types, id: TypeId, uses: &Uses, base: Option<u64>) -> Order {
    let record = leaf::record(types, id).map(|(_, record)| record);
    let (size, align) = record.map_or((0, 1), |record| (record.size, record.align.bytes()));
    let place = Place::of(uses).based(base);
    Order { size, place: Place { base: place.base.max(align.clamp(1, PAIR)), ..place } }
}

/// Reads a file that is text; `None` for any other.
fn text_of(path: &Path) -> Result<Option<String>, Error> {
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(LARGEST_TEXT + 1).read_to_end(&mut bytes))
        .map_err(|error| Error::new(error.to_string()))?;
    if read as u64 > LARGEST_TEXT || bytes.contains(&0) {
        return Ok(None);
    }
    Ok(String::from_utf8(bytes).ok())
}

/// Parses members, one a line. `#` begins a comment.
fn declared(text: &str) -> Vec<Declared> {
    let of = |line: &str| {
        let line = line.split('#').next().unwrap_or("").trim();
        let (name, begins) = match line.rsplit_once(char::is_whitespace) {
            Some((name, "64")) => (name.trim_end(), 64),
            Some((name, "128")) => (name.trim_end(), 128),
            _ => (line, 1),
        };
        (!name.is_empty()).then(|| Declared { name: name.to_owned(), begins })
    };
    text.lines().filter_map(of).collect()
}

/// The parts of the advice that are needed.
#[derive(Deserialize)]
struct Advised {
    name: String,
    proposal: Option<AdvisedOrder>,
}

#[derive(Deserialize)]
struct AdvisedOrder {
    size: u64,
    align: u64,
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    name: String,
    offset: u64,
    was: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_one_a_line_with_what_they_begin() {
        let text = "# what is read\nmax\nusage 64  # alone\n\n  parent\t128\nunion {a, b}\n";
        let read = declared(text);
        let read: Vec<_> = read.iter().map(|of| (of.name.as_str(), of.begins)).collect();
        assert_eq!(read, [("max", 1), ("usage", 64), ("parent", 128), ("union {a, b}", 1)]);
    }
}
