#[path = "../../../../tests/support/golden.rs"]
mod golden;

use super::*;
use crate::model::{Align, Bits, Kind, Member, Name, Record, Role, Type, TypeId, Types};

/// Returns a record with one of everything: a bitfield, holes, an anonymous union, a nested record, an array over
/// lines, padding.
fn everything() -> (Types, TypeId) {
    let mut types = Types::new(8);
    let base = |types: &mut Types, name: &str, size| {
        let name = types.intern(name);
        types.push(Type::Base { name, size })
    };
    let (long, int, char) =
        (base(&mut types, "long", 8), base(&mut types, "int", 4), base(&mut types, "char", 1));
    let member = |types: &mut Types, name: &str, ty, offset, bits| Member {
        name: types.intern(name),
        ty,
        offset,
        bits,
        role: Role::Field,
        align: None,
    };
    let record = |name, kind, size, members| {
        let align = Align::Inferred(8);
        Type::Record(Record { name, kind, size, align, members, declared: None })
    };
    let inner =
        vec![member(&mut types, "low", int, 0, None), member(&mut types, "high", long, 8, None)];
    let name = types.intern("inner");
    let inner = types.push(record(name, Kind::Struct, 16, inner));
    let arms = vec![
        member(&mut types, "number", long, 0, None),
        member(&mut types, "bytes", int, 0, None),
    ];
    let either = types.push(record(Name::NONE, Kind::Union, 8, arms));
    let pointer = types.push(Type::pointer(Some(inner)));
    let array = types.push(Type::Array { element: long, count: Some(9) });
    let members = vec![
        member(&mut types, "flags", int, 0, Some(Bits { offset: 0, size: 3 })),
        member(&mut types, "mode", int, 0, Some(Bits { offset: 5, size: 6 })),
        member(&mut types, "next", pointer, 8, None),
        member(&mut types, "", either, 16, None),
        member(&mut types, "pair", inner, 24, None),
        member(&mut types, "odd", long, 60, None),
        member(&mut types, "many", array, 72, None),
        member(&mut types, "last", char, 144, None),
    ];
    let name = types.intern("everything");
    let id = types.push(record(name, Kind::Struct, 152, members));
    (types, id)
}

/// Returns accesses in which some CPUs write `odd`, and all CPUs read a part of `many` and one bitfield.
fn accessed(id: TypeId) -> Accessed {
    let access = |start, bits, who: &str, reads, writes, share| Access {
        start,
        bits,
        who: who.to_owned(),
        reads,
        writes,
        share,
    };
    let mut accessed = Accessed::default();
    accessed.add(
        id,
        vec![
            access(480, 64, "tx>", 0.5, 1.0, 0.5),
            access(1088, 64, "", 1.0 / 64.0, 0.0, 1.0),
            access(5, 6, "", 2.0, 0.0, 1.0),
        ],
    );
    accessed
}

#[test]
fn text_and_json_say_who_touches_what_how_often() {
    let (types, id) = everything();
    let accessed = accessed(id);
    let (mut out, mut json_out) = (String::new(), Vec::new());
    let options = Options { accessed: Some(&accessed), ..Options::default() };
    text(&types, "everything", id, &options, &mut out);
    text(&types, "everything", id, &Options { expand: Expand::All, ..options }, &mut out);
    golden::same("show-accessed.txt", &out);
    json(&types, "everything", id, &options, &mut json_out);
    let object: serde_json::Value = serde_json::from_slice(&json_out).unwrap();
    let member = |name: &str| {
        let members = object["members"].as_array().unwrap();
        members.iter().find(|member| member["name"] == name).unwrap().clone()
    };
    assert_eq!((&member("mode")["reads"], &member("flags")["reads"]), (&2.0.into(), &0.0.into()));
    assert_eq!(member("odd")["writes"], 0.5);
    assert_eq!(member("odd")["by"][0]["who"], "tx>");
    assert_eq!(member("many")["reads"], 1.0 / 64.0);
    // A type without accesses has no rates.
    let mut plain = String::new();
    let other = Accessed::default();
    let options = Options { accessed: Some(&other), ..options };
    text(&types, "everything", id, &options, &mut plain);
    assert!(!plain.contains("writes"), "{plain}");
}

#[test]
fn text_says_members_lines_holes_and_bases() {
    let (types, id) = everything();
    let mut out = String::new();
    for options in [
        Options::default(),
        Options { expand: Expand::All, line: 128, ..Options::default() },
        Options { base: Some(8), ..Options::default() },
    ] {
        text(&types, "everything", id, &options, &mut out);
    }
    golden::same("show.txt", &out);
}

#[test]
fn colour_changes_nothing_but_colour() {
    let (types, id) = everything();
    let (mut plain, mut colour) = (String::new(), String::new());
    text(&types, "everything", id, &Options::default(), &mut plain);
    text(&types, "everything", id, &Options { colour: true, ..Options::default() }, &mut colour);
    assert_ne!(plain, colour);
    for code in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"] {
        colour = colour.replace(code, "");
    }
    assert_eq!(plain, colour);
}

#[test]
fn json_is_one_object_a_type() {
    let (types, id) = everything();
    let mut out = Vec::new();
    let expanded = Options { expand: Expand::All, base: Some(8), ..Options::default() };
    for options in [Options::default(), expanded] {
        json(&types, "everything", id, &options, &mut out);
    }
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out.lines().count(), 2);
    let object: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!((&object["size"], &object["lines"]), (&152.into(), &3.into()));
    assert_eq!(object["members"][1]["bit_offset"], 5);
    let straddling = object["members"].as_array().unwrap().iter();
    let straddling: Vec<_> = straddling.filter(|of| of["straddles"] == true).collect();
    assert_eq!(straddling.len(), 1);
    assert_eq!(straddling[0]["name"], "odd");
    golden::same("show.json", &out);
}

#[test]
fn a_picture_has_a_block_for_each_field_on_each_of_its_lines() {
    let (types, id) = everything();
    let options = Options::default();
    let accessed = accessed(id);
    let cold = svg(&types, &[("every<thing>", id)], &options);
    let hot = Options { accessed: Some(&accessed), ..options };
    let hot = svg(&types, &[("every<thing>", id)], &hot);
    for (path, lines) in [("flags", 1), ("odd", 2), ("many", 2), ("last", 1), ("number", 1)] {
        assert_eq!(cold.matches(&format!("<title>{path}: ")).count(), lines, "{path}");
    }
    assert!(cold.contains("every&lt;thing&gt;: 152 bytes, 3 lines of 64"), "{cold}");
    for (class, blocks) in [("hot", 2), ("warm", 3)] {
        let class = format!("class=\"{class}\"");
        assert_eq!((cold.matches(&class).count(), hot.matches(&class).count()), (0, blocks));
    }
    assert!(
        hot.contains(
            "odd: long, 8 bytes at 60, straddles lines, 0.25 reads and 0.5 writes an operation (tx&gt; rw)"
        )
    );
    assert!(hot.contains("last: char, 1 bytes at 144, not touched"), "{hot}");
    let page = html(&types, &[("every<thing>", id)], &options);
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains(&cold), "{page}");
    golden::same("show.svg", &hot);
}

#[test]
fn a_record_that_straddles_is_marked_where_it_is_opened() {
    let mut types = Types::new(8);
    let inner = crate::sketch::words(&mut types, "inner", "low high");
    let outer = crate::sketch::words(&mut types, "outer", "before[7] low high");
    let name = types.intern("pair");
    let (_, record) = crate::leaf::record(&types, outer).expect("a record");
    let before = record.members[0].clone();
    let pair = Member { name, ty: inner, offset: 56, ..before.clone() };
    let record = Record { members: vec![before, pair], ..record.clone() };
    let id = types.push(Type::Record(record));
    let mut out = String::new();
    text(&types, "outer", id, &Options { expand: Expand::All, ..Options::default() }, &mut out);
    assert!(
        out.lines().any(|line| line.ends_with("  struct inner >  straddles, to line 1")
            && line.contains(" pair ")),
        "{out}"
    );
}

/// Returns the lines of a text between the names of the columns and the summary, after the offsets.
fn rows(said: &str) -> Vec<&str> {
    said.lines().skip(2).take_while(|line| !line.contains(" bytes on ")).collect()
}

#[test]
fn every_row_stands_below_the_heading_of_its_line() {
    let mut types = Types::new(8);
    let first = crate::sketch::words(&mut types, "first", "a[7] b[2]");
    let second = crate::sketch::words(&mut types, "second", "c[7] d[2]");
    let char = types.intern("char");
    let char = types.push(Type::Base { name: char, size: 1 });
    let tail = types.push(Type::Array { element: char, count: None });
    let member = |types: &mut Types, name: &str, ty, offset| Member {
        name: types.intern(name),
        ty,
        offset,
        bits: None,
        role: Role::Field,
        align: None,
    };
    let arms = vec![member(&mut types, "first", first, 0), member(&mut types, "second", second, 0)];
    let record = |name, kind, size, members| {
        let align = Align::Inferred(8);
        Type::Record(Record { name, kind, size, align, members, declared: None })
    };
    let either = types.push(record(Name::NONE, Kind::Union, 72, arms));
    let members = vec![
        member(&mut types, "either", either, 0),
        member(&mut types, "odd", char, 72),
        member(&mut types, "tail", tail, 128),
    ];
    let name = types.intern("lines");
    let id = types.push(record(name, Kind::Struct, 128, members));
    let mut said = String::new();
    let options = Options { expand: Expand::All, ..Options::default() };
    text(&types, "lines", id, &options, &mut said);
    let mut line = None;
    let mut seen = 0;
    for row in rows(&said) {
        if let Some(heading) = row.strip_prefix("  -- line ") {
            line = heading.split(' ').next().unwrap().parse::<u64>().ok();
            continue;
        }
        let offset = row.split_whitespace().next().unwrap().parse::<u64>().unwrap();
        assert_eq!(Some(offset / 64), line, "{row}\n{said}");
        seen += 1;
    }
    assert_eq!(seen, 10, "{said}");
}

#[test]
fn the_types_of_opened_records_stand_in_the_column_of_types() {
    let (types, id) = everything();
    let mut said = String::new();
    let options = Options { expand: Expand::All, ..Options::default() };
    text(&types, "everything", id, &options, &mut said);
    let column = said.lines().nth(1).unwrap().find("type").unwrap();
    for ty in ["struct inner >", "struct inner *", "long[9]", "char"] {
        let row = said.lines().find(|line| line.ends_with(ty) || line.contains(&format!("{ty}  ")));
        assert_eq!(row.expect(ty).find(ty), Some(column), "{said}");
    }
}
