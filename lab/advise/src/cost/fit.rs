//! Looks for what the simulation takes a time with, among what was tried one after the other.

use ledgerline_layout::Error;

/// How often the way between two is halved, where one is below the time and the other above.
const HALVINGS: usize = 3;

/// What fits of `tried`, each with how far its simulation is off: what is `near`, and what lies between two of which one is
/// below and the other above.
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

/// One of what fits, by a number from 0 to 1: points that have other numbers take them in turn.
pub(super) fn one<T: Copy>(fit: &[T], which: f64) -> Option<T> {
    fit.get(((which * fit.len() as f64) as usize).min(fit.len().saturating_sub(1))).copied()
}
