//! The pieces of a record that an order arranges: free ones, and ones that stay in place.

use ledgerline_layout::Error;
use ledgerline_layout::align;
use ledgerline_layout::leaf::{self, Expand, bits_of, name_of, opens, start_of};
use ledgerline_layout::model::{Kind, Member, Record, Role, Type, TypeId, Types};
use ledgerline_layout::pick::advise_field;

use crate::uses;

/// Records with more members are not ordered.
const MOST_PIECES: usize = 2000;

/// Records with more bytes are not ordered.
const LARGEST: u64 = 1 << 30;

/// Members that lie together in every order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its members, in order.
    pub fields: Vec<Field>,
    /// Its first byte today.
    pub offset: u64,
    /// In bytes.
    pub size: u64,
    /// Its offset is a multiple of this.
    pub align: u64,
    /// The reason if it stays in place.
    pub held: Option<Held>,
}

/// A declaration in a [`Piece`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name; the member of an opened member has the path, like `memory.usage`.
    pub name: String,
    /// Its type.
    pub ty: TypeId,
    /// Its first bit, from the start of the piece.
    pub start: u64,
    /// How many bits, if it is a bitfield.
    pub bits: Option<u64>,
}

/// The reason why a piece stays in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The user asked for it.
    Asked,
    /// A record that begins the record: code may use the address of one for the other.
    First,
    /// A base class or the pointer to the table of virtual functions, which the compiler places.
    Compiler,
    /// An array without a length: it comes last.
    Last,
}

/// The pieces of a record by today's offsets, and the members that belong to none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// By offset.
    pub list: Vec<Piece>,
    /// Members without a size, markers and padding, which an order does not need.
    pub dropped: Vec<String>,
    /// The record's size.
    pub size: u64,
    /// The record's alignment.
    pub align: u64,
}

/// Members that may not move, and members that may be taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freedom {
    /// Fields that stay where they are.
    pub pinned: Vec<String>,
    /// Members that are records whose own members may move.
    pub opened: Vec<String>,
    /// Whether a record that begins the record may move.
    pub first: bool,
}

impl Piece {
    /// Returns the name of its first field, which stands for the piece.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.fields[0].name
    }

    /// Returns the byte after its last.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

impl Pieces {
    /// Takes a record apart.
    ///
    /// # Errors
    /// If the record has no order, like a union or a Rust enum, or lacks a field to pin or a member to open.
    pub fn of(types: &Types, id: TypeId, name: &str, freedom: &Freedom) -> Result<Pieces, Error> {
        let Some((id, record)) = leaf::record(types, id) else {
            return Err(Error::new(format!("{name} has no members to order")));
        };
        if !matches!(record.kind, Kind::Struct | Kind::Class) {
            let kind = leaf::keyword(record.kind);
            let error = Error::new(format!("{name} is a {kind}: its members share their bytes"));
            return Err(error.advise("advise the structure that contains it"));
        }
        let mut taken = Taken { types, freedom, record, list: Vec::new(), dropped: Vec::new() };
        let mut opened = Vec::new();
        taken.members(record, 0, "", &mut opened);
        for wanted in &freedom.opened {
            if !opened.contains(wanted) {
                let error =
                    Error::new(format!("{name} has no member {wanted:?} that can be opened"));
                return Err(error.advise("name a member that is a structure"));
            }
        }
        let Taken { mut list, dropped, .. } = taken;
        if list.len() > MOST_PIECES {
            let error = Error::new(format!("{name} has {} members to order", list.len()));
            return Err(error.advise(format!("at most {MOST_PIECES} can be")));
        }
        let size = record.size;
        if size > LARGEST {
            let error = Error::new(format!("{name} has {size} bytes"));
            return Err(error.advise(format!("types of up to {LARGEST} are ordered")));
        }
        if list.iter().any(|piece| piece.end() > size) {
            let error = Error::new(format!("{name} has {size} bytes, and members beyond them"));
            return Err(error.advise("its debug information is damaged: compile it again"));
        }
        align_starts(&mut list);
        for pinned in &freedom.pinned {
            let Some(spot) = uses::find(types, id, pinned) else {
                let error = Error::new(format!("{name} has no field {pinned:?} to pin"));
                return Err(advise_field(error, types, id, pinned));
            };
            for piece in &mut list {
                if piece.offset <= spot.offset && spot.offset < piece.end() {
                    piece.held = Some(Held::Asked);
                }
            }
        }
        Ok(Pieces { list, dropped, size, align: record.align.bytes().clamp(1, 1 << 20) })
    }

    /// Returns the piece that contains a byte of today's layout.
    #[must_use]
    pub fn at(&self, offset: u64) -> Option<usize> {
        let flexible = |piece: &Piece| piece.held == Some(Held::Last) && piece.offset <= offset;
        self.list
            .iter()
            .position(|piece| (piece.offset <= offset && offset < piece.end()) || flexible(piece))
    }

    /// Returns the piece of a byte of today's layout and the offset in it; the first piece if none contains it.
    pub(crate) fn holds(&self, offset: u64) -> (usize, u64) {
        let piece = self.at(offset).unwrap_or(0);
        (piece, offset.saturating_sub(self.list[piece].offset))
    }
}

struct Taken<'t> {
    types: &'t Types,
    freedom: &'t Freedom,
    record: &'t Record,
    list: Vec<Piece>,
    dropped: Vec<String>,
}

impl Taken<'_> {
    fn members(&mut self, record: &Record, base: u64, prefix: &str, opened: &mut Vec<String>) {
        let last = record.members.len().saturating_sub(1);
        for (index, member) in record.members.iter().enumerate() {
            let name = format!("{prefix}{}", uses::clean(&self.name(member)));
            let start = base.saturating_add(start_of(member));
            let inner = leaf::record(self.types, member.ty).map(|(_, inner)| inner);
            if let Some(inner) = inner.filter(|_| self.freedom.opened.contains(&name))
                && matches!(inner.kind, Kind::Struct | Kind::Class)
                && !opened.contains(&name)
            {
                opened.push(name.clone());
                self.members(inner, start, &format!("{name}."), opened);
                continue;
            }
            self.member(member, name, base, index == last && prefix.is_empty());
        }
    }

    /// Returns a member's name. An anonymous member is named after its contents.
    fn name(&self, member: &Member) -> String {
        let name = name_of(self.types, member);
        if !name.is_empty() {
            return name.to_owned();
        }
        let Some((id, record)) = leaf::record(self.types, member.ty) else { return String::new() };
        let leaves = leaf::leaves(self.types, id, Expand::Anonymous);
        let mut names: Vec<&str> = leaves.iter().take(3).map(|leaf| leaf.path.as_str()).collect();
        if leaves.len() > names.len() {
            names.push("...");
        }
        format!("{} {{{}}}", leaf::keyword(record.kind), names.join(", "))
    }

    fn member(&mut self, member: &Member, name: String, base: u64, last: bool) {
        let start = base.saturating_add(start_of(member));
        let bits = bits_of(self.types, member);
        let ty = self.types.get(self.types.resolve(member.ty));
        let nowhere = member.role == (Role::VirtualBase { known: false });
        if nowhere || (bits == 0 && !(last && matches!(ty, Type::Array { .. }))) {
            self.dropped.push(name);
            return;
        }
        let unit = (base / 8).saturating_add(member.offset);
        let wide = member.align.or_else(|| align::of(self.types, member.ty)).unwrap_or(1);
        // A packed record ignores the alignment of its members' types.
        let packed = unit > 0 && !unit.is_multiple_of(wide.max(1));
        let align = if packed { 1 << unit.trailing_zeros() } else { wide.max(1) };
        let align = align.min(self.record.align.bytes().max(1)).min(1 << 12);
        let field = Field { name, ty: member.ty, start, bits: member.bits.map(|_| bits) };
        if let Some(before) = self.list.last_mut() {
            let run =
                member.bits.is_some() && before.fields.last().is_some_and(|f| f.bits.is_some());
            let shares = start < before.end().saturating_mul(8)
                || (member.bits.is_some() && unit < before.end())
                || (run && unit <= before.end());
            if shares && bits > 0 {
                let from = before.offset.saturating_mul(8);
                let end = start.saturating_add(bits).div_ceil(8);
                before.size = before.size.max(end - before.offset);
                before.align = before.align.max(align);
                before.fields.push(Field { start: start - from, ..field });
                return;
            }
        }
        let offset = start / 8;
        let held = match member.role {
            Role::Field if bits == 0 => Some(Held::Last),
            Role::Field if offset == 0 && !self.freedom.first => {
                let proper = opens(self.types, member, Expand::All).is_some();
                (proper && member.bits.is_none()).then_some(Held::First)
            }
            Role::Field => None,
            _ => Some(Held::Compiler),
        };
        let size = (start % 8).saturating_add(bits).div_ceil(8);
        let field = Field { start: start % 8, ..field };
        self.list.push(Piece { fields: vec![field], offset, size, align, held });
    }
}

/// Joins bits whose unit begins in a byte of the member before with that member, so that the piece begins at the start
/// of the unit.
fn align_starts(list: &mut Vec<Piece>) {
    let mut index = 1;
    while index < list.len() {
        let piece = &list[index];
        let bits = piece.fields.iter().any(|field| field.bits.is_some());
        if bits && !piece.offset.is_multiple_of(piece.align) {
            let piece = list.remove(index);
            let before = &mut list[index - 1];
            let shift = (piece.offset - before.offset) * 8;
            before.size = piece.end() - before.offset;
            before.align = before.align.max(piece.align);
            before.held = before.held.or(piece.held);
            let moved = piece.fields.into_iter();
            before.fields.extend(moved.map(|field| Field { start: field.start + shift, ..field }));
            index = index.max(2) - 1;
        } else {
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests;
