//! An event of a program in a trace.

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Nanoseconds of the monotonic clock.
    pub(crate) time: u64,
    pub(crate) cpu: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) what: What,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The thread continues to run on the CPU.
    On,
    /// A page fault.
    Fault,
    /// A count of an address space has changed to a number of pages. `own`: the address space is the thread's own.
    Pages { space: u32, kind: u8, own: bool, pages: i64 },
    /// The process starts another program.
    Exec,
    /// The thread ends.
    Exit,
}
