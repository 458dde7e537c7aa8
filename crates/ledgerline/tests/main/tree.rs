//! A sum over the CPUs of this machine, in every per-CPU mode.

use crate::common::Random;
use crate::support::{allowed_cpus, in_all_modes, pin};
use ledgerline::stat::tree::{Sum, compare, compare_value};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

#[test]
fn what_threads_on_all_cpus_add_is_the_sum_and_the_top_is_near() {
    in_all_modes("what_threads_on_all_cpus_add_is_the_sum_and_the_top_is_near", || {
        for batch in [1, 2, 32, 4096] {
            let (sum, other) = (Sum::new(batch).unwrap(), Sum::new(batch).unwrap());
            let oracle = AtomicI64::new(0);
            let cpus = allowed_cpus();
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (sum, oracle, cpus) = (&sum, &oracle, &cpus);
                    scope.spawn(move || {
                        let mut random = Random::new(thread);
                        for _ in 0..30_000 {
                            let n = random.below(2000) as i64 - 950;
                            sum.add(n);
                            oracle.fetch_add(n, Relaxed);
                            if random.one_in(1000) {
                                pin(&[cpus[random.below(cpus.len() as u64) as usize]]);
                            }
                        }
                    });
                }
            });
            let truth = oracle.into_inner();
            let about = sum.approximate();
            assert_eq!(sum.precise(), truth);
            assert!(about.least() <= truth && truth <= about.most(), "{truth}: {about:?}");
            // Apart by one, where only the precise sums differ.
            other.add(truth + 1);
            assert!(compare(&sum, &other).is_lt() && compare(&other, &sum).is_gt());
            other.add(-1);
            assert!(compare(&sum, &other).is_eq() && compare_value(&sum, truth).is_eq());
        }
    });
}
