//! Rounds of timed work that take turns, so that the machine's drift affects all alike.

use std::sync::Barrier;
use std::time::Instant;

/// Work to be timed: does the given number of operations.
pub type Body<'b> = Box<dyn Fn(u64) + Sync + 'b>;

/// Nanoseconds per operation, of the rounds of one body.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub median: f64,
    pub fastest: f64,
    pub slowest: f64,
}

/// Times each body on a number of threads at a time, in rounds that take turns. The first round warms up.
pub fn take_turns(
    bodies: &[(&'static str, Body<'_>)],
    threads: usize,
    rounds: usize,
    operations: u64,
) -> Vec<Figure> {
    let mut times = vec![Vec::new(); bodies.len()];
    for round in 0..=rounds {
        for ((_, body), times) in bodies.iter().zip(&mut times) {
            let ns = round_of(body, threads, operations);
            if round > 0 {
                times.push(ns);
            }
        }
    }
    let figure = |((name, _), mut times): (&(&'static str, Body<'_>), Vec<f64>)| {
        times.sort_by(f64::total_cmp);
        let at = |place: usize| times[place.min(times.len() - 1)];
        Figure { name, median: at(times.len() / 2), fastest: at(0), slowest: at(usize::MAX) }
    };
    bodies.iter().zip(times).map(figure).collect()
}

/// Returns nanoseconds per operation of one round: the mean of its threads.
fn round_of(body: &Body<'_>, threads: usize, operations: u64) -> f64 {
    let start = Barrier::new(threads);
    let timed = || {
        start.wait();
        let begun = Instant::now();
        body(operations);
        begun.elapsed().as_nanos() as f64 / operations as f64
    };
    let all: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(timed)).collect();
        threads.into_iter().map(|thread| thread.join().expect("the body does not panic")).collect()
    });
    all.iter().sum::<f64>() / threads as f64
}
