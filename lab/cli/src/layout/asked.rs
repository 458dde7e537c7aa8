//! The type that a command is about, and its profile.

use std::path::PathBuf;

use clap::Args;
use ledgerline_advise::advice::{Advice, Wishes, advise};
use ledgerline_advise::cost::Question;
use ledgerline_advise::profile::{Profile, TypeProfile};
use ledgerline_advise::trial::against::Subject;
use ledgerline_advise::uses::Uses;
use ledgerline_coherence::machine::Machine;
use ledgerline_layout::Error;
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::pick::pick;

use super::profile::{MachineArgs, ProfileArgs, knows};

/// The options that say which type's order is asked about, for which use and which machine.
#[derive(Args, Debug)]
pub struct OrderArgs {
    /// The file that holds the type
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The type's name
    #[arg(value_name = "TYPE")]
    name: String,

    #[command(flatten)]
    profile: ProfileArgs,

    #[command(flatten)]
    machine: MachineArgs,
}

/// A type of a file, its profile and the machine.
pub(super) struct Asked<'a> {
    args: &'a OrderArgs,
    pub(super) types: &'static Types,
    pub(super) id: TypeId,
    pub(super) name: String,
    pub(super) profile: Profile,
    /// The profile's accesses, found in the type.
    pub(super) uses: Uses,
    pub(super) machine: Machine,
}

impl<'a> Asked<'a> {
    /// Reads the file, the profile and the machine. `nothing` is the error's text if no profile is given.
    pub(super) fn read(args: &'a OrderArgs, nothing: &str) -> Result<Asked<'a>, Error> {
        let OrderArgs { file, name, .. } = args;
        let Some(path) = &args.profile.profile else {
            let error =
                format!("an order is better or worse for a use: {nothing} without --profile");
            let error = Error::new(error);
            return Err(error.advise(
                "write one (`layout advise --help` shows how), or give a perf.data or `perf c2c report --stdio`",
            ));
        };
        let types = super::types(file, &args.profile.with_objects(&[name.to_owned()]))?;
        let picked = pick(types, &[name.to_owned()]).map_err(|error| error.in_file(file))?;
        let &[(found, id), ref rest @ ..] = &picked[..] else {
            return Err(Error::new(format!("there is no type {name:?}")).in_file(file));
        };
        if let Some((other, _)) = rest.iter().find(|(other, _)| *other != found) {
            let error = Error::new(format!("{name:?} means {found} and {other}"));
            return Err(error.advise("advice is about one type").in_file(file));
        }
        let profile = args.profile.read(file, types)?.expect("one is named");
        let Some(of_type) = profile.of(found) else {
            let error = Error::new(format!("it says nothing of {found}"));
            return Err(error.advise(knows(&profile)).in_file(path));
        };
        let uses = Uses::resolve(types, id, of_type).map_err(|error| {
            match profile.line_of_unknown(types, id, of_type) {
                Some(line) => error.within(format_args!("line {line}")).in_file(path),
                None => error.in_file(path),
            }
        })?;
        let machine = args.machine.machine(&profile)?;
        Ok(Asked { args, types, id, name: found.to_owned(), profile, uses, machine })
    }

    /// Returns the type's part of the profile.
    pub(super) fn of_type(&self) -> &TypeProfile {
        self.profile.of(&self.name).expect("it was looked for")
    }

    /// Returns the question that the cost model answers.
    pub(super) fn question(&self) -> Question<'_> {
        self.args.machine.question(&self.profile, &self.machine)
    }

    /// Returns whether the machine is a default, named neither by an option nor by the profile.
    pub(super) fn is_assumed(&self) -> bool {
        self.args.machine.is_assumed(&self.profile)
    }

    /// Returns the wishes for an order that follow from these options.
    pub(super) fn wishes(&self) -> Result<Wishes, Error> {
        let timed = self.args.machine.timed(&self.profile)?;
        Ok(Wishes { base: self.args.machine.base, timed, ..Wishes::default() })
    }

    /// Looks for a better order.
    pub(super) fn advice(&self, wishes: &Wishes) -> Result<Advice, Error> {
        advise(self.types, self.id, self.of_type(), &self.question(), wishes)
            .map_err(|error| error.in_file(&self.args.file))
    }

    /// Returns the type as the subject of a trial, with these accesses.
    pub(super) fn subject<'s>(&'s self, uses: &'s Uses) -> Subject<'s> {
        let (types, id, base) = (self.types, self.id, self.args.machine.base);
        Subject { types, id, profile: self.of_type(), uses, base }
    }
}
