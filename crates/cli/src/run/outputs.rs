//! Where the account of a run goes, found out before the program starts.

use super::RunArgs;
use ledgerline_account::account::Account;
use ledgerline_account::{json, render};
use ledgerline_launch::{Failure, Target};
use ledgerline_terminal::style::Style;
use std::path::Path;

pub(super) struct Outputs {
    json: Option<Target>,
    text: Option<Target>,
}

impl Outputs {
    /// Checks that each file can be written, and that none goes over another.
    pub(super) fn check(args: &RunArgs) -> Result<Outputs, Failure> {
        let json = args.json.as_deref().map(|file| Target::check("--json", file)).transpose()?;
        let text =
            args.account.as_deref().map(|file| Target::check("--account", file)).transpose()?;
        let outputs = Outputs { json, text };
        let name = |file| Path::new(file);
        for (option, file) in [
            ("--account", args.account.as_deref().map(name)),
            ("--record", args.record.record.as_deref().map(name)),
        ] {
            let of_json = outputs.json.as_ref().map(|target| ("--json", target));
            let of_text = outputs.text.as_ref().map(|target| ("--account", target));
            let Some(file) = file else { continue };
            let mut others = of_json.into_iter().chain(of_text).filter(|other| other.0 != option);
            if let Some((other, _)) = others.find(|(_, target)| target.is_over(file)) {
                return Err(Failure::usage(format!(
                    "{other} and {option} name one file; name two"
                )));
            }
        }
        Ok(outputs)
    }

    pub(super) fn write(&self, account: &Account) -> Result<(), Failure> {
        let text = match &self.text {
            Some(target) => target.write(render::text(account, &Style::plain()).as_bytes()),
            None => {
                render::to_stderr(account);
                Ok(())
            }
        };
        match &self.json {
            Some(target) => text.and(target.write(json::document(account).as_bytes())),
            None => text,
        }
    }
}
