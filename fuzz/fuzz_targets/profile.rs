//! Whatever the text: a profile of any format is read or refused in one line, and what is read says the same when it
//! was written as TOML and read again.

#![no_main]

use ledgerline_advise::profile::{Kind, Known, Profile};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let profile = match Profile::parse(text, "fuzz", &Known::default()) {
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
