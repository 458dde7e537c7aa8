//! Opens a file of any known sort. Its content decides the sort, not its name.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};

use crate::btf::{self, Machine};
use crate::dwarf;
use crate::error::Error;
use crate::image;
use crate::image::unpack::Packing;
use crate::model::Types;

/// The most bytes that a compressed file or a kernel image may unpack to.
const LARGEST_UNPACKED: usize = 1 << 30;
/// The first bytes that identify a file.
const HEAD: u64 = 4096;
/// The most layers of packing, such as a boot image within a compressed file.
const DEEPEST: usize = 3;

/// The first bytes of an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// The debug information to read if a file has both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefer {
    /// DWARF, which has more: alignments, C++ and Rust.
    #[default]
    Dwarf,
    /// BTF, which is read faster.
    Btf,
}

/// Options of [`open_with`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The debug information to read if a file has both.
    pub prefer: Prefer,
    /// The kernel that has the base of a module's BTF: BTF, a kernel, or an image of one.
    pub base: Option<PathBuf>,
}

/// The source of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// BTF.
    Btf,
    /// DWARF.
    Dwarf,
}

/// The types of a file.
#[derive(Debug)]
pub struct Opened {
    /// The types.
    pub types: Types,
    /// The debug information that they were read from.
    pub source: Source,
}

/// Reads the types of a file: BTF, an ELF file with BTF or DWARF, an archive of ELF files, a kernel image, or one of
/// these compressed by gzip, xz, lzma, zstd or lz4.
///
/// ```no_run
/// let kernel = ledgerline_layout::open("/sys/kernel/btf/vmlinux".as_ref())?;
/// for (_, record) in kernel.types.records() {
///     println!("{} {}", kernel.types.name(record.name), record.size);
/// }
/// # Ok::<(), ledgerline_layout::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read, has no types, is damaged, or unpacks to more than 1 GiB. The error is one line that
/// names the file.
pub fn open(path: &Path) -> Result<Opened, Error> {
    open_with(path, &Options::default())
}

/// Reads types of a file by their names. [`pick`](crate::pick::pick) finds the same records by these names as in the
/// result of [`open`], and they print the same; other types may be missing.
///
/// A linked program or library is read in part: `names` are searched in its bytes, and only the parts that these
/// types need are read, unit by unit. The README of the crate has times and memory. [`open`] reads all other files,
/// and also a file that lacks one of the names, or any file if a name is a pattern.
///
/// ```no_run
/// let kernel = ledgerline_layout::open_named("vmlinux".as_ref(), &["page_counter".to_owned()])?;
/// # Ok::<(), ledgerline_layout::Error>(())
/// ```
///
/// # Errors
/// The errors of [`open`].
pub fn open_named(path: &Path, names: &[String]) -> Result<Opened, Error> {
    match dwarf::open_named(path, names) {
        Some(named) => Ok(Opened { types: named.types, source: Source::Dwarf }),
        None => open(path),
    }
}

/// Like [`open`], with options.
///
/// # Errors
/// The errors of [`open`]; also if a module's BTF needs a base and none is named.
pub fn open_with(path: &Path, options: &Options) -> Result<Opened, Error> {
    content(path, unknown)
        .and_then(|data| read(&data, path, options))
        .map_err(|error| error.in_file(path))
}

/// Reads a whole file and unpacks it. It is not mapped: files of the kernel cannot be mapped, and others may shrink
/// meanwhile.
fn content(path: &Path, unknown: fn() -> Error) -> Result<Vec<u8>, Error> {
    let cannot = |error: std::io::Error| Error::new(format!("cannot be read ({error})"));
    let mut file = File::open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() {
        return Err(Error::new("is no regular file"));
    }
    // Its first bytes identify it, so a disk image of a terabyte is refused early.
    let mut data = Vec::new();
    file.by_ref().take(HEAD).read_to_end(&mut data).map_err(cannot)?;
    if !is_known(&data) {
        return Err(unknown());
    }
    let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    if data.try_reserve_exact(length.saturating_add(1)).is_err() {
        return Err(Error::new(format!("its {length} bytes are more than there is memory for")));
    }
    file.read_to_end(&mut data).map_err(cannot)?;
    unwrap(data, LARGEST_UNPACKED)
}

/// Unpacks images and compressed data, through all layers of packing, to at most `limit` bytes.
pub(crate) fn unwrap(mut data: Vec<u8>, limit: usize) -> Result<Vec<u8>, Error> {
    for _ in 0..DEEPEST {
        if btf::is_btf(&data) || data.starts_with(ELF) || dwarf::is_archive(&data) {
            break;
        }
        match image::open(&data, limit)? {
            Some(unpacked) => data = unpacked,
            None => break,
        }
    }
    Ok(data)
}

/// Reads the types of `data`, which was read from `path` and unpacked.
pub(crate) fn read(data: &[u8], path: &Path, options: &Options) -> Result<Opened, Error> {
    if btf::is_btf(data) {
        return read_btf(data, None, path, options);
    }
    if data.starts_with(ELF) {
        return read_elf(data, path, options);
    }
    if dwarf::is_archive(data) {
        return read_dwarf(data, path);
    }
    if image::is_flat(data) {
        let btf = btf::find(data).ok_or_else(|| Error::new("is a kernel without BTF"))?;
        return read_btf(btf, None, path, options);
    }
    Err(unknown())
}

/// Returns whether a file with these first bytes may be of a known sort.
fn is_known(head: &[u8]) -> bool {
    btf::is_btf(head)
        || head.starts_with(ELF)
        || dwarf::is_archive(head)
        || image::is_image(head)
        || image::is_flat(head)
        || Packing::of(head).is_some()
}

fn unknown() -> Error {
    Error::new("is neither BTF nor ELF nor an archive nor a kernel image, nor one of these compressed")
        .advise("name a program, a library, an object file, an archive, vmlinux, vmlinuz or /sys/kernel/btf/vmlinux")
}

fn read_elf(data: &[u8], path: &Path, options: &Options) -> Result<Opened, Error> {
    let elf = parse(data)?;
    match elf.section_by_name(".BTF") {
        Some(section) if options.prefer == Prefer::Btf || !dwarf::present(data) => {
            let base = elf.section_by_name(".BTF.base");
            let base = base.map(|section| section_data(&section)).transpose()?;
            let beside = Elf { base, machine: machine(&elf) };
            read_btf(section_data(&section)?, Some(beside), path, options)
        }
        _ => read_dwarf(data, path),
    }
}

/// Reads the DWARF of the file, or of the file with its debug symbols.
fn read_dwarf(data: &[u8], path: &Path) -> Result<Opened, Error> {
    let types = dwarf::read(data, &dwarf::Options::beside(path))?;
    Ok(Opened { types, source: Source::Dwarf })
}

/// The parts of an ELF file beside its BTF.
struct Elf<'a> {
    /// The part of its kernel's types that a module carries.
    base: Option<&'a [u8]>,
    machine: Machine,
}

fn read_btf(
    data: &[u8],
    elf: Option<Elf>,
    path: &Path,
    options: &Options,
) -> Result<Opened, Error> {
    let machine = elf.as_ref().map(|elf| elf.machine);
    let types = if let Some(base) = elf.and_then(|elf| elf.base) {
        btf::read_split(base, data, machine)?
    } else if let Some(base) = btf::is_split(data).then(|| base_of(path, options)).flatten() {
        let base_btf = base_btf(&base).map_err(|error| error.in_file(&base))?;
        btf::read_split(&base_btf, data, machine)?
    } else {
        btf::read(data, machine)?
    };
    Ok(Opened { types, source: Source::Btf })
}

/// Returns the file that split BTF builds on: the named one, or `vmlinux` beside it, as in `/sys/kernel/btf`.
fn base_of(path: &Path, options: &Options) -> Option<PathBuf> {
    options.base.clone().or_else(|| {
        let base = path.with_file_name("vmlinux");
        (base != path && base.is_file()).then_some(base)
    })
}

/// Returns the bytes of the BTF that another builds on.
fn base_btf(path: &Path) -> Result<Vec<u8>, Error> {
    let without = || Error::new("has no BTF to build on");
    let data = content(path, without)?;
    if btf::is_btf(&data) {
        return Ok(data);
    }
    if image::is_flat(&data)
        && let Some(btf) = btf::find(&data)
    {
        return Ok(btf.to_vec());
    }
    let elf = if data.starts_with(ELF) { Some(parse(&data)?) } else { None };
    match elf.as_ref().and_then(|elf| elf.section_by_name(".BTF")) {
        Some(section) => Ok(section_data(&section)?.to_vec()),
        None => Err(without()),
    }
}

fn parse(data: &[u8]) -> Result<object::File<'_>, Error> {
    object::File::parse(data)
        .map_err(|error| Error::new(format!("is a damaged ELF file ({error})")))
}

fn section_data<'a>(section: &impl ObjectSection<'a>) -> Result<&'a [u8], Error> {
    let damaged = |error: object::Error| Error::new(format!("its BTF cannot be reached: {error}"));
    if section.compressed_file_range().map_err(damaged)?.format != object::CompressionFormat::None {
        return Err(Error::new("its BTF is compressed within the file")
            .advise("`objcopy --decompress-debug-sections` unpacks it"));
    }
    section.data().map_err(damaged)
}

/// Returns the facts about the machine that BTF does not state.
fn machine(elf: &object::File) -> Machine {
    Machine {
        pointer_size: if elf.is_64() { 8 } else { 4 },
        widest_scalar_align: dwarf::widest_scalar_align(elf),
    }
}
