//! Another program writes over a ledger while this one uses it: nothing hangs, nothing crashes.
//!
//! Values read from such a ledger are not asserted, since they may be anything.

use crate::common::seed::seeds;
use crate::common::{Random, again, in_both_modes, long, memfd, unique};
use crate::scribble::{Kind, Memory, Parts};
use crate::support::seconds;
use ledgerline::{CancelToken, Charge, ControlMode, Group, Ledger, Limit, StatItem, Unclaimed};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// More than any operation takes: one that exceeds it hangs. A wait takes some tenths of a second, and an operation has a few
/// waits.
const HANGS: Duration = Duration::from_secs(60);
/// The ledger's file, set in another process that uses it.
const FILE: &str = "LEDGERLINE_DAMAGED_FILE";
const SEED: &str = "LEDGERLINE_DAMAGED_SEED";
const ITEMS: [&str; 3] = ["one", "two", "three"];

/// The present operation of a thread and its start, for the watchdog.
struct Pulse {
    started: Instant,
    since: AtomicU64,
    step: AtomicUsize,
    slowest: AtomicU64,
    slowest_step: AtomicUsize,
}

const IDLE: u64 = u64::MAX;

impl Pulse {
    fn new() -> Pulse {
        Pulse {
            started: Instant::now(),
            since: AtomicU64::new(IDLE),
            step: AtomicUsize::new(0),
            slowest: AtomicU64::new(0),
            slowest_step: AtomicUsize::new(0),
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn beat(&self, step: usize, act: impl FnOnce()) {
        self.step.store(step, Relaxed);
        let before = self.now();
        self.since.store(before, Relaxed);
        act();
        self.since.store(IDLE, Relaxed);
        let took = self.now() - before;
        if took > self.slowest.load(Relaxed) {
            self.slowest.store(took, Relaxed);
            self.slowest_step.store(step, Relaxed);
        }
    }

    /// Ends the process if the thread hangs: a test that panics would wait for it.
    fn check(&self, seed: u64) {
        let since = self.since.load(Relaxed);
        if since != IDLE && self.now().saturating_sub(since) > HANGS.as_millis() as u64 {
            eprintln!("seed {seed}: step {} hangs", self.step.load(Relaxed));
            std::process::abort();
        }
    }
}

/// The state of one thread.
struct Hand<'l> {
    ledger: &'l Ledger,
    random: Random,
    groups: Vec<Group<'l>>,
    held: Vec<Charge<'l>>,
    owner: u32,
}

impl<'l> Hand<'l> {
    fn new(ledger: &'l Ledger, seed: u64, owner: u32) -> Hand<'l> {
        let groups = vec![ledger.root()];
        Hand { ledger, random: Random(seed), groups, held: Vec::new(), owner }
    }

    fn group(&mut self) -> Group<'l> {
        let place = self.random.below(self.groups.len() as u64) as usize;
        self.groups[place]
    }

    fn size(&mut self) -> u64 {
        let bits = [6, 16, 24, 40][self.random.below(4) as usize];
        self.random.size(bits)
    }

    /// Does one of all the things that a program may do with a ledger.
    fn step(&mut self, step: usize) {
        let (group, size) = (self.group(), self.size());
        match step {
            0 => self.groups.extend(group.create(&unique("group")).ok()),
            1 if self.groups.len() > 1 => {
                let place = 1 + self.random.below(self.groups.len() as u64 - 1) as usize;
                let _ = self.groups.swap_remove(place).destroy();
            }
            2 if group != self.ledger.root() => drop(group.destroy_tree()),
            3 => drop(group.set_max(Limit::units(size))),
            4 => drop(group.set_max(Limit::MAX)),
            5 => drop(group.set_max_now(Limit::units(size))),
            6 => {
                group.set_high(Limit::units(size));
                group.set_low(Limit::units(size / 2));
                group.set_min(Limit::units(size / 3));
            }
            7 => {
                let modes = [ControlMode::Enforce, ControlMode::Measure, ControlMode::Off];
                group.set_mode(modes[self.random.below(3) as usize]);
            }
            8 => drop(group.drain()),
            9 => {
                let _ = (group.precise(), group.approximate(), group.peak());
                group.reset_peak();
            }
            10 => {
                let _ = (group.path(), group.name(), group.parent(), group.depth());
                let _ = (group.max(), group.high(), group.low(), group.min(), group.mode());
                let _ = (group.max_events(), group.high_events(), group.exists());
            }
            11 => drop(self.ledger.find("/group/group")),
            12 => drop((group.children().count(), group.descendants().count())),
            13 => drop(group.stat().to_string()),
            14 => drop((group.events().to_string(), group.local_events())),
            15 => drop(format!("{:?} {:?}", self.ledger.snapshot(), group)),
            16 => drop(self.ledger.leaks().iter().map(ToString::to_string).count()),
            17 => drop(group.diagnose().to_string()),
            18 => drop(self.ledger.settle_dead(&|owner| owner % 3 != 0 || owner == self.owner)),
            19 => drop(group.protection(self.ledger.root(), Unclaimed::Shared)),
            20 => drop(group.backoff(size).penalty()),
            21 => drop(group.watch()),
            22 => {
                let charge = group.request(size).wait(Duration::from_millis(15)).charge();
                self.held.extend(charge);
            }
            23 => {
                let token = CancelToken::new();
                let _victim = group.add_victim(&token);
                let request = self.ledger.root().request(size).oom();
                self.held.extend(request.wait(Duration::from_millis(15)).charge());
            }
            24 => {
                let _reclaimer = group.add_reclaimer(0, |units| units / 2);
                self.held.extend(group.try_charge(size));
            }
            25 => {
                if let Some(charge) = self.held.pop() {
                    self.held.push(charge.transfer(group).unwrap_or_else(|(same, _)| same));
                }
            }
            26 => {
                let part = self.held.last_mut().and_then(|charge| charge.split(size / 2));
                self.held.extend(part);
            }
            27 => {
                let _ = (self.ledger.mistakes(), self.ledger.footprint());
            }
            28 => {
                let item = self.ledger.items().nth(self.random.below(3) as usize);
                if let Some(item) = item {
                    let _: StatItem = item;
                    group.add_stat(item, size as i64);
                }
                group.add_reclaimed(size);
            }
            29 => self.held.clear(),
            30..34 => drop(self.held.pop()),
            34..38 => {
                if group.try_charge_units(size).is_ok() {
                    group.uncharge_units(size);
                }
            }
            38 => {
                if let Ok(charge) = group.charge(size) {
                    self.held.push(charge);
                }
            }
            39 => {
                let shared = self.held.pop().map(Charge::share);
                drop(shared.map(|shared| shared.join(group)));
            }
            _ => self.held.extend(group.try_charge(size.min(1 << 20))),
        }
        self.held.truncate(40);
        if self.groups.len() > 12 {
            let _ = self.groups.swap_remove(5).destroy();
        }
    }

    fn work(&mut self, pulse: &Pulse, until: impl Fn() -> bool) {
        while !until() {
            // Charges are the commonest.
            let step = self.random.below(60) as usize;
            pulse.beat(step, || self.step(step));
        }
        let held = std::mem::take(&mut self.held);
        pulse.beat(99, || drop(held));
    }
}

/// Another process of the ledger: it attaches, charges its own rows, and ends without cleaning up.
#[test]
fn a_process_of_a_damaged_ledger() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    // A header that was written over is refused.
    let Ok(ledger) = Ledger::open_in(&file) else { return };
    let own = std::process::id();
    let Ok(group) = ledger.attach_process("process", own) else { return };
    let pulse = Pulse::new();
    let mut hand = Hand::new(&ledger, seed, own);
    hand.groups = vec![group];
    let start = Instant::now();
    let span = Duration::from_millis(seed % 400);
    let (done, end) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Relaxed) {
                pulse.check(seed);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        hand.work(&pulse, || start.elapsed() > span);
        done.store(true, Relaxed);
        end.store(true, Relaxed);
    });
    assert!(done.load(Relaxed));
    // Other processes settle its rows.
    std::process::exit(0);
}

fn spawn(file: &File, seed: u64) -> Child {
    again("a_process_of_a_damaged_ledger")
        .env(FILE, format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
        .env(SEED, seed.to_string())
        .stdout(Stdio::null())
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// The way in which a ledger is written over.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// So many words of any kind, once.
    Once(u64),
    /// Words of any kind, again and again.
    Always,
    /// Words of one kind, as fast as can be.
    Kind(Kind),
}

fn run(seed: u64, damage: Damage, span: Duration, processes: bool) {
    let file = memfd();
    let mut random = Random(seed);
    let builder = Ledger::builder().capacity(200).batch(4096).items(&ITEMS);
    let builder = builder.flows(seed % 5 == 4).audit(seed % 7 == 6);
    let ledger = builder.reclaim_time(Duration::from_millis(5)).create_in(&file).unwrap();
    let other = Ledger::open_in(&file).unwrap();
    let parts = Parts::of(&file);
    let memory = Memory::whole(&file, parts);
    let kinds = parts.kinds();
    let stop = AtomicBool::new(false);
    let pulses: [Pulse; 4] = std::array::from_fn(|_| Pulse::new());
    let start = Instant::now();
    std::thread::scope(|scope| {
        let (stop, ledger, other, pulses) = (&stop, &ledger, &other, &pulses);
        for (at, pulse) in pulses.iter().enumerate() {
            // The last one reads and writes like another process that opened the file.
            let ledger = if at == 3 { other } else { ledger };
            scope.spawn(move || {
                let mut hand = Hand::new(ledger, seed ^ (at as u64) << 32, 0);
                hand.work(pulse, || stop.load(Relaxed));
            });
        }
        // The watchdog, which outlives the workers' last step.
        let watch = scope.spawn(move || {
            while !stop.load(Relaxed) || pulses.iter().any(|it| it.since.load(Relaxed) != IDLE) {
                pulses.iter().for_each(|pulse| pulse.check(seed));
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut children: Vec<Child> = Vec::new();
        let mut next = 0;
        let scribbler = scope.spawn(|| {
            let mut random = Random(seed.wrapping_mul(31));
            let any = |random: &mut Random| {
                let kind = kinds[random.below(kinds.len() as u64) as usize];
                memory.scribble(kind, random);
            };
            match damage {
                Damage::Once(words) => {
                    std::thread::sleep(span / 10);
                    (0..words).for_each(|_| any(&mut random));
                }
                Damage::Always => {
                    while !stop.load(Relaxed) {
                        (0..random.below(20)).for_each(|_| any(&mut random));
                        std::thread::sleep(Duration::from_micros(random.below(2000)));
                    }
                }
                Damage::Kind(kind) => {
                    while !stop.load(Relaxed) {
                        (0..1000).for_each(|_| memory.scribble(kind, &mut random));
                        if seed.is_multiple_of(2) {
                            std::thread::sleep(Duration::from_micros(50));
                        }
                    }
                }
            }
        });
        while start.elapsed() < span {
            if processes && children.len() < 2 {
                children.push(spawn(&file, seed.wrapping_mul(1000) + next));
                next += 1;
            }
            children.retain_mut(|child| match child.try_wait().unwrap() {
                Some(status) => {
                    assert!(status.success(), "seed {seed}: a process ended with {status}");
                    false
                }
                None => true,
            });
            if random.one_in(4) {
                for child in &mut children {
                    // In the middle of any operation.
                    let _ = child.kill();
                    let _ = child.wait();
                }
                children.clear();
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        stop.store(true, Relaxed);
        for mut child in children {
            let deadline = Instant::now() + HANGS;
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                assert!(Instant::now() < deadline, "seed {seed}: a process hangs");
                std::thread::sleep(Duration::from_millis(5));
            };
            assert!(status.success(), "seed {seed}: a process ended with {status}");
        }
        scribbler.join().unwrap();
        watch.join().unwrap();
    });
    if long() {
        let slowest = pulses.iter().max_by_key(|pulse| pulse.slowest.load(Relaxed)).unwrap();
        let (took, step) = (slowest.slowest.load(Relaxed), slowest.slowest_step.load(Relaxed));
        println!("seed {seed}: {damage:?}: step {step} took {took} ms");
    }
}

#[test]
fn words_written_over_at_random_neither_hang_nor_crash_whoever_uses_the_ledger() {
    let name = "words_written_over_at_random_neither_hang_nor_crash_whoever_uses_the_ledger";
    in_both_modes(name, || {
        for seed in seeds(0, 6, 120) {
            let damage = match seed % 3 {
                0 => Damage::Once(20),
                1 => Damage::Once(2000),
                _ => Damage::Always,
            };
            println!("seed {seed}: {damage:?}");
            run(seed, damage, seconds(0.3, 0.5), true);
        }
    });
}

#[test]
fn words_of_each_kind_written_over_all_the_time_neither_hang_nor_crash() {
    in_both_modes("words_of_each_kind_written_over_all_the_time_neither_hang_nor_crash", || {
        let kinds = {
            let file = memfd();
            let _ledger = Ledger::builder().capacity(200).items(&ITEMS).create_in(&file).unwrap();
            Parts::of(&file).kinds()
        };
        for seed in seeds(1000, 1, 10) {
            for (at, &kind) in kinds.iter().enumerate() {
                let seed = seed * 1000 + at as u64;
                println!("seed {seed}: {}: {kind:?}", kind.name);
                run(seed, Damage::Kind(kind), seconds(0.04, 0.08), false);
            }
        }
    });
}
