use super::*;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize};

fn plan(threads: usize, runs: usize) -> Plan {
    let cpus = machine::allowed_cpus().unwrap();
    Plan { threads, runs, round: Duration::from_micros(500), cpus }
}

#[test]
fn the_slower_case_is_found_slower() {
    let spin = |times: u64| -> Body<'static> {
        Box::new(move |_, n| {
            for i in 0..n * times {
                std::hint::black_box(i);
            }
        })
    };
    let cases = [
        Case { name: "long", granule: 1, body: spin(400) },
        Case { name: "short", granule: 1, body: spin(4) },
    ];
    let measured = rounds(&cases, &plan(1, 5), &|_| {});
    assert_eq!((measured[0].name, measured[1].name), ("long", "short"));
    let of = |case: usize| median(&measured[case].threads[0]);
    assert!(of(0) > 5.0 * of(1));
    assert!(measured.iter().all(|case| case.transfer.is_none()));
    assert!(measured.iter().all(|case| (0.0..=1.0).contains(&case.waited)));
}

#[test]
fn all_threads_run_every_case_in_multiples_of_its_granule() {
    const THREADS: usize = 3;
    let seen: [AtomicUsize; THREADS] = Default::default();
    let body: Body<'_> = Box::new(|thread, n| {
        assert!(n > 0 && n % 10 == 0);
        seen[thread].fetch_add(1, Ordering::Relaxed);
    });
    let cases = [Case { name: "counts", granule: 10, body }];
    let steps = AtomicUsize::new(0);
    let plan = plan(THREADS, 2);
    let measured = rounds(&cases, &plan, &|step| {
        assert!(step.round <= 2);
        steps.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(steps.load(Ordering::Relaxed), 4, "calibration, warm-up, two rounds");
    assert_eq!(measured[0].transfer.is_some(), plan.cpus.len() > 1);
    drop(cases);
    assert!(seen.iter().all(|calls| calls.load(Ordering::Relaxed) >= 4));
}

#[test]
fn a_slow_first_call_does_not_make_short_rounds() {
    let first = AtomicBool::new(true);
    let most = AtomicU64::new(0);
    let body: Body<'_> = Box::new(|_, n| {
        if first.swap(false, Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        most.fetch_max(n, Ordering::Relaxed);
        for i in 0..n {
            std::hint::black_box(i);
        }
    });
    let cases = [Case { name: "slow start", granule: 1, body }];
    rounds(&cases, &plan(1, 1), &|_| {});
    drop(cases);
    assert!(most.into_inner() > 100);
}

#[test]
fn a_panic_in_a_body_ends_the_measurement() {
    let body: Body<'_> = Box::new(|thread, _| {
        if thread == 1 {
            std::panic::resume_unwind(Box::new("a body"));
        }
    });
    let cases = [Case { name: "panics", granule: 1, body }];
    let result =
        std::panic::catch_unwind(AssertUnwindSafe(|| rounds(&cases, &plan(2, 1), &|_| {})));
    assert!(result.is_err());
}

#[test]
fn a_step_names_round_and_case() {
    let line = |round| Step { case: "bare_add", round, rounds: 21 }.to_string();
    assert_eq!(line(0), "warming up: bare_add");
    assert_eq!(line(3), "round 3 of 21: bare_add");
}
