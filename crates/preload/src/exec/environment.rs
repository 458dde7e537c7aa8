//! The environment of an executed program: its findings about this library, and changed copies.

use crate::elsewhere::{LONGEST, Reached, descriptor_path};
use crate::objects::own_path;
use crate::process;
use crate::say::{List, strings};
use crate::vouch;
use ledgerline_interpose::anonymous;
use ledgerline_protocol::{DESCRIPTORS, FILTERS, VOUCHED, Which, is_of_order, path_of, unmarked};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Returns the list of preloaded libraries, if the string is that variable.
fn preloads(string: &CStr) -> Option<&[u8]> {
    string.to_bytes().strip_prefix(PRELOAD)
}

fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| b": ".contains(byte)).filter(|element| !element.is_empty())
}

/// The findings in an environment.
#[derive(Clone, Copy, Default)]
pub(super) struct Looks {
    /// Whether this library is preloaded.
    pub(super) library: bool,
    /// Whether it has the orders of a run, or a part of them.
    pub(super) order: bool,
    /// Whether it has the whole order of this run, and nothing else.
    pub(super) intact: bool,
    /// Whether that is a run that was begun within this process's run.
    pub(super) other_run: bool,
}

/// Inspects an environment in one pass.
///
/// # Safety
/// As for [`strings`].
pub(super) unsafe fn looks(list: List) -> Looks {
    let own = own_path().to_bytes();
    let ours = || process::order().map(|string| unvouched(string.to_bytes()));
    // One bit for each of this run's strings that was found. There are about a dozen.
    let (mut found, mut is_other) = (0_u64, false);
    // SAFETY: by the caller's contract.
    let mut looks = unsafe { strings(list) }.fold(Looks::default(), |mut looks, string| {
        looks.library |=
            preloads(string).is_some_and(|value| elements(value).any(|one| one == own));
        looks.other_run |= leads_to(string).is_some_and(is_of_another);
        if is_of_order(string.to_bytes()) {
            looks.order = true;
            match ours().position(|one| one == unvouched(string.to_bytes())) {
                Some(at) => found |= 1 << (at % 64),
                None => is_other = true,
            }
        }
        looks
    });
    // Nothing is known if the order was too long to be kept.
    looks.intact = match ours().count() {
        0 => looks.order,
        count => !is_other && found.count_ones() as usize == count,
    };
    looks
}

/// Returns a string of the order without the suffix that vouches for a program.
fn unvouched(string: &[u8]) -> &[u8] {
    match string {
        [rest @ .., VOUCHED] if string.starts_with(FILTERS.to_bytes()) => rest,
        _ => string,
    }
}

/// Returns the path of a run's ledger, if the string has it.
fn leads_to(string: &CStr) -> Option<&[u8]> {
    match path_of(string)? {
        (Which::Ledger, path) => Some(path.to_bytes()),
        _ => None,
    }
}

/// Returns whether a ledger's path is another run's. The path of a descriptor is not: its own run wrote it for the
/// executed process (elsewhere.rs).
fn is_of_another(path: &[u8]) -> bool {
    let own = process::path(Which::Ledger).map(CStr::to_bytes);
    let is_descriptor = |path: &[u8]| path.starts_with(DESCRIPTORS.as_bytes());
    own.is_some_and(|own| own != path && !is_descriptor(own) && !is_descriptor(path))
}

/// The environment that a program is executed with: the caller's, or a changed copy, in its own mapping or in lent
/// memory. A child that shares its parent's memory leaves the mapping behind when it executes: some hundred bytes.
pub(super) struct Environment {
    pub(super) list: List,
    copy: *mut c_void,
    /// The mapped bytes; zero if the memory is lent.
    mapped: usize,
}

impl Environment {
    pub(super) fn given(list: List) -> Environment {
        Environment { list, copy: null_mut(), mapped: 0 }
    }

    /// Returns a copy with this library preloaded and the run's order in place; both by descriptors, if they are
    /// `reached` so.
    ///
    /// # Safety
    /// As for [`strings`].
    pub(super) unsafe fn with(given: List, reached: Option<&Reached>) -> Option<Environment> {
        // SAFETY: by the caller's contract.
        unsafe { Environment::changed(given, true, reached, None) }
    }

    /// Returns a copy in which this library is not preloaded. The copy lies in the caller's `memory`, which is all
    /// zeros, if that is lent: a process that is short of address space can rarely map any. If the memory is too small,
    /// it is mapped instead, and `None` is returned if that fails.
    ///
    /// # Safety
    /// As for [`strings`]; the copy does not outlive the memory.
    pub(super) unsafe fn without(given: List, memory: Option<&mut [usize]>) -> Option<Environment> {
        // SAFETY: by the caller's contract.
        unsafe { Environment::changed(given, false, None, memory) }
    }

    /// Returns a copy in the caller's memory that vouches for the program (vouch.rs). `None` if the memory is too
    /// small, or there is no number to mark.
    ///
    /// # Safety
    /// As for [`strings`]; the copy does not outlive the memory.
    pub(super) unsafe fn vouching_in(given: List, memory: &mut [usize]) -> Option<Environment> {
        // SAFETY: by the caller's contract.
        let strings = || unsafe { strings(given) };
        let (at, string) = strings().enumerate().find(|(_, string)| unmarked(string).is_some())?;
        if !vouch::may(unmarked(string)?) {
            return None;
        }
        let (pointers, text) = memory.split_at_mut_checked(strings().count() + 1)?;
        let bytes = string.to_bytes();
        // SAFETY: the same memory as bytes.
        let text = unsafe {
            std::slice::from_raw_parts_mut(text.as_mut_ptr().cast::<u8>(), size_of_val(text))
        };
        let marked = text.get_mut(..bytes.len() + 2)?;
        marked[..bytes.len()].copy_from_slice(bytes);
        marked[bytes.len()..].copy_from_slice(&[VOUCHED, 0]);
        // SAFETY: the same memory as pointers, which are words. All are written here.
        let list = unsafe {
            let first = pointers.as_mut_ptr().cast::<*const c_char>();
            std::slice::from_raw_parts_mut(first, pointers.len())
        };
        let all = strings().map(CStr::as_ptr).chain([null()]);
        list.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        list[at] = marked.as_ptr().cast();
        Some(Environment { list: list.as_ptr(), copy: null_mut(), mapped: 0 })
    }

    /// # Safety
    /// As for [`strings`].
    unsafe fn changed(
        given: List,
        with: bool,
        reached: Option<&Reached>,
        memory: Option<&mut [usize]>,
    ) -> Option<Environment> {
        // SAFETY: by the caller's contract, here and below.
        let strings = || unsafe { strings(given) };
        let mut buffer = [0; LONGEST];
        let library = match reached.and_then(Reached::library) {
            Some(number) => descriptor_path(number, &mut buffer).to_bytes(),
            None => own_path().to_bytes(),
        };
        let added = || process::order().filter(|_| with);
        let before = strings().find_map(preloads).unwrap_or_default();
        let kept = || {
            strings().filter(|string| {
                let text = string.to_bytes();
                !(text.starts_with(PRELOAD) || with && is_of_order(text))
            })
        };
        let pointers = (kept().count() + added().count() + 2) * size_of::<*const c_char>();
        // The rewritten strings of the order are no longer than the old ones plus the path of a descriptor.
        let order = added().map(|string| string.to_bytes_with_nul().len()).sum::<usize>();
        let anew = reached.map_or(0, |_| order + 2 * LONGEST);
        let length = pointers + anew + PRELOAD.len() + library.len() + before.len() + 3;
        let (copy, mapped) = match memory.filter(|memory| size_of_val(*memory) >= length) {
            Some(memory) => (memory.as_mut_ptr().cast(), 0),
            None => (anonymous(length, libc::PROT_READ | libc::PROT_WRITE, 0)?, length),
        };
        // SAFETY: the memory has this length, is aligned and is not shared: first the pointers, then the strings. It is
        // all zeros, and each string is followed by one.
        let (list, mut text) = unsafe {
            let text = copy.cast::<u8>().add(pointers);
            let room = std::slice::from_raw_parts_mut(text, length - pointers);
            let list = copy.cast::<*const c_char>();
            let list = std::slice::from_raw_parts_mut(list, pointers / size_of::<*const c_char>());
            (list, Strings { room, start: 0, end: 0 })
        };
        let others = || {
            let own = own_path().to_bytes();
            elements(before).filter(move |element| *element != own)
        };
        let is_needed = with || others().next().is_some();
        let preload = is_needed.then(|| {
            let mut between = &b""[..];
            text.push(PRELOAD);
            for element in with.then_some(library).into_iter().chain(others()) {
                text.push(std::mem::replace(&mut between, b":"));
                text.push(element);
            }
            text.end()
        });
        let added = added().map(|string| {
            let instead = reached.and_then(|reached| reached.instead_of(string));
            let path = path_of(string).map_or(0, |(_, path)| path.to_bytes().len());
            let Some(number) = instead else { return string.as_ptr() };
            text.push(&string.to_bytes()[..string.to_bytes().len() - path]);
            text.push(descriptor_path(number, &mut [0; LONGEST]).to_bytes());
            text.end()
        });
        let all = kept().map(CStr::as_ptr).chain(added).chain(preload);
        for (to, from) in list.iter_mut().zip(all) {
            *to = from;
        }
        Some(Environment { list: list.as_ptr(), copy, mapped })
    }
}

/// Room for strings, filled from its start.
struct Strings<'m> {
    room: &'m mut [u8],
    /// The start of the string that is being written.
    start: usize,
    end: usize,
}

impl Strings<'_> {
    /// Appends to the string that is being written.
    fn push(&mut self, part: &[u8]) {
        self.room[self.end..self.end + part.len()].copy_from_slice(part);
        self.end += part.len();
    }

    /// Ends that string; a zero follows it.
    fn end(&mut self) -> *const c_char {
        let string = &raw const self.room[self.start];
        self.end += 1;
        self.start = self.end;
        string.cast()
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if self.mapped > 0 {
            // SAFETY: this value mapped it, and it is not read any more.
            unsafe { libc::munmap(self.copy, self.mapped) };
        }
    }
}
