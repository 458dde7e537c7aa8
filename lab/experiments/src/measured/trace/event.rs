//! Something that happened to a program, as a trace has it.

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Nanoseconds of the monotonic clock.
    pub(crate) time: u64,
    pub(crate) cpu: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The thread goes on running on the CPU.
    On,
    /// A page fault.
    Fault,
    /// A count of an address space has changed to so many pages. `own`: it is the thread's own.
    Pages { space: u32, kind: u8, own: bool, pages: i64 },
    /// The process starts another program.
    Exec,
    /// The thread ends.
    Exit,
}
