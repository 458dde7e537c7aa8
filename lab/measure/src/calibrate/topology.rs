//! The places of the CPUs, from the kernel's data in /sys.

use ledgerline_coherence::machine::{Distance, Topology};
use std::collections::BTreeSet;
use std::fs;

/// The data of /sys on one CPU; it may be empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) package: String,
    /// The CPUs that share its last cache.
    pub(super) complex: String,
    pub(super) core: String,
}

/// Returns a topology of this many cores side by side.
pub(super) const fn flat(cores_per_complex: usize) -> Topology {
    Topology {
        sockets: 1,
        complexes_per_socket: 1,
        cores_per_complex,
        threads_per_core: 1,
        hops: 1,
    }
}

/// The places of the CPUs of a list, and the topology made of them.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) places: Vec<Place>,
    pub(super) topology: Topology,
    pub(super) source: String,
}

impl Places {
    /// Asks the kernel.
    pub(super) fn of(cpus: &[usize]) -> Places {
        let place = |&cpu: &usize| {
            let directory = format!("/sys/devices/system/cpu/cpu{cpu}");
            let read = |what: &str| {
                let text = fs::read_to_string(format!("{directory}/{what}")).unwrap_or_default();
                text.trim().to_owned()
            };
            let last = (0..8)
                .filter(|index| read(&format!("cache/index{index}/level")) == "3")
                .map(|index| read(&format!("cache/index{index}/shared_cpu_list")))
                .next();
            let package = read("topology/physical_package_id");
            let complex = last.unwrap_or_else(|| format!("package {package}"));
            // A CPU without data is a core of its own.
            let core = Some(read("topology/thread_siblings_list")).filter(|core| !core.is_empty());
            Place { package, complex, core: core.unwrap_or_else(|| cpu.to_string()) }
        };
        let virtual_machine = fs::read_to_string("/proc/cpuinfo")
            .is_ok_and(|text| text.split_ascii_whitespace().any(|word| word == "hypervisor"));
        Places::from(cpus.iter().map(place).collect(), virtual_machine)
    }

    /// Makes a topology of the places. If sockets, complexes or cores differ in size, all CPUs count as cores of one
    /// complex, and the source says so.
    pub(super) fn from(places: Vec<Place>, virtual_machine: bool) -> Places {
        let count = |key: &dyn Fn(&Place) -> String| {
            places.iter().map(key).collect::<BTreeSet<String>>().len().max(1)
        };
        let sockets = count(&|place| place.package.clone());
        let complexes = count(&|place| format!("{} {}", place.package, place.complex));
        let cores = count(&|place| format!("{} {} {}", place.package, place.complex, place.core));
        let even = Topology {
            sockets,
            complexes_per_socket: complexes / sockets,
            cores_per_complex: cores / complexes,
            threads_per_core: places.len() / cores,
            hops: 1,
        };
        let (topology, mut source) = if even.cpus() == places.len() {
            (even, "/sys/devices/system/cpu".to_owned())
        } else {
            let why = "inferred: the measured CPUs are no even set of sockets, complexes and cores";
            (flat(places.len()), why.to_owned())
        };
        if virtual_machine {
            source.push_str(
                ", as a hypervisor shows it; where the host runs these CPUs is not to be seen, and may change",
            );
        }
        Places { places, topology, source }
    }

    /// Returns the distance between two of the list.
    pub(super) fn distance(&self, one: usize, other: usize) -> Distance {
        let (one, other) = (&self.places[one], &self.places[other]);
        match () {
            () if one.package != other.package => Distance::Remote,
            () if one.complex != other.complex => Distance::Socket,
            () if one.core != other.core => Distance::Near,
            () => Distance::Sibling,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(list: &[(&str, &str, &str)]) -> Vec<Place> {
        let place = |&(package, complex, core): &(&str, &str, &str)| Place {
            package: package.to_owned(),
            complex: complex.to_owned(),
            core: core.to_owned(),
        };
        list.iter().map(place).collect()
    }

    #[test]
    fn sockets_complexes_cores_and_threads_are_counted() {
        let mut list = Vec::new();
        let names: Vec<String> = (0..8).map(|number| number.to_string()).collect();
        for (package, complex, core) in
            [(0, 0, 0), (0, 0, 1), (0, 1, 2), (0, 1, 3), (1, 2, 4), (1, 2, 5), (1, 3, 6), (1, 3, 7)]
        {
            let place = (names[package].as_str(), names[complex].as_str(), names[core].as_str());
            list.extend([place, place]);
        }
        let places = Places::from(places(&list), false);
        let (sockets, complexes_per_socket, cores_per_complex, threads_per_core) = (2, 2, 2, 2);
        let hops = 1;
        let topology =
            Topology { sockets, complexes_per_socket, cores_per_complex, threads_per_core, hops };
        assert_eq!(places.topology, topology);
        let far: Vec<Distance> = [1, 2, 4, 8].map(|other| places.distance(0, other)).to_vec();
        use Distance::{Near, Remote, Sibling, Socket};
        assert_eq!(far, [Sibling, Near, Socket, Remote]);
    }

    #[test]
    fn an_uneven_set_of_cpus_is_flat_and_says_so() {
        let places =
            Places::from(places(&[("0", "a", "0"), ("0", "a", "1"), ("0", "b", "2")]), true);
        assert_eq!((places.topology.cores_per_complex, places.topology.cpus()), (3, 3));
        assert!(places.source.starts_with("inferred: ") && places.source.contains("hypervisor"));
    }

    #[test]
    fn a_kernel_that_tells_nothing_has_cores_of_one_complex() {
        let places = Places::from(places(&[("", "", "0"), ("", "", "1")]), false);
        assert_eq!(places.topology.cpus(), 2);
        assert_eq!(places.distance(0, 1), Distance::Near);
    }
}
