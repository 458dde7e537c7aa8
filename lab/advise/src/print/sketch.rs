//! Prints the proposed order as a declaration, to copy and to check.

use std::fmt::Write;

use ledgerline_layout::align;
use ledgerline_layout::leaf::{keyword, name_of, record};
use ledgerline_layout::lines::Lines;
use ledgerline_layout::model::{Kind, Role, Type, TypeId, Types};
use ledgerline_layout::spell::{declare, spell};

use crate::advice::{Advice, Proposal};
use crate::pieces::Field;
use crate::uses;

/// The language of a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C and C++.
    C,
    /// Rust, `repr(C)`. The compiler chooses the order of other types.
    Rust,
}

impl Language {
    /// Guesses the language of a type from the names of its members' types.
    #[must_use]
    pub fn of(types: &Types, advice: &Advice) -> Language {
        const OF_RUST: [&str; 15] = [
            "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize",
            "f32", "f64", "&str",
        ];
        let fields = advice.pieces.list.iter().flat_map(|piece| &piece.fields);
        let rust = fields.into_iter().any(|field| {
            let spelled = spell(types, field.ty).to_string();
            let bare = spelled.split('[').next().unwrap_or_default().trim();
            // The kernel has types of these names, but as typedefs.
            let base = matches!(types.get(field.ty), Type::Base { .. });
            (base && OF_RUST.contains(&bare)) || spelled.starts_with("core::")
        });
        if rust { Language::Rust } else { Language::C }
    }
}

/// Returns the record with its members in the proposed order, and marks the begins of lines.
#[must_use]
pub fn sketch(types: &Types, id: TypeId, advice: &Advice, language: Language) -> String {
    let Some(proposal) = &advice.proposal else { return String::new() };
    let mut sketch = Sketch {
        types,
        advice,
        proposal,
        language,
        out: String::new(),
        end: 0,
        gaps: 0,
        after_bits: false,
        placed: placed(types, id),
    };
    sketch.write(id);
    sketch.out
}

struct Sketch<'a> {
    types: &'a Types,
    advice: &'a Advice,
    proposal: &'a Proposal,
    language: Language,
    out: String,
    /// The end of the declared members.
    end: u64,
    gaps: usize,
    /// Whether the last member was a bitfield.
    after_bits: bool,
    /// The members that a C++ compiler places itself, by name.
    placed: Vec<(String, Role)>,
}

/// Returns the bases, and the pointer to the table of virtual functions.
fn placed(types: &Types, id: TypeId) -> Vec<(String, Role)> {
    let members = record(types, id).into_iter().flat_map(|(_, record)| &record.members);
    let placed = members.filter(|member| {
        matches!(member.role, Role::Base | Role::VirtualBase { .. } | Role::VirtualTable)
    });
    placed.map(|member| (uses::clean(name_of(types, member)), member.role)).collect()
}

/// Splits a C++ name into the name without its namespaces and classes, and its template arguments.
fn parts(name: &str) -> (&str, &str) {
    let (mut depth, mut start, mut arguments) = (0usize, 0, name.len());
    for (at, character) in name.char_indices() {
        match character {
            '<' => {
                if depth == 0 {
                    arguments = at;
                }
                depth += 1;
            }
            '>' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => (start, arguments) = (at + 1, name.len()),
            _ => {}
        }
    }
    (&name[start..arguments], &name[arguments..])
}

impl Sketch<'_> {
    fn write(&mut self, id: TypeId) {
        let class = record(self.types, id).is_some_and(|(_, record)| record.kind == Kind::Class);
        let kind = keyword(if class { Kind::Class } else { Kind::Struct });
        let (name, arguments) = parts(&self.advice.name);
        match self.language {
            Language::C => {
                let bases = self.bases();
                let of_cpp =
                    class || !self.placed.is_empty() || self.advice.name.contains([':', '<']);
                if of_cpp {
                    self.line("/* A sketch: members alone. Functions, access and initial values are as in the source. */");
                }
                if !arguments.is_empty() {
                    self.line("template <>");
                }
                self.line(&format!("{kind} {name}{arguments}{bases} {{"));
                if class {
                    self.line("public:");
                }
            }
            Language::Rust => {
                let align = self.proposal.align;
                let more = if align >= 64 { format!(", align({align})") } else { String::new() };
                self.line(&format!("#[repr(C{more})]"));
                self.line(&format!("struct {name} {{"));
            }
        }
        if self.placed.iter().any(|(_, role)| *role == Role::VirtualTable) {
            self.line(&format!(
                "    virtual ~{name}();  /* and the class's other virtual functions */"
            ));
        }
        let mut line = None;
        for &index in &self.proposal.order {
            let offset = self.proposal.offsets[index];
            if line != Some(offset / 64) {
                line = Some(offset / 64);
                let begins = offset.is_multiple_of(128) && self.proposal.place.base >= 128;
                let pair = if begins { ", begins a pair" } else { "" };
                self.line(&format!("    /* line {}{pair} */", offset / 64));
            }
            self.piece(index, offset);
        }
        self.line(match self.language {
            Language::C => "};",
            Language::Rust => "}",
        });
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn piece(&mut self, index: usize, offset: u64) {
        let piece = &self.advice.pieces.list[index];
        let natural = self.end.next_multiple_of(piece.align);
        let begins = self.proposal.begins[index];
        let mut aligned = None;
        let first = piece.fields.first().and_then(|field| self.role(field));
        if let Some(role) = first {
            // The compiler places this piece.
            let what = match role {
                Role::VirtualTable => "the pointer to its virtual functions".to_owned(),
                _ => piece.fields[0].name.clone(),
            };
            self.line(&format!("    /* {} bytes: {what} */", piece.size));
        } else if begins > 1 && offset.is_multiple_of(begins) && self.language == Language::C {
            aligned = Some(begins);
        } else if natural != offset && offset > self.end {
            let bytes = offset - self.end;
            self.gaps += 1;
            let gap = match self.language {
                Language::C => format!("    char gap{}[{bytes}];", self.gaps),
                Language::Rust => format!("    gap{}: [u8; {bytes}],", self.gaps),
            };
            self.line(&gap);
        }
        let Advice { uses, pieces, .. } = self.advice;
        let touched = (0..uses.spots.len()).any(|spot| {
            let (reads, writes) = uses.rates(spot);
            reads + writes > 0.0 && pieces.at(uses.spots[spot].offset) == Some(index)
        });
        // Bits follow directly on bits before them, unless a unit is closed.
        let bits_first = piece.fields.first().is_some_and(|field| field.bits.is_some());
        let widest = piece.fields.iter().filter(|field| field.bits.is_some());
        let widest = widest.max_by_key(|field| align::of(self.types, field.ty));
        let begun = widest.filter(|_| bits_first).map(|field| field.ty);
        if let Some(ty) = begun.filter(|_| self.end != offset || self.after_bits) {
            self.unnamed(ty, 0);
        }
        let mut bit = 0;
        for (at, field) in piece.fields.iter().enumerate() {
            if self.role(field).is_some() {
                continue;
            }
            match field.bits {
                Some(bits) => {
                    let unit = 8 * self.types.size(field.ty).unwrap_or(1).max(1);
                    let fits = bit / unit == (bit + bits.max(1) - 1) / unit;
                    let natural = if fits { bit } else { bit.next_multiple_of(unit) };
                    if natural < field.start && field.start.is_multiple_of(unit) {
                        self.unnamed(field.ty, 0);
                    } else if natural < field.start {
                        self.unnamed(field.ty, (field.start - natural).min(unit));
                    }
                    bit = field.start + bits;
                }
                None => {
                    let size = self.types.size(field.ty).unwrap_or(0);
                    bit = field.start.saturating_add(size.saturating_mul(8));
                }
            }
            self.after_bits = field.bits.is_some();
            // The alignment that the member itself was declared with.
            let natural = align::of(self.types, field.ty).unwrap_or(1);
            let own = Some(piece.align).filter(|&own| own > natural && field.bits.is_none());
            let asked = aligned.max(own).filter(|_| at == 0);
            let mut text = self.declared(field, field.bits, asked);
            let packed = piece.fields.len() == 1 && piece.align < natural;
            if packed && self.language == Language::C {
                text.insert_str(text.len() - 1, " __attribute__((packed))");
            }
            let remark = |said: String| match self.language {
                Language::C => format!("  /* {said} */"),
                Language::Rust => format!("  // {said}"),
            };
            let note = if touched { String::new() } else { remark("untouched".to_owned()) };
            let bytes = self.types.size(field.ty).filter(|_| field.bits.is_none()).unwrap_or(0);
            let start = offset + field.start / 8;
            let straddles = if Lines::of(64).straddles(start, bytes) {
                remark(format!("straddles, to line {}", (start + bytes - 1) / 64))
            } else {
                String::new()
            };
            self.line(&format!("    {text}{straddles}{note}"));
        }
        self.end = offset + piece.size;
    }

    /// Returns the role of a field that the compiler places; `None` for a field that is declared.
    fn role(&self, field: &Field) -> Option<Role> {
        self.placed.iter().find(|(name, _)| *name == field.name).map(|(_, role)| *role)
    }

    /// Returns the bases as a declaration names them. A base that was taken apart is left out, since the order has its
    /// members.
    fn bases(&self) -> String {
        let fields = |name: &str| {
            let mut fields = self.advice.pieces.list.iter().flat_map(|piece| &piece.fields);
            fields.any(|field| field.name == name)
                || self.advice.pieces.dropped.iter().any(|of| of == name)
        };
        let bases = self.placed.iter().filter(|(name, _)| fields(name));
        let bases: Vec<String> = bases
            .filter_map(|(name, role)| match role {
                Role::Base => Some(format!("public {name}")),
                Role::VirtualBase { .. } => Some(format!("public virtual {name}")),
                _ => None,
            })
            .collect();
        if bases.is_empty() { String::new() } else { format!(" : {}", bases.join(", ")) }
    }

    /// Writes bits without a name; zero bits close the unit.
    fn unnamed(&mut self, ty: TypeId, bits: u64) {
        self.line(&format!("    {} : {bits};", spell(self.types, ty)));
    }

    fn declared(&self, field: &Field, bits: Option<u64>, aligned: Option<u64>) -> String {
        let name = field.name.rsplit('.').next().unwrap_or_default();
        if self.language == Language::Rust {
            return format!("{name}: {},", spell(self.types, field.ty));
        }
        let anonymous = name.contains('{');
        let mut text =
            if anonymous { field.name.clone() } else { declare(self.types, field.ty, name) };
        if let Some(bits) = bits {
            let _ = write!(text, " : {bits}");
        }
        if let Some(bytes) = aligned {
            let _ = write!(text, " __attribute__((aligned({bytes})))");
        }
        text.push(';');
        text
    }
}
