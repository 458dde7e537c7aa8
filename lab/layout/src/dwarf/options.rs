//! Where debug information is looked for, and how many threads read it.

use std::path::PathBuf;
use std::thread;

/// How many bytes of debug information pay for a thread.
const WORTH_A_THREAD: u64 = 1 << 20;

/// How to find debug information that is not in the file itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the file is. Its debug, split and package files are looked for beside it, and errors name it.
    pub path: Option<PathBuf>,
    /// Where the system keeps debug files.
    pub debug_directories: Vec<PathBuf>,
    /// The most threads that walk the units; 0 for as many as there are processors.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        let debug_directories = vec![PathBuf::from("/usr/lib/debug")];
        Options { path: None, debug_directories, threads: 0 }
    }
}

impl Options {
    /// The options for a file at `path`.
    pub fn beside(path: impl Into<PathBuf>) -> Options {
        Options { path: Some(path.into()), ..Options::default() }
    }
}

/// How many threads walk units that have so many bytes together.
pub(super) fn threads(options: &Options, bytes: u64, units: usize) -> usize {
    let most = match options.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let worth = usize::try_from(bytes.div_ceil(WORTH_A_THREAD)).unwrap_or(usize::MAX);
    most.min(worth).min(units).max(1)
}
