//! Finds the parameters with which the simulation meets a time, among a series that was tried.

use ledgerline_layout::Error;

/// Steps of the bisection between two neighbours of which one is below the time and the other above.
const HALVINGS: usize = 3;

/// Returns the parameters of `tried` that fit; each comes with the error of its simulation. A parameter fits if its
/// error is `near`, or if it lies between two neighbours whose errors have different signs.
pub(super) fn all<T: Copy>(
    tried: &[(T, f64)],
    near: impl Fn(f64) -> bool,
    between: impl Fn(T, T) -> T,
    mut off_of: impl FnMut(T) -> Result<f64, Error>,
) -> Result<Vec<T>, Error> {
    let mut fit = Vec::new();
    for (at, &(this, off)) in tried.iter().enumerate() {
        if near(off) {
            fit.push(this);
        } else if let Some(&(next, then)) = tried.get(at + 1)
            && !near(then)
            && (off > 0.0) != (then > 0.0)
        {
            let (mut one, mut other) = (this, next);
            for _ in 0..HALVINGS {
                let middle = between(one, other);
                let side = (off_of(middle)? > 0.0) == (off > 0.0);
                *(if side { &mut one } else { &mut other }) = middle;
            }
            fit.push(between(one, other));
        }
    }
    Ok(fit)
}

/// Returns one of the parameters that fit, chosen by a number from 0 to 1. Points with different numbers take them in
/// turn.
pub(super) fn one<T: Copy>(fit: &[T], which: f64) -> Option<T> {
    fit.get(((which * fit.len() as f64) as usize).min(fit.len().saturating_sub(1))).copied()
}
