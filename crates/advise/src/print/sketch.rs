//! The proposed order as a declaration, to be copied with an eye on it.

use std::fmt::Write;

use ledgerline_layout::leaf::keyword;
use ledgerline_layout::leaf::record;
use ledgerline_layout::model::{Kind, Type, TypeId, Types};
use ledgerline_layout::spell::spell;

use crate::advice::{Advice, Proposal};
use crate::pieces::Field;

/// In which language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C and C++.
    C,
    /// Rust, `repr(C)`: of other types the compiler chooses the order.
    Rust,
}

impl Language {
    /// The language of a type, by the names of its members' types.
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
            // The kernel has types of these names, but they are typedefs there.
            let base = matches!(types.get(field.ty), Type::Base { .. });
            (base && OF_RUST.contains(&bare)) || spelled.starts_with("core::")
        });
        if rust { Language::Rust } else { Language::C }
    }
}

/// The record with its members in the proposed order, and where lines begin.
#[must_use]
pub fn sketch(types: &Types, id: TypeId, advice: &Advice, language: Language) -> String {
    let Some(proposal) = &advice.proposal else { return String::new() };
    let mut sketch =
        Sketch { types, advice, proposal, language, out: String::new(), end: 0, gaps: 0 };
    sketch.write(id);
    sketch.out
}

struct Sketch<'a> {
    types: &'a Types,
    advice: &'a Advice,
    proposal: &'a Proposal,
    language: Language,
    out: String,
    /// Behind what was declared.
    end: u64,
    gaps: usize,
}

impl Sketch<'_> {
    fn write(&mut self, id: TypeId) {
        let class = record(self.types, id).is_some_and(|(_, record)| record.kind == Kind::Class);
        let kind = keyword(if class { Kind::Class } else { Kind::Struct });
        let name = self.advice.name.rsplit("::").next().unwrap_or_default().to_owned();
        match self.language {
            Language::C => self.line(&format!("{kind} {name} {{")),
            Language::Rust => {
                let align = self.proposal.align;
                let more = if align >= 64 { format!(", align({align})") } else { String::new() };
                self.line(&format!("#[repr(C{more})]"));
                self.line(&format!("struct {name} {{"));
            }
        }
        let mut line = None;
        for &index in &self.proposal.order {
            let offset = self.proposal.offsets[index];
            if line != Some(offset / 64) {
                line = Some(offset / 64);
                let pair = if offset.is_multiple_of(128) { ", begins a pair" } else { "" };
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
        if begins > 1 && offset.is_multiple_of(begins) && self.language == Language::C {
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
        let touched: f64 = (self.advice.uses.spots.iter().enumerate())
            .filter(|(_, spot)| self.advice.pieces.at(spot.offset) == Some(index))
            .map(|(spot, _)| {
                let (reads, writes) = self.advice.uses.rates(spot);
                reads + writes
            })
            .sum();
        let mut bit = 0;
        for (at, field) in piece.fields.iter().enumerate() {
            if let Some(bits) = field.bits {
                // Bits that today's declaration leaves out between two fields.
                if field.start > bit && at > 0 && field.start / 8 < bit.div_ceil(8) {
                    let unnamed = Field { name: String::new(), ..field.clone() };
                    let text = self.declared(&unnamed, Some(field.start - bit), None);
                    self.line(&format!("    {text}"));
                }
                bit = field.start + bits;
            }
            let text = self.declared(field, field.bits, aligned.filter(|_| at == 0));
            let note = match (touched > 0.0, self.language) {
                (true, _) => String::new(),
                (false, Language::C) => "  /* untouched */".to_owned(),
                (false, Language::Rust) => "  // untouched".to_owned(),
            };
            self.line(&format!("    {text}{note}"));
        }
        self.end = offset + piece.size;
    }

    fn declared(&self, field: &Field, bits: Option<u64>, aligned: Option<u64>) -> String {
        let mut spelled = spell(self.types, field.ty).to_string();
        if self.language == Language::C && self.to_declared(field.ty) && !spelled.contains("::") {
            spelled.insert_str(0, "struct ");
        }
        let name = field.name.rsplit('.').next().unwrap_or_default();
        if self.language == Language::Rust {
            return format!("{name}: {spelled},");
        }
        let anonymous = name.contains('{');
        let (ty, dimensions) = match spelled.find('[') {
            Some(at) => spelled.split_at(at),
            None => (&*spelled, ""),
        };
        let space = if ty.ends_with('*') { "" } else { " " };
        let mut text = if anonymous {
            field.name.clone()
        } else if dimensions.is_empty() && self.flexible(field.ty) {
            format!("{ty}{space}{name}[]")
        } else {
            format!("{ty}{space}{name}{dimensions}")
        };
        if let Some(bits) = bits {
            let _ = write!(text, " : {bits}");
        }
        if let Some(bytes) = aligned {
            let _ = write!(text, " __attribute__((aligned({bytes})))");
        }
        text.push(';');
        text
    }

    /// Whether it is a pointer to what the file only declares: the keyword is not known, most are structures.
    fn to_declared(&self, ty: TypeId) -> bool {
        match self.types.get(ty) {
            Type::Pointer { to: Some(to) } => {
                matches!(self.types.get(*to), Type::Declaration { .. })
            }
            _ => false,
        }
    }

    fn flexible(&self, ty: TypeId) -> bool {
        matches!(self.types.get(self.types.resolve(ty)), Type::Array { count: None, .. })
    }
}
