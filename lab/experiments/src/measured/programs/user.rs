//! The user that runs a program.

use std::os::unix::fs::chown;
use std::path::Path;

/// The user that runs programs which refuse to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) id: u32,
    pub(super) group: u32,
}

impl User {
    /// Returns `None` if this process does not run as root. Fails if there is no other user.
    pub(super) fn other_than_root() -> Result<Option<User>, String> {
        if !rustix::process::geteuid().is_root() {
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

/// Gives a directory to a user.
pub(super) fn give(path: &Path, user: Option<User>) -> Result<(), String> {
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
