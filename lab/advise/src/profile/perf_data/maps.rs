//! The addresses at which processes loaded the program whose symbols name objects, by the kernel's records of mappings.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::iter::successors;
use std::os::unix::ffi::OsStrExt;

use ledgerline_layout::symbols::Symbols;

use super::bytes::Bytes;
use super::records::{Record, ty};

/// The most processes of a machine.
const MOST_PROCESSES: usize = 1 << 22;
/// A process that executes the program again and again has it at several addresses.
const MOST_SLIDES: usize = 16;
/// The most generations of processes since the one that loaded the program.
const MOST_FORKS: usize = 64;
/// Addresses from here on are the kernel's.
const KERNEL: u64 = 1 << 63;

/// The mappings, and the parents of processes.
pub(super) struct Maps {
    symbols: Symbols,
    slides: HashMap<u32, Vec<u64>>,
    parents: HashMap<u32, u32>,
    kernel: Vec<u64>,
}

impl Maps {
    pub fn new(symbols: Symbols) -> Maps {
        Maps { symbols, slides: HashMap::new(), parents: HashMap::new(), kernel: Vec::new() }
    }

    /// Takes a record of a mapping or of a fork. A truncated record is ignored.
    pub fn record(&mut self, Record { ty, body }: Record<'_>) {
        match ty {
            ty::MMAP => drop(self.mapped(body, 0)),
            // Skips the file's device and inode, or its build ID, and the protection.
            ty::MMAP2 => drop(self.mapped(body, 32)),
            ty::FORK => drop(self.forked(body)),
            _ => {}
        }
    }

    fn mapped(&mut self, mut body: Bytes<'_>, more: u64) -> Option<()> {
        let (process, _thread) = (body.u32()?, body.u32()?);
        let (address, _length, offset) = (body.u64()?, body.u64()?, body.u64()?);
        body.skip(1, more)?;
        let name = body.left.split(|&byte| byte == 0).next()?;
        if process == u32::MAX {
            // For the kernel's own text, the offset is its address.
            let slide = self.symbols.slide_of_kernel(std::str::from_utf8(name).ok()?, offset)?;
            note(&mut self.kernel, slide);
        } else if self.symbols.is_mapped_as(OsStr::from_bytes(name)) {
            let slide = self.symbols.slide(address, offset)?;
            if self.slides.len() < MOST_PROCESSES {
                note(self.slides.entry(process).or_default(), slide);
            }
        }
        Some(())
    }

    fn forked(&mut self, mut body: Bytes<'_>) -> Option<()> {
        let (process, parent) = (body.u32()?, body.u32()?);
        if process != parent && self.parents.len() < MOST_PROCESSES {
            self.parents.insert(process, parent);
        }
        Some(())
    }

    /// Returns whether no process loaded the program.
    pub fn is_empty(&self) -> bool {
        self.slides.is_empty() && self.kernel.is_empty()
    }

    /// Returns the possible distances between the addresses of a process and those of the program's file, for a sample.
    pub fn slides(&self, process: Option<u32>, address: u64) -> &[u64] {
        if address >= KERNEL {
            return &self.kernel;
        }
        // A sample without a process can be placed only if all processes loaded the program at the same addresses.
        let Some(process) = process else {
            let mut all = self.slides.values();
            let first = all.next();
            return first.filter(|&first| all.all(|other| other == first)).map_or(&[], |all| all);
        };
        let parents = successors(Some(process), |child| self.parents.get(child).copied());
        let slides = parents.take(MOST_FORKS).find_map(|process| self.slides.get(&process));
        slides.map_or(&[], |slides| slides)
    }
}

fn note(slides: &mut Vec<u64>, slide: u64) {
    if !slides.contains(&slide) && slides.len() < MOST_SLIDES {
        slides.push(slide);
    }
}
