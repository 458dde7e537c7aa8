//! Asks the kernel to record the calling thread's children.
//!
//! There is one event for each CPU, inherited by threads that the calling thread starts: records of inherited events
//! come only through the ring of their CPU.

use super::record::{COMMON, Format};
use super::ring::Ring;
use super::tracepoint;
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_PAGE_FAULTS, PERF_FLAG_FD_CLOEXEC, PERF_SAMPLE_RAW, PERF_TYPE_SOFTWARE,
    PERF_TYPE_TRACEPOINT, perf_event_attr,
};
use perf_event_open_sys::{ioctls, perf_event_open};
use rustix::param::page_size;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Most bytes of all rings together, and the most and the least of one.
const RINGS_MOST: usize = 64 << 20;
const RING_MOST: usize = 8 << 20;
const RING_LEAST: usize = 32 << 10;

/// The events, which end on drop.
pub(super) struct Opened {
    events: Vec<OwnedFd>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        for event in &self.events {
            // SAFETY: an open event, and no argument. If this fails, closing ends the event as well.
            unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) };
        }
    }
}

/// The scope of a recording.
#[derive(Clone, Copy)]
enum Scope {
    /// Faults and changes of counts, in programs and in the kernel for them.
    All(u64, tracepoint::Fields),
    /// Faults, in both.
    Faults,
    /// Faults in the programs alone, which every user may record of his own processes.
    OwnFaults,
}

/// Opens the widest scope that this user may open.
pub(super) fn open(cpus: &[usize]) -> Result<(Opened, Vec<Ring>, Format), String> {
    let mut scopes = vec![Scope::Faults, Scope::OwnFaults];
    scopes.splice(0..0, tracepoint::find().map(|(number, fields)| Scope::All(number, fields)));
    let mut error = None;
    for scope in scopes {
        match open_scope(cpus, scope) {
            Ok(opened) => return Ok(opened),
            Err(why) => error = Some(why),
        }
    }
    let error = error.expect("something was tried");
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; allow it with `sysctl kernel.perf_event_paranoid=2`, or outside the container"
        }
        _ => "",
    };
    Err(format!("page faults cannot be recorded: perf_event_open: {error}{advice}"))
}

fn open_scope(cpus: &[usize], scope: Scope) -> io::Result<(Opened, Vec<Ring>, Format)> {
    let mut opened = Opened { events: Vec::new() };
    let (mut rings, mut changes) = (Vec::new(), Vec::new());
    for &cpu in cpus {
        let faults = event(&mut faults(matches!(scope, Scope::OwnFaults)), cpu)?;
        rings.push(ring(faults.as_fd(), cpus.len())?);
        if let Scope::All(number, _) = scope {
            let change =
                event(&mut attributes(PERF_TYPE_TRACEPOINT, number, PERF_SAMPLE_RAW), cpu)?;
            // SAFETY: two open events.
            check(unsafe { ioctls::SET_OUTPUT(change.as_raw_fd(), faults.as_raw_fd()) })?;
            let mut number = 0;
            // SAFETY: an open event; the kernel writes `number`, which lives here.
            check(unsafe { ioctls::ID(change.as_raw_fd(), &mut number) })?;
            changes.push(number);
            opened.events.push(change);
        }
        opened.events.push(faults);
    }
    let fields = match scope {
        Scope::All(_, fields) => Some(fields),
        _ => None,
    };
    Ok((opened, rings, Format { fields, changes, page: page_size() as i64 }))
}

/// Returns the attributes of every fault, with records of which thread runs, starts a program, and ends.
fn faults(own: bool) -> perf_event_attr {
    let mut attributes = attributes(PERF_TYPE_SOFTWARE, u64::from(PERF_COUNT_SW_PAGE_FAULTS), 0);
    attributes.set_exclude_kernel(own.into());
    attributes.set_exclude_hv(own.into());
    attributes.set_context_switch(1);
    attributes.set_task(1);
    attributes.set_comm(1);
    attributes.set_comm_exec(1);
    attributes
}

fn attributes(kind: u32, config: u64, sample: u32) -> perf_event_attr {
    let mut attributes = perf_event_attr {
        type_: kind,
        size: size_of::<perf_event_attr>() as u32,
        config,
        sample_type: COMMON | u64::from(sample),
        clockid: libc::CLOCK_MONOTONIC,
        ..perf_event_attr::default()
    };
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes.set_inherit(1);
    attributes.set_sample_id_all(1);
    attributes.set_use_clockid(1);
    attributes
}

/// Opens an event of the calling thread on a CPU.
fn event(attributes: &mut perf_event_attr, cpu: usize) -> io::Result<OwnedFd> {
    let cpu = libc::c_int::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel reads the attributes, which live here, and learns their size from their size field.
    let event =
        unsafe { perf_event_open(attributes, 0, cpu, -1, PERF_FLAG_FD_CLOEXEC as libc::c_ulong) };
    check(event)?;
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(event) })
}

/// Maps the largest ring that this user may map.
fn ring(event: BorrowedFd<'_>, cpus: usize) -> io::Result<Ring> {
    let share = (RINGS_MOST / cpus).clamp(RING_LEAST, RING_MOST);
    let mut size = 1 << share.ilog2();
    loop {
        match Ring::map(event, size) {
            Err(_) if size > RING_LEAST => size /= 2,
            result => return result,
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
