//! A program at one design point: what can be simulated of it, what no time tells, and what is found.

use ledgerline_layout::Error;

use crate::uses::Hides;

/// Simulates the program at a design point, which hides what the point says where nothing is given.
pub(super) trait Stage {
    /// What an operation of a role takes on one CPU, with a work.
    fn alone(&self, role: usize, work: f64, hides: Option<Hides>) -> Result<f64, Error>;
    /// What an operation of each role takes beside the others, with works.
    fn beside(&self, works: &[f64], hides: Option<Hides>) -> Result<Vec<f64>, Error>;
}

/// What the point says of what no time tells, each from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unknown {
    /// Which of several works it is that fit.
    pub work: f64,
    /// How much the program hides, or which of several such that fit.
    pub hides: f64,
    /// How far the model is off, from waiting too little to waiting too much.
    pub error: f64,
}

/// What is found of the program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    /// The work of an operation, by role.
    pub works: Vec<f64>,
    /// By role, what the simulation takes at least where no work fits.
    pub misses: Vec<Option<f64>>,
    /// What it hides, if times say so.
    pub hides: Option<Hides>,
    /// By role, how many times what is simulated others make it wait.
    pub waits: Vec<f64>,
}

impl Program {
    /// One of which nothing but works is known.
    pub fn with_works(works: Vec<f64>) -> Program {
        let (misses, waits) = (vec![None; works.len()], vec![1.0; works.len()]);
        Program { works, misses, hides: None, waits }
    }
}
