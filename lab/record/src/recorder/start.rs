//! The beginning of a process, by start or by fork.

use crate::recorder::lock::{Lock, end_fork, hold_for_fork};
use crate::recorder::say::{environment, say};
use crate::recorder::{arena, calibrate, objects, plan, thread};

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let Some(folder) = environment(c"LEDGERLINE_RECORD").filter(|folder| !folder.is_empty()) else {
        return;
    };
    if let Err(why) = begin(folder) {
        say(why);
    }
}

fn begin(folder: &[u8]) -> Result<(), &'static str> {
    let Some(plan) = plan::open(folder)? else { return Ok(()) };
    arena::create(folder)?;
    // SAFETY: the functions take no arguments and live as long as the process.
    let hooked =
        unsafe { libc::pthread_atfork(Some(hold_for_fork), Some(end_fork), Some(in_child)) };
    if hooked != 0 {
        return Err("no memory at the start; nothing is recorded");
    }
    plan::record(true);
    calibrate::measure(plan);
    let lock = Lock::take();
    for &(address, ty) in &plan.globals {
        objects::add(plan, address, ty, 1, &lock);
    }
    drop(lock);
    Ok(())
}

/// Prepares a child, which has one thread, its own copy of objects and shadow, and a mapping of its parent's file.
extern "C" fn in_child() {
    thread::forget();
    if plan::recording().is_some() {
        let folder = environment(c"LEDGERLINE_RECORD").unwrap_or_default();
        match arena::leave_parent(folder) {
            Ok(()) => objects::forget_users(),
            Err(why) => {
                plan::record(false);
                say(why);
            }
        }
    }
    end_fork();
}
