//! Information that a profile's file lacks: the types, and the places of objects.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ledgerline_layout::model::Types;

/// Information that a profile's file lacks. A profile that names fields needs none. One with addresses needs the types
/// and the places of objects.
#[derive(Clone, Debug, Default)]
pub struct Known<'t> {
    /// The types of the program that was observed.
    pub types: Option<&'t Types>,
    /// The places of objects of these types.
    pub objects: Vec<Object>,
    /// The program that was observed. Needed if a `perf.data` has addresses and objects are named by symbols.
    pub program: Option<&'t Path>,
}

/// An object of a type, and its place: `page_counter@0xffff888100a4c000`, or `tcp_hashinfo@tcp_hashinfo+0x40`.
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
    /// The begin of the object.
    pub at: Where,
}

/// The begin of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// At an address.
    Address(u64),
    /// A number of bytes after a symbol.
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

/// Parses `0x40`, or 64.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        _ if text.starts_with(|first: char| first.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}
