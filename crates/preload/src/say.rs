//! Words to the user and the environment, without allocating.

use crate::filter;
use crate::text::Text;
use ledgerline_interpose::{LINE, write_line};
use std::ffi::{CStr, c_char};

/// Writes one line to standard error in one piece; nothing under a filter. (Paths come from the environment.)
pub(crate) fn say(parts: &[&[u8]]) {
    let mut line = Text::line();
    for part in parts {
        line.push(part);
    }
    write(&line);
}

/// As [`say`], for a line that is composed already.
pub(crate) fn write(line: &Text<LINE>) {
    // (What a filter forbids, or lets through to a descriptor that is something else by now, is not known.)
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

/// The strings of a list.
///
/// # Safety
/// It is one, or null.
pub(crate) unsafe fn strings(list: List) -> impl Iterator<Item = &'static CStr> {
    let at = move |index: usize| {
        if list.is_null() {
            return None;
        }
        // SAFETY: as the caller says; nothing behind the null is read, since the iterator ends there.
        unsafe {
            let string = *list.add(index);
            (!string.is_null()).then(|| CStr::from_ptr(string))
        }
    };
    (0..).map_while(at)
}

/// A variable of the environment, read without allocating.
pub(crate) fn environment(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name is NUL-terminated; what is returned is a NUL-terminated string that lives as
    // long as the program leaves its environment alone, and is looked at only during start-up.
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
