//! Profiles of every format, as the tools print them.

use crate::support;
use ledgerline_advise::profile::{Instances, Kind, Known, Object, Profile, TypeProfile};
use ledgerline_layout::model::Types;
use proptest::prelude::*;

const FIXTURES: [(&str, &str); 8] = [
    ("tcp_sock-2023.rst", include_str!("../fixtures/tcp_sock-2023.rst")),
    ("tables-2025.rst", include_str!("../fixtures/tables-2025.rst")),
    ("c2c-6.1.txt", include_str!("../fixtures/c2c-6.1.txt")),
    ("c2c-4.18.txt", include_str!("../fixtures/c2c-4.18.txt")),
    ("c2c-arm.txt", include_str!("../fixtures/c2c-arm.txt")),
    ("script.txt", include_str!("../fixtures/script.txt")),
    ("mem-report.txt", include_str!("../fixtures/mem-report.txt")),
    ("mem-raw.txt", include_str!("../fixtures/mem-raw.txt")),
];

fn fixture(name: &str) -> &'static str {
    FIXTURES.iter().find(|(named, _)| *named == name).expect(name).1
}

fn types() -> Types {
    let mut types = Types::new(8);
    support::record(&mut types, "page_counter", support::COUNTER);
    support::record(&mut types, "tcp_sock", "pred_flags:4 rtt_seq:4 chrono_stat[3]");
    support::record(&mut types, "net_device", "mtu");
    support::record(&mut types, "mtu_less", "other");
    types
}

fn read(text: &str, objects: &[&str]) -> Result<Profile, String> {
    let types = types();
    let objects = objects.iter().map(|object| object.parse::<Object>().unwrap()).collect();
    let known = Known { types: Some(&types), objects, program: None };
    Profile::parse(text, "here", &known).map_err(|error| error.to_string())
}

const COUNTER: &str = "page_counter@0xffff888100a4c000";

fn counter(text: &str) -> TypeProfile {
    let profile = read(text, &[COUNTER, "page_counter@root_counter"]).unwrap();
    assert_eq!(profile.types.len(), 1);
    profile.types.into_iter().next().unwrap()
}

/// Returns the accesses of an operation of a role, as text.
fn rates(of: &TypeProfile, role: &str) -> Vec<String> {
    let role = of.roles.iter().find(|named| named.name == role).expect(role);
    let accesses = &role.phases[0].accesses;
    accesses
        .iter()
        .map(|access| format!("{} {} {:.3}", access.field, access.kind.word(), access.times))
        .collect()
}

#[test]
fn a_table_of_2023_says_who_touches_what_in_which_path() {
    let profile = Profile::parse(fixture("tcp_sock-2023.rst"), "here", &Known::default()).unwrap();
    let of = profile.of("tcp_sock").unwrap();
    assert_eq!(
        rates(of, "tx"),
        [
            "tcp_header_len load 1.000",
            "pred_flags load 1.000",
            "pred_flags store 1.000",
            "chrono_stat load 1.000",
            "chrono_stat store 1.000",
            "chrono_type load 1.000",
            "chrono_type store 1.000",
            "rtt_seq load 1.000",
            "rtt_seq store 1.000",
        ]
    );
    let rx = [
        "tcp_header_len load 1.000",
        "pred_flags load 1.000",
        "bytes_received load 1.000",
        "bytes_received store 1.000",
    ];
    assert_eq!(rates(of, "rx"), rx);
    assert_eq!(of.roles.iter().map(|role| role.share).sum::<f64>(), 1.0);
    // Fields that the given types do not have are left out.
    let profile = read(fixture("tcp_sock-2023.rst"), &[]).unwrap();
    assert_eq!(rates(profile.of("tcp_sock").unwrap(), "rx"), ["pred_flags load 1.000"]);
}

#[test]
fn tables_with_rules_are_read_one_after_the_other() {
    let profile = Profile::parse(fixture("tables-2025.rst"), "here", &Known::default()).unwrap();
    let names: Vec<&str> = profile.types.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["netns_ipv4", "net_device"]);
    let netns = &profile.types[0];
    assert_eq!(rates(netns, "tx"), ["spaced_type load 1.000", "sysctl_tcp_wmem load 1.000"]);
    assert_eq!(rates(netns, "rx"), ["sysctl_ip_early_demux load 1.000"]);
    // All CPUs play the only path.
    assert_eq!(profile.types[1].roles.len(), 1);
    assert_eq!(profile.types[1].roles[0].share, 1.0);
}

#[test]
fn a_c2c_report_tells_writers_from_readers_by_field() {
    let of = counter(fixture("c2c-6.1.txt"));
    // Four CPUs write usage: 1 000 stores of 1 400 samples. Six read max, six parent.
    let writers = ["max load 0.400", "parent load 0.200", "usage load 0.400", "usage store 1.000"];
    assert_eq!(rates(&of, "writers"), writers);
    assert_eq!(rates(&of, "readers"), ["max load 0.400", "parent load 0.200"]);
    assert_eq!(of.roles[0].share, 4.0 / 6.0);
    assert_eq!(of.instances, Instances::Shared);
}

#[test]
fn older_and_other_c2c_reports_are_read_by_their_headers() {
    let of = counter(fixture("c2c-4.18.txt"));
    // This report has no CPU numbers: of three CPUs, the first two write.
    assert_eq!(rates(&of, "writers"), ["min load 0.800", "usage store 1.000"]);
    assert_eq!(rates(&of, "readers"), ["min load 0.800"]);
    let of = counter(fixture("c2c-arm.txt"));
    // A quarter of 80 stores at any level: 20 of 120 samples.
    assert_eq!(rates(&of, "all"), ["max load 1.000", "max store 0.200"]);
}

#[test]
fn samples_are_weighed_by_their_periods_and_dealt_by_cpu() {
    let of = counter(fixture("script.txt"));
    let writers = ["max load 0.500", "usage atomic 0.500", "watermark store 1.000"];
    // Each of the two writing CPUs did half of each.
    let halves: Vec<String> = rates(&of, "writers");
    assert_eq!(halves, writers);
    assert_eq!(rates(&of, "readers"), ["parent load 1.000"]);
    assert_eq!(of.roles[0].share, 2.0 / 3.0);
}

#[test]
fn a_memory_report_says_by_its_events_what_is_a_store() {
    let of = counter(fixture("mem-report.txt"));
    let writers =
        ["max load 1.000", "parent load 0.667", "usage atomic 0.333", "watermark store 0.333"];
    assert_eq!(rates(&of, "all"), writers);
    assert_eq!(of.roles.len(), 1);
    let of = counter(fixture("mem-raw.txt"));
    assert_eq!(rates(&of, "writers"), ["usage store 1.000"]);
    assert_eq!(rates(&of, "readers"), ["max load 1.000"]);
}

#[test]
fn objects_of_one_cpu_each_are_told_from_shared_ones() {
    let line = |cpu: u32, address: u64| {
        format!("a 1 [{cpu:03}] 1.0: 1 mem-stores: {address:x} 5080144 |OP STORE|LVL L1 hit|\n")
    };
    let two = ["page_counter@0x1000", "page_counter@0x2000"];
    let instances = |lines: &[(u32, u64)]| {
        let text: String = lines.iter().map(|&(cpu, address)| line(cpu, address)).collect();
        read(&text, &two).unwrap().types[0].instances
    };
    assert_eq!(instances(&[(0, 0x1000), (1, 0x2008)]), Instances::PerCpu);
    assert_eq!(instances(&[(0, 0x1000), (1, 0x2008), (2, 0x1000)]), Instances::Dealt(2));
    assert_eq!(instances(&[(0, 0x1000), (1, 0x2008), (0, 0x2000)]), Instances::Shared);
    assert_eq!(instances(&[(0, 0x1000), (1, 0x1008)]), Instances::Shared);
}

#[test]
fn elements_of_arrays_are_named_by_index() {
    let text = "a 1 [000] 1.0: 1 mem-loads: 1018 5080142 |OP LOAD|LVL L1 hit|\n";
    let profile = read(text, &["tcp_sock@0x1000"]).unwrap();
    let of = profile.of("tcp_sock").unwrap();
    assert_eq!(of.times("chrono_stat[2]", Kind::Load), 1.0);
    let types = types();
    let id = ledgerline_layout::pick::pick(&types, &["tcp_sock".to_owned()]).unwrap()[0].1;
    let find = |path| ledgerline_advise::profile::find(&types, id, path).map(|leaf| leaf.offset());
    assert_eq!(find("chrono_stat[2]"), Some(24));
    assert_eq!(find("chrono_stat"), Some(8));
    for path in
        ["chrono_stat[3]", "chrono_stat[", "chrono_stat[x]", "chrono_stat[0]y", "rtt_seq[0]"]
    {
        assert_eq!(find(path), None, "{path}");
    }
}

#[test]
fn what_cannot_be_used_is_one_line_that_says_what_to_do() {
    let script = fixture("script.txt");
    let c2c = fixture("c2c-6.1.txt");
    let cases: [(&str, &[&str], &str); 11] = [
        (script, &[], "it has addresses and does not say of what; name objects: --object TYPE@"),
        (script, &["page_conter@0x1"], "no type \"page_conter\"; did you mean `page_counter`?"),
        (script, &["page_counter@0x1000"], "none of its 5 samples hit a field of the objects"),
        (
            "a 1 [000] 1.0: 1 memory: 5080142 |OP LOAD|LVL L1|\n",
            &[COUNTER],
            "no sample has an address; print",
        ),
        (
            "a 1 [000] 1.0: 1 cycles: ffff888100a4c000\n",
            &[COUNTER],
            "no sample says whether it is a load",
        ),
        (
            &c2c[..c2c.find("Pareto").unwrap() + 6],
            &[COUNTER],
            "it has no table \"Shared Cache Line",
        ),
        (
            &c2c.replace("Offset", "Ofset "),
            &[COUNTER],
            "line 24: the header of the table has no Offset",
        ),
        (
            &c2c.replace("0xffffffff81170ed4       400", "x"),
            &[COUNTER],
            "line 29: a row is cut off",
        ),
        (
            "tcp_sock struct fast path usage breakdown\nType Name fastpath_tx_access fastpath_rx_access\nu8   a    read_often\n",
            &[],
            "line 3: the access of \"a\" is \"read_often\"; write read_mostly",
        ),
        (
            "Type Name fastpath_tx_access fastpath_rx_access\nu8   a    read_mostly\n",
            &[],
            "line 1: the table has no title",
        ),
        (
            "mtu_less struct fast path usage breakdown\nType Name fastpath_tx_access fastpath_rx_access\nu8   mtu  read_mostly\n",
            &[],
            "line 2: the table of mtu_less begins here and names no field; the type at hand has none",
        ),
    ];
    for (text, objects, wanted) in cases {
        let error = read(text, objects).expect_err(wanted);
        assert!(error.contains(wanted), "{error}\nnot: {wanted}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_second_report_behind_the_first_has_columns_of_its_own() {
    let both = format!("{}\n{}", fixture("c2c-4.18.txt"), fixture("c2c-arm.txt"));
    let of = counter(&both);
    assert!(of.times("max", Kind::Load) > 0.0 && of.times("usage", Kind::Store) > 0.0);
    // Rows of one report under the header of another belong to no line.
    let arm = fixture("c2c-arm.txt");
    let header = &arm[..=arm.find("\n  ---").unwrap()];
    let cut = fixture("c2c-4.18.txt").replacen(
        "         100.00%",
        &format!("{header}         100.00%"),
        1,
    );
    let error = read(&cut, &[COUNTER]).unwrap_err();
    assert!(error.contains("a row belongs to no line"), "{error}");
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    #[test]
    fn no_damage_makes_a_reader_fall(
        which in 0..FIXTURES.len(), cut in any::<prop::sample::Index>(), skip in 0..40usize,
        noise in "\\PC{0,12}|[0-9a-fx%.{}| #=-]{0,20}|\n# \\.\\.\\. \\.\\.é\n",
    ) {
        let text = FIXTURES[which].1;
        let at = cut.index(text.len());
        let rest = (at + skip).min(text.len());
        let damaged = format!("{}{noise}{}", &text[..at], &text[rest..]);
        match read(&damaged, &[COUNTER, "page_counter@root_counter"]) {
            Ok(profile) => {
                for of in &profile.types {
                    let sum: f64 = of.roles.iter().map(|role| role.share).sum();
                    prop_assert!((sum - 1.0).abs() < 1e-9);
                    for access in of.roles.iter().flat_map(|role| &role.phases[0].accesses) {
                        prop_assert!(access.times > 0.0 && access.times.is_finite());
                    }
                }
                // A profile that was read can be written and read again.
                prop_assert!(read(&profile.to_toml(), &[]).is_ok(), "{}", profile.to_toml());
            }
            Err(error) => prop_assert_eq!(error.lines().count(), 1, "{}", error),
        }
    }
}
