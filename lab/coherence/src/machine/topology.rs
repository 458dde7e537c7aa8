//! Topologies: the socket, complex and core of a CPU, and the distance between two CPUs.

use serde::Deserialize;

/// Sockets of complexes of cores of hardware threads.
///
/// CPUs are numbered so that the first `n` of them use as many cores as possible: first come the first threads of
/// all cores, in order of sockets, then the second threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The number of sockets.
    pub sockets: usize,
    /// Complexes of a socket. A complex is a group of cores that share a last cache.
    pub complexes_per_socket: usize,
    /// Cores of a complex.
    pub cores_per_complex: usize,
    /// Hardware threads of a core.
    pub threads_per_core: usize,
    /// The most links between two sockets, 1 or 2: sockets whose numbers differ in two bits are two links apart.
    #[serde(skip, default = "one")]
    pub hops: usize,
}

/// Returns the default of `hops`: each socket is linked with each.
fn one() -> usize {
    1
}

/// The most CPUs that a file may describe, so that a typing mistake does not exhaust memory.
const MOST_CPUS: usize = 8192;

/// The distance between two CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Two threads of a core.
    Sibling,
    /// Two cores of a complex.
    Near,
    /// Two complexes of a socket.
    Socket,
    /// Two sockets with a link.
    Remote,
    /// Two sockets without a link.
    Far,
}

impl Topology {
    /// Returns the same topology if it has CPUs, and at most [`MOST_CPUS`]; otherwise the mistake.
    pub(crate) fn checked(self) -> Result<Topology, String> {
        let sizes = [self.complexes_per_socket, self.cores_per_complex, self.threads_per_core];
        let cpus = sizes.iter().try_fold(self.sockets, |product, &size| product.checked_mul(size));
        match cpus {
            Some(1..=MOST_CPUS) => Ok(self),
            _ => Err(format!("a topology has 1 to {MOST_CPUS} CPUs")),
        }
    }

    /// Returns the number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.sockets * self.complexes_per_socket * self.cores_per_complex
    }

    /// Returns the number of CPUs; a CPU is a hardware thread.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cores() * self.threads_per_core
    }

    /// Returns the core that a CPU is a thread of.
    #[must_use]
    pub fn core(&self, cpu: usize) -> usize {
        cpu % self.cores()
    }

    /// Returns the complex of a CPU, numbered over the whole machine.
    #[must_use]
    pub fn complex(&self, cpu: usize) -> usize {
        self.core(cpu) / self.cores_per_complex
    }

    /// Returns the socket of a CPU.
    #[must_use]
    pub fn socket(&self, cpu: usize) -> usize {
        self.complex(cpu) / self.complexes_per_socket
    }

    /// Returns how far apart two different CPUs are.
    #[must_use]
    pub fn distance(&self, one: usize, other: usize) -> Distance {
        if self.core(one) == self.core(other) {
            Distance::Sibling
        } else if self.complex(one) == self.complex(other) {
            Distance::Near
        } else {
            self.socket_distance(self.socket(one), self.socket(other))
        }
    }

    /// Returns how far apart two sockets are; a socket is one [`Distance::Socket`] from itself.
    #[must_use]
    pub fn socket_distance(&self, one: usize, other: usize) -> Distance {
        match (one ^ other).count_ones() {
            0 => Distance::Socket,
            2.. if self.hops > 1 => Distance::Far,
            _ => Distance::Remote,
        }
    }

    /// Returns this topology grown by whole sockets until it has at least `cpus`. Curves beyond a real machine use
    /// it.
    #[must_use]
    pub fn grown_to(mut self, cpus: usize) -> Topology {
        self.sockets = self.sockets.max(cpus.div_ceil(self.cpus() / self.sockets));
        self
    }
}
