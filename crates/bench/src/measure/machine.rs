//! The measured machine: its CPUs, its name, the date.

use ledgerline_view::terminal::calendar;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

/// The words of a CPU mask: room for 8 192 CPUs, as many as Linux supports.
const MASK_WORDS: usize = 128;

/// Returns the CPUs that this process may use. Cores come before their further hardware threads: the first `n` of the
/// list are `n` cores, as long as there are that many.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let mut mask = [0u64; MASK_WORDS];
    // SAFETY: the kernel writes at most `size_of_val(&mask)` bytes into `mask`, a local variable.
    let result =
        unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let cpus = (0..MASK_WORDS * 64).filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 == 1);
    Ok(cores_first(cpus, |cpu| {
        let read = |what| {
            fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}")).ok()
        };
        read("physical_package_id").zip(read("core_id"))
    }))
}

/// Orders CPUs by the number of earlier CPUs in the list on the same core.
fn cores_first<K: PartialEq>(
    cpus: impl Iterator<Item = usize>,
    core: impl Fn(usize) -> Option<K>,
) -> Vec<usize> {
    let mut seen = Vec::new();
    let mut ranked: Vec<(usize, usize)> = cpus
        .map(|cpu| {
            let core = core(cpu);
            let rank = if core.is_some() { seen.iter().filter(|&c| *c == core).count() } else { 0 };
            seen.push(core);
            (rank, cpu)
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, cpu)| cpu).collect()
}

/// Ties the calling thread to one CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut mask = [0u64; MASK_WORDS];
    *mask.get_mut(cpu / 64).ok_or(io::ErrorKind::InvalidInput)? |= 1 << (cpu % 64);
    // SAFETY: the kernel reads `size_of_val(&mask)` bytes of `mask`, a local variable.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The time for which a thread was ready to run while other threads had its CPU.
#[derive(Debug)]
pub struct Waits {
    /// None on a kernel without these statistics.
    schedstat: Option<File>,
}

impl Waits {
    /// Observes the calling thread, for any thread that asks later.
    pub fn of_this_thread() -> Waits {
        // The name is resolved here, and means this thread from then on.
        Waits { schedstat: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// Returns the waiting time of the thread so far; always zero on a kernel without these statistics.
    pub fn so_far(&self) -> Duration {
        let mut text = [0u8; 64];
        let waited = self.schedstat.as_ref().and_then(|file| {
            let length = file.read_at(&mut text, 0).ok()?;
            // Time on the CPU, time ready, time slices; nanoseconds.
            std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
        });
        Duration::from_nanos(waited.unwrap_or(0))
    }
}

/// Returns the bytes of memory that this process occupies.
pub fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// Returns one line about the measured machine: processor, CPUs in use, kernel, date.
pub fn describe(cpus: usize) -> String {
    let model = model();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim();
    let today = today();
    let plural = if cpus == 1 { "" } else { "s" };
    format!("{model}, {cpus} CPU{plural}, Linux {kernel}, {today}")
}

/// Returns the kernel's name of the processor.
pub fn model() -> String {
    fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| model_name(&text))
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Returns the date, in UTC, as year-month-day.
pub fn today() -> String {
    calendar::utc(SystemTime::now()).0
}

fn model_name(cpuinfo: &str) -> Option<String> {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == "model name")
        .map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_come_before_their_siblings() {
        let siblings_adjacent = cores_first(0..6, |cpu| Some(cpu / 2));
        assert_eq!(siblings_adjacent, [0, 2, 4, 1, 3, 5]);
        let siblings_apart = cores_first(0..6, |cpu| Some(cpu % 3));
        assert_eq!(siblings_apart, [0, 1, 2, 3, 4, 5]);
        let unknown = cores_first([7, 3].into_iter(), |_| None::<usize>);
        assert_eq!(unknown, [3, 7]);
    }

    #[test]
    fn the_model_is_the_first_named() {
        let text = "processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\n\nmodel name\t: Other\n";
        assert_eq!(model_name(text).as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(model_name("processor\t: 0\n"), None);
    }

    #[test]
    fn a_pinned_thread_may_use_that_cpu_alone() {
        let cpu = *allowed_cpus().unwrap().last().unwrap();
        std::thread::spawn(move || {
            pin(cpu).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [cpu]);
        })
        .join()
        .unwrap();
        assert!(pin(usize::MAX).is_err());
    }

    #[test]
    fn waiting_for_a_cpu_only_grows() {
        let waits = Waits::of_this_thread();
        let before = waits.so_far();
        std::thread::yield_now();
        assert!(waits.so_far() >= before);
        assert_eq!(Waits { schedstat: None }.so_far(), Duration::ZERO);
    }

    #[test]
    fn this_process_occupies_memory() {
        assert!(resident_bytes().unwrap() > 100_000);
    }
}
