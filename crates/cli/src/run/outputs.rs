//! The files for the account of a run, checked before the program starts.

use super::RunArgs;
use ledgerline_run::account::json;
use ledgerline_run::account::model::Account;
use ledgerline_run::account::render::{self, Extent};
use ledgerline_run::launch::{Failure, Target};
use ledgerline_view::terminal::style::Style;
use std::ffi::OsString;
use std::path::Path;

pub(super) struct Outputs {
    json: Option<Target>,
    text: Option<Target>,
}

impl Outputs {
    /// Checks that each file can be written, and that none overwrites another.
    pub(super) fn check(args: &RunArgs) -> Result<Outputs, Failure> {
        let check = |option: &'static str, file: &Option<OsString>| {
            file.as_deref().map(|file| Target::check(option, file)).transpose()
        };
        let json = check("--json", &args.json)?;
        let outputs = Outputs { json, text: check("--account", &args.account)? };
        let targets = [("--json", &outputs.json), ("--account", &outputs.text)];
        for (option, file) in [("--account", &args.account), ("--record", &args.record.record)] {
            let Some(file) = file else { continue };
            let is_over = |target: &Option<Target>| {
                target.as_ref().is_some_and(|target| target.is_over(Path::new(file)))
            };
            let mut others = targets.iter().filter(|(other, _)| *other != option);
            if let Some((other, _)) = others.find(|(_, target)| is_over(target)) {
                return Err(Failure::usage(format!(
                    "{other} and {option} name one file; name two"
                )));
            }
        }
        Ok(outputs)
    }

    pub(super) fn write(&self, account: &Account, extent: Extent) -> Result<(), Failure> {
        let text = match &self.text {
            Some(target) => target.write(render::text(account, extent, &Style::plain()).as_bytes()),
            None => {
                render::to_stderr(account, extent);
                Ok(())
            }
        };
        match &self.json {
            Some(target) => text.and(target.write(json::document(account).as_bytes())),
            None => text,
        }
    }
}
