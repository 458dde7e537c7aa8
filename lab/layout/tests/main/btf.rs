//! Checks that BTF reads back as it was written: every kind, both byte orders, and the rest of the format.

use crate::support::btf::{Writer, field, one_of_each};
use ledgerline_layout::btf::{self, Machine};
use ledgerline_layout::model::{Align, Bits, Kind, Name, Record, Type, TypeId, Types};

fn read(writer: &Writer) -> Types {
    btf::read(&writer.bytes(), None).unwrap()
}

fn refused(data: &[u8]) -> String {
    btf::read(data, None).unwrap_err().to_string()
}

fn record<'a>(types: &'a Types, name: &str) -> &'a Record {
    let mut found = types.records().filter(|(_, record)| types.name(record.name) == name);
    let (_, record) = found.next().unwrap_or_else(|| panic!("no record {name}"));
    assert!(found.next().is_none(), "two records {name}");
    record
}

/// Returns `name offset+bit:width size` of each member.
fn places(types: &Types, record: &Record) -> Vec<String> {
    let place = |member: &ledgerline_layout::model::Member| {
        let size = types.size(member.ty).map_or("-".into(), |size| size.to_string());
        match member.bits {
            Some(bits) => {
                format!(
                    "{} {}+{}:{} {size}",
                    types.name(member.name),
                    member.offset,
                    bits.offset,
                    bits.size
                )
            }
            None => format!("{} {} {size}", types.name(member.name), member.offset),
        }
    };
    record.members.iter().map(place).collect()
}

#[test]
fn every_kind_is_read_in_both_byte_orders() {
    for writer in [Writer::new(), Writer::big_endian()] {
        let types = read(&one_of_each(writer));
        assert_eq!(types.pointer_size, 8);
        let all = record(&types, "all");
        assert_eq!((all.kind, all.size, all.align), (Kind::Struct, 136, Align::Inferred(8)));
        assert_eq!(
            places(&types, all),
            [
                "words 0 24",
                "color 24 4",
                "wide 32 8",
                "constant 40 8",
                "restrict 48 8",
                "call 56 8",
                "user 64 8",
                "anything 72 8",
                " 80 8",
                "list 88 16",
                "nothing 104 0",
                "tagged 104 4",
                "double 112 8",
                "byte 120 1",
                "tail 121 -",
            ]
        );
        let of = |name: &str| {
            let member = all.members.iter().find(|member| types.name(member.name) == name).unwrap();
            types.get(member.ty)
        };
        assert!(matches!(of("words"), Type::Array { count: Some(3), .. }));
        assert!(matches!(of("nothing"), Type::Array { count: Some(0), .. }));
        assert!(matches!(of("tail"), Type::Array { count: None, .. }));
        assert!(matches!(of("color"), Type::Enum { size: 4, .. }));
        assert!(matches!(of("wide"), Type::Enum { size: 8, .. }));
        assert!(matches!(of("anything"), Type::Pointer { to: None, .. }));
        assert!(matches!(of("double"), Type::Base { size: 8, .. }));
        let Type::Pointer { to: Some(call), .. } = of("call") else {
            panic!("a pointer to a function")
        };
        assert!(matches!(types.get(*call), Type::Function { .. }));
        // A tagged type stands in the place of its tag, before and behind a pointer.
        let Type::Pointer { to: Some(user), .. } = of("user") else {
            panic!("a pointer to a tagged int")
        };
        assert_eq!(types.get(*user), of("tagged"));
        let Type::Base { name, .. } = of("tagged") else { panic!("a tagged int") };
        assert_eq!(types.name(*name), "int");
        // Qualifiers and typedefs stand one on another.
        let Type::Qualified { qualifier: "const", to: Some(inner) } = of("constant") else {
            panic!("const")
        };
        let Type::Qualified { qualifier: "volatile", to: Some(inner) } = types.get(*inner) else {
            panic!("volatile")
        };
        let Type::Typedef { name, .. } = types.get(*inner) else { panic!("typedef") };
        assert_eq!(types.name(*name), "word_t");
        let Type::Qualified { qualifier: "restrict", to: Some(inner) } = of("restrict") else {
            panic!("restrict")
        };
        let Type::Pointer { to: Some(inner), .. } = types.get(*inner) else { panic!("pointer") };
        assert!(matches!(types.get(*inner), Type::Declaration { .. }));
        // In a union an array of no elements is flexible as well.
        let Type::Record(either) = of("") else { panic!("a union") };
        assert_eq!((either.kind, either.name), (Kind::Union, Name::NONE));
        assert_eq!(places(&types, either), ["number 0 8", "real 0 8", "bytes 0 -"]);
    }
}

#[test]
fn a_bitfield_lies_in_the_unit_that_it_is_declared_with() {
    for writer in [Writer::new(), Writer::big_endian()] {
        let types = read(&one_of_each(writer));
        assert_eq!(
            places(&types, record(&types, "fields")),
            [
                "before 0 1",
                "a 0+8:3 4",
                "b 0+11:21 4",
                "c 4+0:4 4",
                "d 8+0:40 8",
                "e 13+0:1 1",
                "after 16 4"
            ]
        );
        assert_eq!(
            places(&types, record(&types, "old_fields")),
            ["a 0+0:3 4", "b 0+5:6 4", "c 4+3:3 4"],
            "as integers that do not fill their bytes"
        );
    }
}

#[test]
fn a_bitfield_of_a_packed_record_may_cross_into_the_next_unit() {
    let mut w = Writer::new();
    let int = w.int("int", 4);
    w.structure_of_fields("packed", 5, &[("a", int, field(0, 20)), ("b", int, field(20, 20))]);
    let types = read(&w);
    let packed = record(&types, "packed");
    assert_eq!(packed.members[1].offset, 0);
    assert_eq!(packed.members[1].bits, Some(Bits { offset: 20, size: 20 }));
    assert_eq!(packed.align, Align::Inferred(1));
}

#[test]
fn members_come_by_offset_in_structures_and_as_declared_in_unions() {
    let mut w = Writer::new();
    let int = w.int("int", 4);
    w.structure("backwards", 12, &[("c", int, 64), ("a", int, 0), ("b", int, 32)]);
    w.structure_of_fields("bits", 4, &[("y", int, field(8, 2)), ("x", int, field(0, 8))]);
    w.union("either", 8, &[("second", int, 32), ("first", int, 0)]);
    let types = read(&w);
    assert_eq!(places(&types, record(&types, "backwards")), ["a 0 4", "b 4 4", "c 8 4"]);
    assert_eq!(places(&types, record(&types, "bits")), ["x 0+0:8 4", "y 0+8:2 4"]);
    assert_eq!(places(&types, record(&types, "either")), ["second 4 4", "first 0 4"]);
}

#[test]
fn pointers_are_as_large_as_long_unless_the_machine_is_known() {
    let mut w = Writer::new();
    let to_void = w.pointer(0);
    w.structure("node", 4, &[("next", to_void, 0)]);
    w.int("long unsigned int", 4);
    assert_eq!(read(&w).pointer_size, 4);
    let known = Machine { pointer_size: 4, widest_scalar_align: 4 };
    let mut w = Writer::new();
    w.int("long", 8);
    w.int("long long", 8);
    let types = btf::read(&w.bytes(), Some(known)).unwrap();
    assert_eq!((types.pointer_size, types.widest_scalar_align), (4, 4));
    assert_eq!(read(&Writer::new()).pointer_size, 8, "nothing is said of it");
}

#[test]
fn a_module_builds_on_the_types_and_names_of_its_kernel() {
    let base = one_of_each(Writer::new());
    let mut module = Writer::split(&base);
    assert!(!btf::is_split(&base.bytes()));
    let int = 1;
    let list = 5;
    let device = module.structure("device", 24, &[("list", list, 0), ("id", int, 128)]);
    let to_device = module.pointer(device);
    module.structure("holder", 8, &[("device", to_device, 0)]);
    assert!(btf::is_split(&module.bytes()));
    let types = btf::read_split(&base.bytes(), &module.bytes(), None).unwrap();
    let names: Vec<&str> = types.records().map(|(_, record)| types.name(record.name)).collect();
    assert_eq!(names, ["device", "holder"], "the kernel's own are left out");
    let device = record(&types, "device");
    assert_eq!(places(&types, device), ["list 0 16", "id 16 4"]);
    assert_eq!(device.align, Align::Inferred(8));
    let Type::Record(list) = types.get(device.members[0].ty) else { panic!("the kernel's list") };
    assert_eq!(types.name(list.name), "list_head");
    // A module alone cannot be read, and the message names the missing base.
    assert_eq!(
        refused(&module.bytes()),
        "its BTF is a module's, which builds on its kernel's; \
         name the kernel's as its base (/sys/kernel/btf/vmlinux, if that one runs)"
    );
}

#[test]
fn another_kernel_than_its_own_is_refused_as_a_base() {
    let base = one_of_each(Writer::new());
    let mut module = Writer::split(&base);
    module.structure("device", 24, &[("list", 5, 0)]);
    let mut other = Writer::new();
    other.int("int", 4);
    let error = btf::read_split(&other.bytes(), &module.bytes(), None).unwrap_err().to_string();
    assert!(error.contains("name the BTF of the very kernel"), "{error}");
    let other = one_of_each(Writer::big_endian());
    let error = btf::read_split(&other.bytes(), &module.bytes(), None).unwrap_err().to_string();
    assert_eq!(error, "its byte order is not that of its base");
}

#[test]
fn headers_may_grow_and_kinds_whose_extent_the_file_says_are_passed_over() {
    let mut w = one_of_each(Writer::new());
    let int = 1;
    // A future kind has one word, then two bytes for each of two parts.
    let number = w.common("future", 99, true, 2, 0);
    w.word(7);
    w.word(7);
    let to_future = w.pointer(number);
    w.structure("last", 16, &[("future", to_future, 0), ("int", int, 64)]);
    let mut layouts = vec![(0, 0); 100];
    layouts[99] = (4, 2);
    let types = btf::read(&w.bytes_with(&layouts, 32), None).unwrap();
    assert_eq!(places(&types, record(&types, "last")), ["future 0 8", "int 8 4"]);
    let types = btf::read(&w.bytes_with(&layouts, 48), None).unwrap();
    assert_eq!(record(&types, "last").size, 16);
    let message = refused(&w.bytes());
    assert_eq!(
        message,
        format!(
            "type {number} of its BTF has kind 99, which is not known; \
             if a newer kernel wrote it, a newer version of this program may know it"
        )
    );
}

#[test]
fn lies_are_refused_by_the_number_and_name_of_the_type() {
    let whole = one_of_each(Writer::new()).bytes();
    let lie = |write: fn(&mut Writer, u32) -> u32| {
        let mut w = Writer::new();
        let int = w.int("int", 4);
        write(&mut w, int);
        refused(&w.bytes())
    };
    let cases = [
        (refused(b"\x7fELF"), "is not BTF: it does not begin with eb9f"),
        (refused(&whole[..20]), "its BTF is cut off: 20 bytes are less than a header"),
        (
            refused(&[&whole[..2], &[2], &whole[3..]].concat()),
            "its BTF has version 2, and only 1 is known",
        ),
        (
            lie(|w, _| w.structure("s", 8, &[("x", 9, 0)])),
            "type 2 (s) of its BTF: type 9 is referred to, and the last is 2",
        ),
        (
            lie(|w, int| w.structure("s", 8, &[("x", int, 3)])),
            "member `x` of struct s in its BTF begins at bit 3, within a byte, and is no bitfield",
        ),
        (
            lie(|w, int| w.structure("s", 8, &[("x", int, 40)])),
            "member `x` of struct s in its BTF ends beyond its 8 bytes",
        ),
        (
            lie(|w, int| w.structure_of_fields("", 8, &[("x", int, field(0, 33))])),
            "member `x` of an anonymous struct in its BTF has 33 bits of a type of 4 bytes",
        ),
        (
            lie(|w, _| {
                let pointer = w.pointer(0);
                w.structure_of_fields("s", 8, &[("x", pointer, field(0, 3))])
            }),
            "member `x` of struct s in its BTF is a bitfield, and its type is no number",
        ),
        (
            lie(|w, _| w.common("s", 4, false, 1 << 23, 8)),
            "its BTF is cut off in type 2; copy it again",
        ),
        (
            lie(|w, _| {
                w.names.clear();
                w.names.push(0);
                w.names_start = 500;
                w.int("x", 4)
            }),
            "type 2 of its BTF: a name is said to begin at 501, and the names are 3 bytes",
        ),
    ];
    for (said, expected) in cases {
        assert_eq!(said, expected);
    }
}

#[test]
fn cut_off_anywhere_it_is_refused() {
    let whole = one_of_each(Writer::new()).bytes();
    assert!(btf::read(&whole, None).is_ok());
    for length in 0..whole.len() {
        assert!(btf::read(&whole[..length], None).is_err(), "{length} bytes of {}", whole.len());
    }
}

#[test]
fn circles_end() {
    let mut w = Writer::new();
    let first = w.next;
    // Each type refers to itself or to the next one.
    w.plain(8, "a", first + 1);
    w.plain(8, "b", first);
    w.plain(10, "", first + 2);
    w.array(first + 3, 2);
    w.plain(18, "tag", first + 5);
    w.plain(18, "tag", first + 4);
    w.structure("self", 8, &[("self", first + 6, 0), ("tag", first + 4, 0)]);
    let types = read(&w);
    let own = record(&types, "self");
    assert_eq!(own.members.len(), 2);
    for id in 0..types.len() as u32 {
        let _ = types.size(TypeId(id));
    }
}

#[test]
fn names_that_share_one_long_end_are_refused_before_they_fill_the_memory() {
    let mut w = Writer::new();
    w.names.extend(vec![b'x'; 1 << 20]);
    w.names.push(0);
    for start in 0..1 << 16 {
        w.word(1 + start);
        w.word(1 << 24);
        w.word(4);
        w.word(32);
    }
    let message = refused(&w.bytes());
    assert!(message.contains("has no end, or is in too many others"), "{message}");
}

#[test]
fn a_long_chain_of_tags_takes_no_longer_than_it_is_long() {
    let mut w = Writer::new();
    let int = w.next + 300_000;
    for _ in 0..300_000 {
        let next = w.next + 1;
        w.plain(18, "", next);
    }
    w.int("int", 4);
    assert_eq!(w.next, int + 1);
    w.structure("tagged", 4, &[("x", 1, 0)]);
    let types = read(&w);
    assert_eq!(places(&types, record(&types, "tagged")), ["x 0 4"]);
}
