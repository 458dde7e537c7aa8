//! The type that somebody asks about, and what a profile says of it.

use std::path::{Path, PathBuf};

use ledgerline_advise::profile::{Profile, TypeProfile};
use ledgerline_advise::uses::Uses;
use ledgerline_layout::Error;
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::pick::pick;

use super::profile::{ProfileArgs, knows};

/// A type of a file, and what a profile says of it.
pub(super) struct Asked {
    pub(super) types: &'static Types,
    pub(super) id: TypeId,
    pub(super) name: String,
    pub(super) profile: Profile,
    path: PathBuf,
}

impl Asked {
    /// Finds both. Without a profile it says that `nothing` can be had, in words.
    pub(super) fn read(
        file: &Path,
        name: &str,
        args: &ProfileArgs,
        nothing: &str,
    ) -> Result<Asked, Error> {
        let Some(path) = &args.profile else {
            let error =
                format!("an order is better or worse for a use: {nothing} without --profile");
            let error = Error::new(error);
            return Err(error.advise(
                "write one (`layout advise --help` shows how), or give a perf.data or `perf c2c report --stdio`",
            ));
        };
        let types = super::types_named(file, &args.with_objects(&[name.to_owned()]))?;
        let picked = pick(types, &[name.to_owned()]).map_err(|error| error.in_file(file))?;
        let &[(found, id), ref rest @ ..] = &picked[..] else {
            return Err(Error::new(format!("there is no type {name:?}")).in_file(file));
        };
        if let Some((other, _)) = rest.iter().find(|(other, _)| *other != found) {
            let error = Error::new(format!("{name:?} means {found} and {other}"));
            return Err(error.advise("advice is about one type").in_file(file));
        }
        let profile = args.read(file, types)?.expect("one is named");
        if profile.of(found).is_none() {
            let error = Error::new(format!("it says nothing of {found}"));
            return Err(error.advise(knows(&profile)).in_file(path));
        }
        Ok(Asked { types, id, name: found.to_owned(), profile, path: path.clone() })
    }

    /// What the profile says of the type.
    pub(super) fn of_type(&self) -> &TypeProfile {
        self.profile.of(&self.name).expect("it was looked for")
    }

    /// The profile's accesses, found in the type.
    pub(super) fn uses(&self) -> Result<Uses, Error> {
        let Asked { types, id, profile, path, .. } = self;
        Uses::resolve(types, *id, self.of_type()).map_err(|error| {
            match profile.line_of_unknown(types, *id, self.of_type()) {
                Some(line) => error.within(format_args!("line {line}")).in_file(path),
                None => error.in_file(path),
            }
        })
    }
}
