//! Topologies: which socket, complex and core a CPU belongs to, and how far apart two CPUs are.

use serde::Deserialize;

/// Sockets of complexes of cores of hardware threads.
///
/// CPUs are numbered so that the first `n` of them use as many cores as possible: first come the first threads of
/// all cores, in order of sockets, then the second threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// How many sockets there are.
    pub sockets: usize,
    /// How many complexes a socket has: groups of cores that share a last cache.
    pub complexes_per_socket: usize,
    /// How many cores a complex has.
    pub cores_per_complex: usize,
    /// How many hardware threads a core has.
    pub threads_per_core: usize,
    /// The most links between two sockets, 1 or 2: sockets whose numbers differ in two bits are two links apart.
    #[serde(skip, default = "one")]
    pub hops: usize,
}

/// Where nobody says how far apart sockets are, each is linked with each.
fn one() -> usize {
    1
}

/// The most CPUs that a file may describe, so that a typing mistake does not exhaust memory.
const MOST_CPUS: usize = 8192;

/// How far apart two CPUs are.
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
    /// Two sockets without one.
    Far,
}

impl Topology {
    /// The same topology, if it has CPUs, and not more than any machine; otherwise what is wrong.
    pub(crate) fn checked(self) -> Result<Topology, String> {
        let sizes = [self.complexes_per_socket, self.cores_per_complex, self.threads_per_core];
        let cpus = sizes.iter().try_fold(self.sockets, |product, &size| product.checked_mul(size));
        match cpus {
            Some(1..=MOST_CPUS) => Ok(self),
            _ => Err(format!("a topology has 1 to {MOST_CPUS} CPUs")),
        }
    }

    /// How many cores there are.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.sockets * self.complexes_per_socket * self.cores_per_complex
    }

    /// How many CPUs there are; a CPU is a hardware thread.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cores() * self.threads_per_core
    }

    /// The core that a CPU is a thread of.
    #[must_use]
    pub fn core(&self, cpu: usize) -> usize {
        cpu % self.cores()
    }

    /// The complex of a CPU, numbered over the whole machine.
    #[must_use]
    pub fn complex(&self, cpu: usize) -> usize {
        self.core(cpu) / self.cores_per_complex
    }

    /// The socket of a CPU.
    #[must_use]
    pub fn socket(&self, cpu: usize) -> usize {
        self.complex(cpu) / self.complexes_per_socket
    }

    /// How far apart two different CPUs are.
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

    /// How far apart two sockets are; a socket is one [`Distance::Socket`] from itself.
    #[must_use]
    pub fn socket_distance(&self, one: usize, other: usize) -> Distance {
        match (one ^ other).count_ones() {
            0 => Distance::Socket,
            2.. if self.hops > 1 => Distance::Far,
            _ => Distance::Remote,
        }
    }

    /// This topology grown by whole sockets until it has at least `cpus`. Curves beyond a real machine use it.
    #[must_use]
    pub fn grown_to(mut self, cpus: usize) -> Topology {
        self.sockets = self.sockets.max(cpus.div_ceil(self.cpus() / self.sockets));
        self
    }
}
