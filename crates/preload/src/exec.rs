//! Programs that an accounted process executes. Those that this library will not see are named in the ledger.
//!
//! ```text
//! exec(path, environment):
//!   blind = the finding in path's file; or the environment lacks this library; or the ledger has no path any more
//!   the ledger is reached otherwise:      put that into the environment (elsewhere.rs)
//!   the library would break the program:  take it out of the environment
//!   the run is strict, and it is missing: put it in
//!   the library will be in the program:   vouch that it starts under no filter (vouch.rs)
//!   blind: a row for the process, with the reason
//!   exec; if it returns, it has failed: remove the row
//! ```
//!
//! All this also runs in children that share their parent's memory (`vfork`). So it takes no lock that a thread of the
//! parent may hold, and writes no cell: a row of another process counts in its totals. A process that executes a
//! program itself notes that in its own row.

mod environment;

use crate::behind::{self, Actions};
use crate::elsewhere::{LONGEST, Reached, descriptor_path};
use crate::filter;
use crate::process;
use crate::say::{List, environ, strings};
use environment::{Environment, Looks, looks};
use ledgerline_interpose::{errno, set_errno};
use ledgerline_protocol::blind::{self, Blind, Serves};
use std::ffi::{CStr, c_char, c_int};
use std::io::Write;

/// The C libraries whose programs this library serves.
const SERVES: Serves = Serves::built_for(cfg!(target_env = "gnu"));

/// Room for a copy of an environment, on the stack: the process may have as little address space as the program. Some
/// 450 strings fit; stacks of threads are small.
type Memory = [usize; WORDS];
const WORDS: usize = 512;

/// The decisions before a program is executed.
struct Plan {
    blind: Option<Blind>,
    /// Whether the library will be in the program, as far as can be known.
    is_seen: bool,
    environment: Environment,
    /// Keeps the descriptors open until the program was executed.
    _reached: Option<Reached>,
}

impl Plan {
    /// # Safety
    /// The environment is null or a list of strings that ends in null.
    unsafe fn new(path: Option<&CStr>, given: List) -> Plan {
        let plan = |blind, environment| Plan { blind, is_seen: false, environment, _reached: None };
        let unchanged = |blind| plan(blind, Environment::given(given));
        // The kernel returns EFAULT for an address in the first page.
        let is_bad = !given.is_null() && (given as usize) < 4096;
        let Some(run) = process::run().filter(|_| !is_bad) else { return unchanged(None) };
        // The file cannot be inspected under a filter.
        if filter::is_on() {
            return unchanged(Some(Blind::Filter));
        }
        // SAFETY: by the caller's contract.
        let Looks { library: has_library, order: has_order, intact, other_run } =
            unsafe { looks(given) };
        let of_file = path.map(|path| blind::of(path, SERVES));
        let (is_read, of_file) =
            (matches!(of_file, Some(Ok(_))), of_file.and_then(Result::ok).flatten());
        let blind = of_file.or_else(|| match has_library && intact {
            _ if other_run => Some(Blind::OtherRun),
            true => process::can_open(run).err(),
            false => Some(Blind::Environment),
        });
        let is_to_be = !other_run && (has_library && intact || run.strict);
        if of_file.is_none()
            && is_to_be
            && matches!(process::can_open(run), Err(Blind::Elsewhere | Blind::OtherUser))
            && let Some(reached) = Reached::new()
            // SAFETY: by the caller's contract.
            && let Some(environment) = unsafe { Environment::with(given, Some(&reached)) }
        {
            return Plan { blind: None, is_seen: false, environment, _reached: Some(reached) };
        }
        // SAFETY: by the caller's contract.
        let changed =
            unsafe {
                match blind {
                    Some(Blind::Environment) if run.strict => Environment::with(given, None),
                    // The library would use values that are not the run's.
                    Some(Blind::Environment) if has_library && has_order => {
                        Environment::without(given, None)
                    }
                    Some(
                        Blind::Sanitizer | Blind::OtherLibc | Blind::OtherUser | Blind::Elsewhere,
                    ) if has_library => Environment::without(given, None),
                    _ => None,
                }
            };
        match (blind, changed) {
            (Some(Blind::Environment), Some(environment)) if run.strict => plan(None, environment),
            (blind, Some(environment)) => plan(blind, environment),
            (None, None) => Plan { is_seen: is_read, ..unchanged(None) },
            (blind, None) => unchanged(blind),
        }
    }

    /// Returns a copy of the environment in this memory, if the plan needs one that differs.
    fn copy_in(&self, memory: &mut Memory) -> Option<Environment> {
        let given = self.environment.list;
        // SAFETY: the list is the caller's; the memory outlives the copy, which is dropped before it.
        unsafe {
            match self.blind {
                Some(Blind::AddressSpace) => Environment::without(given, Some(memory)),
                None if self.is_seen => Environment::vouching_in(given, memory),
                _ => None,
            }
        }
    }

    /// Executes the program in place of this process. Returns only on failure.
    fn execute(self, path: &CStr, go: impl FnOnce(List) -> c_int) -> c_int {
        let own = || match filter::is_on() {
            true => process::identity().pid().cast_signed(),
            // SAFETY: getpid has no preconditions.
            false => unsafe { libc::getpid() },
        };
        let row = |blind| Some((process::name_blind(path, own(), blind)?, blind));
        let row = self.blind.and_then(row);
        let leaves = self.is_seen && process::leaves_anew(own());
        let number = own();
        process::note_execution(number, true);
        let mut memory = [0; WORDS];
        let copy = self.copy_in(&mut memory);
        let result = go(copy.as_ref().unwrap_or(&self.environment).list);
        let failure = errno();
        process::note_execution(number, false);
        if let Some((row, blind)) = row {
            process::unname_blind(row, blind);
        }
        if leaves {
            process::count_left_out(1);
        }
        drop(self);
        set_errno(failure);
        result
    }
}

/// Returns the file for a name without a slash: the first in `PATH` that may be executed.
fn search<'b>(name: &'b CStr, buffer: &'b mut [u8; 4096]) -> Option<&'b CStr> {
    if name.to_bytes().contains(&b'/') {
        return Some(name);
    }
    let path = crate::say::environment(c"PATH").unwrap_or(b"/bin:/usr/bin");
    let name = name.to_bytes();
    let found = path.split(|&byte| byte == b':').any(|folder| {
        let folder = if folder.is_empty() { b"." } else { folder };
        let mut room = &mut buffer[..];
        let fits = [folder, b"/", name, b"\0"].into_iter().all(|part| room.write_all(part).is_ok());
        // SAFETY: the text ends in zero.
        fits && unsafe { libc::access(buffer.as_ptr().cast(), libc::X_OK) } == 0
    });
    CStr::from_bytes_until_nul(buffer).ok().filter(|_| found)
}

/// Returns the plan for a program that is named by its path, and that path.
///
/// # Safety
/// The path is null or ends in zero; the environment is as for [`Plan::new`].
unsafe fn by_path<'n>(path: *const c_char, environment: List) -> (&'n CStr, Plan) {
    // SAFETY: by the caller's contract.
    unsafe {
        let name = if path.is_null() { c"" } else { CStr::from_ptr(path) };
        (name, Plan::new(Some(name), environment))
    }
}

/// Like [`by_path`], but searches for the program.
///
/// # Safety
/// As for [`by_path`]; the name is not null.
unsafe fn by_name<'n>(file: *const c_char, environment: List) -> (&'n CStr, Plan) {
    let mut buffer = [0; 4096];
    // SAFETY: by the caller's contract.
    unsafe {
        let name = CStr::from_ptr(file);
        (name, Plan::new(search(name, &mut buffer), environment))
    }
}

/// Replaces C's `execve`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, words: List, environment: List) -> c_int {
    // SAFETY: by the caller's contract for the arguments, here and in all functions below.
    unsafe {
        let (name, plan) = by_path(path, environment);
        plan.execute(name, |environment| behind::execve(path, words, environment))
    }
}

/// Replaces C's `execv`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, words: List) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe { execve(path, words, environ) }
}

/// Replaces GNU's `execvpe`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, words: List, environment: List) -> c_int {
    // SAFETY: as in `execve`.
    unsafe {
        let (name, plan) = by_name(file, environment);
        plan.execute(name, |environment| behind::execvpe(file, words, environment))
    }
}

/// Replaces C's `execvp`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, words: List) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe { execvpe(file, words, environ) }
}

/// Returns the name of a descriptor's file.
fn name_of<'b>(path: &'b CStr, buffer: &'b mut [u8; 4096]) -> &'b CStr {
    // SAFETY: the path ends in zero; the call writes less than the buffer, whose last byte stays zero.
    let length =
        unsafe { libc::readlink(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    if length < 0 { path } else { CStr::from_bytes_until_nul(buffer).unwrap_or(path) }
}

/// Replaces C's `fexecve`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(file: c_int, words: List, environment: List) -> c_int {
    let (mut buffer, mut link) = ([0; LONGEST], [0; 4096]);
    let path = descriptor_path(file, &mut buffer);
    // SAFETY: as in `execve`.
    unsafe {
        Plan::new(Some(path), environment).execute(name_of(path, &mut link), |environment| {
            behind::fexecve(file, words, environment)
        })
    }
}

/// Replaces Linux's `execveat`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    folder: c_int,
    path: *const c_char,
    words: List,
    environment: List,
    flags: c_int,
) -> c_int {
    let (mut buffer, mut link) = ([0; LONGEST], [0; 4096]);
    // SAFETY: as in `execve`.
    let (name, plan) = unsafe {
        let given = CStr::from_ptr(path);
        let is_there = given.to_bytes().starts_with(b"/") || folder == libc::AT_FDCWD;
        let (name, path) = match given.to_bytes() {
            b"" => {
                let path = descriptor_path(folder, &mut buffer);
                (name_of(path, &mut link), Some(path))
            }
            // A path below a descriptor is not inspected.
            _ => (given, is_there.then_some(given)),
        };
        (name, Plan::new(path, environment))
    };
    // SAFETY: as in `execve`.
    plan.execute(name, |environment| unsafe {
        behind::execveat(folder, path, words, environment, flags)
    })
}

/// Starts a program in a new process. Its row is made when its id is known.
fn spawn(
    plan: Plan,
    name: &CStr,
    child: *mut libc::pid_t,
    go: impl FnOnce(List, *mut libc::pid_t) -> c_int,
) -> c_int {
    let (mut number, mut memory) = (0, [0; WORDS]);
    let copy = plan.copy_in(&mut memory);
    let result = go(copy.as_ref().unwrap_or(&plan.environment).list, &raw mut number);
    if result == 0 {
        if let Some(blind) = plan.blind {
            let _ = process::name_blind(name, number, blind);
        }
        if !child.is_null() {
            // SAFETY: the caller's place for the id.
            unsafe { child.write(number) };
        }
    }
    result
}

/// Exports a function that starts a program in a new process.
macro_rules! export_spawn {
    ($($name:ident $plan:ident;)*) => {$(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As for the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            child: *mut libc::pid_t,
            program: *const c_char,
            actions: Actions,
            attributes: Actions,
            words: List,
            environment: List,
        ) -> c_int {
            // SAFETY: as in `execve`.
            unsafe {
                let (name, plan) = $plan(program, environment);
                spawn(plan, name, child, |environment, child| {
                    behind::$name(child, program, actions, attributes, words, environment)
                })
            }
        }
    )*};
}

export_spawn! { posix_spawn by_path; posix_spawnp by_name; }

/// Exports a function that takes a program's words one by one. It pushes the registers with the first words above those
/// on the stack, so that all form a list in place.
macro_rules! export_listed {
    ($($name:ident => $body:path;)*) => {$(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As for the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_int {
            // pop the return address; push words 5 to 1; body(path, the words); take all away; return
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "push rbx",
                // The stack is aligned for the call by a register that the call keeps.
                "mov rbx, rsp",
                "and rsp, -16",
                "call {body}",
                "mov rsp, rbx",
                "pop rbx",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                body = sym $body,
            );
            // push words 7 to 1 below those on the stack; body(path, the words); take them away; return
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                "stp x6, x7, [sp, #-16]!",
                "stp x4, x5, [sp, #-16]!",
                "stp x2, x3, [sp, #-16]!",
                "stp x30, x1, [sp, #-16]!",
                "add x1, sp, #8",
                "bl {body}",
                "ldr x30, [sp]",
                "add sp, sp, #64",
                "ret",
                body = sym $body,
            );
        }
    )*};
}

export_listed! {
    execl => execl_body;
    execlp => execlp_body;
    execle => execle_body;
}

// Separate functions, as in C libraries: they must not call an `execv` that the program defines.

unsafe extern "C" fn execl_body(path: *const c_char, words: List) -> c_int {
    // SAFETY: the words end in null, as the C function demands; here and below.
    unsafe { execve(path, words, environ) }
}

unsafe extern "C" fn execlp_body(file: *const c_char, words: List) -> c_int {
    // SAFETY: as above.
    unsafe { execvpe(file, words, environ) }
}

unsafe extern "C" fn execle_body(path: *const c_char, words: List) -> c_int {
    // SAFETY: the words end in null, as the C function demands; the environment follows them.
    unsafe {
        let environment = words.add(strings(words).count() + 1).cast::<List>();
        execve(path, words, environment.read())
    }
}
