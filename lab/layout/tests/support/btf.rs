//! Writes BTF by the kernel's documentation of the format, so that tests know the expected types.

/// Puts BTF together, type by type.
#[derive(Clone)]
pub struct Writer {
    pub big: bool,
    pub types: Vec<u8>,
    pub names: Vec<u8>,
    /// The start of this part's own names in the text of names.
    pub names_start: u32,
    pub next: u32,
}

/// A member: `(name, type, place)`.
pub type Member<'a> = (&'a str, u32, u32);

pub const SIGNED: u32 = 1 << 24;

impl Writer {
    pub fn new() -> Writer {
        Writer { big: false, types: Vec::new(), names: vec![0], names_start: 0, next: 1 }
    }

    pub fn big_endian() -> Writer {
        Writer { big: true, ..Writer::new() }
    }

    /// Returns a writer that continues `base`.
    pub fn split(base: &Writer) -> Writer {
        let names_start = base.names.len() as u32;
        Writer { big: base.big, types: Vec::new(), names: Vec::new(), names_start, next: base.next }
    }

    pub fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.names_start + self.names.len() as u32;
        self.names.extend(name.bytes().chain([0]));
        at
    }

    pub fn word(&mut self, word: u32) {
        let bytes = if self.big { word.to_be_bytes() } else { word.to_le_bytes() };
        self.types.extend(bytes);
    }

    /// Writes the three words that every type begins with; returns the number of the type.
    pub fn common(&mut self, name: &str, kind: u32, flag: bool, parts: usize, third: u32) -> u32 {
        let name = self.name(name);
        self.word(name);
        self.word(u32::from(flag) << 31 | kind << 24 | parts as u32);
        self.word(third);
        self.next += 1;
        self.next - 1
    }

    pub fn int(&mut self, name: &str, size: u32) -> u32 {
        self.narrow_int(name, size, 0, 8 * size)
    }

    pub fn narrow_int(&mut self, name: &str, size: u32, offset: u32, bits: u32) -> u32 {
        let number = self.common(name, 1, false, 0, size);
        self.word(SIGNED | offset << 16 | bits);
        number
    }

    pub fn pointer(&mut self, to: u32) -> u32 {
        self.common("", 2, false, 0, to)
    }

    pub fn array(&mut self, element: u32, count: u32) -> u32 {
        let number = self.common("", 3, false, 0, 0);
        self.word(element);
        self.word(element);
        self.word(count);
        number
    }

    fn record(&mut self, kind: u32, name: &str, size: u32, flag: bool, members: &[Member]) -> u32 {
        let number = self.common(name, kind, flag, members.len(), size);
        for &(name, ty, place) in members {
            let name = self.name(name);
            self.word(name);
            self.word(ty);
            self.word(place);
        }
        number
    }

    /// Writes a structure. Places are bits from the start.
    pub fn structure(&mut self, name: &str, size: u32, members: &[Member]) -> u32 {
        self.record(4, name, size, false, members)
    }

    /// Writes a structure with bitfields. Places are widths and bits from the start, as [`field`] makes them.
    pub fn structure_of_fields(&mut self, name: &str, size: u32, members: &[Member]) -> u32 {
        self.record(4, name, size, true, members)
    }

    pub fn union(&mut self, name: &str, size: u32, members: &[Member]) -> u32 {
        self.record(5, name, size, false, members)
    }

    pub fn enumeration(&mut self, name: &str, size: u32, values: &[(&str, u32)]) -> u32 {
        let number = self.common(name, 6, false, values.len(), size);
        for &(name, value) in values {
            let name = self.name(name);
            self.word(name);
            self.word(value);
        }
        number
    }

    pub fn enumeration64(&mut self, name: &str, values: &[(&str, u64)]) -> u32 {
        let number = self.common(name, 19, false, values.len(), 8);
        for &(name, value) in values {
            let name = self.name(name);
            self.word(name);
            self.word(value as u32);
            self.word((value >> 32) as u32);
        }
        number
    }

    /// Writes a type of a kind that adds nothing: 7 to 12, 16, 18.
    pub fn plain(&mut self, kind: u32, name: &str, third: u32) -> u32 {
        self.common(name, kind, false, 0, third)
    }

    pub fn prototype(&mut self, result: u32, parameters: &[(&str, u32)]) -> u32 {
        let number = self.common("", 13, false, parameters.len(), result);
        for &(name, ty) in parameters {
            let name = self.name(name);
            self.word(name);
            self.word(ty);
        }
        number
    }

    pub fn variable(&mut self, name: &str, ty: u32) -> u32 {
        let number = self.common(name, 14, false, 0, ty);
        self.word(1);
        number
    }

    pub fn section(&mut self, name: &str, variable: u32, size: u32) -> u32 {
        let number = self.common(name, 15, false, 1, size);
        self.word(variable);
        self.word(0);
        self.word(size);
        number
    }

    pub fn declaration_tag(&mut self, name: &str, ty: u32, component: u32) -> u32 {
        let number = self.common(name, 17, false, 0, ty);
        self.word(component);
        number
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes_with(&[], 24)
    }

    /// Returns the bytes, with the layouts of kinds (bytes once, bytes for each part) and a header that is longer
    /// than it must be.
    pub fn bytes_with(&self, layouts: &[(u8, u8)], header: usize) -> Vec<u8> {
        let (types, names) = (self.types.len() as u32, self.names.len() as u32);
        let short =
            |number: u16| if self.big { number.to_be_bytes() } else { number.to_le_bytes() };
        let long = |number: u32| if self.big { number.to_be_bytes() } else { number.to_le_bytes() };
        let mut bytes = short(0xeb9f).to_vec();
        bytes.extend([1, 0]);
        let layouts_length = 4 * layouts.len() as u32;
        let places = [header as u32, 0, types, types, names, types + names, layouts_length];
        bytes.extend(places.into_iter().flat_map(long));
        bytes.resize(header, 0);
        bytes.extend(&self.types);
        bytes.extend(&self.names);
        bytes.extend(layouts.iter().flat_map(|&(once, each)| [once, each, 0, 0]));
        bytes
    }
}

/// Returns the place of a bitfield: its start and its width.
pub fn field(start: u32, width: u32) -> u32 {
    width << 24 | start
}

/// Writes one of everything, with bitfields of both encodings.
pub fn one_of_each(mut writer: Writer) -> Writer {
    let w = &mut writer;
    let int = w.int("int", 4);
    let long = w.int("long int", 8);
    let byte = w.int("unsigned char", 1);
    let list = w.next + 1;
    let to_list = w.pointer(list);
    w.structure("list_head", 16, &[("next", to_list, 0), ("prev", to_list, 64)]);
    let words = w.array(long, 3);
    let flexible = w.array(byte, 0);
    let color = w.enumeration("color", 4, &[("RED", 0), ("BLUE", 7)]);
    let wide = w.enumeration64("wide", &[("HUGE", 1 << 40)]);
    let forward = w.plain(7, "secret", 0);
    let to_forward = w.pointer(forward);
    let typedef = w.plain(8, "word_t", long);
    let volatile = w.plain(9, "", typedef);
    let constant = w.plain(10, "", volatile);
    let restrict = w.plain(11, "", to_forward);
    let prototype = w.prototype(int, &[("a", int), ("b", long)]);
    let to_function = w.pointer(prototype);
    w.plain(12, "main", prototype);
    let variable = w.variable("jiffies", long);
    w.section(".data", variable, 8);
    let double = w.common("double", 16, false, 0, 8);
    w.declaration_tag("kind", list, u32::MAX);
    let tag = w.plain(18, "user", int);
    let to_user = w.pointer(tag);
    let to_void = w.pointer(0);
    let either =
        w.union("", 8, &[("number", long, 0), ("real", double, 0), ("bytes", flexible, 0)]);
    w.structure(
        "all",
        136,
        &[
            ("words", words, 0),
            ("color", color, 192),
            ("wide", wide, 256),
            ("constant", constant, 320),
            ("restrict", restrict, 384),
            ("call", to_function, 448),
            ("user", to_user, 512),
            ("anything", to_void, 576),
            ("", either, 640),
            ("list", list, 704),
            ("nothing", flexible, 832),
            ("tagged", tag, 832),
            ("double", double, 896),
            ("byte", byte, 960),
            ("tail", flexible, 968),
        ],
    );
    w.structure_of_fields(
        "fields",
        24,
        &[
            ("before", byte, field(0, 0)),
            ("a", int, field(8, 3)),
            ("b", int, field(11, 21)),
            ("c", color, field(32, 4)),
            ("d", typedef, field(64, 40)),
            ("e", byte, field(104, 1)),
            ("after", int, field(128, 0)),
        ],
    );
    let three_bits = w.narrow_int("int", 4, 0, 3);
    let middle = w.narrow_int("int", 4, 5, 6);
    let narrow = w.plain(8, "narrow_t", three_bits);
    w.structure("old_fields", 8, &[("a", narrow, 0), ("b", middle, 0), ("c", three_bits, 35)]);
    writer
}
