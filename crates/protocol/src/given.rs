//! The identity of a run's ledgers, so that no other file is taken for one.
//!
//! A program finds its ledger by a path through its run, `/proc/SUPERVISOR/fd/NUMBER`. The kernel reuses process ids,
//! so after the end of the run the same path may lead to any file of any user. The run therefore states the identity of
//! its files. A file that differs in one of these points is not opened:
//!
//! ```text
//! inode    the number of the file; the kernel gives it to no other file in memory
//! nonce    128 random bits in the name of the file, which cannot be changed later
//! seals    the file becomes neither shorter nor longer, so that a mapping of it never ends a process
//! owner    the user of the run; ignored only in another user namespace, which may show that user by another number
//! ```
//!
//! The file is inspected before it is opened, through a descriptor of its path alone (`O_PATH`): opening a foreign
//! device or terminal could have effects of its own.

use crate::Which;
use std::ffi::{CStr, CString, c_int};
use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;

/// The prefixes of the names of ledgers' files. `ledgerline show --pid` finds a run by the first one.
const NAMES: [(&str, Which); 2] =
    [("ledgerline-heap-", Which::Heap), ("ledgerline-", Which::Ledger)];
/// The number of digits of a nonce.
const DIGITS: usize = 32;
/// The text that the kernel puts around the name of a file in memory.
const SHOWN: (&[u8], &[u8]) = (b"/memfd:", b" (deleted)");
/// The link that shows the number of a process's user namespace.
const USERS: &CStr = c"/proc/self/ns/user";
/// The seals that each ledger has.
pub const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// The permissions of a ledger's file: only the run's user may open it.
pub const MODE: libc::mode_t = 0o600;

/// The identity of the files of a run's ledgers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    nonce: u128,
    /// The inodes of the ledger and of the second one; zero where there is none.
    inodes: [u64; 2],
    owner: u32,
    /// The number of the run's user namespace; zero if it is not known.
    users: u64,
}

/// Why a file was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The system refused, with this error.
    System(c_int),
    /// It is another file than the run's.
    Other,
}

/// Returns a number that is unique to the caller.
///
/// # Errors
/// Fails if the system has no random numbers.
pub fn nonce() -> std::io::Result<u128> {
    let mut bytes = [0; 16];
    // SAFETY: the buffer has the given length.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(got) {
        Ok(16) => Ok(u128::from_ne_bytes(bytes)),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Returns the name of a ledger's file.
#[must_use]
pub fn name(which: Which, nonce: u128) -> CString {
    let start = NAMES.into_iter().find(|(_, of)| *of == which).map_or("", |(start, _)| start);
    CString::new(format!("{start}{nonce:032x}")).unwrap_or_default()
}

/// Returns which ledger of which run a file is, from the kernel's text for its link: `/memfd:ledgerline-… (deleted)`.
#[must_use]
pub fn shown(link: &[u8]) -> Option<(Which, u128)> {
    let name = link.strip_prefix(SHOWN.0)?.strip_suffix(SHOWN.1)?;
    let (digits, which) = NAMES
        .into_iter()
        .find_map(|(start, which)| Some((name.strip_prefix(start.as_bytes())?, which)))?;
    let is_nonce = digits.len() == DIGITS
        && digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_nonce)?;
    Some((which, u128::from_str_radix(digits, 16).ok()?))
}

fn status(descriptor: c_int) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills the record where it returns zero.
    unsafe { (libc::fstat(descriptor, status.as_mut_ptr()) == 0).then(|| status.assume_init()) }
}

/// A descriptor, closed on drop.
struct Descriptor(c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: this module opened it, and this value is its only owner.
        unsafe { libc::close(self.0) };
    }
}

/// The link that leads to a descriptor's file.
struct Link([u8; 32]);

impl Link {
    fn new(descriptor: c_int) -> Link {
        let mut link = Link([0; 32]);
        // The longest number fits, with a zero behind it.
        let _ = write!(link, "{}{descriptor}", crate::DESCRIPTORS);
        link
    }

    fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"/")
    }
}

impl fmt::Write for Link {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let start = self.0.iter().position(|&byte| byte == 0).ok_or(fmt::Error)?;
        let room = self.0.get_mut(start..start + text.len() + 1).ok_or(fmt::Error)?;
        room[..text.len()].copy_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Given {
    /// Returns the identity of a run's files: the ledger, and the second one if there is one.
    ///
    /// # Errors
    /// Fails if `fstat` does.
    pub fn of(nonce: u128, ledger: c_int, heap: Option<c_int>) -> std::io::Result<Given> {
        let status = |file| status(file).ok_or_else(std::io::Error::last_os_error);
        let of_ledger = status(ledger)?;
        let of_heap = heap.map(status).transpose()?;
        Ok(Given {
            nonce,
            inodes: [of_ledger.st_ino, of_heap.map_or(0, |found| found.st_ino)],
            owner: of_ledger.st_uid,
            users: crate::number(USERS).unwrap_or(0),
        })
    }

    /// Reads the text that [`Display`](fmt::Display) wrote. Allocates nothing.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Given> {
        let mut parts = std::str::from_utf8(text).ok()?.split('.');
        let nonce = parts.next().filter(|digits| digits.len() == DIGITS)?;
        let given = Given {
            nonce: u128::from_str_radix(nonce, 16).ok()?,
            inodes: [parts.next()?.parse().ok()?, parts.next()?.parse().ok()?],
            owner: parts.next()?.parse().ok()?,
            users: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(given)
    }

    /// Opens the file at a path if it is this run's ledger. Has no effect on any other file. Makes six system calls,
    /// and allocates nothing. The descriptor is closed by an exec.
    ///
    /// # Errors
    /// [`Refused::System`] with the system's error, or [`Refused::Other`] for another file.
    pub fn open(&self, path: &CStr, which: Which, access: c_int) -> Result<c_int, Refused> {
        let open = |path: &CStr, flags: c_int| {
            // SAFETY: the path ends in zero. Guarded by the tests below.
            match unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) } {
                // SAFETY: errno is the calling thread's own and always valid.
                ..0 => Err(Refused::System(unsafe { *libc::__errno_location() })),
                descriptor => Ok(Descriptor(descriptor)),
            }
        };
        let place = open(path, libc::O_PATH)?;
        let link = Link::new(place.0);
        self.is_it(&place, &link, which).ok_or(Refused::Other)?;
        let opened = open(link.path(), access | libc::O_NOCTTY | libc::O_NONBLOCK)?;
        // SAFETY: a query on an open descriptor.
        let seals = unsafe { libc::fcntl(opened.0, libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return Err(Refused::Other);
        }
        let number = opened.0;
        std::mem::forget(opened);
        Ok(number)
    }

    fn is_it(&self, place: &Descriptor, link: &Link, which: Which) -> Option<()> {
        let found = status(place.0)?;
        let inode = self.inodes[usize::from(which == Which::Heap)];
        let mut buffer = [0; 96];
        // SAFETY: the path ends in zero, and the buffer has the given length.
        let length = unsafe {
            libc::readlink(link.path().as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
        };
        let shown = shown(buffer.get(..usize::try_from(length).ok()?)?);
        let is_it = found.st_mode & libc::S_IFMT == libc::S_IFREG
            && found.st_ino == inode
            && shown == Some((which, self.nonce))
            && (found.st_uid == self.owner || self.is_of_other_users());
        is_it.then_some(())
    }

    /// Returns whether this process is in another user namespace than the run. The owner of the file may have another
    /// number there.
    fn is_of_other_users(&self) -> bool {
        self.users != 0 && crate::number(USERS).is_some_and(|own| own != self.users)
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Given { nonce, inodes: [ledger, heap], owner, users } = self;
        write!(f, "{nonce:032x}.{ledger}.{heap}.{owner}.{users}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a file in memory with this name.
    fn file(name: &CStr) -> Descriptor {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: makes a file of its own; the name ends in zero.
        let made = Descriptor(unsafe { libc::memfd_create(name.as_ptr(), flags) });
        assert!(made.0 >= 0);
        made
    }

    fn seal(file: &Descriptor) {
        // SAFETY: seals a file of this test's own.
        assert_eq!(unsafe { libc::fcntl(file.0, libc::F_ADD_SEALS, SEALS) }, 0);
    }

    fn open(given: &Given, file: &Descriptor) -> Result<(), Refused> {
        let opened = given.open(Link::new(file.0).path(), Which::Ledger, libc::O_RDWR);
        opened.map(|number| drop(Descriptor(number)))
    }

    #[test]
    fn only_the_file_that_the_run_made_is_opened() {
        let number = nonce().unwrap();
        let ledger = file(&name(Which::Ledger, number));
        let given = Given::of(number, ledger.0, None).unwrap();
        assert_eq!(open(&given, &ledger), Err(Refused::Other), "it is not sealed");
        seal(&ledger);
        assert_eq!(open(&given, &ledger), Ok(()));
        assert_eq!(Given::read(given.to_string().as_bytes()), Some(given));

        // A file with the same name, the second ledger, a ledger of another run, one of another user.
        let same = file(&name(Which::Ledger, number));
        seal(&same);
        assert_eq!(open(&given, &same), Err(Refused::Other));
        let other = Given { nonce: number ^ 1, ..given };
        assert_eq!(open(&other, &ledger), Err(Refused::Other));
        let other = Given { owner: given.owner + 1, ..given };
        assert_eq!(open(&other, &ledger), Err(Refused::Other));
        let elsewhere = Given { users: given.users + 1, ..other };
        assert_eq!(open(&elsewhere, &ledger), Ok(()), "users have other numbers there");
        let path = Link::new(ledger.0);
        let as_heap = given.open(path.path(), Which::Heap, libc::O_RDWR);
        assert_eq!(as_heap, Err(Refused::Other));
        let gone = given.open(c"/proc/self/fd/-1", Which::Ledger, libc::O_RDWR);
        assert_eq!(gone, Err(Refused::System(libc::ENOENT)));
        for other in [c"/dev/null", c"/", c"/proc/self/status"] {
            let opened = given.open(other, Which::Ledger, libc::O_RDONLY);
            assert_eq!(opened, Err(Refused::Other), "{other:?}");
        }
    }

    #[test]
    fn what_is_shown_of_a_file_says_which_it_is() {
        for which in [Which::Ledger, Which::Heap] {
            let name = name(which, 7);
            let link = [SHOWN.0, name.to_bytes(), SHOWN.1].concat();
            assert_eq!(shown(&link), Some((which, 7)));
            assert_eq!(shown(&link[..link.len() - 1]), None);
            assert_eq!(shown(name.to_bytes()), None);
        }
        for other in [
            "/memfd:ledgerline (deleted)",
            "/memfd:ledgerline- (deleted)",
            "/memfd:ledgerline-+0000000000000000000000000000007 (deleted)",
            "/memfd:ledgerline-0000000000000000000000000000000A (deleted)",
        ] {
            assert_eq!(shown(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_description_is_not_read() {
        let text = format!("{:032x}.1.0.0.9", 5);
        assert!(Given::read(text.as_bytes()).is_some());
        for other in ["", "1.1.0.0.9", &text[1..], &format!("{text}.1"), &text[..text.len() - 2]] {
            assert_eq!(Given::read(other.as_bytes()), None, "{other}");
        }
    }
}
