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
fn a_machine_grows_by_whole_sockets() {
    let topology = Machine::built_in("broadwell-2x22").unwrap().topology.grown_to(1024);
    assert!(topology.cpus() >= 1024 && topology.cpus() < 1024 + 44);
}
