//! `ledgerline show`, as a user runs it: ledgers and counters of a running program, in the kernel's formats.

use crate::golden;
use crate::support::{self, Shared};
use ledgerline::stat::numa::{Numa, NumaItem};
use ledgerline::stat::{Counters, Places};
use ledgerline::{Ledger, Limit};
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn show(arguments: &[&str], files: &[&Path]) -> Output {
    support::ledgerline()
        .arg("show")
        .args(arguments)
        .args(files)
        .output()
        .expect("the command runs")
}

fn shown(arguments: &[&str], files: &[&Path]) -> String {
    let output = show(arguments, files);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn refused(arguments: &[&str], files: &[&Path]) -> (i32, String) {
    let output = show(arguments, files);
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr).expect("text");
    (output.status.code().expect("an exit"), text)
}

#[test]
fn a_ledger_is_shown_while_its_program_charges_it() {
    let file = Shared::new("ledger");
    let ledger = Ledger::builder().items(&["rows_read"]).flows(true).create_in(&file.1).unwrap();
    let acme = ledger.root().create("acme").unwrap();
    acme.set_max(Limit::units(1 << 20)).unwrap();
    let [one, two] = ["q1", "q2"].map(|name| acme.create(name).unwrap());
    let charge = one.try_charge(600 << 10).unwrap();
    two.try_charge(500 << 10).unwrap_err();
    two.charge_units(100).unwrap();
    two.add_stat(ledger.item("rows_read").unwrap(), 42);

    let tree = shown(&[], &[&file.0]);
    let lines: Vec<&str> = tree.lines().collect();
    assert!(lines[0].starts_with("group"), "{tree}");
    for (line, name) in lines[1..].iter().zip(["/", "`- acme", "   |- q1", "   `- q2"]) {
        assert!(line.starts_with(name), "{name:?} in\n{tree}");
    }
    assert!(lines[2].contains("600.1K"), "{tree}");

    let expected = "\
current 614500
peak ";
    let stat = shown(&["--format", "memory.stat", "--at", "/acme"], &[&file.0]);
    assert!(stat.starts_with(expected), "{stat}");
    let counted: Vec<&str> = stat.lines().skip(2).collect();
    assert_eq!(
        counted,
        [
            "charged 614500",
            "freed 0",
            "blocks_live 2",
            "blocks_total 2",
            "refused 1",
            "reclaimed 0",
            "throttled 0",
            "throttled_usec 0",
            "rows_read 42"
        ]
    );
    let events = |at| shown(&["--format", "memory.events", "--at", at], &[&file.0]);
    let counted = |max| format!("low 0\nhigh 0\nmax {max}\noom 0\noom_kill 0\noom_group_kill 0\n");
    assert_eq!((events("/acme"), events("/acme/q2")), (counted(1), counted(0)));

    let json: Value = serde_json::from_str(&shown(&["--json"], &[&file.0])).unwrap();
    let paths: Vec<&str> = json["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/", "/acme", "/acme/q1", "/acme/q2"]);
    assert_eq!(json["groups"][1]["current"], 614_500);

    // Looking has changed nothing.
    assert_eq!(acme.precise(), 614_500);
    drop(charge);
    assert_eq!(acme.precise(), 100);
    let now = shown(&["--format", "memory.stat", "--at", "acme/q1"], &[&file.0]);
    assert!(now.contains("\nfreed 614400\nblocks_live 0\n"), "{now}");
}

ledgerline::items! {
    enum Zone {
        /// Free pages.
        Free = "nr_free_pages",
        /// Locked pages.
        Locked = "nr_mlock",
    }
}

#[test]
fn counters_are_shown_in_the_formats_of_the_kernel() {
    let mut tree = Places::builder("machine");
    let node = tree.node("0").unwrap();
    let normal = tree.zone(node, "Normal").unwrap();
    let places = tree.build().unwrap();
    let (zones_file, numa_file) = (Shared::new("zones"), Shared::new("numa"));
    let zones = Counters::<Zone, i8>::builder(&places).threshold(10).create_in(&zones_file.1);
    let zones = zones.unwrap();
    let numa = Counters::<NumaItem, u16>::builder(&places).create_in(&numa_file.1).unwrap();
    let numa = Numa::from(numa);
    zones.add(normal, Zone::Free, 3976);
    for _ in 0..5 {
        zones.inc(normal, Zone::Locked);
    }
    let zone = numa.zone(normal).unwrap();
    for _ in 0..41 {
        zone.count_on(0, zone);
    }
    zone.count_on(1, zone);
    let (zones, numa) = (&*zones_file.0, &*numa_file.0);

    assert_eq!(shown(&[], &[zones]), "nr_free_pages 3976\nnr_mlock 5\n");
    let all = shown(&["--format", "vmstat", "--at", "0/Normal"], &[zones, numa]);
    assert!(all.starts_with("nr_free_pages 3976\nnr_mlock 5\nnuma_hit 42\n"), "{all}");
    assert_eq!(
        shown(&["--format", "numastat"], &[numa]),
        "numa_hit 42\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 0\nlocal_node 41\nother_node 1\n"
    );
    let zoneinfo = shown(&["--format", "zoneinfo"], &[zones, numa]);
    let expected = "\
Node 0, zone   Normal
  pages free     3976
      nr_free_pages 3976
      nr_mlock     5
      numa_hit     42
      numa_miss    0
      numa_foreign 0
      numa_interleave 0
      numa_local   41
      numa_other   1
  pagesets
    cpu: 0
  vm stats threshold: 10
";
    assert!(zoneinfo.starts_with(expected), "{zoneinfo}");
    let json: Value = serde_json::from_str(&shown(&["--json"], &[zones])).unwrap();
    assert_eq!(json["tables"][0]["places"][2]["values"]["nr_free_pages"], 3976);
}

#[test]
fn the_ledger_of_a_run_is_shown_while_it_runs() {
    // The shell has charged something by the time of its first output.
    let (mut run, line, _) = support::started(&["sh", "-c", "echo started; read line"]);
    assert_eq!(line, "started");
    let tree = shown(&["--pid", &run.id().to_string()], &[]);
    assert!(tree.lines().any(|line| line.starts_with("`- sh ")), "{tree}");
    let json = shown(&["--json", "--pid", &run.id().to_string()], &[]);
    let json: Value = serde_json::from_str(&json).unwrap();
    // The same by the PID of a process in the run.
    let shell = json["groups"][1]["pid"].as_u64().unwrap_or_else(|| panic!("{json}")).to_string();
    assert!(shown(&["--pid", &shell], &[]).contains(&format!("`- sh  {shell} ")));
    let resident = json["groups"][1]["resident"].as_u64().unwrap_or_else(|| panic!("{json}"));
    assert!((100 << 10..1 << 30).contains(&resident), "{resident}");
    drop(run.stdin.take());
    let start = Instant::now();
    while run.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "the run does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_that_was_killed_leaves_its_ledger_with_its_programs() {
    let (mut run, program, _lines) = support::started(&["sh", "-c", "echo $$; read line"]);
    // A wait would close it, and the shell would end.
    let stdin = run.stdin.take();
    run.kill().unwrap();
    run.wait().unwrap();
    // Only root may open another process's mapped files.
    if Path::new(&format!("/proc/{program}/map_files"))
        .read_dir()
        .is_ok_and(|mut maps| maps.any(|map| map.unwrap().path().metadata().is_ok()))
    {
        let tree = shown(&["--pid", &program], &[]);
        assert!(tree.contains(&format!("`- sh  {program} ")), "{tree}");
    } else {
        let (code, text) = refused(&["--pid", &program], &[]);
        assert!(code == 1 && text.contains("can be opened by root alone"), "{text}");
    }
    drop(stdin);
}

#[test]
fn what_cannot_be_shown_is_refused_in_one_line_that_says_what_to_do() {
    let (ledger_file, counters_file, empty) =
        (Shared::new("l"), Shared::new("c"), Shared::new("e"));
    let _ledger = Ledger::builder().create_in(&ledger_file.1).unwrap();
    let places = Places::single("machine").unwrap();
    let _counters = Counters::<Zone>::builder(&places).create_in(&counters_file.1).unwrap();
    let (ledger, counters) = (&*ledger_file.0, &*counters_file.0);
    let missing = Path::new("/nonexistent/ledger");
    let cases: [(&[&str], &[&Path], &str); 11] = [
        (&[], &[missing], "No such file"),
        (&[], &[&empty.0], "is neither a ledger nor a table of counters"),
        (&[], &[Path::new("/dev/null")], "is not a file"),
        (&["--format", "vmstat"], &[ledger], "a ledger has no vmstat; there are tree, memory.stat"),
        (&["--format", "tree"], &[counters], "counters has no tree; there are vmstat, zoneinfo"),
        (&["--format", "memory.stat", "--at", "/x"], &[ledger], "there is no group \"/x\""),
        (&["--at", "/x"], &[ledger], "--at goes with --format memory.stat"),
        (&["--at", "x"], &[counters], "there is no place \"x\""),
        (&["--format", "numastat"], &[counters], "counts no NUMA statistics"),
        (&["--format", "zoneinfo"], &[counters], "no place in it is a zone"),
        (&[], &[ledger, counters], "a ledger is shown by itself"),
    ];
    for (arguments, files, message) in cases {
        let (code, text) = refused(arguments, files);
        assert!(text.contains(message), "{arguments:?} {files:?}: {text}");
        assert_eq!((code, text.lines().count()), (1, 1), "{text}");
        assert!(text.starts_with("ledgerline: show: "), "{text}");
    }
    let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    assert!(refused(&["--pid", &other.id().to_string()], &[]).1.contains("has no ledger"));
    other.kill().and_then(|()| other.wait()).unwrap();
    assert!(refused(&["--pid", "4194305"], &[]).1.contains("there is no process 4194305"));
    assert_eq!(refused(&[], &[]).0, 2, "no file");
    assert_eq!(refused(&["--format", "bogus"], &[ledger]).0, 2);
}

/// Overwrites a text in the first pages of a file, where the names are.
fn overwrite(file: &File, text: &str, with: &str) {
    use std::os::unix::fs::FileExt;
    let mut start = vec![0; 64 << 10];
    file.read_exact_at(&mut start, 0).unwrap();
    let at = start.windows(text.len()).position(|window| window == text.as_bytes());
    file.write_all_at(with.as_bytes(), at.expect("the text is there") as u64).unwrap();
}

#[test]
fn what_another_process_wrote_for_a_name_steers_no_terminal() {
    let file = Shared::new("hostile");
    let ledger = Ledger::builder().items(&["rows_read"]).create_in(&file.1).unwrap();
    ledger.root().create("a_name_of_ours").unwrap().try_charge_units(5).unwrap();
    overwrite(&file.1, "a_name_of_ours", "\x1b[2J\u{202e}\u{9b}/\n\0");
    overwrite(&file.1, "rows_read", "\x1b\nmax 1\0");
    let name = r"\u{1b}[2J\u{202e}\u{9b}\u{2f}\u{a}";
    let plain = |letter: char| letter == '\n' || ('\x20'..'\x7f').contains(&letter);
    let all: [(&[&str], &str); 4] = [
        (&[], name),
        (&["--json"], &format!("/{}", name.replace('\\', r"\\"))),
        (&["--format", "memory.stat"], r"\u{1b}\u{a}max\u{20}1 0"),
        (&["--format", "memory.stat", "--at", "/"], "current 5"),
    ];
    for (arguments, expected) in all {
        let text = shown(arguments, &[&file.0]);
        assert!(text.contains(expected), "{arguments:?}:\n{text:?}");
        assert!(text.chars().all(plain), "{arguments:?}:\n{text:?}");
    }
    // A row whose name was overwritten is not reported as facts.
    let at = format!("/{name}");
    let (code, error) = refused(&["--format", "memory.stat", "--at", &at], &[&file.0]);
    assert!(code == 1 && error.contains("is damaged") && error.chars().all(plain), "{error:?}");
    let (code, error) = refused(&[], &[Path::new("/no/such\x1b[2J\u{202e}file")]);
    assert_eq!(code, 1);
    assert!(error.contains(r"/no/such\u{1b}[2J\u{202e}file: "), "{error:?}");
    assert!(error.chars().all(plain), "{error:?}");
}

#[test]
fn what_another_process_wrote_over_is_shown_as_damaged_and_not_as_numbers() {
    let file = Shared::new("damaged");
    let ledger = Ledger::builder().capacity(8).create_in(&file.1).unwrap();
    let [bad, _good] = ["bad", "good"].map(|name| ledger.root().create(name).unwrap());
    bad.charge_units(1000).unwrap();
    // Its usage, in row 1.
    let usage = 4096 + 256 + 8;
    std::os::unix::fs::FileExt::write_all_at(&file.1, &(1u64 << 60).to_le_bytes(), usage).unwrap();
    let text = shown(&[], &[&file.0]);
    let line = text.lines().find(|line| line.contains("bad")).unwrap();
    assert!(line.ends_with("damaged") && !line.contains(|it: char| it.is_ascii_digit()), "{text}");
    assert!(text.contains("One of its rows makes no sense"), "{text}");
    let read: Value = serde_json::from_str(&shown(&["--json"], &[&file.0])).unwrap();
    let states = read["groups"].as_array().unwrap().iter().map(|group| &group["state"]);
    assert!(states.eq(["live", "damaged", "live"]), "{read:#}");
    assert!(read["damaged"] == true && read["groups"][1]["current"].is_null(), "{read:#}");
    for format in ["memory.stat", "memory.events"] {
        let (code, said) = refused(&["--format", format, "--at", "/bad"], &[&file.0]);
        assert_eq!((code, said.contains("is damaged")), (1, true), "{said}");
        shown(&["--format", format, "--at", "/good"], &[&file.0]);
    }
}

#[test]
fn a_groups_files_have_the_kernels_names_and_formats_and_the_librarys_numbers() {
    let file = Shared::new("files");
    let ledger = Ledger::builder().items(&["rows_read"]).create_in(&file.1).unwrap();
    let acme = ledger.root().create("acme").unwrap();
    acme.set_max(Limit::units(1 << 20)).unwrap();
    acme.set_high(Limit::units(700_000));
    acme.set_low(Limit::units(5000));
    acme.set_min(Limit::units(4096));
    let [one, two] = ["q1", "q2"].map(|name| acme.create(name).unwrap());
    let _held = one.try_charge(600 << 10).unwrap();
    two.set_max(Limit::units(1000)).unwrap();
    two.try_charge(500 << 10).unwrap_err();
    acme.try_charge(2 << 20).unwrap_err();
    two.add_stat(ledger.item("rows_read").unwrap(), 42);
    ledger.root().drain();
    let path = &*file.0;
    let at = |name: &str| shown(&[], &[path, Path::new("/acme"), Path::new(name)]);
    assert_eq!(at("memory.current"), format!("{}\n", acme.precise()));
    assert_eq!(at("memory.peak"), format!("{}\n", acme.peak().value));
    assert_eq!(at("memory.max"), "1048576\n");
    assert_eq!(at("memory.high"), "700000\n");
    assert_eq!((at("memory.low"), at("memory.min")), ("5000\n".to_owned(), "4096\n".to_owned()));
    assert_eq!(at("memory.events"), acme.events().to_string());
    assert_eq!(at("memory.events.local"), acme.local_events().to_string());
    assert_eq!(at("memory.oom.group"), "0\n");
    assert_eq!(at("memory.stat"), acme.stat().to_string());
    // The root's if no group is named, by an option, and several at a time.
    assert_eq!(shown(&[], &[path, Path::new("memory.max")]), "max\n");
    let option = ["--file", path.to_str().unwrap()];
    assert_eq!(
        shown(&[&option[..], &["acme/q1", "memory.current", "memory.high"]].concat(), &[]),
        "==> memory.current <==\n614400\n\n==> memory.high <==\nmax\n"
    );
    let all = shown(&[&option[..], &["/acme"]].concat(), &[]);
    // The peak includes possible idle stock, which depends on the CPU.
    let peak = format!("==> memory.peak <==\n{}\n", acme.peak().value);
    golden::same("show-files.txt", &all.replace(&peak, "==> memory.peak <==\nPEAK\n"));
    let json =
        shown(&[&option[..], &["--json", "/acme", "memory.max", "memory.events"]].concat(), &[]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["group"], &json["memory.max"]), (&"/acme".into(), &(1 << 20).into()));
    assert_eq!(json["memory.events"]["max"], acme.events().max);
}

#[test]
fn files_that_a_ledger_has_not_are_refused_with_those_that_it_has() {
    let file = Shared::new("no-files");
    let _ledger = Ledger::builder().create_in(&file.1).unwrap();
    let counters = Shared::new("no-groups");
    let places = Places::single("machine").unwrap();
    let _counters = Counters::<Zone>::builder(&places).create_in(&counters.1).unwrap();
    let there = "there are memory.current, memory.peak, memory.max";
    let cases: [(&Path, &[&str], &str); 8] = [
        (
            &file.0,
            &["/", "memory.swap.current"],
            "no memory.swap.current: a ledger has no swap; there are",
        ),
        (&file.0, &["memory.pressure"], "keeps no pressure of its own; there are"),
        (&file.0, &["memory.bogus"], there),
        (
            &file.0,
            &["--watch", "memory.stat"],
            "memory.stat is not watched; --watch looks at memory.current",
        ),
        (&file.0, &["--watch", "memory.bogus"], there),
        (&file.0, &["--watch", "/no"], "there is no group \"/no\""),
        (&file.0, &["/a", "/b", "memory.max"], "one GROUP is shown at a time"),
        (&counters.0, &["/", "memory.max"], "a table of counters has no groups"),
    ];
    for (path, words, why) in cases {
        let output = support::ledgerline().arg("show").arg(path).args(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(why), "{words:?}: {said}");
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    }
}

/// Starts a watch, and returns its lines.
fn watching(arguments: &[&str]) -> (std::process::Child, std::sync::mpsc::Receiver<String>) {
    use std::io::BufRead;
    let mut child = support::ledgerline()
        .arg("show")
        .args(arguments)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the command runs");
    let stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    (child, lines)
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_watch_prints_what_changes_and_ends_with_the_program() {
    let (mut run, _, _lines) = support::started(&["sh", "-c", "echo started; read line"]);
    let pid = run.id().to_string();
    // The first look is taken before anything is printed; a limit that is set repeatedly is seen after it.
    let (mut child, lines) = watching(&["--watch=0.02", "--pid", &pid, "/", "memory.max"]);
    let (mut json, told) = watching(&["--watch=0.02", "--json", "--pid", &pid, "/", "memory.high"]);
    let set = |limit: String| {
        let output =
            support::ledgerline().args(["set", "--pid", &pid, "/"]).arg(limit).output().unwrap();
        assert!(output.status.success(), "{}", support::stderr(&output));
    };
    let first = |lines: &std::sync::mpsc::Receiver<String>, name: &str| {
        for megabytes in 300.. {
            set(format!("{name}={megabytes}M"));
            if let Ok(line) = lines.recv_timeout(Duration::from_millis(200)) {
                return line;
            }
        }
        unreachable!()
    };
    let line = first(&lines, "max");
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(&words[1..3], ["/", "memory.max"], "{line}");
    assert!(words[0].len() == 24 && words[0].ends_with('Z'), "{line}");
    // As the user set it, with the reserve.
    for (limit, number) in [("2000M", "2097152000"), ("max", "max")] {
        set(format!("max={limit}"));
        let mut later = std::iter::from_fn(|| lines.recv_timeout(LONG).ok());
        assert!(later.any(|line| line.ends_with(&format!(" / memory.max {number}"))), "{number}");
    }
    let line: Value = serde_json::from_str(&first(&told, "high")).unwrap();
    assert_eq!((&line["group"], &line["file"]), (&"/".into(), &"memory.high".into()));
    assert!(line["was"] == "max" && line["is"].as_u64() >= Some(300 << 20), "{line}");
    assert!(line["time"].as_f64() > Some(1.7e9) && line["key"].is_null(), "{line}");
    // The program ends, and both watches with it.
    drop(run.stdin.take());
    run.wait().unwrap();
    for child in [&mut child, &mut json] {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < LONG, "the watch does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success());
    }
}

#[test]
fn a_watch_of_a_file_tells_of_groups_that_come_and_go_until_the_file_is_gone() {
    let file = Shared::new("watched");
    let ledger = Ledger::builder().create_in(&file.1).unwrap();
    let (mut child, lines) = watching(&["--watch=0.02", file.0.to_str().unwrap()]);
    let mut seen = Vec::new();
    let start = Instant::now();
    // The time of the first look is not known: groups come and go until one is reported.
    for number in 0.. {
        assert!(start.elapsed() < LONG, "{seen:?}");
        let group = ledger.root().create(&format!("g{number}")).unwrap();
        group.set_max(Limit::units(1000)).unwrap();
        let held = group.try_charge(600).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        drop(held);
        group.destroy().unwrap();
        seen.extend(lines.try_iter());
        if seen.iter().any(|line| line.ends_with(" gone")) {
            break;
        }
    }
    let of = |what: &str| seen.iter().any(|line| line.ends_with(what));
    for what in [" appeared", " memory.max 1000", " memory.current 600"] {
        assert!(of(what), "{what}: {seen:?}");
    }
    drop(file);
    while start.elapsed() < LONG && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.try_wait().unwrap().expect("it ends").success());
}
