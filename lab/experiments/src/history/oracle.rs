//! A slow, simple model for the trees of counters.

use proptest::prelude::*;

const LIMITS: [u64; 4] = [1000, 700, 500, 300];
const PARENTS: [Option<usize>; 4] = [None, Some(0), Some(1), Some(0)];

/// Charges and uncharges at random. Every answer and every usage has to equal the model's.
pub(super) fn check<T>(
    make: impl Fn(&[u64], &[Option<usize>]) -> T,
    try_charge: impl Fn(&T, usize, u64) -> bool,
    uncharge: impl Fn(&T, usize, u64),
    usage: impl Fn(&T, usize) -> u64,
) {
    let steps = proptest::collection::vec((0..4usize, 1..400u64, any::<bool>()), 1..200);
    proptest!(crate::cases::few(file!(), 256), |(steps in steps)| {
        let tree = make(&LIMITS, &PARENTS);
        // The held amounts, by the counter that was charged.
        let mut held: Vec<(usize, u64)> = Vec::new();
        let chain = |at: usize| std::iter::successors(Some(at), |&at| PARENTS[at]);
        let used = |held: &[(usize, u64)], counter: usize| -> u64 {
            held.iter().filter(|(at, _)| chain(*at).any(|c| c == counter)).map(|h| h.1).sum()
        };
        for (at, amount, charge) in steps {
            if charge {
                let fits = chain(at).all(|c| used(&held, c) + amount <= LIMITS[c]);
                prop_assert_eq!(try_charge(&tree, at, amount), fits);
                if fits {
                    held.push((at, amount));
                }
            } else if let Some((at, amount)) = held.pop() {
                uncharge(&tree, at, amount);
            }
            for counter in 0..4 {
                prop_assert_eq!(usage(&tree, counter), used(&held, counter));
            }
        }
    });
}
