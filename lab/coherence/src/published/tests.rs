use super::Case;
use super::program::element;
use crate::program::deal;

#[test]
fn each_cpu_has_an_element_of_its_own_that_is_not_beside_its_neighbours() {
    for cpus in 1..200 {
        let mut elements: Vec<usize> = (0..cpus).map(|cpu| element(cpu, cpus)).collect();
        if cpus > 8 {
            let beside = elements.windows(2).filter(|two| two[0].abs_diff(two[1]) == 1).count();
            assert_eq!(beside, 0, "{cpus}");
        }
        elements.sort_unstable();
        assert!(elements.into_iter().eq(0..cpus), "{cpus}");
    }
}

#[test]
fn cpus_are_dealt_to_roles_by_share() {
    let dealt = deal(&[0.75, 0.25], 72);
    assert_eq!(dealt.iter().filter(|&&role| role == 1).count(), 18);
}

#[test]
fn a_prediction_is_the_same_every_time() {
    let case = Case::built_in("haproxy-queues").unwrap();
    let rows = || format!("{:?}", case.predict(3).unwrap());
    assert_eq!(rows(), rows());
}

#[test]
fn the_file_that_is_shown_to_users_is_a_case() {
    let head = include_str!("file.rs").lines().take_while(|line| line.starts_with("//!"));
    let text: Vec<&str> = head.map(|line| line.trim_start_matches("//!").trim_start()).collect();
    let shown = text.join("\n");
    let shown = shown.split("```toml").nth(1).unwrap().split("```").next().unwrap();
    let case = Case::parse("shown", shown).unwrap_or_else(|error| panic!("{error}"));
    assert!(case.predict(1).unwrap()[0].predicted.median > 0.0);
}
