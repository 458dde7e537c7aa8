//! `perf script`, a sample a line: of `perf mem record`, `perf c2c record`, or any event that samples addresses.
//!
//! ```text
//! netperf 4711 [003] 12.345678: 1009 cpu/mem-loads,ldlat=30/P: ffff888100a4c000 68100142 |OP LOAD|LVL L1 hit|LCK No|BLK N/A ...
//! ```
//!
//! A sample needs an address (`-F +addr`). The decoded source (`-F +data_src`, `|OP STORE|`) determines whether it is a
//! load, a store, or, if locked, an atomic. If the source is missing or `N/A`, the event's name decides. An access
//! belongs to the CPU, or to the thread if no CPU is printed. The period, if it is printed, is the number of events
//! that a sample stands for.

use ledgerline_layout::Error;

use super::kinds::{DERIVED, Said, of_event, of_words};
use super::samples::{Place, Samples, Told, Who, hexadecimal};
use super::{Kind, Known, Profile};

/// Returns whether a line is a sample of `perf script`.
pub(super) fn is(line: &str) -> bool {
    line.contains("|OP ")
        || parts(line).is_some_and(|parts| parts.cpu.is_some() || parts.thread.is_some())
}

/// The parts of a line.
#[derive(Debug, PartialEq)]
struct Parts<'a> {
    cpu: Option<u64>,
    thread: Option<u64>,
    period: Option<u64>,
    event: Option<&'a str>,
    address: Option<u64>,
    source: Option<&'a str>,
}

/// Parses a line; `None` if it is no sample: a frame of a call chain, or a line of another tool.
fn parts(line: &str) -> Option<Parts<'_>> {
    let (before, source) = match line.split_once("|OP ") {
        Some((before, source)) => (before, Some(source)),
        None => (line, None),
    };
    let words: Vec<&str> = before.split_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().ok();
    let at = words.iter().position(|word| {
        word.strip_prefix('[')
            .and_then(|word| word.strip_suffix(']'))
            .is_some_and(|cpu| !cpu.is_empty() && cpu.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let cpu = at.and_then(|at| number(words[at].trim_matches(['[', ']'])));
    // The thread is in front of the CPU, or of the time if there is no CPU: `4711`, `4711/4720`.
    let time = |word: &str| {
        word.strip_suffix(':').and_then(|word| word.split_once('.')).is_some_and(|(one, two)| {
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            !one.is_empty() && digits(one) && digits(two)
        })
    };
    let behind = at.or_else(|| words.iter().position(|word| time(word)));
    let thread = behind.and_then(|at| {
        let word = words[at.checked_sub(1)?];
        number(word.rsplit('/').next().unwrap_or(word))
    });
    // The first word behind it that ends with a colon and is no time.
    let first = at.map_or(0, |at| at + 1);
    let event_at =
        (first..words.len()).find(|&index| words[index].ends_with(':') && !time(words[index]));
    let event = event_at.map(|index| words[index].trim_end_matches(':'));
    // The word in front of the event, if that is not the thread.
    let period = event_at.and_then(|index| {
        let before = index.checked_sub(1).filter(|&before| behind.is_some_and(|at| before > at))?;
        number(words[before])
    });
    let number_at = |index: usize| words.get(index).and_then(|word| hexadecimal(word));
    let address = match (source, event_at) {
        // The last word is the source in numbers, and the one before it the address.
        (Some(_), after) => {
            let index = words.len().checked_sub(2)?;
            number_at(index).filter(|_| after.is_none_or(|event| index > event))
        }
        (None, Some(event)) => number_at(event + 1),
        (None, None) => None,
    };
    if source.is_none() && event.is_none() {
        return None;
    }
    Some(Parts { cpu, thread, period, event, address, source })
}

/// Returns the kind of access; `None` if neither source nor event determine it.
fn kind(parts: &Parts<'_>) -> Option<Kind> {
    let said = parts.source.map_or(Said::Nothing, of_words);
    said.or(parts.event.and_then(of_event))
}

pub(super) fn parse(text: &str, source: &str, known: &Known<'_>) -> Result<Profile, Error> {
    let mut samples = Samples::of(known)?;
    samples.need_addresses()?;
    let mut told = Told::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(parts) = parts(line) else { continue };
        if parts.event.is_some_and(|event| DERIVED.contains(&event)) {
            continue;
        }
        let Some((address, kind)) = told.both(parts.address, kind(&parts)) else { continue };
        let who = Who::of(parts.cpu, parts.thread);
        let times = parts.period.filter(|&period| period > 0).unwrap_or(1);
        samples.add(Place::Address(address), kind, who, times as f64);
    }
    if told.taken == 0 {
        let (what, field) = told.missing();
        return Err(Error::new(what).advise(format!(
            "print `perf script -F comm,tid,cpu,time,period,event,addr,data_src`; {field} is missing"
        )));
    }
    samples.profile(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_versions_are_taken_apart() {
        let full = parts(
            "Web Content 14753/14760 [011]  3678.072400:       2003 cpu/mem-loads,ldlat=30/P:  \
             7ffdf1391b0c  10268100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A  5",
        )
        .unwrap();
        assert_eq!((full.cpu, full.thread, full.period), (Some(11), Some(14760), Some(2003)));
        assert_eq!(full.event, Some("cpu/mem-loads,ldlat=30/P"));
        assert_eq!((full.address, kind(&full)), (Some(0x7ffd_f139_1b0c), Some(Kind::Load)));
        let bare = parts("  ffffa7c22b4b2a00    e6a0100 |OP STORE|LVL L1 hit|LCK Yes|").unwrap();
        assert_eq!((bare.cpu, bare.address), (None, Some(0xffff_a7c2_2b4b_2a00)));
        assert_eq!(kind(&bare), Some(Kind::Atomic));
        let named = parts("ls 12 [000] 1.5: mem-stores:ppp: ffff888100a4c000 ip").unwrap();
        assert_eq!((named.event, kind(&named)), (Some("mem-stores:ppp"), Some(Kind::Store)));
        assert_eq!((named.period, named.address), (None, Some(0xffff_8881_00a4_c000)));
        let threads =
            parts("ls 20075/20076 37206.205744: mem-loads:     5570a0fd15c0 name").unwrap();
        assert_eq!((threads.cpu, threads.thread), (None, Some(20076)));
        assert_eq!((threads.period, threads.address), (None, Some(0x5570_a0fd_15c0)));
        assert_eq!(parts("ls 20075 mem-loads: 5570a0fd15c0").unwrap().period, None);
        assert!(is("ls 20075 37206.205744: mem-loads:     5570a0fd15c0 name"));
        assert!(!is("machine: 5570a0fd15c0") && !is("[types.t] # 1.5: mem-loads: 12"));
        // The source follows the event directly, so no word is an address.
        let none = parts("ls 1 [000] 1.5: 1 memory:  88000182 |OP LOAD|LCK No").unwrap();
        assert_eq!(none.address, None);
        assert_eq!(parts("        ffffffff81170ed4 page_counter_try_charge+0x14 (vmlinux)"), None);
    }
}
