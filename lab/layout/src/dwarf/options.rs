//! The places that are searched for debug information, and the number of threads that read it.

use std::path::PathBuf;
use std::thread;

/// The bytes of debug information that are worth one more thread.
const WORTH_A_THREAD: u64 = 1 << 20;

/// Options for finding debug information outside the file itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file's path. Its debug, split and package files are searched beside it, and errors name it.
    pub path: Option<PathBuf>,
    /// The system's directories of debug files.
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
    /// Returns the options for a file at `path`.
    pub fn beside(path: impl Into<PathBuf>) -> Options {
        Options { path: Some(path.into()), ..Options::default() }
    }
}

/// Returns the number of threads that walk units of `bytes` bytes in total.
pub(super) fn threads(options: &Options, bytes: u64, units: usize) -> usize {
    let most = match options.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let worth = usize::try_from(bytes.div_ceil(WORTH_A_THREAD)).unwrap_or(usize::MAX);
    most.min(worth).min(units).max(1)
}
