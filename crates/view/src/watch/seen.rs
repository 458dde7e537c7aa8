//! The kernel's view of a process: its name in `ps`, and its resident size.

use std::fs;

use ledgerline_protocol::Identity;

/// A process of a ledger, as the subject of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    /// The owner of its row.
    pub owner: u32,
    /// The time at which it began to be accounted, in milliseconds of `CLOCK_MONOTONIC`; 0 if that is not known.
    pub started: u64,
}

/// A look at a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its title or the name that it gave itself, if that differs from its program's.
    pub called: Option<String>,
    /// Bytes.
    pub resident: Option<u64>,
}

impl Seen {
    /// Reads the name of a process, and a size from its `/proc/PID/status`. Returns `None` for a process that has
    /// ended, for another one with the same id, for one in another PID namespace, and without a `/proc` that shows it.
    #[must_use]
    pub fn of(asked: Asked, program: &str, field: &str) -> Option<Seen> {
        let process = Identity::from_owner(asked.owner);
        if process.distance() != 0 {
            return None;
        }
        let file = |name: &str| fs::read(format!("/proc/{}/{name}", process.pid()));
        let stat = String::from_utf8_lossy(&file("stat").ok()?).into_owned();
        if !is_same(&stat, asked.started) {
            return None;
        }
        let comm = stat.split_once('(')?.1.rsplit_once(')')?.0;
        let words = file("cmdline").unwrap_or_default();
        let status = String::from_utf8_lossy(&file("status").ok()?).into_owned();
        Some(Seen { called: called(program, comm, &words), resident: size(&status, field) })
    }
}

/// Returns whether the process of a `/proc/PID/stat` is the one that was accounted at this time: it began before that.
fn is_same(stat: &str, accounted: u64) -> bool {
    if accounted == 0 {
        return true;
    }
    // The name may hold anything, so the fields are counted from its end: the start time is the 22nd of all.
    let begun = || -> Option<u64> {
        let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        Some(ticks * 1000 / rustix::param::clock_ticks_per_second())
    };
    // Unlike the monotonic clock, that time advances while the machine sleeps.
    let now = |id| {
        let now = rustix::time::clock_gettime(id);
        (now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unsigned_abs()
    };
    let slept =
        now(rustix::time::ClockId::Boottime).saturating_sub(now(rustix::time::ClockId::Monotonic));
    begun().is_none_or(|begun| begun <= accounted + slept + SLACK)
}

/// The tolerance in milliseconds: the start counts in hundredths of a second.
const SLACK: u64 = 20;

/// Returns a field of `/proc/PID/status` that is a size: "  1234 kB".
fn size(status: &str, field: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the name that `ps` shows in place of the program's: the title, if the process wrote one over its words; else
/// the name of its first thread, if that differs from the kernel's.
fn called(program: &str, comm: &str, words: &[u8]) -> Option<String> {
    /// The longest part of a title that is shown.
    const MOST: usize = 60;
    let words = String::from_utf8_lossy(words);
    let mut words = words.trim_end_matches(['\0', ' ']).split('\0');
    let first = words.next().unwrap_or_default();
    // A title is one text. A program's words are several, or begin with its path.
    let is_title = words.next().is_none()
        && !first.is_empty()
        && !first.starts_with(['/', '.'])
        && first.trim_start_matches('-') != program;
    if is_title {
        return Some(first.chars().take(MOST).collect());
    }
    let of_program = program.as_bytes().get(..COMM).unwrap_or(program.as_bytes());
    (!comm.is_empty() && comm.as_bytes() != of_program).then(|| comm.to_owned())
}

/// The length of a name in the kernel.
const COMM: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    fn own(started: u64) -> Asked {
        Asked { owner: std::process::id(), started }
    }

    #[test]
    fn this_process_is_resident_and_one_that_is_not_there_is_not() {
        let of = |asked, field| Seen::of(asked, "", field).and_then(|seen| seen.resident);
        let (now, most) = (of(own(0), "VmRSS:").unwrap(), of(own(0), "VmHWM:").unwrap());
        assert!((100 << 10..1 << 40).contains(&now) && most >= 100 << 10);
        assert_eq!(of(own(0), "NoSuchField:"), None);
        let nobody = Asked { owner: (1 << 22) - 1, started: 0 };
        assert_eq!(of(nobody, "VmRSS:"), None);
        // Process 1 of another namespace is another process.
        let other = Asked { owner: Identity::new(1, 7).unwrap().owner(), started: 0 };
        assert_eq!(of(other, "VmRSS:"), None);
    }

    #[test]
    fn a_process_that_began_after_the_account_is_another() {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = (now.tv_sec * 1000).unsigned_abs();
        assert!(Seen::of(own(now + 2000), "", "VmRSS:").is_some());
        // Tests run on a machine that has been up for a minute.
        assert!(Seen::of(own(1), "", "VmRSS:").is_none());
    }

    #[test]
    fn a_process_is_called_as_ps_shows_it() {
        let told = |program, comm, words: &str| called(program, comm, words.as_bytes());
        assert_eq!(told("python3", "python3", "python3\0job.py\0"), None);
        assert_eq!(told("sleep", "sleep", "sleep\0"), None);
        assert_eq!(told("sh", "sh", "-sh\0"), None);
        assert_eq!(told("a program", "a program", "/opt/a program\0"), None);
        let title = Some("nginx: worker process".to_owned());
        assert_eq!(told("nginx", "nginx", "nginx: worker process\0\0\0\0"), title);
        let title = Some("postgres: checkpointer".to_owned());
        assert_eq!(told("postgres", "postgres", "postgres: checkpointer   \0"), title);
        // Renamed after fork, or a script run by its interpreter.
        assert_eq!(told("server", "io worker", "server\0-p\0"), Some("io worker".to_owned()));
        assert_eq!(told("sh", "build.sh", "/bin/sh\0./build.sh\0"), Some("build.sh".to_owned()));
        // The kernel cuts names.
        assert_eq!(
            told("a-very-long-program", "a-very-long-pro", "a-very-long-program\0x\0"),
            None
        );
        assert_eq!(told("kernel", "kernel", ""), None);
    }
}
