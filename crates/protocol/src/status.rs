//! The state that a program reads of itself when it starts and when it ends.
//!
//! Reading `/proc/self/status` uses only calls that the dynamic loader makes for each library: `openat` for reading,
//! `read` and `close`. They cost 36 to 49 microseconds, since the kernel generates the file for this process alone.
//! Nothing is allocated.

use std::ffi::CStr;

/// The kernel's file about the first thread, which a starting program still has.
const STATUS: &CStr = c"/proc/self/status";
/// The longest part of a line that is needed.
const LINE: usize = 40;

/// The state of a program at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The number of seccomp filters that the process is under; `None` if it cannot be read. A kernel that does not
    /// count them, before 5.9, makes this 1 or more. A filter is never removed, so a process with more filters than an
    /// ancestor got one since.
    pub filters: Option<u32>,
    /// Whether the process is in another namespace of process ids than `/proc` shows; `None` if that cannot be read.
    pub is_nested: Option<bool>,
}

/// Reads the state of the calling process.
#[must_use]
pub fn at_start() -> Start {
    let [ids, mode, count] = read([b"NSpid:", b"Seccomp:", b"Seccomp_filters:"]);
    Start {
        filters: count.or(mode).and_then(|found| u32::try_from(found.first).ok()),
        // The line holds its ids, from the namespace that `/proc` shows down to its own.
        is_nested: ids.map(|ids| ids.words > 1),
    }
}

/// Returns the result of [`at_start`] for a program whose number of filters is known. Costs a microsecond, but uses
/// calls that a filter may forbid.
#[must_use]
pub fn vouched(filters: Option<u32>) -> Start {
    // The process's id in the namespace that `/proc` shows. If both namespaces gave it the same number, the process
    // counts as not nested.
    let mut text = [0u8; 16];
    // SAFETY: the path ends in zero; the call writes at most the buffer's length. getpid has no preconditions.
    let (length, own) = unsafe {
        let to = text.as_mut_ptr().cast();
        (libc::readlink(c"/proc/self".as_ptr(), to, text.len()), libc::getpid())
    };
    let shown = usize::try_from(length).ok().and_then(|length| text.get(..length));
    let shown = shown.and_then(|shown| std::str::from_utf8(shown).ok()?.parse().ok());
    Start { filters, is_nested: shown.map(|shown: libc::pid_t| shown != own) }
}

/// Returns the peak of resident bytes of the calling process since it executed its program; `None` if it cannot be
/// read.
#[must_use]
pub fn most_resident() -> Option<u64> {
    let [kib] = read([b"VmHWM:"]);
    kib?.first.checked_mul(1024)
}

/// Returns the peak of resident bytes: of the calling process over all programs that it executed (`RUSAGE_SELF`), or of
/// the largest process among those that it waited for, and their descendants (`RUSAGE_CHILDREN`).
#[must_use]
pub fn resident_ever(who: libc::c_int) -> u64 {
    // SAFETY: a rusage is integers, for which zeros are valid; the call writes one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    };
    // The kernel counts in KiB.
    usage.ru_maxrss.unsigned_abs() << 10
}

/// A field: its first number, and how many words it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    first: u64,
    words: usize,
}

/// Reads the named fields.
fn read<const COUNT: usize>(names: [&[u8]; COUNT]) -> [Option<Field>; COUNT] {
    let mut fields = Fields::new(names);
    // SAFETY: opens a path that ends in zero.
    let file = unsafe { libc::open(STATUS.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return fields.found;
    }
    let mut part = [0u8; 4096];
    while fields.found.contains(&None) {
        // SAFETY: reads at most the buffer's length into it.
        let length = unsafe { libc::read(file, part.as_mut_ptr().cast(), part.len()) };
        let Ok(length @ 1..) = usize::try_from(length) else { break };
        part[..length].iter().for_each(|&byte| fields.push(byte));
    }
    // SAFETY: this function opened the descriptor.
    unsafe { libc::close(file) };
    fields.found
}

/// The fields found in the lines so far.
struct Fields<'n, const COUNT: usize> {
    names: [&'n [u8]; COUNT],
    found: [Option<Field>; COUNT],
    /// The beginning of the present line.
    line: [u8; LINE],
    length: usize,
}

impl<'n, const COUNT: usize> Fields<'n, COUNT> {
    fn new(names: [&'n [u8]; COUNT]) -> Self {
        Fields { names, found: [None; COUNT], line: [0; LINE], length: 0 }
    }

    fn push(&mut self, byte: u8) {
        if byte != b'\n' {
            if let Some(place) = self.line.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
            return;
        }
        let line = &self.line[..self.length];
        for (name, found) in self.names.iter().zip(&mut self.found) {
            // "VmHWM:     1234 kB"
            let field = line.strip_prefix(*name).and_then(|rest| {
                let words = || std::str::from_utf8(rest).map(str::split_whitespace).ok();
                Some(Field { first: words()?.next()?.parse().ok()?, words: words()?.count() })
            });
            *found = field.or(*found);
        }
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> [Option<(u64, usize)>; 4] {
        let mut fields = Fields::new([b"Seccomp:", b"Seccomp_filters:", b"VmHWM:", b"NSpid:"]);
        text.bytes().for_each(|byte| fields.push(byte));
        fields.found.map(|found| found.map(|field| (field.first, field.words)))
    }

    #[test]
    fn fields_are_read_whatever_lines_are_long_and_missing() {
        let groups = format!("Groups:\t{}\n", "4711 ".repeat(9000));
        let text = format!(
            "NSpid:\t812\t3\t1\nVmHWM:\t    9896 kB\n{groups}Seccomp:\t2\nSeccomp_filters:\t3\n"
        );
        let all = [Some((2, 1)), Some((3, 1)), Some((9896, 2)), Some((812, 3))];
        assert_eq!(read(&text), all);
        assert_eq!(
            read(&format!("{groups}Seccomp:\t2\nx:\t4\n")),
            [Some((2, 1)), None, None, None]
        );
        assert_eq!(read("Seccomp:\t0\nNSpid:\t7\n"), [Some((0, 1)), None, None, Some((7, 1))]);
        assert_eq!(read("Name:\tSeccomp:\t7\nPid:\t3\nVmHWM:\n"), [None; 4]);
    }

    #[test]
    fn this_process_knows_its_own() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let [mode, count, before, ids] = read(&status);
        let start = at_start();
        assert_eq!(start.filters.map(u64::from), count.or(mode).map(|(number, _)| number));
        assert_eq!(start.is_nested, ids.map(|(_, words)| words > 1));
        assert_eq!(vouched(start.filters), start);
        let most = most_resident().unwrap();
        assert!((1 << 20..1 << 40).contains(&most) && most >= before.unwrap().0 * 1024);
    }
}
