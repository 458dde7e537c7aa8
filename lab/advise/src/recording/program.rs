//! Reads a program's file: whether it has probes, and the places of its functions.

use ledgerline_layout::Error;
use ledgerline_layout::pick::advise_near;
use ledgerline_layout::symbols;
use object::read::elf::Dyn;
use object::{Object, ObjectSymbol, SymbolKind};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A program or shared library that was read.
pub struct Program {
    path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    /// Identifies the file under any name.
    pub(crate) identity: (u64, u64),
}

/// The advice of errors: how to compile with probes.
const HOW: &str = "build it by --build 'make ...', or compile with `gcc -g -fsanitize=thread -c` and link without \
                   -fsanitize, with -lledgerline_record";

impl Program {
    /// Reads a file, and checks that it was compiled with probes and linked with the recorder's library. `how` is the
    /// advice for a file without probes, if known.
    ///
    /// # Errors
    /// One line that names the file, if it cannot be read, is no program for this machine, or has no probes.
    pub fn open(path: &Path, how: Option<&str>) -> Result<Program, Error> {
        let cannot =
            |error: std::io::Error| Error::new(format!("cannot be read ({error})")).in_file(path);
        let metadata = path.metadata().map_err(cannot)?;
        if !metadata.is_file() {
            return Err(Error::new("is no regular file").in_file(path));
        }
        let bytes = std::fs::read(path).map_err(cannot)?;
        let identity = (metadata.dev(), metadata.ino());
        let program = Program { path: path.to_path_buf(), bytes, identity };
        program.check(how.unwrap_or(HOW)).map_err(|error| error.in_file(path))?;
        Ok(program)
    }

    pub(crate) fn file(&self) -> Result<object::File<'_>, Error> {
        object::File::parse(&*self.bytes).map_err(|_| {
            Error::new("is no ELF program or library").advise(match self.bytes.starts_with(b"#!") {
                true => "it is a script: name what it runs with --of",
                false => "name a program that was compiled with probes, or one with --of",
            })
        })
    }

    fn check(&self, how: &str) -> Result<(), Error> {
        let file = self.file()?;
        if !cfg!(target_arch = "x86_64") || file.architecture() != object::Architecture::X86_64 {
            return Err(Error::new("is not for x86-64, where alone accesses can be recorded"));
        }
        let probes = |name: &[u8]| name.starts_with(b"__tsan_");
        let asked = file
            .dynamic_symbols()
            .any(|symbol| symbol.is_undefined() && symbol.name_bytes().is_ok_and(probes));
        let sanitizer = |name: &[u8]| name.windows(7).any(|part| part == b"libtsan");
        let own = file.symbols().any(|symbol| {
            symbol.is_definition() && symbol.name_bytes().is_ok_and(|name| name == b"__tsan_init")
        });
        if own || needed(&file).iter().any(|name| sanitizer(name)) {
            let what = "is linked with the thread sanitizer, which would answer the probes itself";
            let how = "link without -fsanitize=thread, with -lledgerline_record";
            return Err(Error::new(what).advise(how));
        }
        if !asked {
            return Err(Error::new("was compiled without probes").advise(how));
        }
        Ok(())
    }

    /// Returns the address ranges within the file of the functions of a name: the function, and its clones
    /// (`name.constprop.0`). C++ names are given without arguments: `pool::take`.
    ///
    /// # Errors
    /// If there is none, for example because all calls were inlined. The error lists similar names.
    pub fn functions(&self, name: &str) -> Result<Vec<Range<u64>>, Error> {
        let file = self.file()?;
        let mut found = Vec::new();
        let mut names = Vec::new();
        for (spelt, range) in functions(&file) {
            let bare = symbols::bare(spelt);
            if bare == name || spelt == name {
                found.push(range);
            } else {
                names.push(bare);
            }
        }
        found.sort_by_key(|range| (range.start, range.end));
        found.dedup();
        if found.is_empty() {
            let error = Error::new(format!("has no function `{name}`")).in_file(&self.path);
            let inlined = "if all its calls were inlined, give it __attribute__((noinline)); if the file was stripped, \
                           build it again";
            return Err(advise_near(error, name, names.iter().map(|name| &**name), inlined));
        }
        Ok(found)
    }

    /// Returns the function that contains an address within the file.
    #[must_use]
    pub fn function_at(&self, address: u64) -> Option<String> {
        let file = self.file().ok()?;
        let (name, _) = functions(&file).find(|(_, range)| range.contains(&address))?;
        Some(symbols::bare(name).into_owned())
    }
}

/// Returns the functions of a file with their address ranges.
fn functions<'f>(file: &'f object::File<'_>) -> impl Iterator<Item = (&'f str, Range<u64>)> {
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let functions = symbols.filter(|symbol| {
        symbol.kind() == SymbolKind::Text && symbol.size() > 0 && !symbol.is_undefined()
    });
    functions.filter_map(|symbol| {
        let (start, size) = (symbol.address(), symbol.size());
        Some((symbol.name().ok()?, start..start.saturating_add(size)))
    })
}

/// Returns the libraries that a file needs.
fn needed<'f>(file: &object::File<'f>) -> Vec<&'f [u8]> {
    let object::File::Elf64(elf) = file else { return Vec::new() };
    let table = elf.elf_section_table();
    let (endian, data) = (elf.endian(), elf.data());
    let Ok(Some((entries, link))) = table.dynamic(endian, data) else { return Vec::new() };
    let Ok(strings) = table.strings(endian, data, link) else { return Vec::new() };
    entries
        .iter()
        .filter(|entry| entry.tag(endian) == object::elf::DT_NEEDED)
        .filter_map(|entry| strings.get(entry.val32(endian)?).ok())
        .collect()
}
