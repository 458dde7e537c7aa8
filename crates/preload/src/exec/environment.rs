//! The environment that a program is executed with: what it says of this library, and copies in which that is changed.

use crate::objects::own_path;
use crate::process;
use ledgerline_protocol::is_of_order;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

pub(super) type List = *const *const c_char;

/// The strings of a list that ends in null.
///
/// # Safety
/// It is one, or null.
pub(super) unsafe fn strings(list: List) -> impl Iterator<Item = &'static CStr> {
    let at = move |index: usize| {
        if list.is_null() {
            return None;
        }
        // SAFETY: as the caller says; nothing behind the null is read, since the iterator ends there.
        unsafe {
            let string = *list.add(index);
            (!string.is_null()).then(|| CStr::from_ptr(string))
        }
    };
    (0..).map_while(at)
}

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// What is preloaded, if the string says that.
fn preloads(string: &CStr) -> Option<&[u8]> {
    string.to_bytes().strip_prefix(PRELOAD)
}

fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| b": ".contains(byte)).filter(|element| !element.is_empty())
}

/// Whether an environment preloads this library, and whether it says what the run ordered.
///
/// # Safety
/// As [`strings`].
pub(super) unsafe fn looks(list: List) -> (bool, bool) {
    let own = own_path().to_bytes();
    // SAFETY: as the caller says.
    unsafe { strings(list) }.fold((false, false), |(library, order), string| {
        let is_library =
            preloads(string).is_some_and(|value| elements(value).any(|one| one == own));
        (library || is_library, order || is_of_order(string.to_bytes()))
    })
}

/// The environment that a program is executed with: the caller's, or a changed copy in a mapping of its own. (A child
/// that shares its parent's memory leaves the copy behind when it executes: some hundred bytes.)
pub(super) struct Environment {
    pub(super) list: List,
    copy: *mut c_void,
    length: usize,
}

impl Environment {
    pub(super) fn given(list: List) -> Environment {
        Environment { list, copy: null_mut(), length: 0 }
    }

    /// A copy in which this library is preloaded and the run's order stands.
    ///
    /// # Safety
    /// As [`strings`].
    pub(super) unsafe fn with(given: List) -> Option<Environment> {
        // SAFETY: as the caller says.
        unsafe { Environment::changed(given, true) }
    }

    /// A copy in which this library is not preloaded.
    ///
    /// # Safety
    /// As [`strings`].
    pub(super) unsafe fn without(given: List) -> Option<Environment> {
        // SAFETY: as the caller says.
        unsafe { Environment::changed(given, false) }
    }

    /// # Safety
    /// As [`strings`].
    unsafe fn changed(given: List, with: bool) -> Option<Environment> {
        // SAFETY: as the caller says, here and below.
        let strings = || unsafe { strings(given) };
        let own = own_path().to_bytes();
        let order = process::order().filter(|_| with);
        let before = strings().find_map(preloads).unwrap_or_default();
        let kept = || {
            strings().filter(|string| {
                let text = string.to_bytes();
                !(text.starts_with(PRELOAD) || with && is_of_order(text))
            })
        };
        let added = || order.into_iter().flat_map(|order| order.split_inclusive(|&byte| byte == 0));
        let pointers = (kept().count() + added().count() + 2) * size_of::<*const c_char>();
        let length = pointers + PRELOAD.len() + own.len() + before.len() + 3;
        // SAFETY: asks for memory of its own.
        let copy = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(null_mut(), length, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if copy == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping is so long, and nobody else's: first the pointers, then a string.
        let (list, text) = unsafe {
            let text = copy.cast::<u8>().add(pointers);
            let text = std::slice::from_raw_parts_mut(text, length - pointers);
            let list = copy.cast::<*const c_char>();
            (std::slice::from_raw_parts_mut(list, pointers / size_of::<*const c_char>()), text)
        };
        let mut end = 0;
        let mut push = |part: &[u8]| {
            text[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        };
        push(PRELOAD);
        let others = || elements(before).filter(|element| *element != own);
        for (index, element) in with.then_some(own).into_iter().chain(others()).enumerate() {
            if index > 0 {
                push(b":");
            }
            push(element);
        }
        let is_needed = with || others().next().is_some();
        let preload = is_needed.then_some(text.as_ptr().cast::<c_char>());
        let added = added().map(|string| string.as_ptr().cast());
        let all = kept().map(CStr::as_ptr).chain(added).chain(preload);
        for (to, from) in list.iter_mut().zip(all) {
            *to = from;
        }
        Some(Environment { list: list.as_ptr(), copy, length })
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if !self.copy.is_null() {
            // SAFETY: mapped by this, and nobody reads it any more.
            unsafe { libc::munmap(self.copy, self.length) };
        }
    }
}
