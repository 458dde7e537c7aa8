//! The name of an announced ledger's file: `NAME@PROGRAM@PID@START@NAMESPACE`, so that listing needs not open files.

use super::process::Process;
use std::fmt;
use std::io;

/// The longest name by which a ledger is announced, in bytes.
const LONGEST: usize = 64;

/// The parts of a file's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) name: String,
    pub(super) program: String,
    pub(super) process: Process,
}

impl Called {
    /// Returns the parts for a ledger that this process announces.
    pub(super) fn own(name: &str) -> io::Result<Called> {
        if !is_name(name) {
            let why = format!(
                "{name:?} cannot be announced: a name has 1 to {LONGEST} of a-z, A-Z, 0-9 and _ . + -, and begins with \
                 a letter or a digit"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let comm = std::fs::read("/proc/self/comm").unwrap_or_default();
        let program: String = comm.trim_ascii_end().iter().map(|&byte| shown(byte)).collect();
        let program = if program.is_empty() { "program".to_owned() } else { program };
        Ok(Called { name: name.to_owned(), program, process: Process::own() })
    }

    /// Returns the parts of a file's name, if it has this form.
    pub(super) fn parse(file: &str) -> Option<Called> {
        let [name, program, pid, start, namespace]: [&str; 5] =
            file.split('@').collect::<Vec<_>>().try_into().ok()?;
        let program_is =
            !program.is_empty() && program.bytes().all(|byte| shown(byte) == char::from(byte));
        if !is_name(name) || !program_is || program.len() > LONGEST {
            return None;
        }
        let process = Process {
            pid: pid.parse().ok().filter(|&pid| pid > 0)?,
            start: start.parse().ok()?,
            namespace: namespace.parse().ok()?,
        };
        let called = Called { name: name.to_owned(), program: program.to_owned(), process };
        // Each has one spelling: `+7` and `007` are refused.
        (called.to_string() == file).then_some(called)
    }
}

impl fmt::Display for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Process { pid, start, namespace } = self.process;
        write!(f, "{}@{}@{pid}@{start}@{namespace}", self.name, self.program)
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte)
}

fn is_name(name: &str) -> bool {
    (1..=LONGEST).contains(&name.len())
        && name.bytes().all(is_plain)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

/// Returns a byte of a program's name as a character; bytes that steer a terminal or a path show as `_`.
fn shown(byte: u8) -> char {
    if is_plain(byte) { byte.into() } else { '_' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_is_called_is_read_as_it_was_written() {
        let called = Called::own("orders-7.eu").unwrap();
        assert_eq!(called.process.pid, std::process::id());
        assert_eq!(Called::parse(&called.to_string()), Some(called));
    }

    #[test]
    fn a_name_steers_neither_a_path_nor_a_terminal() {
        for name in
            ["", ".", "..", ".x", "-x", "a/b", "a@b", "a b", "\x1b[2J", "\u{e4}", &"x".repeat(65)]
        {
            assert_eq!(
                Called::own(name).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{name}"
            );
            assert_eq!(Called::parse(&format!("{name}@sh@7@8@9")), None, "{name}");
        }
        for file in
            ["a@s/h@7@8@9", "a@@7@8@9", "a@sh@0@8@9", "a@sh@+7@8@9", "a@sh@7@8", "a@sh@7@08@9"]
        {
            assert_eq!(Called::parse(file), None, "{file}");
        }
        assert!(Called::parse("a@sh@7@8@9").is_some());
    }
}
