//! Walks over a unit's entries in one pass, without recursion.
//!
//! Entries form a tree, and a stack of [`Frame`]s holds those above the current one. Types may be anywhere in the
//! tree, in namespaces, classes and functions, so the walk leaves no entry out. For entries that are not types it
//! reads only the length.

use super::Slice;
use super::attributes::{Attributes, Said};
use super::parsed::{File, Parsed, ParsedMember, ParsedType, Reference, Shape};
use super::unit::{Split, Tables, Unit, UnitAt, Universe};
use crate::Error;
use crate::leaf::keyword;
use crate::model::{Kind, Role};
use gimli::{Abbreviation, DwTag, EntriesRaw, UnitOffset};

/// The owner of an entry's children.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Owner {
    #[default]
    Nothing,
    /// Members, bases and variants of this type.
    Record(u32),
    /// The discriminant of variants, and the variants.
    VariantPart(u32),
    Variant(u32),
    /// Dimensions of this array; the second number is their start in the walk's list.
    Array(u32, usize),
    /// Parameters of this type of function.
    Function(u32),
}

/// An entry whose children are being read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frame {
    owner: Owner,
    scope: u32,
    /// The function that is the innermost scope, until the name is needed for a type within it.
    function: Option<UnitOffset>,
}

/// Reads the types of a unit; also returns the place of the rest of the unit, if this is only its skeleton.
pub(super) fn walk<'a>(
    at: UnitAt<'_, 'a>,
    universe: &Universe<'_, 'a>,
    tables: &mut Tables,
) -> Result<(Parsed<'a>, Option<Split<'a>>), Error> {
    let unit = Unit::new(at, universe, tables)?;
    if unit.split.is_some() {
        return Ok((Parsed::new(), unit.split));
    }
    let mut walk = Walk::new(&unit);
    let mut entries = unit.entries(None)?;
    while !entries.is_empty() {
        let offset = entries.next_offset();
        match entries.read_abbreviation().map_err(|error| unit.broken(error))? {
            Some(abbreviation) => walk.entry(&mut entries, offset, abbreviation)?,
            None => walk.leave(),
        }
    }
    while !walk.frames.is_empty() {
        walk.leave();
    }
    Ok((walk.parsed(|| unit.files())?, None))
}

/// Returns whether the language is C, in which a structure is known by its name, wherever it is declared.
pub(super) fn is_c(language: u16) -> bool {
    let languages = [
        gimli::DW_LANG_C89,
        gimli::DW_LANG_C,
        gimli::DW_LANG_C99,
        gimli::DW_LANG_C11,
        gimli::DW_LANG_C17,
        gimli::DW_LANG_ObjC,
        gimli::DW_LANG_Mips_Assembler,
    ];
    // gimli has no name for C23 yet.
    language == 0x3e || languages.iter().any(|known| known.0 == language)
}

pub(super) fn is_rust(language: u16) -> bool {
    language == gimli::DW_LANG_Rust.0
}

fn is_c_plus_plus(language: u16) -> bool {
    let languages = [
        gimli::DW_LANG_C_plus_plus,
        gimli::DW_LANG_C_plus_plus_03,
        gimli::DW_LANG_C_plus_plus_11,
        gimli::DW_LANG_C_plus_plus_14,
        gimli::DW_LANG_C_plus_plus_17,
        gimli::DW_LANG_C_plus_plus_20,
        gimli::DW_LANG_ObjC_plus_plus,
    ];
    language == 0x3a || languages.iter().any(|known| known.0 == language)
}

/// Returns whether arrays of the language begin at 1 by default.
fn is_from_one(language: u16) -> bool {
    let language = gimli::DwLang(language);
    // gimli does not know the bound of this one yet.
    language == gimli::DW_LANG_Fortran18 || language.default_lower_bound() == Some(1)
}

pub(super) struct Walk<'u, 'a> {
    unit: &'u Unit<'u, 'a>,
    parsed: Parsed<'a>,
    pub(super) frames: Vec<Frame>,
    /// The dimensions read so far, of the arrays whose dimensions are being read.
    dimensions: Vec<(Option<u64>, Option<u64>)>,
    /// Whether a type's name includes its namespaces and classes.
    qualify: bool,
    /// Whether the name includes its functions.
    functions: bool,
    /// Whether variants are Rust's.
    rust: bool,
    first_index: i128,
}

impl<'u, 'a> Walk<'u, 'a> {
    /// Returns a walk that has read no entry.
    pub(super) fn new(unit: &'u Unit<'u, 'a>) -> Walk<'u, 'a> {
        Walk {
            qualify: !is_c(unit.language),
            functions: is_c_plus_plus(unit.language),
            first_index: if is_from_one(unit.language) { 1 } else { 0 },
            rust: is_rust(unit.language),
            unit,
            parsed: Parsed::new(),
            frames: Vec::new(),
            dimensions: Vec::new(),
        }
    }

    /// Returns the types. `files` supplies the source files if a type names one.
    pub(super) fn parsed(
        self,
        files: impl FnOnce() -> Result<Vec<File<'a>>, Error>,
    ) -> Result<Parsed<'a>, Error> {
        let mut parsed = self.parsed;
        parsed.group_members();
        if parsed.types.iter().any(|ty| ty.place.0 != 0) {
            parsed.files = files()?;
            for ty in &mut parsed.types {
                if ty.place.0 as usize >= parsed.files.len() {
                    ty.place.0 = 0;
                }
            }
        }
        Ok(parsed)
    }

    /// Returns the number of types read so far.
    pub(super) fn types(&self) -> usize {
        self.parsed.types.len()
    }

    /// Turns a type that was read into a declaration, unless it stands for another.
    pub(super) fn declare(&mut self, index: usize, keyword: &'static str) {
        let shape = &mut self.parsed.types[index].shape;
        if *shape != Shape::Alias {
            *shape = Shape::Declaration(keyword);
        }
    }

    /// Reads an entry, after its abbreviation. If it has children, it becomes the innermost frame.
    pub(super) fn entry(
        &mut self,
        entries: &mut EntriesRaw<'_, Slice<'a>>,
        offset: UnitOffset,
        abbreviation: &Abbreviation,
    ) -> Result<(), Error> {
        let mut frame = self.frames.last().copied().unwrap_or_default();
        let owner = std::mem::take(&mut frame.owner);
        let tag = abbreviation.tag();
        if !concerns(tag) && !matches!((owner, tag), (Owner::Function(_), FORMAL_PARAMETER)) {
            entries
                .skip_attributes(abbreviation.attributes())
                .map_err(|error| self.unit.broken(error))?;
            if tag == gimli::DW_TAG_subprogram && self.functions {
                frame.function = Some(offset);
            }
            if let (Owner::Function(function), gimli::DW_TAG_unspecified_parameters) = (owner, tag)
            {
                self.parsed.types[function as usize].shape = Shape::Function { variadic: true };
            }
        } else {
            let says = Attributes::read(self.unit, entries, abbreviation)?;
            self.refers(says.to);
            self.refers(says.specification);
            self.refers(says.signature);
            match tag {
                gimli::DW_TAG_namespace | gimli::DW_TAG_module if self.qualify => {
                    let name =
                        if says.name.is_empty() { b"(anonymous namespace)" } else { says.name };
                    frame.scope = self.parsed.scope(frame.scope, name, Reference::NONE);
                }
                gimli::DW_TAG_namespace | gimli::DW_TAG_module => {}
                gimli::DW_TAG_member => self.member(owner, &says),
                FORMAL_PARAMETER => {
                    if let Owner::Function(function) = owner {
                        self.push_member(function, Role::Field, b"", &says);
                    }
                }
                gimli::DW_TAG_inheritance => self.base(owner, &says),
                gimli::DW_TAG_variant_part => {
                    if let Owner::Record(record) = owner {
                        self.parsed.types[record as usize].shape = Shape::Record(Kind::Enum);
                        frame.owner = Owner::VariantPart(record);
                    }
                }
                gimli::DW_TAG_variant => {
                    if let Owner::VariantPart(record) = owner {
                        frame.owner = Owner::Variant(record);
                    }
                }
                _ if is_dimension(tag) && matches!(owner, Owner::Array(..)) => {
                    self.dimension(&says);
                }
                _ => self.ty(tag, offset, &says, &mut frame),
            }
        }
        if abbreviation.has_children() {
            self.frames.push(frame);
        }
        Ok(())
    }

    /// Leaves the innermost frame, whose children have been read.
    pub(super) fn leave(&mut self) {
        if let Some(Frame { owner: Owner::Array(array, start), .. }) = self.frames.pop() {
            self.array(array, start);
        }
    }

    /// Remembers a reference to another unit.
    fn refers(&mut self, to: Reference) {
        if to != Reference::NONE && !self.unit.at.contains(to) {
            self.parsed.outward.push(to);
        }
    }

    fn member(&mut self, owner: Owner, says: &Attributes<'a>) {
        let (owner, role) = match owner {
            Owner::Record(record) if says.artificial && says.name.starts_with(b"_vptr") => {
                (record, Role::VirtualTable)
            }
            Owner::Record(record) => (record, Role::Field),
            Owner::VariantPart(record) => (record, Role::Discriminant),
            Owner::Variant(record) if self.rust => (record, Role::Variant),
            Owner::Variant(record) => (record, Role::Field),
            _ => return,
        };
        if says.is_static() {
            return;
        }
        self.push_member(owner, role, says.name, says);
    }

    fn base(&mut self, owner: Owner, says: &Attributes<'a>) {
        let Owner::Record(record) = owner else { return };
        let role = match says.location {
            Said::Computed => Role::VirtualBase { known: false },
            _ if says.virtual_base => Role::VirtualBase { known: says.location != Said::Missing },
            _ => Role::Base,
        };
        self.push_member(record, role, b"", says);
    }

    fn push_member(&mut self, owner: u32, role: Role, name: &'a [u8], says: &Attributes<'a>) {
        let offset = if let Said::Is(offset) = says.location { offset } else { 0 };
        let (align, rust_align) = if self.rust { (0, says.align) } else { (says.align, 0) };
        self.parsed.members.push(ParsedMember {
            owner,
            role,
            name,
            to: says.to,
            offset,
            bits: says.bits(),
            align,
            rust_align,
        });
    }

    fn dimension(&mut self, says: &Attributes<'a>) {
        let mut count = says.elements();
        if says.count == Said::Missing && says.lower == Said::Missing {
            count = count.map(|count| count.saturating_sub(self.first_index as u64));
        }
        let stride = says.stride.map(|bytes| bytes * 8).or(says.bit_stride);
        self.dimensions.push((count, stride));
    }

    /// Completes an array; one of several dimensions becomes an array of arrays.
    fn array(&mut self, array: u32, start: usize) {
        let mut outer = array as usize;
        for (index, (dimension, stride)) in self.dimensions.drain(start..).enumerate() {
            let next = self.parsed.types.len();
            let ty = &mut self.parsed.types[outer];
            let Shape::Array { count, stride_bits, vector } = &mut ty.shape else { return };
            if index == 0 {
                *count = dimension;
                *stride_bits = stride.or(*stride_bits);
                continue;
            }
            let inner = Shape::Array { count: dimension, stride_bits: stride, vector: *vector };
            let inner = ParsedType { shape: inner, ..ty.clone() };
            ty.to = Reference::index(next as u32);
            outer = next;
            self.parsed.types.push(inner);
        }
    }

    fn ty(&mut self, tag: DwTag, offset: UnitOffset, says: &Attributes<'a>, frame: &mut Frame) {
        let shape = match shape_of(tag).unwrap_or_default() {
            _ if says.signature != Reference::NONE => Shape::Alias,
            shape if says.declaration => Shape::Declaration(match shape {
                Shape::Record(kind) => keyword(kind),
                Shape::Enum => keyword(Kind::Enum),
                _ => "",
            }),
            Shape::Array { .. } => {
                let stride_bits = says.stride.map(|bytes| bytes * 8).or(says.bit_stride);
                Shape::Array { count: None, stride_bits, vector: says.vector }
            }
            Shape::Base
                if tag == gimli::DW_TAG_base_type
                    && says.encoding == u64::from(gimli::DW_ATE_complex_float.0) =>
            {
                Shape::Complex
            }
            shape => shape,
        };
        let to = if shape == Shape::Alias { says.signature } else { says.to };
        let scope = self.scope_of(frame);
        let index = self.parsed.types.len() as u32;
        self.parsed.entries.push((self.unit.at.reference(offset), index));
        self.parsed.types.push(ParsedType {
            shape,
            name: says.name,
            scope,
            place: (self.unit.file_index(says.file), says.line),
            size: says.bytes(),
            align: says.align,
            to,
            specification: says.specification,
            members: (0, 0),
        });
        if shape == Shape::MemberPointer && says.class != Reference::NONE {
            self.refers(says.class);
            let class = Attributes { to: says.class, ..Attributes::default() };
            self.push_member(index, Role::Base, b"", &class);
        }
        match shape {
            Shape::Array { .. } => frame.owner = Owner::Array(index, self.dimensions.len()),
            Shape::Record(_) => frame.owner = Owner::Record(index),
            Shape::Function { .. } => frame.owner = Owner::Function(index),
            _ => {}
        }
        if self.qualify && matches!(shape, Shape::Record(_) | Shape::Declaration(_) | Shape::Alias)
        {
            frame.scope = self.parsed.scope(scope, says.name, says.specification);
        }
    }

    /// Returns the scope of a type below `frame`, with the function that it is local to.
    fn scope_of(&mut self, frame: &mut Frame) -> u32 {
        if let Some(function) = frame.function.take() {
            // This is rare, so the name is read only now.
            if let Ok(mut entries) = self.unit.entries(Some(function))
                && let Ok(Some(abbreviation)) = entries.read_abbreviation()
                && let Ok(says) = Attributes::read(self.unit, &mut entries, abbreviation)
                && !says.name.is_empty()
            {
                frame.scope = self.parsed.scope(frame.scope, says.name, Reference::NONE);
            }
        }
        frame.scope
    }
}

/// The tag of parameters. Only those of function types matter.
pub(super) const FORMAL_PARAMETER: DwTag = gimli::DW_TAG_formal_parameter;

/// Returns whether an entry with this tag is a dimension, if it is in an array.
pub(super) fn is_dimension(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_subrange_type
            | gimli::DW_TAG_generic_subrange
            | gimli::DW_TAG_enumeration_type
    )
}

/// Returns whether the attributes of an entry with this tag matter.
fn concerns(tag: DwTag) -> bool {
    shape_of(tag).is_some()
        || matches!(
            tag,
            gimli::DW_TAG_member
                | gimli::DW_TAG_inheritance
                | gimli::DW_TAG_variant_part
                | gimli::DW_TAG_variant
                | gimli::DW_TAG_namespace
                | gimli::DW_TAG_module
        )
}

/// Returns the sort of type of an entry with this tag; `None` if it is not a type.
pub(super) fn shape_of(tag: DwTag) -> Option<Shape> {
    Some(match tag {
        gimli::DW_TAG_structure_type => Shape::Record(Kind::Struct),
        gimli::DW_TAG_class_type | gimli::DW_TAG_interface_type => Shape::Record(Kind::Class),
        gimli::DW_TAG_union_type => Shape::Record(Kind::Union),
        gimli::DW_TAG_array_type => Shape::Array { count: None, stride_bits: None, vector: false },
        gimli::DW_TAG_ptr_to_member_type => Shape::MemberPointer,
        gimli::DW_TAG_pointer_type => Shape::Pointer,
        gimli::DW_TAG_reference_type => Shape::LvalueReference,
        gimli::DW_TAG_rvalue_reference_type => Shape::RvalueReference,
        gimli::DW_TAG_base_type
        | gimli::DW_TAG_string_type
        | gimli::DW_TAG_set_type
        | gimli::DW_TAG_unspecified_type => Shape::Base,
        gimli::DW_TAG_enumeration_type => Shape::Enum,
        gimli::DW_TAG_typedef | gimli::DW_TAG_template_alias | gimli::DW_TAG_subrange_type => {
            Shape::Typedef
        }
        gimli::DW_TAG_const_type => Shape::Qualified("const"),
        gimli::DW_TAG_volatile_type => Shape::Qualified("volatile"),
        gimli::DW_TAG_restrict_type => Shape::Qualified("restrict"),
        gimli::DW_TAG_atomic_type => Shape::Qualified("_Atomic"),
        gimli::DW_TAG_immutable_type => Shape::Qualified("immutable"),
        gimli::DW_TAG_packed_type => Shape::Qualified("packed"),
        gimli::DW_TAG_shared_type => Shape::Qualified("shared"),
        gimli::DW_TAG_subroutine_type => Shape::Function { variadic: false },
        gimli::DW_TAG_generic_subrange
        | gimli::DW_TAG_file_type
        | gimli::DW_TAG_coarray_type
        | gimli::DW_TAG_dynamic_type => Shape::Unknown,
        _ => return None,
    })
}
