//! Fifty tenants and a runaway in a real cgroup of 256 MiB, with uncharged memory and page cache. With
//! `LedgerBuilder::container` the kernel does not kill and only the runaway is refused; without it the kernel kills.
//!
//! It needs a memory cgroup in which this process may create another one (root, or a delegated one). Without one it prints
//! that and passes.

use crate::cgroup::Cgroup;
use crate::common::{Random, again};
use crate::support::seconds;
use ledgerline::container::{Limits, UNTRACKED};
use ledgerline::{CancelToken, Charge, Group, Ledger, Limit};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 256 * MIB;
/// The role, set in the process that runs the program: how its ledger is built.
const ROLE: &str = "LEDGERLINE_TEST_CONTAINER";
/// The version of the memory controller, set in the process in the namespace.
const NAMESPACE: &str = "LEDGERLINE_TEST_NAMESPACE";
const TENANTS: usize = 50;
const WORKERS: usize = 8;
/// The most that a tenant holds: 100 MiB for all together.
const TENANT: u64 = 2 * MIB;
/// How far the uncharged memory grows before it is unmapped.
const UNCHARGED: u64 = 40 * MIB;
/// Larger than the cgroup.
const FILE: u64 = 320 * MIB;

#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// `container()`.
    Container,
    /// The same, and the allocator releases kept memory when memory is short.
    Trimming,
    /// The same limit, set by hand, without knowledge of untracked memory.
    LimitAlone,
    /// No limit.
    Nothing,
}

impl Role {
    const ALL: [(Role, &str); 4] = [
        (Role::Container, "container"),
        (Role::Trimming, "trimming"),
        (Role::LimitAlone, "limit"),
        (Role::Nothing, "nothing"),
    ];

    fn ledger(self) -> Ledger {
        let builder = Ledger::builder().capacity(1024).victim_time(Duration::from_secs(5));
        if matches!(self, Role::Container | Role::Trimming) {
            return builder.container().anonymous().unwrap();
        }
        let ledger = builder.anonymous().unwrap();
        if self == Role::LimitAlone {
            // As far below the kernel's limit as the container's default.
            ledger.root().set_max(Limit::units(LIMIT - LIMIT / 16)).unwrap();
        }
        ledger
    }
}

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    tenants_refused: AtomicU64,
    runaway_refused: AtomicU64,
    runaway_cancelled: AtomicU64,
    /// How many times the whole file was written or read.
    files: AtomicU64,
    over: AtomicBool,
}

/// Memory that was charged, and is touched.
struct Block {
    _charge: Charge<'static>,
    _bytes: Vec<u8>,
}

impl Block {
    fn new(charge: Charge<'static>) -> Block {
        let bytes = vec![1; charge.units() as usize];
        Block { _charge: charge, _bytes: bytes }
    }
}

/// Charges and frees blocks of many sizes, so that the allocator's heap is full of holes.
fn tenants(ledger: &'static Ledger, counts: &Counts, seed: u64) {
    let mut random = Random::new(seed);
    let mine: Vec<Group<'_>> = (0..TENANTS)
        .filter(|tenant| tenant % WORKERS == seed as usize % WORKERS)
        .map(|tenant| ledger.root().create(&format!("tenant{tenant}")).unwrap())
        .collect();
    let mut held: Vec<Vec<Block>> = mine.iter().map(|_| Vec::new()).collect();
    while !counts.over.load(Relaxed) {
        let tenant = random.below(mine.len() as u64) as usize;
        let size = 512 + random.size(18);
        let blocks = &mut held[tenant];
        while mine[tenant].approximate().value + size > TENANT && !blocks.is_empty() {
            blocks.swap_remove(random.below(blocks.len() as u64) as usize);
        }
        match mine[tenant].request(size).wait(Duration::from_secs(60)).oom().charge() {
            Ok(charge) => {
                blocks.push(Block::new(charge));
                counts.done.fetch_add(1, Relaxed);
            }
            Err(refused) => {
                eprintln!("a tenant was refused: {refused}");
                counts.tenants_refused.fetch_add(1, Relaxed);
            }
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Takes as much as possible until it is cancelled, then starts again.
fn runaway(ledger: &'static Ledger, counts: &Counts) {
    while !counts.over.load(Relaxed) {
        let group = ledger.root().create("runaway").unwrap();
        let token = CancelToken::new();
        let victim = group.add_victim(&token);
        let mut held = Vec::new();
        while !token.is_cancelled() && !counts.over.load(Relaxed) {
            match group.try_charge(MIB / 4) {
                Ok(charge) => held.push(Block::new(charge)),
                Err(_) => {
                    counts.runaway_refused.fetch_add(1, Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        counts.runaway_cancelled.fetch_add(u64::from(token.is_cancelled()), Relaxed);
        drop(held);
        drop(victim);
        group.destroy().unwrap();
    }
}

/// Maps and touches uncharged memory, a MiB each 5 ms, then unmaps it all and starts again.
fn uncharged(counts: &Counts) {
    while !counts.over.load(Relaxed) {
        // SAFETY: a new mapping, written within its length, and unmapped once.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let start =
                libc::mmap(std::ptr::null_mut(), UNCHARGED as usize, protection, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            for piece in 0..UNCHARGED / MIB {
                let at = start.cast::<u8>().add((piece * MIB) as usize);
                std::ptr::write_bytes(at, 1, MIB as usize);
                std::thread::sleep(Duration::from_millis(5));
                if counts.over.load(Relaxed) {
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(200));
            libc::munmap(start, UNCHARGED as usize);
        }
    }
}

/// Writes and reads a file that is larger than the cgroup. It syncs its writes now and then: version 1 does not slow down
/// writers that are faster than the disk, and may kill for pages under writeback.
fn page_cache(counts: &Counts) {
    let path = std::env::temp_dir().join(format!("ledgerline-cache-{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.as_mut().expect("a scratch file");
    // Removed with the process, however that ends.
    std::fs::remove_file(&path).unwrap();
    let mut piece = vec![7u8; MIB as usize];
    let mut reads = false;
    while !counts.over.load(Relaxed) {
        file.rewind().unwrap();
        for piece_number in 0..FILE / MIB {
            if !reads && piece_number % 8 == 7 {
                file.sync_data().unwrap();
            }
            if reads {
                file.read_exact(&mut piece).unwrap();
            } else {
                file.write_all(&piece).unwrap();
            }
            if counts.over.load(Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        counts.files.fetch_add(1, Relaxed);
        reads = !reads;
    }
}

/// Registers a reclaimer of the row that makes the allocator release kept memory.
fn trim(ledger: &'static Ledger) {
    let row = ledger.root().child(UNTRACKED).unwrap();
    std::mem::forget(row.add_reclaimer(-1, move |_need| {
        ledger.release_untracked(|| {
            // SAFETY: it takes no pointers.
            unsafe { libc::malloc_trim(0) };
        })
    }));
}

/// Returns how long the thread that follows the container has run, in nanoseconds.
fn processor_time() -> u128 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let mut theirs = tasks.filter(|task| read(task.path().join("comm")).trim() == "ledgerline");
    let text = theirs.next().map(|task| read(task.path().join("schedstat"))).unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}

/// The program. It is a test only so that this binary can run it, in its own process.
#[test]
fn the_program_in_the_cgroup() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, _) = Role::ALL.into_iter().find(|(_, name)| *name == role).unwrap();
    let ledger: &'static Ledger = Box::leak(Box::new(role.ledger()));
    if role == Role::Trimming {
        trim(ledger);
    }
    let counts = Counts::default();
    let end = Instant::now() + seconds(8.0, 60.0);
    std::thread::scope(|scope| {
        let counts = &counts;
        for worker in 0..WORKERS {
            scope.spawn(move || tenants(ledger, counts, worker as u64));
        }
        scope.spawn(move || runaway(ledger, counts));
        scope.spawn(move || uncharged(counts));
        scope.spawn(move || page_cache(counts));
        // A slow disk takes longer than that to write the file once.
        let latest = end + Duration::from_secs(60);
        let more = || counts.files.load(Relaxed) == 0 && Instant::now() < latest;
        while Instant::now() < end || more() {
            std::thread::sleep(Duration::from_millis(10));
        }
        counts.over.store(true, Relaxed);
    });
    let [done, tenants, runaway, cancelled, files] = [
        &counts.done,
        &counts.tenants_refused,
        &counts.runaway_refused,
        &counts.runaway_cancelled,
        &counts.files,
    ]
    .map(|count| count.load(Relaxed));
    println!("result {done} {tenants} {runaway} {cancelled} {files}");
    if let Some(now) = ledger.container() {
        let row = ledger.root().child(UNTRACKED).unwrap();
        let sample = processor_time() / now.samples as u128;
        println!("{now}; the row had {} MiB at most; {sample} ns a sample", row.peak().value >> 20);
        println!("{now:?}");
    }
    assert_eq!(ledger.mistakes(), Default::default());
}

/// The outcome of the program.
struct Outcome {
    success: bool,
    signal: Option<i32>,
    killed: u64,
    /// The most that the kernel charged, without page cache.
    most: u64,
    numbers: Vec<u64>,
    text: String,
}

fn run(role: &str) -> Option<Outcome> {
    let cgroup = Cgroup::new(LIMIT)?;
    let mut command = again("the_program_in_the_cgroup");
    command.env(ROLE, role).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    cgroup.enter(&mut command);
    let mut child = command.spawn().expect("the program starts in its cgroup");
    let readers = [
        Box::new(child.stdout.take().unwrap()) as Box<dyn Read + Send>,
        Box::new(child.stderr.take().unwrap()),
    ]
    .map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
        })
    });
    let mut most = 0;
    let give_up = Instant::now() + seconds(8.0, 60.0) + Duration::from_secs(110);
    let status = loop {
        most = most.max(cgroup.used());
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > give_up {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = readers.map(|reader| reader.join().unwrap().unwrap()).concat();
    let numbers = text.lines().find_map(|line| line.split_once("result ")).map(|(_, it)| it);
    let numbers = numbers.unwrap_or_default().split(' ').filter_map(|it| it.parse().ok()).collect();
    let killed = cgroup.killed();
    println!("{role}: {status}, {killed} killed, {} MiB at most\n{text}", most >> 20);
    Some(Outcome {
        success: status.success(),
        signal: status.signal(),
        killed,
        most,
        numbers,
        text,
    })
}

#[test]
fn in_a_container_the_kernel_kills_nobody_and_the_runaway_alone_is_refused() {
    for role in ["container", "trimming"] {
        let Some(outcome) = run(role) else { return };
        let Outcome { success, killed, most, numbers, text, .. } = outcome;
        assert!(success && killed == 0, "{role}: {killed} killed:\n{text}");
        let [done, tenants, runaway, _cancelled, files] = numbers[..] else { panic!("{text}") };
        assert_eq!(tenants, 0, "{role}: tenants were refused:\n{text}");
        assert!(runaway > 0, "{role}: the runaway was not refused:\n{text}");
        assert!(done > 0 && files > 0, "{role}: {done} blocks, {files} times the file:\n{text}");
        let [most, limit] = [most, LIMIT].map(|bytes| bytes >> 20);
        assert!(most * 100 >= limit * 85, "{role}: {most} MiB of {limit} were used:\n{text}");
    }
}

#[test]
fn without_it_the_kernel_kills_the_same_program() {
    for role in ["nothing", "limit"] {
        let Some(outcome) = run(role) else { return };
        let Outcome { signal, killed, text, .. } = outcome;
        assert_eq!(signal, Some(libc::SIGKILL), "{role}:\n{text}");
        assert!(killed > 0, "{role}: it was not the kernel:\n{text}");
    }
}

/// The part of the test below that runs in the cgroup.
#[test]
fn the_program_in_the_namespace() {
    let Ok(root) = std::env::var(NAMESPACE) else { return };
    let smallest = || Limits::read().smallest().map(ToString::to_string).unwrap_or_default();
    println!("limit {}", smallest());
    // A file system of cgroups that is mounted later, and shows no more than the namespace.
    let place = tempfile::tempdir().unwrap();
    let path = std::ffi::CString::new(place.path().to_str().unwrap()).unwrap();
    let (kind, options) = if root == "2" { (c"cgroup2", c"") } else { (c"cgroup", c"memory") };
    // SAFETY: the strings outlive the calls, which change only this process's own mounts.
    let mounted = unsafe {
        let options = options.as_ptr().cast();
        libc::mount(
            c"none".as_ptr(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        );
        libc::mount(c"none".as_ptr(), path.as_ptr(), kind.as_ptr(), 0, options)
    };
    if mounted != 0 {
        println!("left out: no cgroups can be mounted here: {}", std::io::Error::last_os_error());
    }
    println!("limit {}", smallest());
    // SAFETY: as above.
    unsafe { libc::umount(path.as_ptr()) };
}

#[test]
fn a_process_in_a_namespace_finds_its_own_limit_with_mounts_from_before_and_after() {
    let Some(cgroup) = Cgroup::new(LIMIT) else { return };
    let mut command = again("the_program_in_the_namespace");
    let version = if cgroup.is_v2() { "2" } else { "1" };
    if version == "1" {
        eprintln!("left out: a tree of version 2, which has no memory controller here");
    }
    command.env(NAMESPACE, version);
    cgroup.enter(&mut command);
    // SAFETY: between fork and exec it makes one system call.
    unsafe {
        command.pre_exec(|| match libc::unshare(libc::CLONE_NEWCGROUP | libc::CLONE_NEWNS) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            return eprintln!("skipped: no namespaces can be made here: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let limits: Vec<&str> =
        text.lines().filter_map(|line| Some(line.split_once("limit ")?.1)).collect();
    assert!(output.status.success() && limits.len() == 2, "{text}");
    assert!(limits.iter().all(|limit| limit.starts_with("256.0M, memory.")), "{text}");
}
