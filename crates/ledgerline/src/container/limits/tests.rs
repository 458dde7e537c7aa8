use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// A made-up system: a folder with the given files.
struct System(PathBuf);

impl System {
    fn new(files: &[(&str, &str)]) -> System {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ledgerline-limits-{}-{number}", std::process::id());
        let system = System(std::env::temp_dir().join(name));
        files.iter().for_each(|(path, text)| system.write(path, text));
        system
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn told(&self) -> Vec<String> {
        let cut = format!("{}/", self.0.display());
        let limits = Limits::read_in(&self.0);
        limits
            .all()
            .iter()
            .map(|it| format!("{} {}", it.bytes, it.source).replace(&cut, ""))
            .collect()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const V2: (&str, &str) =
    ("proc/self/mountinfo", "30 23 0:26 / /cg rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
const V1: (&str, &str) = ("proc/self/mountinfo", "35 23 0:32 / /cg rw - cgroup cgroup rw,memory\n");
const NO_LIMIT: &str = "9223372036854771712\n";

#[test]
fn every_level_up_the_tree_has_its_say_and_the_smallest_wins() {
    let system = System::new(&[
        V2,
        ("proc/self/cgroup", "0::/a/b\n"),
        ("cg/a/b/memory.max", "max\n"),
        ("cg/a/b/memory.high", "5000000\n"),
        ("cg/a/memory.max", "4000000\n"),
        ("cg/a/memory.high", "max\n"),
        ("cg/cgroup.procs", ""),
        ("proc/meminfo", "MemTotal:       24684092 kB\nMemFree: 1 kB\n"),
    ]);
    let told = system.told();
    assert_eq!(
        told,
        [
            "5000000 memory.high of cg/a/b",
            "4000000 memory.max of cg/a",
            "25276510208 the machine's memory"
        ]
    );
    let limits = Limits::read_in(&system.0);
    assert_eq!(limits.smallest().unwrap().source, Source::Max(system.0.join("cg/a")));
    // A changed limit is seen at the next reading.
    system.write("cg/a/b/memory.high", "3000000\n");
    let limits = Limits::read_in(&system.0);
    assert_eq!(limits.smallest().unwrap().source, Source::High(system.0.join("cg/a/b")));
}

#[test]
fn version_1_is_read_up_to_where_it_stops_counting_and_hidden_limits_are_known() {
    let system = System::new(&[
        V1,
        ("proc/self/cgroup", "4:memory:/a/b\n0::/\n"),
        ("cg/a/b/memory.limit_in_bytes", NO_LIMIT),
        ("cg/a/b/memory.stat", "cache 1\nhierarchical_memory_limit 700\ntotal_cache 1\n"),
        ("cg/a/memory.limit_in_bytes", "9000\n"),
        ("cg/a/memory.use_hierarchy", "1\n"),
        ("cg/memory.limit_in_bytes", "10\n"),
        ("cg/memory.use_hierarchy", "0\n"),
    ]);
    assert_eq!(
        system.told(),
        ["9000 memory.limit_in_bytes of cg/a", "700 hierarchical_memory_limit of cg/a/b"]
    );
    // A known limit is not reported twice.
    system.write("cg/a/b/memory.stat", "hierarchical_memory_limit 9000\n");
    assert_eq!(system.told(), ["9000 memory.limit_in_bytes of cg/a"]);
    system.write("cg/a/b/memory.stat", &format!("hierarchical_memory_limit {NO_LIMIT}"));
    assert_eq!(system.told(), ["9000 memory.limit_in_bytes of cg/a"]);
}

/// Returns one line of mountinfo: the root and the point of a mount of cgroups.
fn mounted(version: Version, root: &str, point: &str) -> String {
    let (kind, options) =
        if version == Version::V2 { ("cgroup2", "rw") } else { ("cgroup", "rw,memory") };
    format!("30 23 0:26 {root} {point} rw,nosuid shared:9 - {kind} {kind} {options}\n")
}

/// Returns the limits of a process with these cgroup and mounts. There are folders with limits of many sizes, named by the
/// place of their mount; this process is listed in some of them.
fn limits_of(member: &str, mounts: &[String]) -> Vec<String> {
    let own = format!("1\n{}\n", std::process::id());
    let system = System::new(&[
        ("proc/self/cgroup", member),
        ("proc/self/mountinfo", &mounts.concat()),
        // The whole tree.
        ("all/memory.max", "64000\n"),
        ("all/box/memory.max", "512\n"),
        ("all/box/job/memory.max", "256\n"),
        ("all/box/job/cgroup.procs", &own),
        ("all/box/other/memory.max", "700\n"),
        ("all/box/other/cgroup.procs", "1\n"),
        ("all/boxes/memory.max", "9000\n"),
        // A part of it.
        ("part/memory.max", "512\n"),
        ("part/job/memory.max", "256\n"),
        ("part/job/cgroup.procs", &own),
        // The process's own cgroup.
        ("own/memory.max", "256\n"),
        ("own/cgroup.procs", &own),
        // Another process's cgroup.
        ("other/memory.max", "9000\n"),
        ("other/cgroup.procs", "1\n"),
        // A system that lists no process of this namespace.
        ("far/box/job/memory.max", "256\n"),
        ("far/memory.max", "64000\n"),
        ("v1/box/job/memory.limit_in_bytes", "300\n"),
        ("v1/memory.limit_in_bytes", "64000\n"),
    ]);
    system.told()
}

#[test]
fn the_mount_that_shows_the_process_is_read_whichever_was_mounted_last() {
    use Version::{V1, V2};
    let v2 = |root: &str, point: &str| mounted(V2, root, point);
    let [job, within, top] =
        ["256 memory.max of all/box/job", "512 memory.max of all/box", "64000 memory.max of all"];
    // Nested limits, with another part of the tree that was mounted later.
    for later in [v2("/boxes", "/other"), v2("/", "/other"), v2("/box/job/deeper", "/other")] {
        for mounts in [[v2("/", "/all"), later.clone()], [later, v2("/", "/all")]] {
            assert_eq!(limits_of("0::/box/job\n", &mounts), [job, within, top], "{mounts:?}");
        }
    }
    // A name with the same beginning is no part of the path.
    let mounts = [v2("/box", "/part"), v2("/bo", "/other")];
    let part = ["256 memory.max of part/job", "512 memory.max of part"];
    assert_eq!(limits_of("0::/box/job\n", &mounts), part);
    // `unshare -Cm`: the mounts from before show more than the namespace.
    assert_eq!(limits_of("0::/\n", &[v2("/../..", "/all")]), [job, within, top]);
    // The same with a file system that was mounted in the namespace, and with one that lists no process.
    let mounts = [v2("/../..", "/all"), v2("/", "/own"), v2("/../boxes", "/other")];
    assert_eq!(limits_of("0::/\n", &mounts), [job, within, top]);
    let mounts = [v2("/", "/own"), v2("/../boxes", "/other")];
    assert_eq!(limits_of("0::/\n", &mounts), ["256 memory.max of own"]);
    // A child of the namespace's root.
    assert_eq!(limits_of("0::/job\n", &[v2("/..", "/all"), v2("/", "/other")]), [job, within, top]);
    // If no process is listed, the path decides: the limits from above apply in any case.
    let mounts = [v2("/", "/far"), v2("/boxes", "/other")];
    let far = ["256 memory.max of far/box/job", "64000 memory.max of far"];
    assert_eq!(limits_of("0::/box/job\n", &mounts), far);
    assert_eq!(limits_of("0::/\n", &[v2("/../..", "/far")]), ["64000 memory.max of far"]);
    // A hybrid machine.
    let mounts = [v2("/", "/all"), mounted(V1, "/", "/v1"), mounted(V1, "/boxes", "/other")];
    let both = [
        job,
        within,
        top,
        "300 memory.limit_in_bytes of v1/box/job",
        "64000 memory.limit_in_bytes of v1",
    ];
    assert_eq!(limits_of("4:memory:/box/job\n0::/box/job\n", &mounts), both);
}

#[test]
fn resource_limits_count_and_unlimited_ones_do_not() {
    let header = "Limit                     Soft Limit           Hard Limit           Units\n";
    let system = System::new(&[(
        "proc/self/limits",
        &format!(
            "{header}Max data size             unlimited            unlimited            bytes\nMax address space         4194304              8388608              bytes\n"
        ),
    )]);
    assert_eq!(system.told(), ["4194304 the limit on address space (ulimit -v)"]);
    system.write("proc/self/limits", "Max data size 77 99 bytes\n");
    assert_eq!(system.told(), ["77 the limit on data (ulimit -d)"]);
}

#[test]
fn a_system_without_any_of_it_has_no_limit() {
    assert_eq!(System::new(&[]).told(), [""; 0]);
    let hybrid = System::new(&[V2, ("proc/self/cgroup", "0::/\n"), ("cg/cgroup.procs", "1\n")]);
    assert_eq!(
        hybrid.told(),
        [""; 0],
        "a hierarchy without the memory controller has no such files"
    );
}

#[test]
fn page_cache_counts_up_to_a_part_of_the_limit_and_everything_else_does() {
    let stat = "anon 500\nfile 300\nkernel 90\ninactive_file 200\nactive_file 60\nfile_dirty 50\n\
                slab_reclaimable 30\nslab_unreclaimable 10\ninactive_file_x 9\n";
    let system = System::new(&[("cg/memory.current", "1000\n"), ("cg/memory.stat", stat)]);
    let folder = system.0.join("cg");
    assert_eq!(usage(&system.0, &Source::Max(folder.clone()), 0), Some(1000 - 200 - 60 - 30));
    // A sixteenth of the limit counts.
    for (limit, counts) in [(160, 10), (1600, 100), (16_000, 260)] {
        let used = usage(&system.0, &Source::Max(folder.clone()), limit);
        assert_eq!(used, Some(1000 - 260 - 30 + counts));
    }
    // More cache than memory in all, as the two files are read one after the other.
    system.write("cg/memory.current", "100\n");
    assert_eq!(usage(&system.0, &Source::High(folder.clone()), 0), Some(0));
    // Version 1 reports the cgroup alone, and the cgroup with all below it.
    system.write("cg/memory.usage_in_bytes", "1000\n");
    system
        .write("cg/memory.stat", "inactive_file 1\ntotal_inactive_file 400\ntotal_active_file 5\n");
    assert_eq!(usage(&system.0, &Source::LimitInBytes(folder.clone()), 0), Some(595));
    fs::remove_file(folder.join("memory.stat")).unwrap();
    assert_eq!(usage(&system.0, &Source::LimitInBytes(folder.clone()), 0), Some(1000));
    fs::remove_file(folder.join("memory.usage_in_bytes")).unwrap();
    assert_eq!(usage(&system.0, &Source::Hierarchical(folder), 0), None);
}

#[test]
fn each_limit_of_a_process_has_its_own_measure() {
    let system = System::new(&[("proc/self/statm", "1000 200 30 4 0 500 0\n")]);
    // SAFETY: sysconf takes no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let pages = |source| usage(&system.0, &source, 0).map(|bytes| bytes / page);
    assert_eq!(pages(Source::AddressSpace), Some(1000));
    assert_eq!(pages(Source::Machine), Some(200));
    assert_eq!(pages(Source::Data), Some(500));
    system.write("proc/self/statm", "1000");
    assert_eq!(pages(Source::Machine), None);
}

#[test]
fn this_very_machine_has_memory_and_this_process_uses_some() {
    let limits = Limits::read();
    let machine = limits.all().iter().find(|bound| bound.source == Source::Machine).unwrap();
    let used = usage(Path::new("/"), &Source::Machine, 0).unwrap();
    assert!(machine.bytes > 1 << 20 && used > 1 << 10 && used < machine.bytes, "{machine} {used}");
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    #[test]
    fn no_file_makes_the_reader_panic(texts in prop::collection::vec("[ -~\\n]{0,120}|[0-9]{1,25}|max", 7)) {
        let paths = [
            "cg/memory.max", "cg/memory.current", "cg/memory.stat", "proc/self/limits",
            "proc/meminfo", "proc/self/statm", "cg/memory.events",
        ];
        let mut files: Vec<_> = paths.into_iter().zip(texts.iter().map(String::as_str)).collect();
        files.extend([V2, ("proc/self/cgroup", "0::/\n")]);
        let system = System::new(&files);
        for bound in Limits::read_in(&system.0).all() {
            let _ = usage(&system.0, &bound.source, 0);
        }
        Events::default().are_more(Some((Version::V2, &system.0.join("cg"))));
    }
}

#[test]
fn events_of_a_cgroup_are_news_once_and_those_from_before_are_none() {
    let system = System::new(&[("memory.events", "high 0\n")]);
    let mut events = Events::default();
    let seen = Some((Version::V2, &*system.0));
    assert!(!events.are_more(seen), "what was there before is no news");
    assert!(!events.are_more(seen));
    system.write("memory.events", "low 0\nhigh 2\nmax 0\noom_kill 9\n");
    assert!(events.are_more(seen) && !events.are_more(seen));
    system.write("memory.events", "low 0\nhigh 3\n");
    assert!(!events.are_more(Some((Version::V1, &*system.0))) && events.are_more(seen));
}
