//! Holds a thread at a numbered point inside a section while an event happens to it there.
//!
//! Test builds have a loop at every point: a thread that reaches the chosen point stays there until it is
//! aborted or released. The test then interferes like an operating system: it sends a signal, runs a
//! handler that sleeps, takes the CPU away, moves the thread, or fences. Then it checks that the section
//! was restarted and that its effect happened exactly once.
//!
//! The variables are global, so the test runs in a process of its own.

mod section;

use std::sync::atomic::AtomicU32;

/// The point at which to hold a thread; zero for none. An abort resets it, so that the restart is not
/// held.
#[unsafe(no_mangle)]
pub(crate) static ledgerline_inject_point: AtomicU32 = AtomicU32::new(0);
/// The point at which a thread is held.
#[unsafe(no_mangle)]
pub(crate) static ledgerline_inject_reached: AtomicU32 = AtomicU32::new(0);
/// The number of aborted sections.
#[unsafe(no_mangle)]
pub(crate) static ledgerline_inject_aborts: AtomicU32 = AtomicU32::new(0);

/// Runs a test in a process of its own, unless this is that process. Returns whether it did.
pub(crate) fn ran_alone(test: &str) -> bool {
    const ALONE: &str = "LEDGERLINE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(ran, "the test did not run in its own process");
    true
}

/// Moves a thread; 0 is the calling one. Returns `false` if it has ended meanwhile.
pub(crate) fn pin(thread: i32, cpus: &[usize]) -> bool {
    // SAFETY: the set is a plain bit mask on the stack, which the call reads.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) == 0
    }
}

/// Returns the CPUs that this process may run on.
pub(crate) fn allowed() -> Vec<usize> {
    // SAFETY: the call fills the mask on the stack.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

mod tests {
    use super::section::{BLOCK, LANES, LIMITS, Section, ZEROS, lend, prepared, sum, words};
    use super::*;
    use crate::percpu::instructions::{ABORTS, PATIENCE};
    use crate::percpu::narrow::{self, Lane};
    use crate::percpu::registration::{self, COMPACT, CPU, Registration};
    use crate::percpu::{membarrier, possible_cpus, rseq, visit};
    use crate::region::Region;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    /// An event that happens to the held thread.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Event {
        /// Nothing: the thread is released.
        None,
        Signal,
        /// A signal whose handler sleeps.
        Sleep,
        /// Another thread competes for its CPU.
        Yield,
        /// The thread is moved to another CPU, if there is one.
        Migrate,
        Fence,
        Visit,
    }

    const EVENTS: [Event; 7] = [
        Event::None,
        Event::Signal,
        Event::Sleep,
        Event::Yield,
        Event::Migrate,
        Event::Fence,
        Event::Visit,
    ];

    fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(60), "waited too long for {what}");
            std::thread::yield_now();
        }
    }

    extern "C" fn returns(_: i32) {}
    extern "C" fn sleeps(_: i32) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        // SAFETY: nanosleep is async-signal-safe and reads the time given.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
    }

    /// Makes one try: a thread enters `section`, is held at `point`, and `event` happens to it there.
    /// Returns `false` if another event aborted it on its way there, and its restart was not held.
    #[must_use]
    fn hold<const INDEX: isize>(area: isize, section: Section, point: u32, event: Event) -> bool {
        let region = prepared();
        let before = sum(&region);
        let cpus = allowed();
        let thread = AtomicI32::new(0);
        let done = AtomicBool::new(false);
        let worked = AtomicBool::new(false);
        ledgerline_inject_reached.store(0, SeqCst);
        ledgerline_inject_aborts.store(0, SeqCst);
        // This abort must restart the section.
        ABORTS.store(PATIENCE, SeqCst);
        let held_there = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                assert!(pin(0, &cpus[..1]));
                assert!(registration::adopt().is_ok());
                // SAFETY: gettid has no preconditions.
                thread.store(unsafe { libc::gettid() }, SeqCst);
                ledgerline_inject_point.store(point, SeqCst);
                worked.store(section.run::<INDEX>(area, &region), SeqCst);
                done.store(true, SeqCst);
            });
            // A competitor for the CPU sees the point reached only after it got that CPU. The other
            // events come from another CPU, if there is one.
            let mine = if event == Event::Yield { &cpus[..1] } else { &cpus[cpus.len() - 1..] };
            assert!(pin(0, mine));
            let reached = || ledgerline_inject_reached.load(SeqCst) == point;
            wait_for("the point", || reached() || done.load(SeqCst));
            let held = thread.load(SeqCst);
            match event {
                _ if !reached() => {}
                Event::None => ledgerline_inject_point.store(0, SeqCst),
                Event::Signal | Event::Sleep => {
                    let number = if event == Event::Signal { libc::SIGUSR1 } else { libc::SIGUSR2 };
                    // SAFETY: signals a thread of this process, with a handler installed.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), held, number) };
                }
                Event::Yield => {}
                // The thread may have been preempted, aborted and ended before this.
                Event::Migrate => drop(pin(held, &cpus[cpus.len() - 1..])),
                Event::Fence => assert!(membarrier::fence_sections()),
                Event::Visit => assert!(visit::every_cpu()),
            }
            wait_for("the section", || done.load(SeqCst));
            worker.join().unwrap();
            assert!(pin(0, &cpus));
            reached()
        });
        let aborts = ledgerline_inject_aborts.load(SeqCst);
        let case = format!("{section:?} at point {point}: {event:?}");
        if !held_there || event != Event::None && !(event == Event::Migrate && cpus.len() == 1) {
            assert!(aborts > 0, "{case}: not aborted");
        }
        // After a migration a compare-and-store rightly does nothing, since its column is another. Every
        // other section takes effect, once.
        let effect = sum(&region).wrapping_sub(before);
        if worked.load(SeqCst) {
            assert_eq!(effect, section.effect(), "{case}");
        } else {
            assert!(section.is_bound_to_a_column(), "{case}: failed");
            assert_eq!(effect, 0, "{case}");
        }
        held_there
    }

    fn every_point<const INDEX: isize>(area: isize) {
        for (section, points) in Section::ALL {
            for point in 1..=points {
                for event in EVENTS {
                    let tries = (0..30).filter(|_| hold::<INDEX>(area, section, point, event));
                    assert_eq!(tries.take(3).count(), 3, "{section:?} never reaches point {point}");
                }
            }
        }
    }

    /// A section enters a closed block. While it is held there, the difference is taken and the block
    /// opened again: the section must not store the taken difference.
    fn opened_while_held<const INDEX: isize>(area: isize) {
        let closed = u16::from_le_bytes([0, 255]);
        for section in [Section::UpU8, Section::DownU8, Section::UpU16] {
            for point in 1..=5 {
                let region = Region::anonymous((possible_cpus() as usize) << 25).unwrap();
                let limits = if matches!(section, Section::UpU16) { 0 } else { closed };
                let lanes = ZEROS + (20 << 16);
                words(&region, BLOCK).for_each(|word| word.store(limits.into(), SeqCst));
                words(&region, LANES).for_each(|word| word.store(lanes, SeqCst));
                let done = AtomicBool::new(false);
                ledgerline_inject_reached.store(0, SeqCst);
                ledgerline_inject_point.store(point, SeqCst);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        assert!(registration::adopt().is_ok());
                        section.run::<INDEX>(area, &region);
                        done.store(true, SeqCst);
                    });
                    // A section that fails before the last point never reaches it.
                    wait_for("the point", || {
                        ledgerline_inject_reached.load(SeqCst) == point || done.load(SeqCst)
                    });
                    words(&region, LANES).for_each(|word| word.store(ZEROS, SeqCst));
                    words(&region, BLOCK).for_each(|word| word.store(LIMITS.into(), SeqCst));
                    ledgerline_inject_point.store(0, SeqCst);
                });
                let sound = [ZEROS, ZEROS.wrapping_add(section.effect())];
                for word in words(&region, LANES) {
                    let word = word.load(SeqCst);
                    assert!(sound.contains(&word), "{section:?} at point {point}: {word:x}");
                }
            }
        }
    }

    /// A section is held at a point while its cells are taken away: after the fence it must not touch
    /// them, wherever it was held.
    fn taken_away_while_held<const INDEX: isize>(area: isize) {
        let fences = [membarrier::fence_sections, visit::every_cpu];
        for (section, fence) in [Section::TakeLent, Section::PutLent]
            .into_iter()
            .flat_map(|it| fences.map(|by| (it, by)))
        {
            for point in 1..=5 {
                let region = prepared();
                let (lent, before) = (lend(&region), sum(&region));
                let done = AtomicBool::new(false);
                ledgerline_inject_reached.store(0, SeqCst);
                ledgerline_inject_aborts.store(0, SeqCst);
                ledgerline_inject_point.store(point, SeqCst);
                std::thread::scope(|scope| {
                    let worker = scope.spawn(|| {
                        assert!(registration::adopt().is_ok());
                        // SAFETY: the region stays mapped, and the thread is registered.
                        let took =
                            unsafe { section.run_lent::<INDEX>(area, &lent, Section::NUMBER) };
                        done.store(true, SeqCst);
                        took
                    });
                    // Another event may abort the section on its way; its restart is then not held.
                    wait_for("the point", || {
                        ledgerline_inject_reached.load(SeqCst) == point || done.load(SeqCst)
                    });
                    lent.number.store(0, SeqCst);
                    assert!(fence());
                    let after = sum(&region);
                    wait_for("the section", || done.load(SeqCst));
                    ledgerline_inject_point.store(0, SeqCst);
                    let effect = after.wrapping_sub(before);
                    let took = worker.join().unwrap();
                    assert_eq!(effect, if took { section.effect() } else { 0 });
                    assert_eq!(
                        sum(&region),
                        after,
                        "{section:?} at point {point}: after the fence"
                    );
                });
            }
        }
    }

    /// Like the next test, this runs in a process of its own, since the variables are global.
    #[test]
    fn a_section_that_is_held_while_its_cells_are_taken_away_does_not_touch_them() {
        let name = "percpu::inject::tests::\
                    a_section_that_is_held_while_its_cells_are_taken_away_does_not_touch_them";
        if ran_alone(name) {
            return;
        }
        let Ok(Registration::Compact { area } | Registration::Cpu { area }) = registration::adopt()
        else {
            eprintln!("skipped: no restartable sequences here");
            return;
        };
        assert!(membarrier::register());
        taken_away_while_held::<CPU>(area);
        if matches!(registration::adopt(), Ok(Registration::Compact { .. })) {
            taken_away_while_held::<COMPACT>(area);
        }
    }

    #[test]
    fn every_point_of_every_section_restarts() {
        if ran_alone("percpu::inject::tests::every_point_of_every_section_restarts") {
            return;
        }
        let Ok(Registration::Compact { area } | Registration::Cpu { area }) = registration::adopt()
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
        opened_while_held::<CPU>(area);
        if matches!(registration::adopt(), Ok(Registration::Compact { .. })) {
            every_point::<COMPACT>(area);
        }
    }

    /// Checks the descriptors in this very binary: each names a section, and its abort address follows
    /// the signature that the kernel expects.
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
                assert!((1..512).contains(&descriptor.length), "{} bytes", descriptor.length);
                let inside = descriptor.abort.wrapping_sub(descriptor.start) < descriptor.length;
                assert!(!inside, "the abort address lies inside the section");
                let signature = (descriptor.abort as *const u32).sub(1).read_unaligned();
                assert_eq!(signature, rseq::SIGNATURE);
            }
            seen += 1;
        }
        assert!(seen >= 10, "{seen} descriptors");
    }

    /// A section stores nothing if limits are passed or closed, a sum overflows, or the word, the limits
    /// or the column are not as expected.
    #[test]
    fn a_section_that_fails_stores_nothing() {
        let Ok(Registration::Compact { area }) = registration::adopt() else {
            eprintln!("skipped: no compact ids here");
            return;
        };
        let region = Region::anonymous((possible_cpus() as usize) << 25).unwrap();
        let lane = |shift| {
            let (block, word) = (region.at(BLOCK), region.at(LANES));
            Lane { block, word, shift, stride: 1 << 25 }
        };
        let set = |limits: u16, word: u64| {
            words(&region, BLOCK).for_each(|word| word.store(limits.into(), SeqCst));
            words(&region, LANES).for_each(|lanes| lanes.store(word, SeqCst));
        };
        let stored = |word: u64| words(&region, LANES).any(|lanes| lanes.load(SeqCst) != word);
        let open = u16::from_le_bytes([128 + 5, 128 - 5]);
        let closed = u16::from_le_bytes([0, 255]);
        // SAFETY: as in `run`.
        unsafe {
            for (limits, at, n, fits) in [
                (open, 0, 5, true),
                (open, 0, 6, false),
                (open, -5, 10, true),
                (open, -5, 11, false),
                (open, 5, 1 << 16, false),
                (closed, -125, 1, false),
                (closed, 125, 1, false),
            ] {
                for shift in (0..64).step_by(8) {
                    let lanes = |value: i64| !(0xff << shift) | ((value + 128) as u64) << shift;
                    set(limits, lanes(at));
                    let added = narrow::up_u8::<COMPACT>(area, lane(shift), n);
                    assert_eq!((added, stored(lanes(at))), (fits, fits), "{at} + {n}");
                    set(limits, lanes(-at));
                    let added = narrow::down_u8::<COMPACT>(area, lane(shift), -n);
                    assert_eq!((added, stored(lanes(-at))), (fits, fits), "{} - {n}", -at);
                }
            }
            for (limits, at, n, fits) in [
                (65533, 65532, 1, true),
                (65533, 65533, 1, false),
                (65533, 65533, 1 << 16, false),
                (0, 0, 1, false),
            ] {
                for shift in (0..64).step_by(16) {
                    let lanes = !(0xffff << shift) | at << shift;
                    set(limits, lanes);
                    let added = narrow::up_u16::<COMPACT>(area, lane(shift), n);
                    assert_eq!((added, stored(lanes)), (fits, fits), "{at} + {n}");
                }
            }
            for (at, n) in [(i64::MAX, 1), (i64::MIN, -1), (1, i64::MAX)] {
                set(0, at as u64);
                assert!(!narrow::add_i64::<COMPACT>(area, lane(0).word, 1 << 25, n));
                assert!(!stored(at as u64));
            }
            set(open, ZEROS);
            // The column that this thread runs on is among them.
            for column in 0..possible_cpus() {
                let [block, word] =
                    [BLOCK, LANES].map(|at| region.at(at + ((column as usize) << 25)));
                for (limits, column, old) in
                    [(closed, column, ZEROS), (open, column, ZEROS + 1), (open, 1 << 20, ZEROS)]
                {
                    let change = (old, 7);
                    assert!(!narrow::compare_store::<COMPACT>(
                        area, block, word, column, limits, change
                    ));
                }
            }
            assert!(!stored(ZEROS));
        }
    }
}
