//! Real programs whose resident pages are followed: a compile, a database, a storm of messages.
//!
//! Each runs in a directory of its own that is removed afterwards, and ends in bounded time, also when this
//! process is killed meanwhile.

mod compile;
mod database;
mod messages;
mod running;
mod scratch;

use self::running::Running;
use self::scratch::Scratch;
use super::trace::Trace;
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::Duration;

/// Longest that one program may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much a program is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) passes: usize,
    pub(super) quick: bool,
}

/// A program: what it is called, and how it is run and recorded.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) record: fn(&[usize], Size) -> Result<Trace, String>,
}

pub(super) const PROGRAMS: [Program; 3] = [
    Program { name: "make -j", record: compile::record },
    Program { name: "pgbench", record: database::record },
    Program { name: "messages", record: messages::record },
];

/// Whom to run programs as that refuse to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    id: u32,
    group: u32,
}

impl User {
    /// None where this process is not root's; an error where there is nobody else.
    fn other_than_root() -> Result<Option<User>, String> {
        // SAFETY: it has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return Ok(None);
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| User::named(&users, name))
            .map(Some)
            .ok_or_else(|| "there is neither a user postgres nor nobody to run it as".to_owned())
    }

    fn named(users: &str, name: &str) -> Option<User> {
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let found = fields.next()? == name;
            let mut numbers = fields.skip(1).take(2).map_while(|text| text.parse().ok());
            let user = User { id: numbers.next()?, group: numbers.next()? };
            (found && user.id != 0).then_some(user)
        })
    }
}

/// Hands a directory to a user.
fn give(path: &Path, user: Option<User>) -> Result<(), String> {
    match user {
        Some(user) => chown(path, Some(user.id), Some(user.group))
            .map_err(|error| format!("{} cannot be given away: {error}", path.display())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_root_is_not() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533::/:/bin/false\nbad:x:y:z\n";
        assert_eq!(User::named(users, "nobody"), Some(User { id: 65534, group: 65533 }));
        for name in ["root", "bad", "other"] {
            assert_eq!(User::named(users, name), None, "{name}");
        }
    }
}
