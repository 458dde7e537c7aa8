//! `run --record`: a thread of the supervisor looks at the ledger and records its holdings over time.
//!
//! It is a thread, since writing to a disk may block, and signals and ended processes must not wait for that. It reads
//! like any observer: the charging programs do not notice.

use ledgerline_view::report::{LEAST_SIZE, Recorder, Settings};
use ledgerline_view::terminal::output::{one_line, printable, say};
use ledgerline_view::watch::Source;
use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};

use ledgerline_run::launch::{Failure, Status};

/// The shortest interval between looks: each costs a system call.
const SOONEST: Duration = Duration::from_millis(1);
const LATEST: Duration = Duration::from_secs(3600);

/// The options of a recording.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// Also keep what rows held over time in FILE, for `ledgerline report`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<OsString>,

    /// Keep the command line in the recording, too, and not the program's name alone
    #[arg(long, requires = "record", hide_short_help = true)]
    record_command: bool,

    /// How often the recording looks: 100ms, 2s
    #[arg(
        long,
        value_name = "TIME",
        default_value = "100ms",
        requires = "record",
        hide_short_help = true
    )]
    record_every: String,

    /// Hold the recording to SIZE, coarser with age where it gets longer
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "16M",
        requires = "record",
        hide_short_help = true
    )]
    record_size: String,
}

/// The validated options.
pub struct Order<'a> {
    file: &'a Path,
    settings: Settings,
}

impl RecordArgs {
    /// Validates the options; `None` if no recording is requested.
    pub fn order(&self, command: &[OsString]) -> Result<Option<Order<'_>>, Failure> {
        let Some(file) = &self.record else { return Ok(None) };
        // Words of a command line may be secrets.
        let words = if self.record_command { command } else { &command[..1] };
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let title = one_line(&words.join(" "));
        let every = every(&self.record_every)
            .map_err(|why| Failure::usage(format!("--record-every: {why}")))?;
        let size = size(&self.record_size)
            .map_err(|why| Failure::usage(format!("--record-size: {why}")))?;
        Ok(Some(Order { file: Path::new(file), settings: Settings { title, every, size } }))
    }
}

/// A report would not read a larger recording.
const MOST_SIZE: u64 = 256 << 20;

/// Parses the size of a recording.
pub fn size(text: &str) -> Result<u64, String> {
    match ledgerline::size::parse(text) {
        Ok(Some(size)) if (LEAST_SIZE..=MOST_SIZE).contains(&size) => Ok(size),
        Ok(_) => Err("give a size from 256K to 256M".to_owned()),
        Err(_) => Err(format!("'{}' is not a size from 256K to 256M", printable(text))),
    }
}

/// Parses a time like `100ms` or `2s`.
pub fn every(text: &str) -> Result<Duration, String> {
    let told = || format!("'{}' is no time; write it like 100ms or 2s", printable(text));
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').ok_or_else(told)?, 1.0),
    };
    let number: f64 = number.parse().map_err(|_| told())?;
    let every = Duration::try_from_secs_f64(number * unit).map_err(|_| told())?;
    match (SOONEST..=LATEST).contains(&every) {
        true => Ok(every),
        false => Err("give a time from 1ms to 3600s".to_owned()),
    }
}

/// A recording in progress.
pub struct Recording {
    stop: Sender<String>,
    thread: JoinHandle<()>,
}

/// A prepared recorder. Nothing is recorded before it [starts](Sampler::start).
pub struct Sampler {
    source: Source,
    recorder: Recorder,
    every: Duration,
    told: bool,
}

impl Order<'_> {
    /// Makes the file, and opens the ledger in `path`.
    pub fn create(self, path: &str) -> Result<Sampler, Failure> {
        let name = self.file.display().to_string();
        let recorder = Recorder::create(self.file, self.settings.clone()).map_err(|error| {
            Failure::usage(format!(
                "--record: {} cannot be written ({error}); name a file in a directory that exists and is yours",
                printable(&name)
            ))
        })?;
        let source = Source::open(Path::new(path)).map_err(Failure::internal)?;
        Ok(Sampler { source, recorder, every: self.settings.every, told: false })
    }
}

impl Recording {
    /// Takes a last look, and notes how the program ended.
    pub fn end(self, status: Status) {
        let how = match status.signal() {
            Some(signal) => format!("killed by {signal}"),
            None => format!("exit code {}", status.code()),
        };
        // Neither fails, since the thread waits for this.
        let _ = self.stop.send(how);
        let _ = self.thread.join();
    }
}

impl Sampler {
    /// Starts to look. If no thread can be made, the run continues without a recording.
    pub fn start(self) -> Option<Recording> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("record".to_owned());
        match thread.spawn(move || self.run(&stopped)) {
            Ok(thread) => Some(Recording { stop, thread }),
            Err(error) => {
                say(format_args!(
                    "ledgerline: warning: --record: no thread can be started ({error})"
                ));
                None
            }
        }
    }

    fn run(mut self, stopped: &Receiver<String>) {
        refuse_large_files();
        let mut next = Instant::now();
        loop {
            self.look();
            // Looks that were missed while the disk or the machine was slow are skipped.
            next = (next + self.every).max(Instant::now());
            let left = next.saturating_duration_since(Instant::now());
            match stopped.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(how) => {
                    self.look();
                    let ended = self.recorder.end(&how);
                    return self.tell(ended);
                }
            }
        }
    }

    fn look(&mut self) {
        let pushed = self.recorder.push(&self.source.look());
        self.tell(pushed);
    }

    /// Reports once that the recording has gaps; the run continues.
    fn tell(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written
            && !self.told
        {
            self.told = true;
            let name = self.recorder.path().display().to_string();
            say(format_args!(
                "ledgerline: warning: --record: writing {} failed ({error}); what is in it stays readable, and writing is tried again",
                printable(&name)
            ));
        }
    }
}

/// Blocks SIGXFSZ in this thread, so that a file at the limit on files (`ulimit -f`) causes an error and does not end
/// the process.
fn refuse_large_files() {
    // SAFETY: a sigset_t is an array of integers, for which zeros are valid; the calls change that set and this
    // thread's mask.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_bounds() {
        assert_eq!(every("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(every("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(every("1.5s"), Ok(Duration::from_millis(1500)));
        for wrong in
            ["", "s", "ms", "10", "-1s", "NaNs", "infs", "1e30s", "0s", "0.5ms", "2h", "3601s"]
        {
            assert!(every(wrong).is_err(), "{wrong}");
        }
    }
}
