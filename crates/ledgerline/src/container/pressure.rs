//! Detects memory pressure before the kernel acts: by pressure stall information (PSI), by changes of `memory.events`, and
//! by the pressure levels of version 1. The thread that follows a container also sleeps here.

use super::cgroup::Version;
use crate::os::bell::Bell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// The PSI triggers: the time for which tasks stalled on memory, and the window in which it counts, in microseconds. Without
/// root, only windows of whole two seconds are allowed.
const TRIGGERS: [&str; 2] = ["some 150000 1000000\0", "some 300000 2000000\0"];
/// The lowest level that version 1 reports. At `low` it would report any page of cache that it drops.
const LEVEL: &str = "medium";

/// The watched files. If a descriptor cannot be opened, it is left out, and `told` has the reason.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    watched: Vec<Watched>,
    /// The files that are watched, and those that are not, with the reason.
    pub(super) told: Vec<String>,
}

#[derive(Debug)]
struct Watched {
    kind: Kind,
    fd: OwnedFd,
    /// The registration lasts as long as this is open.
    _level: Option<File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Its trigger sets POLLPRI.
    Stalls,
    /// A change of the file sets POLLPRI. The file itself shows what changed.
    Events,
    /// An eventfd that the kernel adds to.
    Level,
}

impl Watched {
    fn open(kind: Kind, file: &Path) -> io::Result<Watched> {
        let (fd, level) = match kind {
            Kind::Stalls => (stalls(file)?, None),
            Kind::Events => (File::open(file)?.into(), None),
            Kind::Level => level(file).map(|(event, level)| (event, Some(level)))?,
        };
        Ok(Watched { kind, fd, _level: level })
    }
}

impl Pressure {
    /// Starts to watch a cgroup, or the machine if there is none.
    pub(super) fn watch(system: &Path, cgroup: Option<(Version, &Path)>) -> Pressure {
        let files = match cgroup {
            Some((Version::V2, folder)) => vec![
                (Kind::Stalls, folder.join("memory.pressure")),
                (Kind::Events, folder.join("memory.events")),
            ],
            Some((Version::V1, folder)) => {
                vec![(Kind::Level, folder.join("memory.pressure_level"))]
            }
            None => vec![(Kind::Stalls, system.join("proc/pressure/memory"))],
        };
        let mut pressure = Pressure::default();
        for (kind, file) in files {
            pressure.told.push(match Watched::open(kind, &file) {
                Ok(watched) => {
                    pressure.watched.push(watched);
                    format!("{} is watched", file.display())
                }
                Err(error) => format!("{} is not watched: {error}", file.display()),
            });
        }
        pressure
    }

    /// Sleeps until the time is up, `stop` is rung, or the kernel reports something. Returns whether it reported pressure.
    /// Events of `memory.events` are left to [`limits::Events`](super::limits::Events).
    pub(super) fn sleep(&mut self, stop: &Bell, time: Duration) -> bool {
        let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let asked = |kind| if kind == Kind::Level { libc::POLLIN } else { libc::POLLPRI };
        let watched =
            self.watched.iter().map(|watched| entry(watched.fd.as_raw_fd(), asked(watched.kind)));
        let mut fds: Vec<_> = watched.chain([entry(stop.number(), libc::POLLIN)]).collect();
        let millis = i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1);
        // SAFETY: the entries belong to this vector, which outlives the call.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
        if ready <= 0 {
            return false;
        }
        let mut pressure = false;
        let mut place = 0;
        self.watched.retain(|watched| {
            let found = fds[place].revents;
            place += 1;
            match watched.kind {
                Kind::Stalls => {
                    pressure |= found & libc::POLLPRI != 0;
                    // A cgroup that was removed sets POLLERR for ever.
                    found & libc::POLLERR == 0
                }
                Kind::Events => {
                    // Reading the file acknowledges the change.
                    found == 0 || (found & libc::POLLNVAL == 0 && look(&watched.fd))
                }
                Kind::Level => {
                    pressure |= found & libc::POLLIN != 0;
                    found == 0 || look(&watched.fd)
                }
            }
        });
        pressure
    }
}

/// Reads a descriptor from its start, as far as one call goes. Returns whether that worked.
fn look(fd: &OwnedFd) -> bool {
    let mut bytes = [0u8; 512];
    // SAFETY: both calls get a descriptor of ours, and the read gets the buffer's length. An eventfd has no position,
    // so the first call has no effect on it.
    unsafe {
        libc::lseek(fd.as_raw_fd(), 0, libc::SEEK_SET);
        libc::read(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) >= 0
    }
}

/// Sets up a PSI trigger.
fn stalls(file: &Path) -> io::Result<OwnedFd> {
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(file)
    };
    let mut error = None;
    for trigger in TRIGGERS {
        let mut file = open()?;
        match file.write_all(trigger.as_bytes()) {
            Ok(()) => return Ok(file.into()),
            Err(no) => error = Some(no),
        }
    }
    Err(error.expect("there are triggers, and none was taken"))
}

/// Registers an eventfd that version 1 adds to at each sign of pressure.
fn level(file: &Path) -> io::Result<(OwnedFd, File)> {
    let level = File::open(file)?;
    let event = OwnedFd::from(Bell::new()?);
    let control = file.with_file_name("cgroup.event_control");
    let order = format!("{} {} {LEVEL}", event.as_raw_fd(), level.as_raw_fd());
    OpenOptions::new().write(true).open(control)?.write_all(order.as_bytes())?;
    Ok((event, level))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_rings_to_stop_ends_a_sleep_and_no_file_keeps_it_awake() {
        let folder = std::env::temp_dir().join(format!("ledgerline-psi-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("memory.events"), "high 0\n").unwrap();
        fs::write(folder.join("memory.pressure"), "some avg10=0.00\n").unwrap();
        let stop = Bell::new().unwrap();
        let mut pressure = Pressure::watch(&folder, Some((Version::V2, &folder)));
        assert_eq!(pressure.told.len(), 2);
        assert!(pressure.told.iter().all(|told| told.ends_with(" is watched")), "{pressure:?}");
        assert!(!pressure.sleep(&stop, Duration::from_millis(1)));
        Bell::ring_number(stop.number());
        // Only the return counts: no test waits that long.
        assert!(!pressure.sleep(&stop, Duration::from_secs(1 << 20)));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_cannot_be_watched_is_told_with_the_reason() {
        let nowhere = Path::new("/nonexistent");
        for cgroup in [None, Some((Version::V1, nowhere)), Some((Version::V2, nowhere))] {
            let pressure = Pressure::watch(nowhere, cgroup);
            assert!(pressure.watched.is_empty());
            assert!(
                pressure.told.iter().all(|told| told.contains(" is not watched: No such file"))
            );
            assert!(!pressure.told.is_empty());
        }
    }
}
