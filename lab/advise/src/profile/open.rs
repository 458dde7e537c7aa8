//! Opening a profile, whatever wrote it: its content decides, not its name.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use ledgerline_layout::Error;
use ledgerline_layout::model::Types;

use super::{Profile, by_hand, c2c, mem_report, net_cachelines, script};

/// No profile is larger.
const LARGEST: u64 = 256 << 20;

/// What is known beside the file. Profiles that name fields need nothing; those that have addresses need the
/// types, and which objects lie where.
#[derive(Clone, Debug, Default)]
pub struct Known<'t> {
    /// The types of the program that was observed.
    pub types: Option<&'t Types>,
    /// Where objects of them were.
    pub objects: Vec<Object>,
}

/// An object of a type, and where it was: `page_counter@0xffff888100a4c000`, or `tcp_hashinfo@tcp_hashinfo+0x40`.
///
/// ```
/// use ledgerline_advise::profile::{Object, Where};
/// let object: Object = "page_counter@0xffff888100a4c000".parse().unwrap();
/// assert_eq!(object.at, Where::Address(0xffff_8881_00a4_c000));
/// assert!("page_counter".parse::<Object>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The type's name.
    pub ty: String,
    /// Where it began.
    pub at: Where,
}

/// Where an object began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// At an address.
    Address(u64),
    /// So many bytes after a symbol.
    Symbol(String, u64),
}

impl FromStr for Object {
    type Err = String;

    fn from_str(text: &str) -> Result<Object, String> {
        let bad = || format!("{text:?} is no object: write TYPE@0xADDRESS or TYPE@SYMBOL+OFFSET");
        // Types of C++ and Rust have no `@`; symbols may have one (`@plt`, `@@GLIBC`).
        let (ty, at) = text.split_once('@').ok_or_else(bad)?;
        if ty.is_empty() || at.is_empty() {
            return Err(bad());
        }
        let at = match number(at) {
            Some(address) => Where::Address(address),
            None if at.starts_with(|first: char| first.is_ascii_digit()) => return Err(bad()),
            None => match at.rsplit_once('+') {
                Some((symbol, offset)) if !symbol.is_empty() => {
                    Where::Symbol(symbol.to_owned(), number(offset).ok_or_else(bad)?)
                }
                _ => Where::Symbol(at.to_owned(), 0),
            },
        };
        Ok(Object { ty: ty.to_owned(), at })
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Where::Address(address) => write!(f, "{}@{address:#x}", self.ty),
            Where::Symbol(symbol, 0) => write!(f, "{}@{symbol}", self.ty),
            Where::Symbol(symbol, offset) => write!(f, "{}@{symbol}+{offset:#x}", self.ty),
        }
    }
}

/// `0x40`, or 64.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        _ if text.starts_with(|first: char| first.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

impl Profile {
    /// Reads a profile: TOML as people write it, a table of the kernel's `net_cachelines`, or the text of
    /// `perf c2c report --stdio`, `perf mem report --stdio`, `perf mem -D report` or `perf script`.
    ///
    /// # Errors
    /// One line: the file, the place, what is wrong and what to do. Profiles with addresses need the types
    /// and the objects in `known`.
    pub fn open(path: &Path, known: &Known<'_>) -> Result<Profile, Error> {
        let text = read(path).map_err(|error| error.in_file(path))?;
        Profile::parse(&text, &path.to_string_lossy(), known).map_err(|error| error.in_file(path))
    }

    /// Reads the text of a profile, which came from `source`.
    ///
    /// # Errors
    /// As [`Profile::open`], without the file.
    pub fn parse(text: &str, source: &str, known: &Known<'_>) -> Result<Profile, Error> {
        // Most of a page: comments and call chains may come before the first sample.
        let mut first = text.lines().filter(|line| !line.starts_with('#')).take(100);
        let profile = if text.lines().any(|line| line.contains(c2c::TITLE)) {
            c2c::parse(text, source, known)
        } else if mem_report::is(text) {
            mem_report::parse(text, source, known)
        } else if net_cachelines::is(text) {
            net_cachelines::parse(text, source, known)
        } else if first.any(script::is) {
            script::parse(text, source, known)
        } else {
            by_hand::parse(text, source)
        }?;
        if profile.types.is_empty() {
            return Err(Error::new("it says nothing of any type")
                .advise("tables need a title of their own before the line of columns"));
        }
        Ok(profile)
    }
}

fn read(path: &Path) -> Result<String, Error> {
    let cannot = |error: std::io::Error| Error::new(format!("cannot be read ({error})"));
    let file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Error::new(format!("is longer than {} MiB", LARGEST >> 20))
            .advise("let perf report fewer lines"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(format!("is no text: byte {at} is no UTF-8")).advise(
            "a perf.data file is read by perf: give `perf c2c report --stdio` or `perf script`",
        )
    })
}
