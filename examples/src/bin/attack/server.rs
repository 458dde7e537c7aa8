//! The server as a process of its own: its address, its CPU time, its output.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The server, which ends when this value drops.
pub struct Server {
    process: Child,
    pub address: String,
    errors: File,
}

impl Server {
    /// Starts `tenants`, which lies beside this program, with backtraces of panics.
    pub fn start() -> Result<Server, Box<dyn Error>> {
        let errors = tempfile::tempfile()?;
        let mut process = Command::new(std::env::current_exe()?.with_file_name("tenants"))
            .env("RUST_BACKTRACE", "1")
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .spawn()?;
        let mut address = String::new();
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut address)?;
        Ok(Server { process, address: address.trim().to_owned(), errors })
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the number of times it printed a text on standard error.
    pub fn printed(&self, text: &str) -> std::io::Result<usize> {
        let mut errors = self.errors.try_clone()?;
        errors.rewind()?;
        let mut said = Vec::new();
        errors.read_to_end(&mut said)?;
        Ok(String::from_utf8_lossy(&said).matches(text).count())
    }

    /// Returns its peak memory in bytes.
    pub fn resident_peak(&self) -> Result<u64, Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes: u64 = line.ok_or("no VmHWM")?.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes << 10)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; the report mentions that.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the CPU time of a process, to ten milliseconds.
pub fn cpu_time(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name before these fields may have spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        fields.split(' ').skip(12).take(2).filter_map(|it| it.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}
