//! `--stack`: reports where a program made a refused request.
//!
//! This unwinds the stack and asks the linker for the object and function of each address. It is for diagnosis, not for
//! regular use: it waits for the linker's lock, like `dladdr`, and writes to standard error.

use crate::objects::{described, is_beneath, own_path};
use crate::process;
use crate::say::write;
use crate::text::Text;
use crate::thread::Busy;
use ledgerline_interpose::{errno, set_errno};
use std::ffi::{CStr, c_int, c_void};

/// The most callers that are reported.
const DEPTH: usize = 32;
/// The unwinder's `_URC_NO_REASON` and `_URC_END_OF_STACK` (unwind.h): continue, and stop.
const GO_ON: c_int = 0;
const STOP: c_int = 5;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// Return addresses, the innermost first.
struct Stack {
    places: [usize; DEPTH],
    count: usize,
}

/// Reports the row and the size of a refusal, and its stack.
pub(crate) fn say(slot: u32, requested: u64) {
    // Allocations meanwhile are this library's.
    let _busy = Busy::enter();
    let before = errno();
    let mut line = Text::line();
    line.push(b"refused ").push_number(requested).push(b" bytes for ");
    process::push_path(&mut line, slot);
    write(line.push(b", asked for by"));
    let mut stack = Stack { places: [0; DEPTH], count: 0 };
    // SAFETY: the callback gets this pointer, which lives until the call returns.
    unsafe { _Unwind_Backtrace(each, (&raw mut stack).cast()) };
    stack.places[..stack.count].iter().for_each(|&place| say_place(place));
    set_errno(before);
}

unsafe extern "C" fn each(context: *mut c_void, data: *mut c_void) -> c_int {
    // SAFETY: the unwinder's own context, and the stack that `say` passed.
    let (place, stack) = unsafe { (_Unwind_GetIP(context), &mut *data.cast::<Stack>()) };
    // Frames of this library and of the allocator are of no use to the reader.
    if stack.count == 0 && is_beneath(place) {
        return GO_ON;
    }
    match stack.places.get_mut(stack.count) {
        Some(free) if place != 0 => {
            *free = place;
            stack.count += 1;
            GO_ON
        }
        _ => STOP,
    }
}

/// Returns the innermost return address outside of this library, of the allocator behind, and of the code between two
/// addresses.
pub(crate) fn caller_beyond((start, end): (usize, usize)) -> Option<usize> {
    struct Search {
        within: std::ops::Range<usize>,
        left: usize,
        found: usize,
    }

    unsafe extern "C" fn each(context: *mut c_void, data: *mut c_void) -> c_int {
        // SAFETY: the unwinder's own context, and the search below.
        let (place, search) = unsafe { (_Unwind_GetIP(context), &mut *data.cast::<Search>()) };
        search.left -= 1;
        if search.left > 0 && (is_beneath(place) || search.within.contains(&place)) {
            return GO_ON;
        }
        search.found = if search.left > 0 { place } else { 0 };
        STOP
    }

    let mut search = Search { within: start..end, left: DEPTH, found: 0 };
    // SAFETY: the callback gets this pointer, which lives until the call returns.
    unsafe { _Unwind_Backtrace(each, (&raw mut search).cast()) };
    Some(search.found).filter(|&found| found != 0)
}

/// Reports the function at a place: `function+0x12 (file+0x345)`, for `addr2line -e file 0x345` to find the line.
fn say_place(place: usize) {
    let mut line = Text::line();
    line.push(b"  ");
    // A return address is behind a call: after the last call of a function it may be the start of the next.
    let call = place - 1;
    let Some(info) = described(call) else {
        write(line.push(b"0x").push_hex(call as u64));
        return;
    };
    // SAFETY: the linker's strings live as long as their object, whose code is being run.
    let text = |string| unsafe { CStr::from_ptr(string) };
    let file = text(info.dli_fname);
    if file == own_path() {
        return;
    }
    let within = (call - info.dli_fbase as usize) as u64;
    if !info.dli_sname.is_null() {
        line.push(text(info.dli_sname).to_bytes()).push(b"+0x");
        line.push_hex((call - info.dli_saddr as usize) as u64).push(b" ");
    }
    write(line.push(b"(").push(file.to_bytes()).push(b"+0x").push_hex(within).push(b")"));
}
