//! Opens a profile of any format. The content determines the format, not the name.

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek};
use std::path::Path;

use ledgerline_layout::Error;

use super::{Known, Profile, by_hand, c2c, cannot, mem_report, net_cachelines, perf_data, script};

/// The largest size of a text.
const LARGEST: u64 = 256 << 20;

impl Profile {
    /// Reads a profile: TOML as people write it, a table of the kernel's `net_cachelines`, a `perf.data`, or the text
    /// of `perf c2c report --stdio`, `perf mem report --stdio`, `perf mem -D report` or `perf script`.
    ///
    /// A text has 256 MiB at most. A `perf.data` may be of any length, and is read in bounded memory.
    ///
    /// # Errors
    /// One line with the file, the place, the mistake and a correction. Profiles with addresses need the types and the
    /// objects in `known`.
    pub fn open(path: &Path, known: &Known<'_>) -> Result<Profile, Error> {
        let read = || {
            let file = File::open(path).map_err(|error| cannot(&error))?;
            Profile::read(BufReader::new(file), &path.to_string_lossy(), known)
        };
        read().map_err(|error| error.in_file(path))
    }

    /// Reads a profile of any format, which came from `source`.
    ///
    /// ```
    /// use ledgerline_advise::profile::{Kind, Known, Profile};
    /// let toml = b"[types.t]\nwork_ns = 300\nfields = { count = { store = 2 } }\n";
    /// let profile = Profile::read(std::io::Cursor::new(toml), "here", &Known::default())?;
    /// assert_eq!(profile.types[0].times("count", Kind::Store), 2.0);
    /// # Ok::<(), ledgerline_layout::Error>(())
    /// ```
    ///
    /// # Errors
    /// Like [`Profile::open`], without the file.
    pub fn read(
        mut file: impl Read + Seek,
        source: &str,
        known: &Known<'_>,
    ) -> Result<Profile, Error> {
        let mut start = Vec::new();
        let magic = file.by_ref().take(perf_data::MAGIC as u64).read_to_end(&mut start);
        magic.map_err(|error| cannot(&error))?;
        if perf_data::is(&start) {
            return perf_data::read(&start, file, source, known);
        }
        Profile::parse(&text(Cursor::new(start).chain(file))?, source, known)
    }

    /// Reads the text of a profile, which came from `source`.
    ///
    /// # Errors
    /// Like [`Profile::open`], without the file.
    pub fn parse(text: &str, source: &str, known: &Known<'_>) -> Result<Profile, Error> {
        // About a page of lines, because comments and call chains may come before the first sample.
        let mut first = text.lines().filter(|line| !line.starts_with('#')).take(100);
        let profile = if text.lines().any(|line| line.contains(c2c::TITLE)) {
            c2c::parse(text, source, known)
        } else if mem_report::is(text) {
            mem_report::parse(text, source, known)
        } else if net_cachelines::is(text) {
            net_cachelines::parse(text, source, known)
        } else if first.any(script::is) {
            script::parse(text, source, known)
        } else {
            by_hand::parse(text, source)
        }?;
        if profile.types.is_empty() {
            return Err(Error::new("it says nothing of any type")
                .advise("tables need a title of their own before the line of columns"));
        }
        Ok(profile)
    }
}

fn text(file: impl Read) -> Result<String, Error> {
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    if bytes.len() as u64 > LARGEST {
        return Err(Error::new(format!("is longer than {} MiB", LARGEST >> 20))
            .advise("let perf report fewer lines"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(format!("is no text: byte {at} is no UTF-8")).advise(
            "a profile is a text or a perf.data; a folder of `perf record --threads` is read by perf",
        )
    })
}
