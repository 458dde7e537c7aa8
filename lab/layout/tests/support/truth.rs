//! Programs that print their own layout, and the comparison of types with their output.

use ledgerline_layout::model::{Member, Name, Record, Role, Type, TypeId, Types};
use std::path::Path;
use std::process::Command;

pub fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/dwarf/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs the program and returns what it prints.
pub fn run(program: &Path) -> String {
    let output = Command::new(program).output().expect("the fixture runs");
    assert!(output.status.success(), "{} fails", program.display());
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Returns the record of this name, or the record that a typedef of this name stands for.
pub fn record<'t>(types: &'t Types, name: &str) -> Option<&'t Record> {
    let direct = types.records().find(|(_, record)| types.name(record.name) == name);
    let through = || {
        let ids = (0..types.len() as u32).map(TypeId);
        let mut typedefs = ids.filter(|&id| match types.get(id) {
            Type::Typedef { name: found, .. } => types.name(*found) == name,
            _ => false,
        });
        typedefs.find_map(|id| match types.get(types.resolve(id)) {
            Type::Record(record) => Some(record),
            _ => None,
        })
    };
    direct.map(|(_, record)| record).or_else(through)
}

/// Returns a member by name, also within anonymous members, and its offset.
pub fn member<'t>(types: &'t Types, record: &'t Record, name: &str) -> Option<(&'t Member, u64)> {
    for member in &record.members {
        if types.name(member.name) == name && member.role == Role::Field {
            return Some((member, member.offset));
        }
        if member.name == Name::NONE
            && let Type::Record(inner) = types.get(types.resolve(member.ty))
            && let Some((found, offset)) = self::member(types, inner, name)
        {
            return Some((found, member.offset + offset));
        }
    }
    None
}

/// Compares the types with the program's output; returns the number of its lines.
pub fn check(types: &Types, truth: &str) -> usize {
    for line in truth.lines() {
        check_line(types, line).unwrap_or_else(|wrong| panic!("{line:?}: {wrong}"));
    }
    truth.lines().count()
}

fn check_line(types: &Types, line: &str) -> Result<(), String> {
    // Names of C++ and Rust have spaces, so the numbers are at the end.
    let (what, rest) = line.split_once(' ').ok_or("a line of one word")?;
    let fields = |count| {
        let mut fields: Vec<&str> = rest.rsplitn(count, ' ').collect();
        fields.reverse();
        fields
    };
    let same = |what: &str, ours: Option<u64>, theirs: &str| {
        let ours = ours.map_or("none".to_string(), |ours| ours.to_string());
        if ours == theirs { Ok(()) } else { Err(format!("{what} {ours}, not {theirs}")) }
    };
    let find = |name: &str| record(types, name).ok_or(format!("no record {name}"));
    match what {
        "type" => {
            let [name, size, align] = fields(3)[..] else { return Err("not three fields".into()) };
            if let Ok(record) = find(name) {
                same("size", Some(record.size), size)?;
                return same("alignment", Some(record.align.bytes()), align);
            }
            let mut all = (0..types.len() as u32).map(TypeId).map(|id| types.get(id));
            let number = all.find_map(|ty| match ty {
                Type::Enum { name: found, size } if types.name(*found) == name => Some(*size),
                _ => None,
            });
            same("size", Some(number.ok_or("no such type")?), size)
        }
        "member" | "variant" => {
            let [name, member, offset, size] = fields(4)[..] else {
                return Err("not four fields".into());
            };
            let (found, at) =
                self::member(types, find(name)?, member).ok_or(format!("no member {member}"))?;
            same("offset", Some(at), offset)?;
            same("size", types.size(found.ty), size)?;
            same("bits", found.bits.map(|bits| bits.size.into()), "none")
        }
        "bits" => {
            let [name, member, first, size] = fields(4)[..] else {
                return Err("not four fields".into());
            };
            let (found, at) =
                self::member(types, find(name)?, member).ok_or(format!("no member {member}"))?;
            let bits = found.bits.ok_or("not a bitfield")?;
            same("first bit", Some(at * 8 + u64::from(bits.offset)), first)?;
            same("bits", Some(bits.size.into()), size)
        }
        "base" => {
            let [name, base, offset, size] = fields(4)[..] else {
                return Err("not four fields".into());
            };
            let record = find(name)?;
            let found = record.members.iter().find(|member| {
                let ty = types.get(types.resolve(member.ty));
                member.role == Role::Base
                    && matches!(ty, Type::Record(of) if types.name(of.name) == base)
            });
            let found = found.ok_or("no such base")?;
            same("offset", Some(found.offset), offset)?;
            same("size", types.size(found.ty), size)
        }
        "virtual" => {
            let [name, base, offset] = fields(3)[..] else { return Err("not three fields".into()) };
            same("offset", virtual_base(types, find(name)?, base), offset)
        }
        _ => Err("of no known sort".into()),
    }
}

/// Returns the offset of a virtual base in the complete object, if it is known.
fn virtual_base(types: &Types, record: &Record, base: &str) -> Option<u64> {
    record.members.iter().find_map(|member| {
        let Type::Record(of) = types.get(types.resolve(member.ty)) else { return None };
        let known = member.role == (Role::VirtualBase { known: true });
        (known && types.name(of.name) == base).then_some(member.offset)
    })
}
