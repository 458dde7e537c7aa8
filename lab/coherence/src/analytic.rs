//! The analytic model: a closed network of queues, one for each line, solved by mean-value analysis.
//!
//! The CPUs are the customers, who think while they compute. A contended line is a server that serves them in order
//! of arrival. The model takes microseconds where the simulation takes a fraction of a second, and knows averages
//! alone.
//!
//! ```
//! use ledgerline_coherence::analytic::{Station, solve};
//! // Four CPUs, a line that serves each for 50 ns, 500 ns of work between two visits.
//! let line = Station { visits: 1.0, service: 50.0, variation: 1.0 };
//! let solution = solve(500.0, &[line], 4);
//! assert!(solution.cycle > 550.0 && solution.cycle < 600.0);
//! ```

mod line;
mod visits;

use crate::simulate::{Error, Setup};
use line::Line;
use visits::Operation;

/// A server that customers queue for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// Visits of one customer in a cycle.
    pub visits: f64,
    /// The service time in nanoseconds.
    pub service: f64,
    /// The variance of the service time over the square of its mean: 0 for a constant time, 1 for an exponential one.
    /// The solution is exact for 1. For other values it corrects for the service that an arriving customer finds half
    /// done.
    pub variation: f64,
}

/// The averages of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The length of a customer's cycle in nanoseconds.
    pub cycle: f64,
    /// Cycles of all customers together in a nanosecond.
    pub throughput: f64,
    /// The number of customers at each station.
    pub queues: Vec<f64>,
}

/// Solves a closed network of `customers` that think for `think` nanoseconds in a cycle.
///
/// The time is proportional to customers times stations.
#[must_use]
pub fn solve(think: f64, stations: &[Station], customers: usize) -> Solution {
    solve_shared(think, stations, &vec![1.0; stations.len()], customers)
}

/// Solves a network in which only a share of the customers visits a station. The other customers form equal groups,
/// each with an equal station: each socket has its own copy of a line that one socket's CPUs share.
fn solve_shared(think: f64, stations: &[Station], shares: &[f64], customers: usize) -> Solution {
    let mut solution =
        Solution { cycle: think, throughput: 0.0, queues: vec![0.0; stations.len()] };
    for population in 1..=customers {
        // An arriving customer sees the network as it is with one customer less.
        let mut waits: Vec<f64> = stations
            .iter()
            .zip(&solution.queues)
            .zip(shares)
            .map(|((station, queue), share)| {
                let demand = share * station.visits * station.service;
                let busy = (solution.throughput * demand).min(1.0);
                let found = queue - busy * (1.0 - station.variation) / 2.0;
                station.visits * station.service * (1.0 + found.max(0.0))
            })
            .collect();
        // The correction for steady service may promise a higher throughput than the busiest server allows.
        let demand = |&(index, station): &(usize, &Station)| {
            shares[index] * station.visits * station.service
        };
        let dearest = stations.iter().enumerate().max_by(|a, b| demand(a).total_cmp(&demand(b)));
        if let Some(dearest) = dearest {
            let least = population as f64 * demand(&dearest);
            let short = least - think - waits.iter().sum::<f64>();
            waits[dearest.0] += short.max(0.0);
        }
        solution.cycle = think + waits.iter().sum::<f64>();
        solution.throughput = population as f64 / solution.cycle;
        for ((queue, wait), share) in solution.queues.iter_mut().zip(&waits).zip(shares) {
            *queue = solution.throughput * share * wait;
        }
    }
    solution
}

/// Returns the nanoseconds of an operation when all CPUs run one program of computing, atomics and loads.
///
/// The model applies if CPUs compute for 1 000 cycles or more between atomics on lines that other CPUs use. A line
/// that is also read may be busy for a fifth of the time. A line that is one of several, or that only some CPUs
/// share, may be busy for three fifths. All sockets and all groups must have equally many CPUs. Within these bounds
/// the model agrees with the simulation to 5 %. In tighter loops all CPUs always wait, in an order that hardly
/// changes, and their wait is not the average.
///
/// # Errors
/// If the simulation refuses the setup, if the model does not apply to it, or if it needs something that the model
/// lacks: stores, locks, several programs, loads that overlap with other work, lines whose neighbour is fetched with
/// them.
pub fn nanoseconds(setup: &Setup) -> Result<f64, Error> {
    let Operation { think, lines } = Operation::of(setup)?;
    let lines: Vec<Line> = lines.iter().map(|visited| Line::new(setup, visited)).collect();
    let shares: Vec<f64> = lines.iter().map(|line| line.share).collect();
    // The share of visits at which a CPU still has a line depends on the length of the cycle, and the length of the
    // cycle depends on that share. So both are found in rounds, each of which goes half of the way.
    const ROUNDS: usize = 60;
    let mut busy = vec![0.5; lines.len()];
    let mut cycle = think;
    for _ in 0..ROUNDS {
        let mut thinks = think;
        let mut stations = Vec::new();
        for (line, busy) in lines.iter().zip(&busy) {
            let (station, beside) = line.station(cycle / think, cycle, *busy);
            // The CPU waits for this part while the line already serves the next CPU.
            thinks += beside;
            stations.push(station);
        }
        let solution = solve_shared(thinks.max(0.0), &stations, &shares, setup.cpus.len());
        for ((busy, station), share) in busy.iter_mut().zip(&stations).zip(&shares) {
            let now = solution.throughput * share * station.visits * station.service;
            *busy = f64::midpoint(*busy, now.min(1.0));
        }
        cycle = f64::midpoint(cycle, solution.cycle);
    }
    // Readers of a line arrive all at once after a write. A few CPUs that always queue, or follow each other from one
    // queue to the next, do so in an order that hardly changes. Averages describe neither.
    let too_busy = |(line, busy): (&Line, &f64)| {
        *busy > READ && line.is_read() || *busy > SEVERAL && (lines.len() > 1 || line.share < 1.0)
    };
    if lines.iter().zip(&busy).any(too_busy) {
        return Err(Error::Setup(
            "readers of a line, or visitors of several, queue too often; simulate that".to_owned(),
        ));
    }
    Ok(cycle)
}

/// The largest utilization of a line that is read. Above it readers arrive in larger crowds than averages can
/// describe.
const READ: f64 = 0.2;
/// The largest utilization of a line that is not read, if it is one of several or not all CPUs use it.
const SEVERAL: f64 = 0.6;

fn ns(picoseconds: u64) -> f64 {
    picoseconds as f64 / 1000.0
}

#[cfg(test)]
mod tests;
