//! Where CPUs sit, and how far apart.

/// Sockets of complexes of cores of hardware threads.
///
/// CPUs are numbered so that the first `n` of them use as many cores as there are: every core's first
/// thread in order of sockets, then every core's second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// How many sockets.
    pub sockets: usize,
    /// Groups of cores with a last cache of their own, a socket.
    pub complexes_per_socket: usize,
    /// Cores in such a group.
    pub cores_per_complex: usize,
    /// Hardware threads of a core.
    pub threads_per_core: usize,
    /// The most links between two sockets, 1 or 2: sockets whose numbers differ in two bits are two apart.
    pub hops: usize,
}

/// How far two CPUs are apart.
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
    /// How many cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.sockets * self.complexes_per_socket * self.cores_per_complex
    }

    /// How many CPUs, that is, hardware threads.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cores() * self.threads_per_core
    }

    /// The core a CPU is a thread of.
    #[must_use]
    pub fn core(&self, cpu: usize) -> usize {
        cpu % self.cores()
    }

    /// The complex of a CPU, counted over the machine.
    #[must_use]
    pub fn complex(&self, cpu: usize) -> usize {
        self.core(cpu) / self.cores_per_complex
    }

    /// The socket of a CPU.
    #[must_use]
    pub fn socket(&self, cpu: usize) -> usize {
        self.complex(cpu) / self.complexes_per_socket
    }

    /// How far two different CPUs are apart.
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

    /// How far two sockets are apart; a socket from itself is one [`Distance::Socket`].
    #[must_use]
    pub fn socket_distance(&self, one: usize, other: usize) -> Distance {
        match (one ^ other).count_ones() {
            0 => Distance::Socket,
            2.. if self.hops > 1 => Distance::Far,
            _ => Distance::Remote,
        }
    }

    /// This machine grown by whole sockets until it has at least `cpus`; for what-if curves.
    #[must_use]
    pub fn grown_to(mut self, cpus: usize) -> Topology {
        self.sockets = self.sockets.max(cpus.div_ceil(self.cpus() / self.sockets));
        self
    }
}
