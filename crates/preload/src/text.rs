//! Text on the stack, from untrusted words.

use ledgerline::name;

/// Text of at most `N` bytes. Names of threads, programs and libraries may be any bytes, and so may paths: a forbidden
/// letter is replaced, and the excess is left out, so that this is valid text for any input.
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
    /// Returns whether a letter is allowed.
    allows: fn(char) -> bool,
    /// Replaces a letter that is not allowed.
    instead: char,
}

impl<const N: usize> Text<N> {
    /// Returns an empty group's name.
    pub(crate) fn name() -> Text<N> {
        Text { bytes: [0; N], length: 0, allows: name::allows, instead: '_' }
    }

    /// Returns an empty line for a terminal. Its content cannot control the terminal.
    pub(crate) fn line() -> Text<N> {
        let allows = |letter| letter == '/' || name::allows(letter);
        Text { bytes: [0; N], length: 0, allows, instead: '?' }
    }

    /// Appends a part.
    pub(crate) fn push(&mut self, part: &[u8]) -> &mut Text<N> {
        for chunk in part.utf8_chunks() {
            let bad = if chunk.invalid().is_empty() { None } else { Some(self.instead) };
            for letter in chunk.valid().chars().chain(bad) {
                let letter = if (self.allows)(letter) { letter } else { self.instead };
                let end = self.length + letter.len_utf8();
                if end > N {
                    return self;
                }
                letter.encode_utf8(&mut self.bytes[self.length..end]);
                self.length = end;
            }
        }
        self
    }

    /// Appends a number in decimal.
    pub(crate) fn push_number(&mut self, number: u64) -> &mut Text<N> {
        if number >= 10 {
            self.push_number(number / 10);
        }
        self.push(&[b'0' + (number % 10) as u8])
    }

    /// Appends a number of bytes in readable form: `512B`, `2.8M`.
    pub(crate) fn push_size(&mut self, bytes: u64) -> &mut Text<N> {
        let unit = (bytes | 1).ilog2() / 10;
        if unit == 0 {
            return self.push_number(bytes).push(b"B");
        }
        // A number of bytes is below 16 EiB, so the tenths fit.
        let tenths = (u128::from(bytes) * 10) >> (10 * unit);
        self.push_number((tenths / 10) as u64).push(b".").push_number((tenths % 10) as u64);
        self.push(&[b"BKMGTPE"[unit as usize]])
    }

    /// Appends a number in hexadecimal.
    pub(crate) fn push_hex(&mut self, number: u64) -> &mut Text<N> {
        if number >= 16 {
            self.push_hex(number / 16);
        }
        self.push(&[b"0123456789abcdef"[(number % 16) as usize]])
    }

    /// Cuts it to at most `length` bytes, at the boundary of a letter.
    pub(crate) fn shorten(&mut self, length: usize) {
        if self.length > length {
            let length = self.as_str().floor_char_boundary(length);
            self.bytes[length..].fill(0);
            self.length = length;
        }
    }

    /// Returns the text.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or("_")
    }

    /// Returns its words of eight bytes, padded with zeros.
    pub(crate) fn words<const WORDS: usize>(&self) -> [u64; WORDS] {
        const { assert!(WORDS * 8 == N) };
        std::array::from_fn(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&self.bytes[at * 8..at * 8 + 8]);
            u64::from_le_bytes(word)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline::{Ledger, NAME_MAX};

    fn empty() -> Text<NAME_MAX> {
        Text::name()
    }

    #[test]
    fn a_size_has_the_largest_unit_that_fits() {
        for (bytes, told) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0K"),
            (2_950_720, "2.8M"),
            (1 << 30, "1.0G"),
            (u64::MAX, "15.9E"),
        ] {
            assert_eq!(empty().push_size(bytes).as_str(), told);
        }
    }

    #[test]
    fn a_name_is_cleaned_and_cut() {
        let mut text = empty();
        text.push(b"a/b\n\xffc");
        text.push_number(40_321);
        assert_eq!(text.as_str(), "a_b__c40321");
        text.push(&[b'x'; 100]);
        assert_eq!(text.as_str().len(), NAME_MAX);
        text.shorten(3);
        assert_eq!(text.as_str(), "a_b");
    }

    #[test]
    fn whatever_bytes_a_thread_is_called_by_its_row_has_a_name() {
        let ledger = Ledger::builder().capacity(100).anonymous().unwrap();
        for (bytes, name) in [
            (&b"gr\xc3\xb6\xc3\x9fe"[..], "gr\u{f6}\u{df}e"),
            // Cut in the middle of a letter.
            (b"gr\xc3\xb6\xc3", "gr\u{f6}_"),
            (b"\xe2\x80\xaelive\x1b[2J\x7f\xc2\x9b/", "_live_[2J___"),
            (b"\xff\xfe\xed\xa0\x80", "_____"),
            ("\u{2028}\u{feff}\u{2066}".as_bytes(), "___"),
        ] {
            let mut text = empty();
            text.push(bytes);
            assert_eq!(text.as_str(), name, "{bytes:?}");
            assert_eq!(ledger.root().create(text.as_str()).unwrap().name(), name);
        }
        for length in 0..4 {
            let mut text = empty();
            text.push(&b"xxx"[..length]);
            text.push("\u{1f600}".repeat(20).as_bytes());
            assert!(text.as_str().len() > NAME_MAX - 4);
            ledger.root().create(text.as_str()).unwrap();
            text.shorten(9);
            assert!((6..=9).contains(&text.as_str().len()), "{:?}", text.as_str());
            ledger.root().create(text.as_str()).unwrap();
        }
    }

    #[test]
    fn numbers_are_printed_whole() {
        for number in [0, 7, 1024, u64::MAX] {
            assert_eq!(Text::<20>::name().push_number(number).as_str(), number.to_string());
            assert_eq!(Text::<20>::name().push_hex(number).as_str(), format!("{number:x}"));
        }
    }
}
