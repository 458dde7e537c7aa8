//! Placement of fields on lines, and the number of instances of each object.
//!
//! ```
//! use ledgerline_coherence::layout::{Layout, Scope};
//! let mut layout = Layout::new();
//! let counter = layout.object("page_counter", Scope::Machine);
//! let usage = layout.field(counter, "usage", 0);
//! let max = layout.field(counter, "max", 32);
//! let parent = layout.field(counter, "parent", 104);
//! assert!(layout.share_a_line(usage, max));
//! assert!(!layout.share_a_line(usage, parent) && layout.share_a_pair(usage, parent));
//! ```

use std::collections::{BTreeMap, HashMap};

use crate::machine::Topology;

/// Bytes of a line.
pub const LINE: u64 = 64;
/// Bytes of a pair of lines that a prefetcher completes.
pub const PAIR: u64 = 128;

/// An object of a [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(u16);

/// A field of a [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldId(u16);

impl FieldId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn from_index(index: usize) -> FieldId {
        FieldId(u16::try_from(index).expect("no layout has that many fields"))
    }
}

/// The instances of an object, and the CPUs that use each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// There is one instance, in the first socket's memory.
    Machine,
    /// Each socket has an instance in its memory, which the socket's CPUs use.
    Socket,
    /// Each CPU has an instance.
    Cpu,
    /// There are this many instances, and the CPUs take them in turn.
    Groups(usize),
    /// Each CPU has an instance. They lie in a row, this many bytes from the start of one to the start of the next,
    /// so instances of CPUs that follow each other may share lines.
    Row(u64),
}

#[derive(Clone, Debug)]
struct Object {
    name: String,
    scope: Scope,
    /// Its first byte, from the start of a pair of lines.
    begins: u64,
}

#[derive(Clone, Debug)]
struct Field {
    object: ObjectId,
    name: String,
    /// Bytes from the start of the pair in which its object begins.
    position: u64,
}

/// Objects, and fields at offsets in them.
///
/// Different objects never share a pair of lines. Different instances of one object do so only in a [`Scope::Row`]. A
/// field belongs to the line of its first byte.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    objects: Vec<Object>,
    fields: Vec<Field>,
}

impl Layout {
    /// Returns a layout without objects.
    #[must_use]
    pub fn new() -> Layout {
        Layout::default()
    }

    /// Adds an object that begins a pair of lines.
    pub fn object(&mut self, name: &str, scope: Scope) -> ObjectId {
        self.object_at(name, scope, 0)
    }

    /// Adds an object that begins `begins` bytes into a pair of lines.
    ///
    /// # Panics
    /// If `begins` is 128 or more, if the scope has no groups, or beyond 65 535 objects.
    pub fn object_at(&mut self, name: &str, scope: Scope, begins: u64) -> ObjectId {
        assert!(begins < PAIR, "an object begins within a pair of lines");
        assert!(scope != Scope::Groups(0), "an object of no groups does not exist");
        self.objects.push(Object { name: name.to_owned(), scope, begins });
        ObjectId(u16::try_from(self.objects.len() - 1).expect("at most 65 535 objects"))
    }

    /// Adds a field to an object, `offset` bytes from the object's first byte.
    ///
    /// # Panics
    /// Beyond 65 535 fields.
    pub fn field(&mut self, object: ObjectId, name: &str, offset: u64) -> FieldId {
        let position = self.objects[usize::from(object.0)].begins + offset;
        self.fields.push(Field { object, name: name.to_owned(), position });
        FieldId(u16::try_from(self.fields.len() - 1).expect("at most 65 535 fields"))
    }

    /// Returns a field's name behind that of its object, as `object.field`.
    #[must_use]
    pub fn name(&self, field: FieldId) -> String {
        let field = &self.fields[field.index()];
        format!("{}.{}", self.objects[usize::from(field.object.0)].name, field.name)
    }

    /// Returns the number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns whether the layout has no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns whether two fields of an instance lie on one line.
    #[must_use]
    pub fn share_a_line(&self, one: FieldId, other: FieldId) -> bool {
        self.line_key(one) == self.line_key(other)
    }

    /// Returns whether two fields of an instance lie on one pair of lines.
    #[must_use]
    pub fn share_a_pair(&self, one: FieldId, other: FieldId) -> bool {
        let pair = |(object, line): (ObjectId, u64)| (object, line / 2);
        pair(self.line_key(one)) == pair(self.line_key(other))
    }

    /// Returns the object of a field, and the number of the field's line in it.
    pub(crate) fn line_key(&self, field: FieldId) -> (ObjectId, u64) {
        let field = &self.fields[field.index()];
        (field.object, field.position / LINE)
    }

    pub(crate) fn scope(&self, field: FieldId) -> Scope {
        self.objects[usize::from(self.fields[field.index()].object.0)].scope
    }
}

/// A line of one instance of an object.
#[derive(Clone, Debug)]
pub(crate) struct PlacedLine {
    /// The socket that the memory belongs to.
    pub home: usize,
    /// The other line of its pair, if any field lies there.
    pub neighbour: Option<u32>,
    /// Any field that lies on it, as its name.
    pub field: FieldId,
    /// The one CPU that uses it, if the scope has one instance a CPU.
    pub cpu: Option<u32>,
}

/// The lines of an instance or of a row of instances, by their number from its first pair on.
type Numbers = BTreeMap<u64, u32>;

/// A layout placed on a machine: for each field and CPU, the line and the slot that holds the value.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    pub lines: Vec<PlacedLine>,
    pub slots: usize,
    cpus: usize,
    line_of: Vec<u32>,
    slot_of: Vec<u32>,
}

impl Placement {
    pub(crate) fn new(layout: &Layout, topology: &Topology, cpus: usize) -> Placement {
        let fields = layout.fields.len();
        let mut placement = Placement {
            lines: Vec::new(),
            slots: 0,
            cpus,
            line_of: vec![0; fields * cpus],
            slot_of: vec![0; fields * cpus],
        };
        for object in 0..layout.objects.len() {
            let id = ObjectId(object as u16);
            let scope = layout.objects[object].scope;
            let members: Vec<usize> =
                (0..fields).filter(|&field| layout.fields[field].object == id).collect();
            let instance = |cpu: usize| match scope {
                Scope::Machine => 0,
                Scope::Socket => topology.socket(cpu),
                Scope::Cpu | Scope::Row(_) => cpu,
                Scope::Groups(groups) => cpu % groups,
            };
            // The CPUs come in order. The first that uses an instance, or a line of a row, decides its home.
            let mut placed: HashMap<usize, (Vec<u32>, u32)> = HashMap::new();
            let mut numbers = Numbers::new();
            for cpu in 0..cpus {
                let (lines, slots) = placed.entry(instance(cpu)).or_insert_with(|| {
                    let home = if scope == Scope::Machine { 0 } else { topology.socket(cpu) };
                    let owner = (scope == Scope::Cpu).then_some(cpu as u32);
                    let start = match scope {
                        Scope::Row(stride) => stride.saturating_mul(cpu as u64),
                        // Its lines belong to no other instance.
                        _ => {
                            numbers.clear();
                            0
                        }
                    };
                    placement.place(layout, &members, (home, owner), start, &mut numbers)
                });
                for (member, &field) in members.iter().enumerate() {
                    placement.line_of[field * cpus + cpu] = lines[member];
                    placement.slot_of[field * cpus + cpu] = *slots + member as u32;
                }
            }
        }
        placement
    }

    /// Makes the slots of an instance that begins at `start`, and the lines that `numbers` lacks. Returns the line of
    /// each member, and the first slot.
    fn place(
        &mut self,
        layout: &Layout,
        members: &[usize],
        (home, cpu): (usize, Option<u32>),
        start: u64,
        numbers: &mut Numbers,
    ) -> (Vec<u32>, u32) {
        let lines = members
            .iter()
            .map(|&field| {
                let number = (start + layout.fields[field].position) / LINE;
                if let Some(&line) = numbers.get(&number) {
                    return line;
                }
                let line = self.lines.len() as u32;
                let neighbour = numbers.get(&(number ^ 1)).copied();
                if let Some(neighbour) = neighbour {
                    self.lines[neighbour as usize].neighbour = Some(line);
                }
                let field = FieldId::from_index(field);
                self.lines.push(PlacedLine { home, neighbour, field, cpu });
                numbers.insert(number, line);
                line
            })
            .collect();
        let first = self.slots as u32;
        self.slots += members.len();
        (lines, first)
    }

    pub(crate) fn line(&self, field: FieldId, cpu: u32) -> usize {
        self.line_of[field.index() * self.cpus + cpu as usize] as usize
    }

    pub(crate) fn slot(&self, field: FieldId, cpu: u32) -> usize {
        self.slot_of[field.index() * self.cpus + cpu as usize] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn instances_in_a_row_share_lines_as_an_array_does() {
        let topology = Machine::built_in("haswell-ep-2699v3").unwrap().topology;
        for (stride, begins) in
            [(8, 0), (40, 0), (40, 16), (64, 0), (64, 24), (72, 8), (128, 0), (200, 96)]
        {
            let mut layout = Layout::new();
            let object = layout.object_at("object", Scope::Row(stride), begins);
            let offsets = [0, stride / 2, stride - 1];
            let fields = offsets.map(|offset| layout.field(object, "field", offset));
            let placement = Placement::new(&layout, &topology, 9);
            let mut seen: Vec<(u64, usize)> = Vec::new();
            let mut slots = std::collections::BTreeSet::new();
            for cpu in 0..9u32 {
                for (field, offset) in fields.iter().zip(offsets) {
                    let number = (begins + u64::from(cpu) * stride + offset) / LINE;
                    let line = placement.line(*field, cpu);
                    for &(other, of) in &seen {
                        assert_eq!(line == of, number == other, "{stride} {begins} {cpu} {offset}");
                        let pair = placement.lines[line].neighbour == Some(of as u32);
                        assert_eq!(pair, number == other ^ 1, "{stride} {begins} {cpu} {offset}");
                    }
                    seen.push((number, line));
                    // A line may be shared; a value never is.
                    assert!(slots.insert(placement.slot(*field, cpu)));
                }
            }
        }
    }
}
