use super::*;
use ledgerline_coherence::machine::Machine;

/// Returns settings of two CPUs whose transfers take 25 ns.
fn settings() -> Settings {
    Machine::built_in("zen4-2vcpu").unwrap().best()
}

fn known(settings: &Settings) -> Known<'_> {
    Known { settings, modified: 25_000.0, multiplication: 3.0 }
}

/// Returns the model's own times with these shares.
fn took(known: &Known<'_>, shares: &[f64; KINDS]) -> Vec<f64> {
    let fights: Vec<(Fight, f64)> = fights::all().map(|fight| (fight, 1.0)).collect();
    known.predicted(shares, &fights)
}

#[test]
fn settings_that_made_the_times_are_found_again_or_others_that_make_the_same() {
    let settings = settings();
    let known = known(&settings);
    for shares in [[1.0, 0.5, 0.1, 0.3, 0.05, 1.0], [1.1, 0.7, 0.6, 0.0, 0.0, 0.0]] {
        let took = took(&known, &shares);
        let fitted = fit(&known, &took).unwrap();
        assert!(fitted.median_off < 0.04, "{fitted:?} for {shares:?}");
        let found = [fitted.shares.modified, fitted.shares.request];
        for (found, wanted) in found.iter().zip([shares[0], shares[1]]) {
            assert!((found.value - wanted).abs() < 0.2, "{fitted:?} for {shares:?}");
            assert!(found.low <= found.value && found.value <= found.high);
        }
    }
}

#[test]
fn the_same_times_make_the_same_settings() {
    let settings = settings();
    let known = known(&settings);
    let took = took(&known, &[1.0, 0.6, 0.2, 0.5, 0.1, 0.5]);
    let [one, other] = [(); 2].map(|()| fit(&known, &took).unwrap());
    assert_eq!(one.shares, other.shares);
}

#[test]
fn a_fight_that_was_disturbed_is_left_out_and_nothing_is_made_of_a_few() {
    let settings = settings();
    let known = known(&settings);
    let mut took = took(&known, &[1.0, 0.6, 0.2, 0.5, 0.1, 0.5]);
    let count = took.len();
    took[3] = f64::NAN;
    assert!(fit(&known, &took).unwrap().worst_off.is_finite());
    took[..count / 2].fill(f64::NAN);
    assert!(fit(&known, &took).is_none());
}

#[test]
fn candidates_lie_where_settings_are_possible() {
    for number in 1..1000 {
        let about = (candidate(number, None), 0.3);
        for shares in [about.0, candidate(number, Some(about))] {
            for (share, (low, high)) in shares.iter().zip(POSSIBLE) {
                assert!((low..=high).contains(share), "{shares:?}");
            }
        }
    }
}
