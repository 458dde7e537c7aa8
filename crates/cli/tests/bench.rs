//! `ledgerline bench`: every figure exists, in the promised form. The values depend on the machine; only relations that
//! hold on any machine are compared. This is a separate program, since the other tests of the command would compete for
//! the CPUs.

#[path = "../../../tests/support/figures.rs"]
mod figures;
#[path = "../../../tests/support/held.rs"]
mod held;
#[path = "main/support/mod.rs"]
mod support;

use figures::{of, rows};
use ledgerline_bench::cases;
use serde_json::Value;
use std::collections::HashMap;
use std::process::{Command, Output};
use support::compiled::Compiled;

/// Returns whether the build is optimised; otherwise reports that a test of times is skipped.
fn is_optimised() -> bool {
    let optimised = support::tested::is_optimised();
    if !optimised {
        eprintln!("skipped: an unoptimised build's times say nothing");
    }
    optimised
}

fn bench(arguments: &[&str]) -> Output {
    Command::new(support::binary())
        .args(["bench", "charge"])
        .args(arguments)
        .env_remove("LEDGERLINE_PERCPU")
        .output()
        .expect("the command runs")
}

/// Returns the figures by case, mode and threads.
fn figures(rows: &[Value]) -> HashMap<(String, String, u64), f64> {
    let text = |row: &Value, key: &str| row[key].as_str().expect(key).to_owned();
    rows.iter()
        .map(|row| {
            let key =
                (text(row, "case"), text(row, "mode"), row["threads"].as_u64().expect("threads"));
            (key, row["ns_per_op"].as_f64().expect("ns_per_op"))
        })
        .collect()
}

/// Returns the modes. They depend on the kernel and the C library, so this test requires none.
fn modes(figures: &HashMap<(String, String, u64), f64>) -> Vec<&'static str> {
    let is_there = |&wanted: &&str| figures.keys().any(|(_, mode, _)| mode == wanted);
    ["rseq", "owned"].into_iter().filter(is_there).chain(["fallback"]).collect()
}

#[test]
fn every_case_is_measured_in_all_modes_with_every_field() {
    let output = bench(&["--threads", "1,2", "--runs", "3", "--quick", "--json"]);
    let rows = rows(&output);
    let figures = figures(&rows);
    let modes = modes(&figures);
    for mode in &modes {
        for &case in cases("charge") {
            for threads in [1, 2] {
                let there = figures.contains_key(&(case.to_owned(), (*mode).to_owned(), threads));
                // Groups are created in bulk on one thread.
                let wanted = case != "create_million" || threads == 1;
                assert_eq!(there, wanted, "{case}, {mode}, {threads}");
            }
        }
    }
    assert_eq!(rows.len(), modes.len() * (2 * cases("charge").len() - 1), "nothing twice");
    let cpus = std::thread::available_parallelism().expect("CPUs").get() as u64;
    for row in &rows {
        assert_eq!(row["suite"], "charge", "{row}");
        assert_eq!(row["runs"], 3, "{row}");
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"));
        assert!(0.0 < number("min"), "{row}");
        assert!(number("min") <= number("ns_per_op"), "{row}");
        assert!(number("ns_per_op") <= number("max"), "{row}");
        assert!((0.0..=1.0).contains(&number("waited")), "{row}");
        let threads = row["threads"].as_u64().expect("threads");
        assert_eq!(row["oversubscribed"], threads > cpus, "{row}");
        for key in ["transfer_ns", "transfer_ns_before", "transfer_ns_after"] {
            let wanted = threads > 1 && cpus > 1;
            assert_eq!(row[key].as_f64().is_some_and(|ns| ns > 0.0), wanted, "{key} of {row}");
        }
        let case = row["case"].as_str().expect("case");
        assert_eq!(row.get("times_units").is_some(), case.starts_with("guard_"), "{row}");
        for key in ["groups", "seconds", "resident_bytes"] {
            assert_eq!(row.get(key).is_some(), row["case"] == "create_million", "{key} of {row}");
        }
    }
}

#[test]
fn a_table_says_what_it_compares() {
    let cases = "bare_add,pair_depth1,atomics_depth3";
    let output = bench(&["--threads", "1", "--quick", "--mode", "fallback", "--cases", cases]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let line = |start: &str| {
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no {start:?} in:\n{text}"))
    };
    assert!(line("fallback, 1 thread ").contains("ns/op"));
    assert!(line("  pair_depth1 ").contains("x bare_add, "));
    assert!(line("  pair_depth1 ").contains("than atomics_depth3"));
    assert!(!text.contains('\x1b'), "no colour but on a terminal");
    assert!(!text.contains("rseq"));
    assert!(output.stderr.is_empty(), "no progress but on a terminal");
}

#[test]
fn a_bad_value_is_told_with_what_would_be_a_good_one() {
    for (arguments, complaint, good) in [
        (["--threads", "0"], "'0' for '--threads <LIST>'", "0 is not in 1..=4096"),
        (["--threads", "1,x"], "'x' for '--threads <LIST>'", "invalid digit"),
        (["--runs", "many"], "'many' for '--runs <N>'", "invalid digit"),
        (["--mode", "fast"], "'fast' for '--mode <MODE>'", ": rseq, owned, fallback, all]"),
        (["--cases", "bare_add,bear_add"], "'bear_add' for '--cases <LIST>'", ": bare_add, "),
    ] {
        let output = bench(&arguments);
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.starts_with(&format!("error: invalid value {complaint}")), "{stderr}");
        assert!(stderr.contains(good), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}

/// The one comparison that a busy machine does not invalidate, in an optimised build.
#[test]
fn a_pair_is_faster_than_behind_a_mutex() {
    if !is_optimised() {
        return;
    }
    let cases = "pair_depth1,mutex_depth3";
    let output = bench(&["--threads", "1", "--runs", "7", "--json", "--cases", cases]);
    let figures = figures(&rows(&output));
    let of = |case: &str, mode: &str| figures.get(&(case.to_owned(), mode.to_owned(), 1));
    if let (Some(pair), Some(mutex)) = (of("pair_depth1", "rseq"), of("mutex_depth3", "rseq")) {
        assert!(pair < mutex, "a pair took {pair} ns, behind a mutex {mutex} ns");
    }
}

/// Returns a suite's quick figures, in both modes.
fn suite(name: &str, arguments: &[&str]) -> Vec<Value> {
    figures::suite(&mut support::ledgerline(), name, arguments)
}

#[test]
fn counting_is_measured_in_every_width_and_beside_its_peers() {
    let rows = suite("stat", &["--threads", "1,2"]);
    // A Java virtual machine is optional.
    for case in cases("stat").iter().filter(|&&case| case != "long_adder") {
        let threads: Vec<u64> =
            of(&rows, case).iter().map(|row| row["threads"].as_u64().unwrap()).collect();
        assert!(threads.contains(&1) && threads.contains(&2), "{case}: {threads:?}");
    }
}

#[test]
fn reading_is_measured_by_the_number_of_cpus() {
    let rows = suite("read", &["--cases", "precise_read,approximate_read,group_stat_unchanged"]);
    let cpus: Vec<u64> =
        of(&rows, "precise_read").iter().map(|row| row["cpus"].as_u64().unwrap()).collect();
    for number in [1, 2, 8, 64, 256, 1024] {
        assert!(cpus.contains(&number), "{cpus:?}");
    }
    assert!(of(&rows, "precise_read").iter().all(|row| row["ns_per_cpu"].is_number()));
    assert!(rows.iter().all(|row| row["threads"] == 1), "readers are measured on one thread");
    of(&rows, "approximate_read");
    of(&rows, "group_stat_unchanged");
}

#[test]
fn what_a_group_adds_to_a_poll_stands_beside_the_poll_without() {
    let rows = suite("task", &["--threads", "1,2"]);
    for case in cases("task") {
        let threads: Vec<u64> =
            of(&rows, case).iter().map(|row| row["threads"].as_u64().unwrap()).collect();
        assert!(threads.contains(&1) && threads.contains(&2), "{case}: {threads:?}");
    }
    for row in &rows {
        let plain = match row["case"].as_str().unwrap() {
            "poll_charged" | "poll_scope" | "poll_groups8" => "poll",
            "poll_span_group" => "poll_span",
            "tokio_yield_charged" => "tokio_yield",
            _ => {
                assert_eq!(row.get("added_ns"), None, "{row}");
                continue;
            }
        };
        let same = |other: &&&Value| ["mode", "threads"].iter().all(|key| other[key] == row[key]);
        let plain = *of(&rows, plain).iter().find(same).unwrap();
        let more = row["ns_per_op"].as_f64().unwrap() - plain["ns_per_op"].as_f64().unwrap();
        assert!((row["added_ns"].as_f64().unwrap() - more).abs() < 0.002, "{row}");
    }
}

#[test]
fn a_quota_of_one_atomic_is_measured_beside_ours() {
    let rows = suite("quota", &["--threads", "1,2"]);
    for case in cases("quota") {
        let threads: Vec<u64> =
            of(&rows, case).iter().map(|row| row["threads"].as_u64().unwrap()).collect();
        assert!(threads.contains(&1) && threads.contains(&2), "{case}: {threads:?}");
    }
    let arguments = ["bench", "quota", "--quick", "--threads", "1", "--mode", "fallback"];
    let output = Command::new(support::binary()).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).expect("text");
    let line = text.lines().find(|line| line.starts_with("  group_units ")).expect("a line");
    assert!(line.contains("x quota_exchange"), "{text}");
}

/// Nanoseconds depend on the machine, so the reference is one uncontended atomic addition in the same run. It takes
/// about five.
#[test]
fn switching_the_group_adds_less_to_a_poll_than_one_atomic_addition() {
    if !is_optimised() {
        return;
    }
    let chosen = "atomic_add,poll,poll_charged,poll_groups8";
    let arguments =
        ["bench", "task", "--threads", "1", "--runs", "7", "--json", "--mode", "fallback"];
    let output =
        Command::new(support::binary()).args(arguments).args(["--cases", chosen]).output().unwrap();
    let rows = rows(&output);
    let atomic = of(&rows, "atomic_add")[0]["ns_per_op"].as_f64().unwrap();
    for case in ["poll_charged", "poll_groups8"] {
        let added = of(&rows, case)[0]["added_ns"].as_f64().unwrap();
        assert!(added < atomic, "{case} adds {added} ns, an atomic addition takes {atomic}");
    }
}

/// One thread, since a busy machine may keep two from meeting at the atomic at all.
#[test]
fn a_charge_and_its_return_take_less_than_in_a_quota_of_one_atomic() {
    if !is_optimised() {
        return;
    }
    let chosen = "quota_exchange,group_units";
    let arguments = ["--threads", "1", "--runs", "7", "--json", "--cases", chosen];
    let output = Command::new(support::binary())
        .args(["bench", "quota"])
        .args(arguments)
        .env_remove("LEDGERLINE_PERCPU")
        .output()
        .unwrap();
    let figures = figures(&rows(&output));
    let of = |case: &str| figures.get(&(case.to_owned(), "rseq".to_owned(), 1));
    if let (Some(ours), Some(quota)) = (of("group_units"), of("quota_exchange")) {
        assert!(ours < quota, "ours took {ours} ns, the quota {quota} ns");
    }
}

#[test]
fn what_run_adds_stands_beside_programs_that_run_plain() {
    let rows = suite("run", &[]);
    for &case in cases("run") {
        let [row] = of(&rows, case)[..] else { panic!("{case} stands once") };
        let is_under = case.ends_with("_run");
        assert_eq!(row["added_ns"].is_number(), is_under, "{row}");
        if is_under {
            let added = row["added_ns"].as_f64().unwrap();
            let [low, high] = [0, 1].map(|at| row["added_quartiles"][at].as_f64().unwrap());
            assert!(low <= added && added <= high, "{row}");
        }
    }
    // A subset of cases, and no other case is measured for it.
    let rows = suite("run", &["--cases", "malloc_run"]);
    assert_eq!(rows.len(), 1);
    of(&rows, "malloc_run");
}

#[test]
fn a_bench_of_run_that_is_run_itself_says_that_no_program_is_plain() {
    let output = Command::new(support::binary())
        .args(["run", "--", support::binary(), "bench", "run", "--quick", "--cases", "malloc"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("itself runs under `ledgerline run`"), "{stderr}");
    assert!(output.stdout.is_empty());
}

/// The example for another allocator in the help.
#[test]
fn what_the_user_preloads_is_in_each_program_plain_and_under_run() {
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n
        __attribute__((constructor)) static void begin(void) {
            char line[4096]; int under = 0;
            FILE *maps = fopen(\"/proc/self/maps\", \"r\");
            while (fgets(line, sizeof line, maps)) under |= strstr(line, \"ledgerline-preload\") != 0;
            fclose(maps);
            FILE *seen = fopen(getenv(\"SEEN\"), \"a\");
            fputs(under ? \"under\\n\" : \"plain\\n\", seen);
            fclose(seen);
        }";
    let library = Compiled::new(source, &["-shared", "-fPIC"]).expect("cc makes a library");
    let seen = support::scratch("seen");
    let output = Command::new(support::binary())
        .args(["bench", "run", "--quick", "--runs", "1", "--cases", "malloc,malloc_run"])
        .env("LD_PRELOAD", library.path())
        .env("SEEN", &seen)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = std::fs::read_to_string(&seen).unwrap();
    std::fs::remove_file(&seen).unwrap();
    // Two pairs of programs; this command itself, and twice the command that runs one.
    assert_eq!(told.lines().filter(|&line| line == "under").count(), 2, "{told}");
    assert_eq!(told.lines().filter(|&line| line == "plain").count(), 5, "{told}");
}

#[test]
fn allocators_are_measured_beside_the_one_beneath() {
    let rows = suite("alloc", &["--threads", "1,2"]);
    for case in cases("alloc") {
        for row in of(&rows, case) {
            let beneath = case.starts_with("system");
            assert_eq!(row.get("added_ns").is_none(), beneath, "{row}");
        }
        let threads: Vec<u64> =
            of(&rows, case).iter().map(|row| row["threads"].as_u64().unwrap()).collect();
        assert!(threads.contains(&1) && threads.contains(&2), "{case}: {threads:?}");
    }
}

/// Holds on any machine with working sections, in an optimised build: an account per CPU costs less than one that two
/// threads write. A busy machine makes both slower; the fastest rounds are compared.
#[test]
fn two_threads_pay_less_for_our_account_than_for_counters_that_they_share() {
    if !is_optimised() {
        return;
    }
    let cases = "system,ledgerline,tasks,stats_alloc,tracking_allocator";
    let output = Command::new(support::binary())
        .args(["bench", "alloc", "--threads", "1,2", "--runs", "9", "--json", "--cases", cases])
        .env_remove("LEDGERLINE_PERCPU")
        .output()
        .expect("the command runs");
    let rows = rows(&output);
    let fastest = |case: &str, threads: u64| {
        let wanted = |row: &&Value| {
            (&row["case"], &row["mode"], &row["threads"])
                == (&case.into(), &"rseq".into(), &threads.into())
        };
        rows.iter()
            .find(wanted)
            .map(|row| (row["min"].as_f64().unwrap(), row["oversubscribed"] == true))
    };
    let Some((system, _)) = fastest("system", 1) else { return };
    let ours = fastest("ledgerline", 1).unwrap().0;
    let headers = fastest("tracking_allocator", 1).unwrap().0;
    assert!(ours < headers, "ours {ours} ns, with a header and a callback {headers}");
    assert!(ours < 2.0 * system, "ours {ours} ns, the system's {system}");
    if let (Some((ours, false)), Some((shared, false))) =
        (fastest("ledgerline", 2), fastest("stats_alloc", 2))
    {
        assert!(ours < shared, "on two threads ours {ours} ns, shared counters {shared}");
    }
    // Tasks of a few blocks each, with groups in turns, neither open a thread cache at each turn nor contend for a line.
    let tasks = fastest("tasks", 1).unwrap().0;
    assert!(tasks < 5.0 * system, "in groups by turns {tasks} ns, the system's {system}");
    if let Some((both, false)) = fastest("tasks", 2) {
        assert!(both < 2.0 * tasks, "in groups by turns {tasks} ns, on two threads {both}");
    }
}
