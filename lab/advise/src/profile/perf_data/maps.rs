//! Where processes had loaded the program whose symbols name objects, by the records that the kernel wrote of mappings.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::iter::successors;
use std::os::unix::ffi::OsStrExt;

use ledgerline_layout::symbols::Symbols;

use super::bytes::Bytes;
use super::records::{Record, ty};

/// No machine has more processes.
const MOST_PROCESSES: usize = 1 << 22;
/// A process that runs the program again and again has it at several places.
const MOST_SLIDES: usize = 16;
/// Generations of processes since the one that loaded the program.
const MOST_FORKS: usize = 64;
/// Addresses from here on are the kernel's.
const KERNEL: u64 = 1 << 63;

/// What was mapped, and who is whose child.
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

    /// Takes a record that says what was mapped, or that a process has a child. What is cut off says nothing.
    pub fn record(&mut self, Record { ty, body }: Record<'_>) {
        match ty {
            ty::MMAP => drop(self.mapped(body, 0)),
            // The file's device and inode, or its build, and the protection.
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
            // Of the kernel's own text the offset says where it was.
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

    /// Whether nobody had loaded the program.
    pub fn is_empty(&self) -> bool {
        self.slides.is_empty() && self.kernel.is_empty()
    }

    /// How far the program may have been loaded from where its file says, for a sample of a process.
    pub fn slides(&self, process: Option<u32>, address: u64) -> &[u64] {
        if address >= KERNEL {
            return &self.kernel;
        }
        // A sample that does not say whose it is can only be placed where all had loaded the program alike.
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
