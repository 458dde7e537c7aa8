//! Golden files, and the kernel's own files of this machine.

use super::parse;
use super::*;
use crate::stat::numa::{Numa, NumaItem};
use crate::stat::{Counters, PlaceId, Places};
use proptest::prelude::*;
use std::path::Path;

/// Compares with a file that a person has reviewed. With LEDGERLINE_BLESS=1 it replaces the file.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stat/print/golden").join(name);
    if std::env::var_os("LEDGERLINE_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected, "{name} differs; set LEDGERLINE_BLESS=1 to replace it");
}

fn stats<const N: usize>(pairs: [(&'static str, u64); N]) -> Vec<Stat> {
    pairs.map(|(name, value)| Stat::new(name, value)).into()
}

/// Returns the zone in the mail of the series of Linux commit 1d90ca897cb0, "mm: update NUMA
/// counter threshold size", with the pages and CPUs around it.
fn zone() -> Zone {
    let set = |cpu, count| Pageset {
        cpu,
        stats: stats([
            ("count", count),
            ("high", 378),
            ("batch", 63),
            ("high_min", 378),
            ("high_max", 2048),
        ]),
        threshold: 10,
    };
    let mut zone = Zone::new(0, "DMA");
    zone.node_stats = stats([("nr_inactive_anon", 15427), ("nr_mapped", 4848), ("nr_dirty", 60)]);
    zone.pages = stats([
        ("free", 3976),
        ("boost", 0),
        ("min", 32),
        ("low", 40),
        ("high", 48),
        ("promo", 56),
        ("spanned", 4095),
        ("present", 3998),
        ("managed", 3977),
        ("cma", 0),
    ]);
    zone.protection = vec![0, 2936, 7888];
    zone.stats = stats([
        ("nr_free_pages", 3976),
        ("nr_zone_inactive_anon", 0),
        ("nr_zone_unevictable", 0),
        ("nr_mlock", 0),
        ("nr_bounce", 0),
        ("nr_zspages", 0),
        ("nr_free_cma", 0),
    ]);
    zone.numa = stats([
        ("numa_hit", 1),
        ("numa_miss", 2),
        ("numa_foreign", 3),
        ("numa_interleave", 4),
        ("numa_local", 5),
        ("numa_other", u64::MAX),
    ]);
    zone.pagesets = vec![set(0, 7), set(11, 0)];
    zone.tail = stats([("node_unreclaimable", 0), ("start_pfn", 1)]);
    zone
}

#[test]
fn zoneinfo_is_printed_as_the_kernel_does() {
    let mut empty = Zone::new(1, "Movable");
    empty.pages = stats([("free", 0), ("boost", 0), ("min", 0)]);
    empty.protection = vec![0, 0, 0];
    let text = format!("{}{empty}", zone());
    golden("zoneinfo.txt", &text);
    assert_eq!(parse::zones(&text).unwrap(), [zone(), empty]);
}

#[test]
fn the_numa_items_stand_behind_the_items_of_the_zone() {
    let text = zone().to_string();
    let place = |name: &str| text.find(&format!("\n      {name} ")).unwrap();
    assert!(place("nr_zspages") < place("nr_free_cma"));
    assert!(place("nr_free_cma") < place("numa_hit"));
    assert!(place("numa_other") < text.find("\n  pagesets").unwrap());
}

#[test]
fn memory_stat_is_printed_in_bytes() {
    let stats = [
        Stat::bytes("anon", 17_524, 4096),
        Stat::bytes("file", -3, 4096),
        Stat::bytes("shmem", i64::MAX, 4096),
        Stat::clamped("pgfault", 123_456_789),
        Stat::clamped("pgmajfault", -1),
    ];
    golden("memory.stat", &Flat(&stats).to_string());
}

#[test]
fn a_name_never_breaks_its_line() {
    let mut zone = Zone::new(0, "two words");
    zone.stats = vec![Stat::new("tab\there", 1), Stat::new("end\n  pages free 5", 2)];
    zone.tail = vec![Stat::new("a b", 3)];
    let text = zone.to_string();
    assert_eq!(
        text,
        "Node 0, zone two_words\n      tab_here     1\n      end___pages_free_5 2\n  \
         a_b:                 3\n"
    );
    assert_eq!(Flat(&zone.stats).to_string(), "tab_here 1\nend___pages_free_5 2\n");
}

crate::items! {
    /// Some of what the kernel's zones count.
    enum ZoneItem {
        /// Free pages.
        Free = "nr_free_pages",
        /// Locked pages.
        Mlock = "nr_mlock",
        /// Free pages for large blocks.
        Cma = "nr_free_cma",
    }
}

crate::items! {
    /// Some of what the kernel's nodes count.
    enum NodeItem {
        /// Pages on the list of anonymous pages that were used lately.
        ActiveAnon = "nr_active_anon",
        /// Pages that wait to be written.
        Dirty = "nr_dirty",
    }
}

/// Two nodes with three zones, counted at random but always the same.
struct Machine {
    zones: Counters<ZoneItem, i8>,
    numa: Numa<u16>,
    nodes: Counters<NodeItem, i64>,
    node: [PlaceId; 2],
}

impl Machine {
    fn new() -> Machine {
        let mut tree = Places::builder("machine");
        let node = ["0", "node1"].map(|name| tree.node(name).unwrap());
        let zone = [(0, "DMA32"), (0, "Normal"), (1, "Normal")]
            .map(|(at, name)| tree.zone(node[at], name).unwrap());
        let places = tree.build().unwrap();
        let zones = Counters::builder(&places).cpus(2).threshold(10).anonymous().unwrap();
        let numa: Numa<u16> = Counters::builder(&places).cpus(2).anonymous().unwrap().into();
        let nodes = Counters::builder(&places).cpus(2).anonymous().unwrap();
        for (at, place) in zone.into_iter().enumerate() {
            for n in 0..40 {
                zones.on(n % 2).add(place, ZoneItem::Free, i64::from(n) * (at as i64 + 1));
                zones.on(n % 2).inc(place, ZoneItem::Mlock);
                let wanted = numa.zone(zone[if n % 7 == 0 { 2 } else { at }]).unwrap();
                numa.zone(place).unwrap().count_on(n % 2, wanted);
            }
        }
        numa.counters().on(1).add(zone[1], NumaItem::Interleave, 3);
        nodes.on(0).add(node[0], NodeItem::ActiveAnon, 15_427);
        nodes.on(1).add(node[1], NodeItem::Dirty, 60);
        Machine { zones, numa, nodes, node }
    }
}

#[test]
fn counters_are_printed_as_the_files_of_the_kernel() {
    let machine = Machine::new();
    let (zones, nodes) = (machine.zones.table(), machine.nodes.table());
    let numa = machine.numa.counters().table();
    let text = Flat(&vmstat(&[&zones, &numa, &nodes])).to_string();
    golden("vmstat.txt", &text);
    assert_eq!(parse::flat(&text).unwrap().len(), 11);

    golden("numastat.txt", &Flat(&numastat(&numa, machine.node[0].index())).to_string());
    assert!(numastat(&numa, 1000).is_empty());

    let printed = zoneinfo(&zones, Some(&numa), Some(&nodes));
    let text: String = printed.iter().map(Zone::to_string).collect();
    golden("zoneinfo_of_counters.txt", &text);
    assert_eq!(parse::zones(&text).unwrap(), printed);
    assert!(zoneinfo(&zones, None, None).iter().all(|zone| zone.numa.is_empty()));
}

#[test]
fn numastat_has_the_lines_of_this_machines_own() {
    let Some(text) = kernels("/sys/devices/system/node/node0/numastat") else { return };
    let table = Machine::new().numa.counters().table();
    let names = |stats: Vec<Stat>| stats.into_iter().map(|stat| stat.name).collect::<Vec<_>>();
    assert_eq!(names(numastat(&table, 1)), names(parse::flat(&text).unwrap()));
}

/// Reads a file of this machine. Prints a message if it is missing or only readable by root.
fn kernels(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path);
    if let Err(error) = &text {
        eprintln!("skipped: {path}: {error}");
    }
    text.ok()
}

#[test]
fn the_kernels_own_flat_files_come_out_byte_for_byte() {
    let node = "/sys/devices/system/node/node0";
    let numastat = format!("{node}/numastat");
    let vmstat = format!("{node}/vmstat");
    let cgroups = ["", "/init.scope", "/system.slice", "/unified"]
        .map(|group| format!("/sys/fs/cgroup{group}/memory.stat"));
    let files = ["/proc/vmstat", &numastat, &vmstat, "/sys/fs/cgroup/memory/memory.stat"];
    let mut seen = 0;
    for path in files.into_iter().chain(cgroups.iter().map(String::as_str)) {
        let Some(text) = kernels(path) else { continue };
        let stats = parse::flat(&text).unwrap_or_else(|line| panic!("{path}: {line}"));
        assert_eq!(Flat(&stats).to_string(), text, "{path}");
        seen += 1;
    }
    assert!(seen > 0 || kernels("/proc/vmstat").is_none(), "nothing was compared");
}

#[test]
fn the_kernels_own_zoneinfo_comes_out_byte_for_byte() {
    let Some(text) = kernels("/proc/zoneinfo") else { return };
    let zones = parse::zones(&text).unwrap_or_else(|line| panic!("{line}"));
    assert!(!zones.is_empty());
    let printed = zones.iter().map(Zone::to_string).collect::<String>();
    let count = |line: &str| line.trim_start().strip_prefix("count: ").map(str::to_owned);
    if text.lines().find_map(count).is_some_and(|number| !number.starts_with(' ')) {
        // Older kernels pad these numbers less; the rest is the same.
        let words =
            |text: &str| text.split(' ').filter(|word| !word.is_empty()).collect::<String>();
        return assert_eq!(words(&printed), words(&text));
    }
    assert_eq!(printed, text);
}

fn any_stats() -> impl Strategy<Value = Vec<Stat>> {
    let stat = ("nr_[a-z_]{1,30}", any::<u64>()).prop_map(|(name, value)| Stat::new(name, value));
    prop::collection::vec(stat, 0..6)
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    #[test]
    fn what_is_printed_reads_back_the_same(
        (node, name) in (any::<u32>(), "[A-Za-z0-9]{1,12}"),
        (node_stats, stats) in (any_stats(), any_stats()),
        pages in any_stats().prop_filter("pages", |pages| !pages.is_empty()),
        protection in prop::collection::vec(any::<u64>(), 0..4),
        numa in prop::collection::vec(any::<u64>(), 0..3),
        pagesets in prop::collection::vec((any::<u32>(), any_stats(), any::<u64>()), 0..3),
        tail in any_stats(),
    ) {
        let numa = numa.into_iter().map(|value| Stat::new("numa_hit", value)).collect();
        let pagesets = pagesets
            .into_iter()
            .map(|(cpu, stats, threshold)| Pageset { cpu, stats, threshold })
            .collect();
        let name = name.into();
        let zone =
            Zone { node, name, node_stats, pages, protection, stats, numa, pagesets, tail };
        prop_assert_eq!(parse::flat(&Flat(&zone.stats).to_string()).unwrap(), zone.stats.clone());
        let both = [zone.clone(), zone];
        let text: String = both.iter().map(Zone::to_string).collect();
        prop_assert_eq!(parse::zones(&text).unwrap(), both);
    }
}
