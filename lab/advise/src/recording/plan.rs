//! The plan of a recording, in the form that the library in the program reads.

use crate::recording::cells::Cells;
use crate::recording::globals;
use crate::recording::program::Program;
use ledgerline_layout::Error;
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::pick::named;
pub use ledgerline_record::format::Heap;
use ledgerline_record::format::{self, AMBIGUOUS};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// Bytes of a cache line, the usual alignment of aligned blocks.
const LINE: usize = 64;

/// The user's request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Functions whose calls are operations.
    pub operations: Vec<String>,
    /// Functions that allocate objects. If empty, any function does.
    pub sites: Vec<String>,
    /// The blocks of the heap that are objects.
    pub heap: Heap,
}

/// A type that is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its name in debug information.
    pub name: String,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields.
    pub cells: Cells,
    /// Other types of this size in the program: a block may belong to one of them.
    pub alike: Vec<String>,
    /// Other types whose size, rounded up to whole cache lines, is the same.
    pub alike_rounded: Vec<String>,
}

/// The request in terms of the program's file.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Types, in the order of their numbers in recordings.
    pub types: Vec<Wanted>,
    /// The functions that are operations, as the user named them.
    pub operations: Vec<String>,
    pub(crate) identity: (u64, u64),
    pub(crate) heap: Heap,
    pub(crate) operation_ranges: Vec<Range<u64>>,
    pub(crate) site_ranges: Vec<Range<u64>>,
    pub(crate) globals: Vec<(u64, usize)>,
}

impl Plan {
    /// Plans to record the types `picked` of a program. `types` come from the program's own debug information.
    ///
    /// A type with the name and size of an earlier one is left out, and so is one that has no size or more than 1 MiB.
    ///
    /// # Errors
    /// One line: no type is left, there are too many or more than 64 MiB of them, a function does not exist, or debug
    /// information is damaged.
    pub fn new(
        program: &Program,
        types: &Types,
        picked: &[(&str, TypeId)],
        request: &Request,
    ) -> Result<Plan, Error> {
        let (mut wanted, mut bytes): (Vec<(Wanted, TypeId)>, u64) = (Vec::new(), 0);
        for &(name, id) in picked {
            let size = types.size(id).unwrap_or(0);
            let known = wanted.iter().any(|(of, _)| of.name == name && of.size as u64 == size);
            if known || size == 0 || size > format::LARGEST_TYPE {
                continue;
            }
            bytes += size;
            if bytes > format::LARGEST_PLAN {
                let what = "has types of more than 64 MiB together, too many to record at once";
                return Err(Error::new(what).advise("name those of interest with --type"));
            }
            let size = size as usize;
            let Some(cells) = Cells::of(types, id, size) else { continue };
            let name = name.to_owned();
            let (alike, alike_rounded) = (Vec::new(), Vec::new());
            wanted.push((Wanted { name, size, cells, alike, alike_rounded }, id));
        }
        if wanted.is_empty() {
            return Err(Error::new("none of the types has between 1 byte and 1 MiB")
                .advise("name another with --type"));
        }
        if wanted.len() > format::MOST_TYPES {
            let what = format!("has {} types, more than can be recorded at once", wanted.len());
            return Err(Error::new(what).advise("name those of interest with --type"));
        }
        for (name, id) in named(types) {
            let size = types.size(id).unwrap_or(0) as usize;
            for (of, _) in wanted.iter_mut().filter(|(of, _)| of.name != name) {
                if of.size == size {
                    note(&mut of.alike, name);
                }
                if size > 0 && of.size.div_ceil(LINE) == size.div_ceil(LINE) {
                    note(&mut of.alike_rounded, name);
                }
            }
        }
        let ids: Vec<TypeId> = wanted.iter().map(|&(_, id)| types.resolve(id)).collect();
        let number = |id| ids.iter().position(|&wanted| wanted == id);
        let globals = globals::find(program, types, &ids)?
            .into_iter()
            .filter_map(|(address, id)| Some((address, number(id)?)))
            .collect();
        Ok(Plan {
            types: wanted.into_iter().map(|(of, _)| of).collect(),
            operations: request.operations.clone(),
            identity: program.identity,
            heap: request.heap,
            operation_ranges: ranges(program, &request.operations, format::MOST_OPERATIONS)?,
            site_ranges: ranges(program, &request.sites, format::MOST_SITES)?,
            globals,
        })
    }

    /// Returns the number of values in global variables.
    #[must_use]
    pub fn globals(&self) -> usize {
        self.globals.len()
    }

    /// Writes the plan into a folder. [`VARIABLE`](crate::recording::VARIABLE) then names the folder to the library.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        let bytes: Vec<u8> = self.words().iter().flat_map(|word| word.to_ne_bytes()).collect();
        std::fs::write(folder.join(format::PLAN), bytes)
    }

    fn words(&self) -> Vec<u64> {
        let ((device, inode), heap) = (self.identity, self.heap as u64);
        let mut words = vec![format::PLAN_MAGIC, format::VERSION, device, inode, heap];
        list(&mut words, &self.operation_ranges, |range| vec![range.start, range.end]);
        list(&mut words, &self.globals, |&(address, ty)| vec![address, ty as u64]);
        list(&mut words, &self.site_ranges, |range| vec![range.start, range.end]);
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        for (number, of) in self.types.iter().enumerate() {
            sizes.entry(of.size as u64).and_modify(|ty| *ty = AMBIGUOUS).or_insert(number as u64);
        }
        let sizes: Vec<(u64, u64)> = sizes.into_iter().collect();
        list(&mut words, &sizes, |&(size, ty)| vec![size, ty]);
        list(&mut words, &self.types, |of| {
            let mut words = vec![of.size as u64, of.cells.paths.len() as u64, of.name.len() as u64];
            words.extend(packed(of.name.as_bytes()));
            let map: Vec<u8> = of.cells.map.iter().flat_map(|cell| cell.to_ne_bytes()).collect();
            words.extend(packed(&map));
            words
        });
        words
    }
}

/// Adds a name to a list of up to three.
fn note(list: &mut Vec<String>, name: &str) {
    if list.len() < 3 && !list.iter().any(|known| known == name) {
        list.push(name.to_owned());
    }
}

fn list<T>(words: &mut Vec<u64>, items: &[T], write: impl Fn(&T) -> Vec<u64>) {
    words.push(items.len() as u64);
    for item in items {
        words.extend(write(item));
    }
}

/// Packs bytes into words. The last word is filled up with zeros.
fn packed(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    })
}

fn ranges(program: &Program, names: &[String], most: usize) -> Result<Vec<Range<u64>>, Error> {
    let mut ranges = Vec::new();
    for name in names {
        ranges.extend(program.functions(name)?);
    }
    if ranges.len() > most {
        return Err(Error::new(format!("{} functions are meant", ranges.len()))
            .advise(format!("name {most} at most")));
    }
    Ok(ranges)
}
