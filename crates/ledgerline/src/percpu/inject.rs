//! Holding a thread at a numbered point inside a section, and what happens to it there.
//!
//! Test builds have a loop at every point: a thread that reaches the chosen one stays until it is
//! aborted or let go. The test then does to it what an operating system does (a signal, a handler
//! that sleeps, losing the CPU, being moved, a remote fence), and checks that the section was
//! restarted and that its effect happened exactly once.
//!
//! The variables are the process's, so the test runs in a process of its own.

use std::sync::atomic::AtomicU32;

/// The point at which to hold a thread; zero for none. An abort resets it, so that the restart
/// runs through.
#[unsafe(no_mangle)]
pub(crate) static ledgerline_inject_point: AtomicU32 = AtomicU32::new(0);
/// The point at which a thread is held.
#[unsafe(no_mangle)]
pub(crate) static ledgerline_inject_reached: AtomicU32 = AtomicU32::new(0);
/// Sections aborted.
#[unsafe(no_mangle)]
pub(crate) static ledgerline_inject_aborts: AtomicU32 = AtomicU32::new(0);

mod tests {
    use super::*;
    use crate::percpu::registration::{self, COMPACT, CPU, Registration};
    use crate::percpu::word::{self, Cell};
    use crate::percpu::{membarrier, possible_cpus, rseq};
    use crate::region::Region;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    const UNITS: u64 = 64;
    const ID: u64 = word::empty(1) | 5;

    /// What is done to the held thread.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Event {
        /// Nothing: it is let go.
        None,
        Signal,
        /// A signal whose handler sleeps.
        Sleep,
        /// Another thread wants its CPU.
        Yield,
        /// It is moved to another CPU (where there is one).
        Migrate,
        Fence,
    }

    const EVENTS: [Event; 6] =
        [Event::None, Event::Signal, Event::Sleep, Event::Yield, Event::Migrate, Event::Fence];

    #[derive(Clone, Copy, Debug)]
    enum Section {
        Add,
        Take,
        Put,
        CompareStore,
        TakeFirst,
        PutFirst,
    }

    impl Section {
        const ALL: [(Section, u32); 6] = [
            (Section::Add, 3),
            (Section::Take, 5),
            (Section::Put, 5),
            (Section::CompareStore, 3),
            (Section::TakeFirst, 5),
            (Section::PutFirst, 5),
        ];

        /// Runs the section once over cells prepared by `prepare`; whether it took effect.
        fn run<const INDEX: isize>(self, area: isize, region: &Region) -> bool {
            let cell = region.at::<Cell>(0);
            // SAFETY: the region has a cell in each column; the calling thread is registered.
            unsafe {
                match self {
                    Section::Add => {
                        rseq::add::<INDEX>(area, cell.cast(), 1 << 25, UNITS as i64);
                        true
                    }
                    Section::Take => {
                        let delta = word::CHARGE.wrapping_sub(UNITS);
                        rseq::take::<INDEX>(area, cell, ID, delta)
                    }
                    Section::Put => rseq::put::<INDEX>(area, cell, ID, word::UNCHARGE + UNITS),
                    Section::TakeFirst => {
                        let delta = word::CHARGE.wrapping_sub(UNITS);
                        rseq::take_first::<INDEX>(area, cell, delta)
                    }
                    Section::PutFirst => {
                        rseq::put_first::<INDEX>(area, cell, word::UNCHARGE + UNITS)
                    }
                    Section::CompareStore => {
                        let column = rseq::index::<INDEX>(area);
                        let cell = &*cell.byte_add((column as usize) << 25);
                        let expected = word::empty(1) | 1000;
                        let new = expected - UNITS;
                        rseq::compare_store::<INDEX>(area, cell, column, expected, new)
                    }
                }
            }
        }

        /// By how much the sum over all columns must have changed.
        fn effect(self) -> u64 {
            match self {
                Section::Add => UNITS,
                Section::Take | Section::TakeFirst => word::CHARGE.wrapping_sub(UNITS),
                Section::Put | Section::PutFirst => word::UNCHARGE + UNITS,
                Section::CompareStore => UNITS.wrapping_neg(),
            }
        }
    }

    fn cells(region: &Region) -> impl Iterator<Item = &Cell> {
        (0..possible_cpus() as usize)
            // SAFETY: each column of the region begins with a cell.
            .map(|column| unsafe { &*region.at::<Cell>(column << 25) })
    }

    fn sum(region: &Region) -> u64 {
        cells(region).fold(0, |sum, cell| sum.wrapping_add(cell.word.load(SeqCst)))
    }

    /// Moves a thread; `false` if it has ended meanwhile.
    fn pin(thread: i32, cpus: &[usize]) -> bool {
        // SAFETY: the set is a plain bit mask on the stack; the call reads it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            for &cpu in cpus {
                libc::CPU_SET(cpu, &mut set);
            }
            libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) == 0
        }
    }

    fn allowed() -> Vec<usize> {
        // SAFETY: the call fills the mask on the stack.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
            (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
        }
    }

    fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(20), "waited too long for {what}");
            std::thread::yield_now();
        }
    }

    extern "C" fn returns(_: i32) {}
    extern "C" fn sleeps(_: i32) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        // SAFETY: nanosleep is async-signal-safe and reads the time given.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
    }

    /// One try: a thread enters `section`, is held at `point`, and `event` happens to it there.
    fn hold<const INDEX: isize>(area: isize, section: Section, point: u32, event: Event) {
        let region = Region::anonymous((possible_cpus() as usize) << 25).unwrap();
        let cap = 1 << 20;
        for cell in cells(&region) {
            cell.cap.store(cap, SeqCst);
            cell.open(word::empty(1) | 1000);
        }
        let before = sum(&region);
        let cpus = allowed();
        let thread = AtomicI32::new(0);
        let done = AtomicBool::new(false);
        let worked = AtomicBool::new(false);
        ledgerline_inject_reached.store(0, SeqCst);
        ledgerline_inject_aborts.store(0, SeqCst);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                assert!(pin(0, &cpus[..1]));
                // SAFETY: gettid has no preconditions.
                thread.store(unsafe { libc::gettid() }, SeqCst);
                ledgerline_inject_point.store(point, SeqCst);
                worked.store(section.run::<INDEX>(area, &region), SeqCst);
                done.store(true, SeqCst);
            });
            // A competitor for the CPU sees the point reached only after it got that CPU; the
            // other events come from elsewhere, if there is an elsewhere.
            let mine = if event == Event::Yield { &cpus[..1] } else { &cpus[cpus.len() - 1..] };
            assert!(pin(0, mine));
            wait_for("the point", || ledgerline_inject_reached.load(SeqCst) == point);
            let held = thread.load(SeqCst);
            match event {
                Event::None => ledgerline_inject_point.store(0, SeqCst),
                Event::Signal | Event::Sleep => {
                    let number = if event == Event::Signal { libc::SIGUSR1 } else { libc::SIGUSR2 };
                    // SAFETY: signals a thread of this process, with a handler installed.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), held, number) };
                }
                Event::Yield => {}
                // It may have lost its CPU, been aborted and ended before this.
                Event::Migrate => drop(pin(held, &cpus[cpus.len() - 1..])),
                Event::Fence => assert!(membarrier::fence()),
            }
            wait_for("the section", || done.load(SeqCst));
            worker.join().unwrap();
            assert!(pin(0, &cpus));
        });
        let aborts = ledgerline_inject_aborts.load(SeqCst);
        let case = format!("{section:?} at point {point}: {event:?}");
        if event != Event::None && !(event == Event::Migrate && cpus.len() == 1) {
            assert!(aborts > 0, "{case}: not aborted");
        }
        // A compare-and-store for another column rightly does nothing after a migration; every
        // other section takes effect, once.
        let effect = sum(&region).wrapping_sub(before);
        if worked.load(SeqCst) {
            assert_eq!(effect, section.effect(), "{case}");
        } else {
            assert!(matches!(section, Section::CompareStore), "{case}: failed");
            assert_eq!(effect, 0, "{case}");
        }
    }

    fn every_point<const INDEX: isize>(area: isize) {
        for (section, points) in Section::ALL {
            for point in 1..=points {
                for event in EVENTS {
                    for _ in 0..3 {
                        hold::<INDEX>(area, section, point, event);
                    }
                }
            }
        }
    }

    #[test]
    fn every_point_of_every_section_restarts() {
        const ALONE: &str = "LEDGERLINE_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "percpu::inject::tests::every_point_of_every_section_restarts"])
                .args(["--nocapture", "--test-threads=1"])
                .env(ALONE, "1")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{text}");
            let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
            assert!(ran, "the test did not run in its own process");
            return;
        }
        let (Registration::Compact { area } | Registration::Cpu { area }) = registration::adopt()
        else {
            eprintln!("skipped: no restartable sequences here");
            return;
        };
        assert!(membarrier::register());
        // SAFETY: installs handlers that are async-signal-safe.
        unsafe {
            libc::signal(libc::SIGUSR1, returns as *const () as usize);
            libc::signal(libc::SIGUSR2, sleeps as *const () as usize);
        }
        every_point::<CPU>(area);
        if matches!(registration::adopt(), Registration::Compact { .. }) {
            every_point::<COMPACT>(area);
        }
    }

    /// The descriptors in this very binary: each names a section, and its abort address follows
    /// the signature that the kernel looks for.
    #[test]
    fn every_descriptor_in_the_binary_is_well_formed() {
        unsafe extern "C" {
            #[link_name = "__start___rseq_cs"]
            static START: u8;
            #[link_name = "__stop___rseq_cs"]
            static STOP: u8;
        }
        #[repr(C)]
        struct Descriptor {
            version: u32,
            flags: u32,
            start: u64,
            length: u64,
            abort: u64,
        }
        let (start, stop) = (&raw const START as usize, &raw const STOP as usize);
        let mut seen = 0;
        for at in (start..stop).step_by(size_of::<Descriptor>()) {
            // SAFETY: the linker put whole, relocated descriptors between the two symbols, and the
            // word before an abort address is code of this binary.
            unsafe {
                let descriptor = &*(at as *const Descriptor);
                assert_eq!((descriptor.version, descriptor.flags), (0, 0));
                assert!((1..256).contains(&descriptor.length), "{} bytes", descriptor.length);
                let inside = descriptor.abort.wrapping_sub(descriptor.start) < descriptor.length;
                assert!(!inside, "the abort address lies inside the section");
                let signature = (descriptor.abort as *const u32).sub(1).read_unaligned();
                assert_eq!(signature, rseq::SIGNATURE);
            }
            seen += 1;
        }
        assert!(seen >= 5, "{seen} descriptors");
    }
}
