//! The exit status of a program.

/// The exit status of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this code.
    Exited(u8),
    /// By this signal.
    Killed(i32),
}

impl Default for Status {
    fn default() -> Status {
        Status::Exited(0)
    }
}

impl Status {
    /// Returns the exit code that has the same meaning in a shell.
    pub fn code(self) -> u8 {
        match self {
            Status::Exited(code) => code,
            Status::Killed(signal) => {
                u8::try_from(signal).map_or(u8::MAX, |signal| signal.saturating_add(128))
            }
        }
    }

    /// Returns the name of the signal that killed the program.
    pub fn signal(self) -> Option<String> {
        macro_rules! name {
            ($number:ident: $($name:ident)*) => {
                match $number {
                    $(libc::$name => stringify!($name).to_owned(),)*
                    other => format!("signal {other}"),
                }
            };
        }
        let Status::Killed(signal) = self else { return None };
        Some(
            name!(signal: SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1
            SIGSEGV SIGUSR2 SIGPIPE SIGALRM SIGTERM SIGXCPU SIGXFSZ SIGSYS),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_a_shells() {
        assert_eq!(Status::Exited(7).code(), 7);
        assert_eq!(Status::Killed(libc::SIGKILL).code(), 137);
        assert_eq!(Status::Killed(libc::SIGSEGV).signal().as_deref(), Some("SIGSEGV"));
        assert_eq!(Status::Killed(40).signal().as_deref(), Some("signal 40"));
        assert_eq!(Status::Exited(0).signal(), None);
    }
}
