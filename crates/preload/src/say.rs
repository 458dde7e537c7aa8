//! Messages to the user and the environment, without allocating.

use crate::filter;
use crate::text::Text;
use ledgerline_interpose::{LINE, write_line};
use std::ffi::{CStr, c_char};

/// Writes one line to standard error in one piece; nothing under a filter. Paths in it come from the environment.
pub(crate) fn say(parts: &[&[u8]]) {
    let mut line = Text::line();
    for part in parts {
        line.push(part);
    }
    write(&line);
}

/// Like [`say`], but for a finished line.
pub(crate) fn write(line: &Text<LINE>) {
    // A filter may forbid the write, or allow it to a descriptor that is another file by now.
    if filter::is_on() {
        return;
    }
    write_line(format_args!("{}", line.as_str()));
}

/// A list of strings that ends in null.
pub(crate) type List = *const *const c_char;

unsafe extern "C" {
    /// The environment.
    pub(crate) static environ: List;
}

/// Returns the strings of a list.
///
/// # Safety
/// `list` is such a list, or null.
pub(crate) unsafe fn strings(list: List) -> impl Iterator<Item = &'static CStr> {
    let at = move |index: usize| {
        if list.is_null() {
            return None;
        }
        // SAFETY: by the caller's contract; nothing behind the null is read, since the iterator ends there.
        unsafe {
            let string = *list.add(index);
            (!string.is_null()).then(|| CStr::from_ptr(string))
        }
    };
    (0..).map_while(at)
}

/// Reads a variable of the environment without allocating.
pub(crate) fn environment(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name is NUL-terminated. The result is a NUL-terminated string that lives as long as the program
    // leaves its environment alone, and is used only during start-up.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_and_steers_no_terminal() {
        let line = |text: &Text<LINE>| {
            let (bytes, length) = ledgerline_interpose::line(format_args!("{}", text.as_str()));
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        let path = b"/tmp/\x1b[2J\xff\xe2\x80\xae\xc3\xa4";
        let text = line(Text::line().push(b"cannot open ").push(path));
        assert_eq!(text, "ledgerline: cannot open /tmp/?[2J??\u{e4}\n");
        let text = line(Text::line().push("\u{e4}".repeat(300).as_bytes()));
        assert!(text.len() > 253 && text.ends_with("\u{e4}\n"));
    }
}
