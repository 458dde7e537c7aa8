//! The profile that `ledgerline layout` is given: who touches which field how often.

use std::path::PathBuf;

use clap::Args;
use ledgerline_advise::profile::{Known, Object, Profile};
use ledgerline_layout::Error;
use ledgerline_layout::model::Types;

/// What a profile may be.
const FORMATS: &str = "\
Who reads and writes which field how often: TOML that people write or `layout record` does, tables of the \
kernel's Documentation/networking/net_cachelines, or the text of `perf c2c report --stdio`, `perf mem report \
--stdio`, `perf mem -D report` or `perf script -F comm,tid,cpu,time,period,event,addr,data_src`. Those of perf \
have addresses: say with --object where objects were.";

/// Which profile.
#[derive(Args, Debug, Default)]
pub struct ProfileArgs {
    /// Who reads and writes which field how often
    #[arg(long, value_name = "FILE", long_help = FORMATS)]
    pub(super) profile: Option<PathBuf>,

    /// Where an object of a type was when the profile was taken: TYPE@0xADDRESS, TYPE@SYMBOL, TYPE@SYMBOL+OFFSET
    #[arg(long = "object", value_name = "TYPE@WHERE", requires = "profile")]
    objects: Vec<Object>,
}

impl ProfileArgs {
    /// The profile, if one is named.
    pub(super) fn read(&self, types: &Types) -> Result<Option<Profile>, Error> {
        let Some(path) = &self.profile else { return Ok(None) };
        let known = Known { types: Some(types), objects: self.objects.clone() };
        Profile::open(path, &known).map(Some)
    }
}

/// The types that a profile knows, in words.
pub(super) fn knows(profile: &Profile) -> String {
    let names: Vec<&str> = profile.types.iter().take(8).map(|of| of.name.as_str()).collect();
    let more = profile.types.len().saturating_sub(8);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("it knows {}{more}", names.join(", "))
}
