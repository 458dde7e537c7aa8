//! Tests of `ledgerline-lab calibrate` that hold on any machine: the values of the figures depend on the machine. This
//! is a program of its own, because other tests would disturb the measurement.

#[path = "../../../tests/support/held.rs"]
mod held;
#[path = "main/support/mod.rs"]
mod support;

use ledgerline_coherence::machine::Machine;
use serde_json::Value;
use std::process::{Command, Output};

fn calibrate(arguments: &[&str]) -> Output {
    Command::new(support::binary())
        .arg("calibrate")
        .args(arguments)
        .output()
        .expect("the command runs")
}

#[test]
fn a_quick_run_writes_files_that_are_read_back_and_holds_predictions_against_runs() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        eprintln!("skipped: one CPU has nobody to hand lines to");
        return;
    }
    let directory = std::env::temp_dir().join(format!("calibrate-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (out, csv) = (directory.join("box.toml"), directory.join("runs.csv"));
    let (out_text, csv_text) = (out.to_str().unwrap(), csv.to_str().unwrap());
    let cpus = first_two_cpus();
    let arguments = ["--quick", "--json", "--validate", "--cpus", &cpus];
    let output = calibrate(&[&arguments[..], &["--out", out_text, "--csv", csv_text]].concat());
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(1) && complaint.contains("disturbed") {
        eprintln!("skipped: {}", complaint.trim());
        return;
    }
    assert!(output.status.success(), "{complaint}");
    assert_eq!(complaint, "", "no progress but on a terminal");

    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    held::held("calibrate", &report);
    let modes = report["modes"].as_array().unwrap();
    let text = std::fs::read_to_string(&out).unwrap();
    assert_eq!(modes[0]["machine_file"], text.as_str());
    let machine = Machine::open(out_text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(machine.topology.cpus(), 2);
    for (figure, how) in [
        (&machine.latency.first_cache, "measured by ledgerline calibrate, "),
        (&machine.latency.near_modified, "fitted by ledgerline calibrate, "),
    ] {
        assert!(figure.source.starts_with(how), "{}", figure.source);
        assert!(figure.low <= Some(figure.value) && Some(figure.value) <= figure.high);
    }
    // A fit states its error in the file and in the report.
    let [median, worst] = ["median_error_percent", "worst_error_percent"]
        .map(|key| modes[0]["fit"][key].as_f64().unwrap());
    assert!(0.0 <= median && median <= worst, "{median} {worst}");
    let told = machine.nuisance.behind_ns.source.split("half of them within ").nth(1).unwrap();
    let told: f64 = told.trim_end_matches(" %").parse().unwrap();
    assert!((told - median).abs() <= 0.56, "{told} for {median}");
    assert!(machine.latency.near_modified.value > machine.latency.first_cache.value);
    assert!(modes[0]["not_measured"].as_array().unwrap().len() >= 3);

    let rows = modes.iter().flat_map(|mode| mode["validation"].as_array().unwrap());
    let rows: Vec<&Value> = rows.collect();
    for row in &rows {
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"));
        assert!(0.0 < number("real_low_ns") && number("real_low_ns") <= number("real_ns"), "{row}");
        assert!(number("real_ns") <= number("real_high_ns"), "{row}");
        assert!(number("predicted_ns") > 0.0 && number("transfer_ns") > 0.0, "{row}");
    }
    let lines = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(lines.lines().count(), 1 + rows.len());
    assert!(lines.starts_with("date,cpu,pattern,cpus,work_cycles,transfer_ns,runs,real_ns,"));
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Returns two CPUs that this process may use.
fn first_two_cpus() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let cpus = list.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    });
    cpus.take(2).map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
}

#[test]
fn cpus_that_cannot_be_measured_are_told_in_one_line() {
    let cpus = first_two_cpus();
    let one = cpus.split(',').next().unwrap();
    for (arguments, complaint) in [
        (&["--cpus", one][..], "one CPU has nobody to hand lines to; at least two are needed"),
        (&["--cpus", &format!("{one},8191")], "--cpus: this process may not use CPU 8191"),
    ] {
        let output = calibrate(arguments);
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(told, format!("ledgerline: calibrate: {complaint}\n"));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_bad_value_is_told_before_anything_is_measured() {
    for (arguments, complaint) in [
        (["--cpus", "0,x"], "'x' for '--cpus <LIST>': neither a number nor a range like 2-5"),
        (["--out", "/no/such/box"], "'/no/such/box' for '--out <FILE>': there is no such folder"),
    ] {
        let output = calibrate(&arguments);
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.starts_with(&format!("error: invalid value {complaint}\n")), "{told}");
        assert!(output.stdout.is_empty());
    }
}
