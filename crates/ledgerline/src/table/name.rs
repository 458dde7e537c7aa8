//! The rules for a group's name, and the escaping of names that another process wrote.
//!
//! A name is printed in terminals, logs and pages. So it holds nothing that steers them: no control characters, no line
//! ends, no marks that change the direction of the following text, and no invisible characters. A name from a file that
//! another process wrote may break these rules, so it is escaped.

use crate::sync::{AtomicU64, Ordering};
use std::borrow::Cow;
use std::fmt;

/// The longest name of a group, in bytes.
pub const NAME_MAX: usize = 56;

/// The path and the name of a group that is gone.
pub(crate) const DESTROYED: &str = "(destroyed)";

/// Returns whether the name of a group may hold a character. It may not hold: `/`; control characters (C0, DEL and C1);
/// the separators of lines and paragraphs; marks, embeddings, overrides and isolates of direction; characters that show as
/// nothing, such as U+200B and U+FEFF. The two joiners U+200C and U+200D are allowed, since words of some languages need
/// them.
///
/// ```
/// use ledgerline::name::allows;
/// assert!("Größe 7 (β)".chars().all(allows));
/// assert!(!allows('/') && !allows('\u{7f}') && !allows('\u{202e}'));
/// ```
pub const fn allows(character: char) -> bool {
    let control = matches!(character, '\0'..='\x1f' | '\x7f'..='\u{9f}');
    let line_end = matches!(character, '\u{2028}' | '\u{2029}');
    let direction = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    // Characters for which Unicode lets a program show nothing (Default_Ignorable_Code_Point, without the
    // two joiners): the soft hyphen, fillers, variation selectors, spaces of no width, operators and marks
    // without a glyph, language tags; and the anchors of annotations and the braille pattern without a dot.
    let unseen = matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'
            | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !(character == '/' || control || line_end || direction || unseen)
}

/// Escapes each character of a text that no name [`allows`]: `\u{202e}`, and `\u{2f}` for a `/`.
///
/// ```
/// assert_eq!(ledgerline::name::escaped("a/b\u{1b}[2J"), r"a\u{2f}b\u{1b}[2J");
/// ```
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_unless(text, allows)
}

/// Writes a text of at most `BYTES` bytes into words, and zeros behind it.
pub(super) fn store<const BYTES: usize>(into: &[AtomicU64], text: &str) {
    let mut bytes = [0u8; BYTES];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    for (word, part) in into.iter().zip(bytes.chunks_exact(8)) {
        let part = part.try_into().expect("chunks of eight");
        word.store(u64::from_le_bytes(part), Ordering::Relaxed);
    }
}

/// Returns the bytes of such words. Allocates nothing.
pub(super) fn load<const BYTES: usize>(from: &[AtomicU64]) -> [u8; BYTES] {
    let mut bytes = [0u8; BYTES];
    for (word, part) in from.iter().zip(bytes.chunks_exact_mut(8)) {
        part.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes
}

/// Splits bytes before the first zero.
pub(super) fn before_zeros(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()))
}

/// Returns a row's name. Another process may have written over it: invalid UTF-8 shows as replacement characters, and
/// characters that no name may hold are escaped.
pub(crate) fn of_bytes(bytes: &[u8; NAME_MAX]) -> String {
    escaped(&String::from_utf8_lossy(before_zeros(bytes).0)).into_owned()
}

/// Escapes each character of a text that is not allowed.
pub(crate) fn escaped_unless(text: &str, allowed: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&allowed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if allowed(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_unicode());
        }
    }
    Cow::Owned(shown)
}

/// The reason why a text cannot be a group's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// The text is empty.
    Empty,
    /// The text is longer than [`NAME_MAX`].
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The text holds a character that no name [`allows`].
    Character {
        /// The first such character.
        character: char,
        /// The byte at which it begins.
        at: usize,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NameError::Empty => write!(f, "a group's name has 1 to {NAME_MAX} bytes, not none"),
            NameError::TooLong { bytes } => {
                write!(f, "a group's name has 1 to {NAME_MAX} bytes, not {bytes}")
            }
            NameError::Character { character: '/', at } => {
                write!(
                    f,
                    "a group's name holds no '/' (at byte {at}): create its groups one by one"
                )
            }
            NameError::Character { character, at } => write!(
                f,
                "a group's name holds no '{}' (at byte {at}), nor any other control character, end of a \
                 line, mark of direction or invisible character",
                character.escape_unicode()
            ),
        }
    }
}

impl std::error::Error for NameError {}

/// Checks that a text can be a group's name.
pub(crate) fn check(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > NAME_MAX {
        return Err(NameError::TooLong { bytes: name.len() });
    }
    // Most names pass here. Decoding their characters would take longer than creating a group.
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'/') {
        return Ok(());
    }
    match name.char_indices().find(|&(_, character)| !allows(character)) {
        Some((at, character)) => Err(NameError::Character { character, at }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Listed one by one, so that a range that is too short is noticed.
    const STEERING: [char; 30] = [
        '/',
        '\0',
        '\t',
        '\n',
        '\r',
        '\x1b',
        '\x7f',
        '\u{80}',
        '\u{85}',
        '\u{9b}',
        '\u{9f}',
        '\u{61c}',
        '\u{200b}',
        '\u{200e}',
        '\u{200f}',
        '\u{2028}',
        '\u{2029}',
        '\u{202a}',
        '\u{202b}',
        '\u{202c}',
        '\u{202d}',
        '\u{202e}',
        '\u{2060}',
        '\u{2066}',
        '\u{2067}',
        '\u{2068}',
        '\u{2069}',
        '\u{feff}',
        '\u{ad}',
        '\u{e0041}',
    ];

    #[test]
    fn a_name_that_steers_a_terminal_is_refused_with_the_character_and_its_place() {
        for character in STEERING {
            let name = format!("aß{character}b");
            assert_eq!(check(&name), Err(NameError::Character { character, at: 3 }), "{name:?}");
            let text = check(&name).unwrap_err().to_string();
            let shown = match character {
                '/' => "'/'".to_owned(),
                other => format!("'\\u{{{:x}}}'", u32::from(other)),
            };
            assert!(text.contains(&shown) && text.contains("byte 3"), "{text}");
            assert!(text.chars().all(|c| c == '/' || allows(c)), "{text:?}");
        }
        for name in [
            "q42",
            "Größe 7",
            "日本語",
            "می\u{200c}خواهم",
            "👩\u{200d}🔬",
            " ",
            "\\",
            "..",
            "a\u{a0}b",
        ] {
            assert_eq!(check(name), Ok(()), "{name:?}");
        }
        assert_eq!(check(""), Err(NameError::Empty));
        assert_eq!(check(&"x".repeat(NAME_MAX)), Ok(()));
        assert_eq!(check(&"ß".repeat(29)), Err(NameError::TooLong { bytes: 58 }));
    }

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn what_is_escaped_can_be_shown_and_a_name_stays_as_it_is(text in any::<String>()) {
            let shown = escaped(&text);
            prop_assert!(shown.chars().all(allows), "{shown:?}");
            if check(&text).is_ok() {
                prop_assert_eq!(&*shown, &*text);
            }
        }
    }
}
