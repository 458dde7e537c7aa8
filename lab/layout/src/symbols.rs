//! The addresses of a program's symbols, and the address at which it was loaded.
//!
//! A symbol's address in the process is that in the file plus a *slide*, which is the same for the whole program. One
//! mapped page of the file determines it.

use crate::error::Error;
use crate::{dwarf, pick};
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The first symbols of the kernel's own text, by the names that perf uses.
const TEXTS: [&str; 2] = ["_text", "_stext"];

/// A part of a file that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// Symbols of a program, a library or a kernel.
#[derive(Clone, Debug)]
pub struct Symbols {
    /// Names under which processes may have mapped it.
    names: Vec<OsString>,
    segments: Vec<Segment>,
    addresses: HashMap<String, u64>,
}

impl Symbols {
    /// Finds symbols by their names in a program, a library, or `vmlinux`: in its table of symbols, or in that of the
    /// debug file that belongs to it. A variable is found by its name in the table, and by that in the source
    /// ([`bare`]).
    ///
    /// ```no_run
    /// use ledgerline_layout::symbols::Symbols;
    ///
    /// let symbols = Symbols::of("/usr/bin/server".as_ref(), &["statistics"])?;
    /// let slide = symbols.slide(0x5555_5555_4000, 0).expect("its first page was mapped there");
    /// println!("{:#x}", slide.wrapping_add(symbols.address("statistics").expect("it was found")));
    /// # Ok::<(), ledgerline_layout::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read or is of another sort, or lacks one of the symbols.
    pub fn of(path: &Path, wanted: &[&str]) -> Result<Symbols, Error> {
        Symbols::read(path, wanted).map_err(|error| error.in_file(path))
    }

    fn read(path: &Path, wanted: &[&str]) -> Result<Symbols, Error> {
        let cannot = |error: std::io::Error| Error::new(format!("cannot be read ({error})"));
        let mut file = File::open(path).map_err(cannot)?;
        let cache = ReadCache::new(&mut file);
        let parsed = object::File::parse(&cache).map_err(|_| {
            Error::new("has no symbols that an object could be named by")
                .advise("name the program itself, or the object's address: TYPE@0xADDRESS")
        })?;
        let segments = parsed.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            Segment { offset, size, address: segment.address() }
        });
        let mut symbols =
            Symbols { names: names(path), segments: segments.collect(), addresses: HashMap::new() };
        symbols.take(&parsed, wanted);
        if let Some(debug) =
            symbols.missing(wanted).and(dwarf::debug_path(&parsed, &dwarf::Options::beside(path)))
        {
            let mut file = File::open(&debug).map_err(cannot)?;
            let cache = ReadCache::new(&mut file);
            if let Ok(parsed) = object::File::parse(&cache) {
                symbols.take(&parsed, wanted);
            }
        }
        let Some(missing) = symbols.missing(wanted) else { return Ok(symbols) };
        let all = parsed.symbols().chain(parsed.dynamic_symbols());
        let all: Vec<Cow<str>> = all.filter_map(|symbol| symbol.name().ok().map(bare)).collect();
        let error = Error::new(format!("has no symbol `{missing}`"));
        Err(match pick::near(missing, all.iter().map(|name| &**name)) {
            Some(near) => error.advise(near),
            None if all.is_empty() => error.advise("it is stripped: name the file before that"),
            None => error,
        })
    }

    /// Takes from a file the wanted symbols, and those that determine a kernel's slide.
    fn take<'d>(&mut self, file: &object::File<'d, impl object::ReadRef<'d>>, wanted: &[&str]) {
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let Ok(name) = symbol.name() else { continue };
            // A thread-local variable has another address in each thread.
            if symbol.is_undefined() || symbol.kind() == SymbolKind::Tls {
                continue;
            }
            // Of several symbols of one name it takes the first, like debuggers.
            let mut note = |name: &str| {
                self.addresses.entry(name.to_owned()).or_insert(symbol.address());
            };
            if wanted.contains(&name) || TEXTS.contains(&name) {
                note(name);
            } else if symbol.kind() == SymbolKind::Data {
                let bare = bare(name);
                if wanted.contains(&&*bare) {
                    note(&bare);
                }
            }
        }
    }

    fn missing<'w>(&self, wanted: &[&'w str]) -> Option<&'w str> {
        wanted.iter().copied().find(|&name| !self.addresses.contains_key(name))
    }

    /// Returns a symbol's address in the file.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.addresses.get(name).copied()
    }

    /// Returns whether a process that has mapped the file at `path` has mapped this one. The last part of the path
    /// decides, since the file may lie elsewhere by now.
    pub fn is_mapped_as(&self, path: &OsStr) -> bool {
        // The program may have been rebuilt while it ran.
        let path = path.as_bytes();
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let name = Path::new(OsStr::from_bytes(path)).file_name();
        name.is_some_and(|name| self.names.iter().any(|own| own == name))
    }

    /// Returns the slide of the program, given the address at which its page at `offset` of the file was mapped.
    /// `None` if that is ambiguous: two parts of the file that are loaded a page apart may share one of its pages.
    pub fn slide(&self, mapped: u64, offset: u64) -> Option<u64> {
        // A mapping begins at the page in which its segment begins. Pages have 4 KiB, on some machines up to 64.
        let begins = |of: &Segment, page: u64| of.offset & !(page - 1) == offset;
        let within =
            |of: &Segment| (of.offset..of.offset.saturating_add(of.size)).contains(&offset);
        let slides = |is: &dyn Fn(&Segment) -> bool| -> Vec<u64> {
            let segments = self.segments.iter().filter(|of| of.size > 0 && is(of));
            let slide = |of: &Segment| of.address.wrapping_sub(of.offset);
            segments.map(|of| mapped.wrapping_sub(offset).wrapping_sub(slide(of))).collect()
        };
        let ways: [&dyn Fn(&Segment) -> bool; 3] =
            [&|of| begins(of, 1 << 12), &within, &|of| begins(of, 1 << 16)];
        let mut found = ways.into_iter().map(slides).find(|found| !found.is_empty())?;
        found.dedup();
        if let [slide] = found[..] { Some(slide) } else { None }
    }

    /// Returns the slide of a kernel, given the start of its text; `named` is perf's name for it.
    pub fn slide_of_kernel(&self, named: &str, at: u64) -> Option<u64> {
        let text =
            named.strip_prefix("[kernel.kallsyms]").or(named.strip_prefix("[kernel.vmlinux]"))?;
        Some(at.wrapping_sub(self.address(text)?))
    }
}

/// Returns a symbol's name in the source, without the additions of compilers of C, C++ and Rust.
///
/// ```
/// use ledgerline_layout::symbols::bare;
///
/// assert_eq!(bare("charge.constprop.0"), "charge");
/// assert_eq!(bare("_ZN4pool4takeEm"), "pool::take");
/// assert_eq!(bare("_ZN6server5STATS17h0123456789abcdefE"), "server::STATS");
/// ```
pub fn bare(symbol: &str) -> Cow<'_, str> {
    let symbol = match symbol.find('.') {
        Some(at) if at > 0 => &symbol[..at],
        _ => symbol,
    };
    if !symbol.starts_with("_Z") && !symbol.starts_with("_R") {
        return Cow::Borrowed(symbol);
    }
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return Cow::Owned(format!("{name:#}"));
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let name = cpp_demangle::Symbol::new(symbol).ok();
    match name.and_then(|name| name.demangle_with_options(&options).ok()) {
        Some(name) => Cow::Owned(name),
        None => Cow::Borrowed(symbol),
    }
}

/// Returns the last part of the path, and that of the file that it leads to.
fn names(path: &Path) -> Vec<OsString> {
    let real = std::fs::canonicalize(path).ok();
    let both = [Some(path), real.as_deref()].into_iter().flatten();
    both.filter_map(|path| path.file_name().map(OsStr::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns symbols in ld's layout: the last two parts share the file's page at 0x2000.
    fn symbols() -> Symbols {
        let segment = |offset, size, address| Segment { offset, size, address };
        Symbols {
            names: vec!["program".into()],
            segments: vec![
                segment(0, 0x628, 0),
                segment(0x1000, 0x175, 0x1000),
                segment(0x2000, 0xf4, 0x2000),
                segment(0x2dd0, 0x248, 0x3dd0),
                segment(0, 0, 0x9000),
            ],
            addresses: HashMap::from([("_text".to_owned(), 0xffff_ffff_8100_0000)]),
        }
    }

    #[test]
    fn a_page_tells_the_slide_or_nothing() {
        let (symbols, base) = (symbols(), 0x5555_5555_4000);
        assert_eq!(symbols.slide(base, 0), Some(base));
        assert_eq!(symbols.slide(base + 0x1000, 0x1000), Some(base));
        // The page may belong to the third or the fourth part.
        assert_eq!(symbols.slide(base + 0x2000, 0x2000), None);
        assert_eq!(symbols.slide(base, 0x7_0000), None);
        let mut one = symbols.clone();
        one.segments = vec![Segment { offset: 0x1_8000, size: 0x9000, address: 0x41_8000 }];
        assert_eq!(one.slide(0x41_8000, 0x1_8000), Some(0), "where the file says");
        assert_eq!(one.slide(0x41_a000, 0x1_a000), Some(0), "the rest of a part");
        assert_eq!(one.slide(0x51_0000, 0x1_0000), Some(0x10_0000), "where pages have 64 KiB");
    }

    #[test]
    fn a_symbol_is_called_as_its_source_calls_it() {
        for (symbol, name) in [
            ("charge", "charge"),
            ("charge.constprop.0", "charge"),
            ("_ZN4pool4takeEm", "pool::take"),
            ("_ZN4pool4takeEm.part.0", "pool::take"),
            ("_ZN6server5STATS17h0123456789abcdefE", "server::STATS"),
            ("_RNvCskwGfYPst2Cb_6server5STATS", "server::STATS"),
            ("_Znothing", "_Znothing"),
            ("_Rest", "_Rest"),
            (".text", ".text"),
        ] {
            assert_eq!(bare(symbol), name);
        }
    }

    #[test]
    fn it_goes_by_its_name_and_a_kernel_by_its_text() {
        let symbols = symbols();
        assert!(symbols.is_mapped_as("/opt/old/program".as_ref()));
        assert!(symbols.is_mapped_as("/opt/program (deleted)".as_ref()));
        assert!(!symbols.is_mapped_as("/opt/program/other".as_ref()));
        let at = 0xffff_ffff_9a00_0000;
        assert_eq!(symbols.slide_of_kernel("[kernel.kallsyms]_text", at), Some(0x1900_0000));
        assert_eq!(symbols.slide_of_kernel("[kernel.kallsyms]_stext", at), None);
        assert_eq!(symbols.slide_of_kernel("/lib/libc.so.6", at), None);
    }
}
