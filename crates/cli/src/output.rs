//! What a command prints on standard output.

use std::io::{self, ErrorKind, Write, stdout};

/// Writes all of it. `false` if nobody reads any more: whoever read so far, a pager that was left or `head`, has
/// seen enough, and that is no error.
///
/// # Errors
/// Anything else that keeps it from being written.
pub fn print(text: &[u8]) -> io::Result<bool> {
    let mut stdout = stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}
