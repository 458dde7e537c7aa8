//! The cost of recording on this machine, which readers subtract from the time of a program.

use crate::format::{LOAD, NO_CELL, header};
use crate::recorder::lock::Lock;
use crate::recorder::plan::Plan;
use crate::recorder::touch::touch;
use crate::recorder::{arena, objects, operation, thread};
use ledgerline_interpose::anonymous;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 9;
const CALLS: usize = 512;

/// Returns the fastest of a few rounds, in picoseconds a call.
fn fastest(mut call: impl FnMut()) -> u64 {
    let mut best = u64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        best = best.min(start.elapsed().as_nanos() as u64 * 1000 / CALLS as u64);
    }
    best
}

/// Measures a probe that finds nothing, one that counts, and an operation, on an object of its own, which it forgets
/// again. Takes less than a millisecond. Nothing else is counted yet.
pub(crate) fn measure(plan: &Plan) {
    let Some((index, ty)) =
        plan.types.iter().enumerate().find(|(_, ty)| ty.map.iter().any(|&cell| cell != NO_CELL))
    else {
        return;
    };
    let offset = ty.map.iter().position(|&cell| cell != NO_CELL).unwrap_or(0);
    // The memory is never accessed.
    let Some(place) = anonymous(ty.size, libc::PROT_NONE, libc::MAP_NORESERVE) else { return };
    let start = place as usize;
    objects::add(plan, start, index, 1, &Lock::take());
    let field = || touch(black_box(start + offset), 1, LOAD);
    // The thread has its block before anything is timed.
    field();
    let stack = 0u64;
    let nothing = fastest(|| touch(black_box(&raw const stack as usize), 1, LOAD));
    arena::set(header::PROBE_PS, nothing);
    let operation = |body: &dyn Fn()| match plan.operations.first() {
        Some(function) => {
            operation::entered(black_box(function.start), &raw const stack as usize);
            body();
            operation::left();
        }
        None => body(),
    };
    let empty = fastest(|| operation(&|| ()));
    let counted = fastest(|| operation(&field));
    arena::set(header::COUNT_PS, counted.saturating_sub(empty + nothing));
    // The two calls are probes like others, and are counted as such.
    arena::set(header::OPERATION_PS, empty.saturating_sub(2 * nothing));
    objects::forget_users();
    objects::remove(plan, start, start + ty.size, &Lock::take());
    arena::set(header::THREADS, 0);
    thread::forget();
    // SAFETY: mapped above.
    unsafe { libc::munmap(place, ty.size) };
}
