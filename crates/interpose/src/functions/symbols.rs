//! Functions by name, read from the tables of the loaded objects.
//!
//! `dlsym` finds the same symbols, but has two effects that a preloaded library must avoid:
//!
//! * A name that is not found leaves an error behind, whose text is allocated. The thread's next `dlsym` frees the text.
//!   A program that defines `free` by `dlsym(RTLD_NEXT)` then calls itself for ever.
//! * `dlsym` may be another tool's, and may allocate.
//!
//! A look-up here reads memory and takes no lock except the one of `dl_iterate_phdr`. It finds the default version of a
//! symbol, like `dlsym` without a version.

use super::objects::{Loaded, find_object};
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tags of the dynamic segment (elf.h).
mod tag {
    pub(super) const END: i64 = 0;
    pub(super) const HASH: i64 = 4;
    pub(super) const NAMES: i64 = 5;
    pub(super) const SYMBOLS: i64 = 6;
    pub(super) const VERSIONS: i64 = 0x6fff_fff0;
    pub(super) const GNU_HASH: i64 = 0x6fff_fef5;
}

/// Kinds of symbols (elf.h).
mod kind {
    pub(super) const FUNCTION: u8 = 2;
    /// No kind: some assemblers emit functions so.
    pub(super) const NONE: u8 = 0;
    /// An indirect function (IFUNC), which chooses the implementation at the start.
    pub(super) const CHOSEN: u8 = 10;
}

/// A function's name with its hashes.
#[derive(Clone, Copy)]
struct Name<'n> {
    text: &'n CStr,
    gnu: u32,
    system_v: u32,
}

impl<'n> Name<'n> {
    fn new(text: &'n CStr) -> Name<'n> {
        let (mut gnu, mut system_v) = (5381_u32, 0_u32);
        for &byte in text.to_bytes() {
            gnu = gnu.wrapping_mul(33).wrapping_add(byte.into());
            system_v = (system_v << 4).wrapping_add(byte.into());
            system_v = (system_v ^ (system_v >> 24 & 0xf0)) & 0x0fff_ffff;
        }
        Name { text, gnu, system_v }
    }
}

/// The tables of an object, by their addresses; zero for one that it lacks.
#[derive(Clone, Copy)]
struct Tables {
    base: usize,
    names: usize,
    symbols: usize,
    versions: usize,
    hash: usize,
    gnu_hash: usize,
}

impl Tables {
    /// Returns the tables that an object's dynamic segment names; `None` for an object without symbols.
    fn of(object: &Loaded<'_>) -> Option<Tables> {
        let dynamic = object.part(libc::PT_DYNAMIC)?;
        let (start, end) = object.span()?;
        let mut tables =
            Tables { base: object.base, names: 0, symbols: 0, versions: 0, hash: 0, gnu_hash: 0 };
        for at in 0.. {
            // SAFETY: the loader has read this table of pairs up to its end, and the object keeps it.
            let [name, value] = unsafe { (dynamic as *const [i64; 2]).add(at).read() };
            let place = match name {
                tag::END => break,
                tag::HASH => &mut tables.hash,
                tag::NAMES => &mut tables.names,
                tag::SYMBOLS => &mut tables.symbols,
                tag::VERSIONS => &mut tables.versions,
                tag::GNU_HASH => &mut tables.gnu_hash,
                _ => continue,
            };
            // glibc replaces the file's numbers by addresses, musl does not, and neither is consistent over all
            // objects.
            let value = value as usize;
            let inside = |address: usize| (start..end).contains(&address);
            *place = [value, value.wrapping_add(object.base)]
                .into_iter()
                .find(|&address| inside(address))?;
        }
        (tables.names != 0 && tables.symbols != 0).then_some(tables)
    }

    /// Returns the entry of a function that the object defines, in its default version.
    fn entry(&self, name: Name<'_>) -> Option<*const libc::Elf64_Sym> {
        // SAFETY: the tables are the object's own, and the loader searches them in the same way.
        unsafe { if self.gnu_hash != 0 { self.by_gnu_hash(name) } else { self.by_hash(name) } }
    }

    /// # Safety
    /// The table of this kind is the object's.
    unsafe fn by_gnu_hash(&self, name: Name<'_>) -> Option<*const libc::Elf64_Sym> {
        // SAFETY: the format: four numbers; words of a filter; for each bucket the first symbol; for each symbol its hash,
        // whose lowest bit marks the last one of a bucket.
        unsafe {
            let table = self.gnu_hash as *const u32;
            let [buckets, first, words, shift] = table.cast::<[u32; 4]>().read();
            let filter = table.add(4).cast::<u64>();
            let bucket = filter.add(words as usize).cast::<u32>();
            let hashes = bucket.add(buckets as usize);
            if buckets == 0 || words == 0 {
                return None;
            }
            let word = filter.add((name.gnu / 64 % words) as usize).read();
            let bits = 1_u64 << (name.gnu % 64) | 1 << ((name.gnu >> (shift % 32)) % 64);
            if word & bits != bits {
                return None;
            }
            let mut at = bucket.add((name.gnu % buckets) as usize).read();
            if at < first {
                return None;
            }
            loop {
                let hash = hashes.add((at - first) as usize).read();
                if hash | 1 == name.gnu | 1
                    && let Some(entry) = self.defines(at as usize, name)
                {
                    return Some(entry);
                }
                if hash & 1 != 0 {
                    return None;
                }
                at += 1;
            }
        }
    }

    /// # Safety
    /// As for [`by_gnu_hash`](Self::by_gnu_hash).
    unsafe fn by_hash(&self, name: Name<'_>) -> Option<*const libc::Elf64_Sym> {
        if self.hash == 0 {
            return None;
        }
        // SAFETY: the format: two numbers; for each bucket the first symbol; for each symbol the next one, zero at the end.
        unsafe {
            let table = self.hash as *const u32;
            let [buckets, count] = table.cast::<[u32; 2]>().read();
            if buckets == 0 {
                return None;
            }
            let bucket = table.add(2);
            let next = bucket.add(buckets as usize);
            let mut at = bucket.add((name.system_v % buckets) as usize).read();
            // At most as many turns as there are symbols.
            for _ in 0..count {
                if at == 0 || at >= count {
                    return None;
                }
                if let Some(entry) = self.defines(at as usize, name) {
                    return Some(entry);
                }
                at = next.add(at as usize).read();
            }
            None
        }
    }

    /// Returns the entry with a number, if it defines a function of this name in its default version.
    ///
    /// # Safety
    /// The object has at least that many symbols.
    unsafe fn defines(&self, at: usize, name: Name<'_>) -> Option<*const libc::Elf64_Sym> {
        // SAFETY: by the caller's contract; names end in zero.
        unsafe {
            let entry = (self.symbols as *const libc::Elf64_Sym).add(at);
            let symbol = entry.read();
            let is_function =
                [kind::FUNCTION, kind::NONE, kind::CHOSEN].contains(&(symbol.st_info & 0xf));
            if symbol.st_shndx == 0 || symbol.st_value == 0 || !is_function {
                return None;
            }
            let text =
                CStr::from_ptr((self.names as *const libc::c_char).add(symbol.st_name as usize));
            if text != name.text {
                return None;
            }
            // The highest bit hides a version from look-ups without one. The first two numbers stand for no version.
            let is_hidden = self.versions != 0 && {
                let version = (self.versions as *const u16).add(at).read();
                version & 0x8000 != 0 && version & 0x7fff > 1
            };
            (!is_hidden).then_some(entry)
        }
    }

    /// Returns the address of a function that the object defines; zero without one.
    fn find(&self, name: Name<'_>) -> usize {
        let Some(entry) = self.entry(name) else { return 0 };
        // SAFETY: an entry of the object's own table.
        let symbol = unsafe { entry.read() };
        if symbol.st_info & 0xf == kind::CHOSEN {
            // In the C library only functions for copying and clocks are of this kind. Each exists, so dlsym leaves no
            // error.
            // SAFETY: the name ends in zero.
            return unsafe { libc::dlsym(libc::RTLD_NEXT, name.text.as_ptr()) as usize };
        }
        self.base.wrapping_add(symbol.st_value as usize)
    }
}

/// Returns whether an object contains an address.
fn holds(object: &Loaded<'_>, address: usize) -> bool {
    object.span().is_some_and(|(start, end)| (start..end).contains(&address))
}

/// Looks a function up in the libraries behind the one that contains this code; zero if there is none.
#[must_use]
pub fn find(name: &CStr) -> usize {
    let place = AtomicUsize::new(0);
    find_each(&[name], std::slice::from_ref(&place));
    place.into_inner()
}

/// Looks functions up in the libraries behind the one that contains this code, in one pass. Places that are not zero
/// are left alone, and so are those of functions that are not found.
pub fn find_each(names: &[&CStr], places: &[AtomicUsize]) {
    let own = find as *const () as usize;
    let mut is_behind = false;
    find_object(|object| {
        if !is_behind {
            is_behind = holds(&object, own);
            return None;
        }
        let tables = Tables::of(&object)?;
        let mut is_all = true;
        // Relaxed: readers of the places learn through another word that the look-up is done.
        for (name, place) in names.iter().zip(places) {
            if place.load(Ordering::Relaxed) == 0 {
                let found = tables.find(Name::new(name));
                place.store(found, Ordering::Relaxed);
                is_all &= found != 0;
            }
        }
        is_all.then_some(())
    });
}

/// Returns the first definition of a function among all loaded objects, as the program finds it; zero if there is none.
#[must_use]
pub fn find_first(name: &CStr) -> usize {
    let name = Name::new(name);
    find_object(|object| Some(Tables::of(&object)?.find(name)).filter(|&found| found != 0))
        .unwrap_or(0)
}

/// Returns the entry of a function in the table of the library that contains this code.
#[must_use]
pub fn own_entry(name: &CStr) -> Option<*const libc::Elf64_Sym> {
    let (own, name) = (find as *const () as usize, Name::new(name));
    find_object(|object| Some(Tables::of(&object).filter(|_| holds(&object, own))?.entry(name)))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_what_dlsym_finds_and_what_is_not_leaves_no_error() {
        // SAFETY: the names end in zero.
        unsafe { libc::dlerror() };
        for name in [
            c"malloc",
            c"free",
            c"mmap",
            c"pthread_create",
            c"posix_spawn",
            c"dlsym",
            c"realpath",
            c"memcpy",
        ] {
            // SAFETY: as above.
            let truth = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
            assert!(truth != 0, "{name:?}");
            assert_eq!((find(name), find_first(name)), (truth, truth), "{name:?}");
        }
        for name in [c"", c"no such function", c"_ZNSt3fooEv"] {
            assert_eq!((find(name), find_first(name)), (0, 0), "{name:?}");
        }
        // SAFETY: takes nothing.
        assert!(unsafe { libc::dlerror() }.is_null());
    }

    #[test]
    fn what_is_looked_up_in_one_pass_is_what_is_looked_up_alone() {
        let names = [c"free", c"no such function", c"malloc", c"open"];
        let places = [0, 0, 7, 0].map(AtomicUsize::new);
        find_each(&names, &places);
        let found = places.map(AtomicUsize::into_inner);
        assert_eq!(found, [find(c"free"), 0, 7, find(c"open")]);
    }

    #[test]
    fn both_tables_of_hashes_lead_to_the_same_entry() {
        let names = [c"malloc", c"free", c"dlopen", c"no such function"].map(Name::new);
        let both = find_object(|object| {
            let tables = Tables::of(&object)?;
            // Many objects have only one of the two.
            // SAFETY: each table is the object's.
            (tables.hash != 0 && tables.gnu_hash != 0).then(|| unsafe {
                names.map(|name| (tables.by_hash(name), tables.by_gnu_hash(name)))
            })
        });
        if let Some(both) = both {
            assert!(both.iter().all(|(one, other)| one == other), "{both:?}");
        }
    }
}
