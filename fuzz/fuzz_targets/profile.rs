//! Whatever the bytes: a profile of any format is read or refused in one line, and what is read says the same when it
//! was written as TOML and read again.

#![no_main]

use std::io::Cursor;

use ledgerline_advise::profile::{Kind, Known, Profile};
use ledgerline_layout::model::{Align, Kind as Sort, Member, Name, Record, Role, Type, Types};

/// Types with one of a thousand words, so that addresses may hit something.
fn types() -> Types {
    let mut types = Types::new(8);
    let element = types.push(Type::Base { name: Name::NONE, size: 8 });
    let ty = types.push(Type::Array { element, count: Some(1000) });
    let [name, word] = ["t", "word"].map(|name| types.intern(name));
    let member = Member { name: word, ty, offset: 0, bits: None, role: Role::Field, align: None };
    let (kind, align) = (Sort::Struct, Align::Inferred(8));
    types.push(Type::Record(Record {
        name,
        kind,
        size: 8000,
        align,
        members: vec![member],
        declared: None,
    }));
    types
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let types = types();
    let known = Known {
        types: Some(&types),
        objects: vec!["t@0".parse().expect("an object")],
        program: None,
    };
    let profile = match Profile::read(Cursor::new(bytes), "fuzz", &known) {
        Ok(profile) => profile,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    let again = Profile::parse(&profile.to_toml(), "fuzz", &Known::default())
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(profile.types.len(), again.types.len());
    for (was, is) in profile.types.iter().zip(&again.types) {
        assert_eq!((&was.name, was.instances), (&is.name, is.instances));
        let phases = was.roles.iter().flat_map(|role| &role.phases);
        for access in phases.flat_map(|phase| &phase.accesses) {
            for kind in [Kind::Load, Kind::Store, Kind::Atomic] {
                let (was, is) = (was.times(&access.field, kind), is.times(&access.field, kind));
                assert!((was - is).abs() <= 1e-6 * was.abs(), "{}: {was} {is}", access.field);
            }
        }
    }
});
