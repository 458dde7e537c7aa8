//! A program at one design point: its simulation, its unknowns, and the values that were found.

use ledgerline_layout::Error;

use crate::uses::Hides;

/// Simulates the program at a design point. The point chooses how much is hidden if `hides` is `None`.
pub(super) trait Stage {
    /// Returns the time of an operation of a role on one CPU, with a work.
    fn alone(&self, role: usize, work: f64, hides: Option<Hides>) -> Result<f64, Error>;
    /// Returns the time of an operation of each role beside the others, with these works.
    fn beside(&self, works: &[f64], hides: Option<Hides>) -> Result<Vec<f64>, Error>;
}

/// The point's choice for unknowns that no time gives, each from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unknown {
    /// Chooses among several works that fit.
    pub work: f64,
    /// How much the program hides, or the choice among several degrees that fit.
    pub hides: f64,
    /// The error of the model, from waiting too little to waiting too much.
    pub error: f64,
}

/// The values that were found for the program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    /// The work of an operation, by role.
    pub works: Vec<f64>,
    /// By role, the least simulated time if no work fits.
    pub misses: Vec<Option<f64>>,
    /// How much it hides, if times give that.
    pub hides: Option<Hides>,
    /// By role, its waiting for other CPUs as a multiple of the simulated waiting.
    pub waits: Vec<f64>,
}

impl Program {
    /// Returns a program of which only the works are known.
    pub fn with_works(works: Vec<f64>) -> Program {
        let (misses, waits) = (vec![None; works.len()], vec![1.0; works.len()]);
        Program { works, misses, hides: None, waits }
    }
}
