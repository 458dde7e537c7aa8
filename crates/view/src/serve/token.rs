//! The secret of authorized clients: it is in the address that is printed once.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The fewest letters of a token that a user chose.
const LEAST: usize = 16;
/// The most bytes that are read of a file.
const MOST: u64 = 4096;
/// The random bytes of a new token.
const BYTES: usize = 16;

/// A secret. All requests with it are answered: those of the user who started the server, and of others who got it from
/// that user.
///
/// ```
/// use ledgerline_view::serve::Token;
///
/// let token = Token::new()?;
/// assert_eq!(token.as_str().len(), 32);
/// assert_eq!(format!("{token:?}"), "Token(..)");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Makes a token of 128 random bits, in hexadecimal.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn new() -> io::Result<Token> {
        let mut bytes = [0; BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Reads the token from the first line of a file. If the file is missing, it is made with a new token, for this
    /// user alone. Prometheus reads the same file (`credentials_file`).
    ///
    /// # Errors
    /// A sentence: the file cannot be read or made, or its content is no token.
    pub fn of_file(path: &Path) -> Result<Token, String> {
        let told = |error: io::Error| format!("the token's file {}: {error}", path.display());
        let made = File::options().write(true).create_new(true).mode(0o600).open(path);
        match made {
            Ok(mut file) => {
                let token = Token::new().map_err(told)?;
                writeln!(file, "{}", token.0).map_err(told)?;
                return Ok(token);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(told(error)),
        }
        let mut text = String::new();
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        file.map_err(told)?.take(MOST).read_to_string(&mut text).map_err(told)?;
        Token::chosen(text.lines().next().unwrap_or_default())
            .ok_or_else(|| {
                format!(
                    "the token's file {} has no token in its first line: {LEAST} or more of a-z, A-Z, 0-9, - and _",
                    path.display()
                )
            })
    }

    fn chosen(text: &str) -> Option<Token> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (text.len() >= LEAST && text.bytes().all(is_letter)).then(|| Token(text.to_owned()))
    }

    /// Returns the text of the token, for an address or a header.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares a client's text with this token. The time that this takes reveals only the token's length.
    pub(crate) fn is(&self, said: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differ = own.iter().zip(said).fold(0, |differ, (a, b)| differ | (a ^ b));
        own.len() == said.len() && std::hint::black_box(differ) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_token_is_nothing_but_itself_and_no_two_are_one() {
        let (one, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert!(one.is(one.as_str().as_bytes()) && !one.is(other.as_str().as_bytes()));
        assert!(!one.is(b"") && !one.is(&one.as_str().as_bytes()[1..]));
        assert!(!one.is(format!("{}0", one.as_str()).as_bytes()));
    }

    #[test]
    fn a_file_keeps_a_token_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let made = Token::of_file(&file).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o600);
        assert_eq!(Token::of_file(&file), Ok(made));
        for wrong in [
            "",
            "short",
            "sixteen letters and blanks",
            "\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}",
        ] {
            std::fs::write(&file, wrong).unwrap();
            assert!(Token::of_file(&file).unwrap_err().contains("no token"), "{wrong}");
        }
        assert!(Token::of_file(&folder.path().join("none/token")).is_err());
    }
}
