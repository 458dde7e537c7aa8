use super::*;

#[test]
fn every_built_in_machine_is_read() {
    let cpus = [72, 88, 144, 112, 192, 2];
    for ((name, text), cpus) in BUILT_IN.into_iter().zip(cpus) {
        let machine = Machine::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(machine.topology.cpus(), cpus, "{name}");
    }
}

#[test]
fn distances_grow_with_what_lies_between() {
    let topology = Machine::built_in("epyc-milan").unwrap().topology;
    assert_eq!(topology.distance(0, 96), Distance::Sibling);
    assert_eq!(topology.distance(0, 7), Distance::Near);
    assert_eq!(topology.distance(0, 8), Distance::Socket);
    assert_eq!(topology.distance(0, 48), Distance::Remote);
    let ring = Topology { sockets: 4, hops: 2, ..topology };
    assert_eq!(ring.socket_distance(0, 3), Distance::Far);
    assert_eq!(ring.socket_distance(0, 1), Distance::Remote);
}

#[test]
fn distance_is_symmetric_and_cores_come_before_their_siblings() {
    let topology = Machine::built_in("broadwell-2x22").unwrap().topology;
    for one in 0..topology.cpus() {
        for other in (0..topology.cpus()).filter(|&other| other != one) {
            assert_eq!(topology.distance(one, other), topology.distance(other, one));
            let siblings = one.abs_diff(other) == topology.cores();
            assert_eq!(topology.distance(one, other) == Distance::Sibling, siblings);
        }
    }
}

#[test]
fn a_design_stays_in_its_ranges_and_puts_half_below_the_best_guess() {
    let machine = Machine::built_in("broadwell-2x22").unwrap();
    let range = &machine.nuisance.read_service_ns;
    let points = machine.design(64);
    let ns = |settings: &Settings| settings.read_service as f64 / 1000.0;
    assert!(points.iter().all(|point| (range.low..=range.high).contains(&ns(point))));
    let below = points.iter().filter(|point| ns(point) < range.best).count();
    assert!((30..=34).contains(&below), "{below}");
    assert_eq!(points, machine.design(64));
}

#[test]
fn sixteen_points_fill_the_ranges_that_a_file_may_leave_out() {
    let mut machine = Machine::built_in("broadwell-2x22").unwrap();
    let wide = |range: &mut Range| (range.low, range.best, range.high) = (0.0, 50.0, 100.0);
    let nuisance = &mut machine.nuisance;
    wide(&mut nuisance.closing_ns);
    wide(&mut nuisance.window_ns);
    wide(&mut nuisance.behind_ns);
    wide(&mut nuisance.lead_ns);
    wide(&mut nuisance.flush_ns);
    let points = machine.design(16);
    let of: [fn(&Settings) -> u64; 5] =
        [|at| at.closing, |at| at.window, |at| at.behind, |at| at.lead, |at| at.flush];
    for (range, of) in of.into_iter().enumerate() {
        let values: Vec<u64> = points.iter().map(|point| of(point) / 1000).collect();
        for quarter in 0..4 {
            let within = values.iter().filter(|&&value| value * 4 / 101 == quarter).count();
            assert!((3..=5).contains(&within), "range {range}: {values:?}");
        }
    }
}

#[test]
fn a_machine_grows_by_whole_sockets() {
    let topology = Machine::built_in("broadwell-2x22").unwrap().topology.grown_to(1024);
    assert!(topology.cpus() >= 1024 && topology.cpus() < 1024 + 44);
}

#[test]
fn a_machine_is_opened_by_name_or_by_path() {
    let (name, text) = BUILT_IN[1];
    assert_eq!(Machine::open(name).unwrap().name, Machine::built_in(name).unwrap().name);
    let path = std::env::temp_dir().join(format!("machine-{}.toml", std::process::id()));
    let path_text = path.to_str().unwrap();
    std::fs::write(&path, text).unwrap();
    assert_eq!(Machine::open(path_text).unwrap().topology.cpus(), 88);
    std::fs::write(&path, text.replace("hops = 1", "hops = 7")).unwrap();
    let error = Machine::open(path_text).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{path_text}:4: `hops` is 1")), "{error}");
    std::fs::remove_file(&path).unwrap();
    for (wrong, complaint) in [
        (path_text, "no such file, and no machine comes with this name: haswell-ep-2699v3, "),
        ("/", "cannot be read as a machine file: "),
        ("/dev/zero", "over 1048576 bytes"),
        ("", "no such file"),
    ] {
        let error = Machine::open(wrong).unwrap_err().to_string();
        assert!(error.contains(complaint) && !error.contains('\n'), "{error}");
    }
}

/// Returns the ranges that a file need not state.
fn unsaid(nuisance: &mut Nuisance) -> [&mut Range; 10] {
    [
        &mut nuisance.request,
        &mut nuisance.keep_spread,
        &mut nuisance.upgrade_keep,
        &mut nuisance.early_request,
        &mut nuisance.closing_ns,
        &mut nuisance.window_ns,
        &mut nuisance.behind_ns,
        &mut nuisance.atomic_ahead,
        &mut nuisance.lead_ns,
        &mut nuisance.flush_ns,
    ]
}

#[test]
fn what_is_written_is_read_back_the_same() {
    for (name, text) in BUILT_IN {
        let mut machine = Machine::parse(name, text).unwrap();
        let again = Machine::parse(name, &machine.to_toml()).unwrap();
        // A distance that the topology does not have stands for another one, and is written as that one.
        assert_eq!(again.to_toml(), machine.to_toml(), "{name}");
        assert_eq!(Machine::parse(name, &again.to_toml()).unwrap(), again, "{name}");
        machine.name = "quotes \" and \\ and\nlines\u{1}\u{7f}".to_owned();
        machine.latency.near_clean.low = Some(machine.latency.near_clean.value / 3.0);
        machine.latency.near_clean.high = Some(1e5 + 1.0 / 3.0);
        machine.latency.atomic_moved.value = machine.latency.atomic.value + 3.0;
        machine.latency.atomic_moved.high = None;
        let (low, source) = (0.1, "measured".to_owned());
        let stated = Range { low, best: 0.3, high: 1.0, source };
        for range in unsaid(&mut machine.nuisance) {
            range.clone_from(&stated);
        }
        let mut again = Machine::parse(name, &machine.to_toml()).unwrap();
        assert_eq!(again.name, machine.name);
        assert_eq!(again.latency.near_clean, machine.latency.near_clean);
        assert_eq!(again.latency.atomic_moved, machine.latency.atomic_moved);
        for range in unsaid(&mut again.nuisance) {
            assert_eq!(range, &stated);
        }
    }
}

#[test]
fn a_file_that_says_nothing_of_requests_migration_and_stays_has_plain_ones() {
    for point in Machine::built_in("broadwell-2x22").unwrap().design(9) {
        assert!(point.request == 0.0 && !point.migratory && !point.early_request);
        assert!(point.keep_spread == 0.0 && point.upgrade_keep == 1.0);
        assert!(point.moved == 0 && point.closing == 0);
        assert!(
            point.window == 0
                && point.behind == 0
                && point.ahead == 0
                && point.lead == 0
                && point.flush == 0
        );
    }
}
