//! Compares leases with the usual alternatives, under one load on a real redis: counts, and no times.

use std::time::Duration;

use outside_fleet::load::{Way, hold};
use outside_fleet::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn leases_refuse_less_than_a_fixed_split_and_never_overrun() {
    let Some(server) = Server::redis().expect("a redis") else { return };
    let mut parts = Vec::new();
    for way in [Way::Split, Way::Leases, Way::Waits] {
        let figures = hold(&server.address, way, 10, Duration::from_secs(3)).await.expect("a load");
        assert_eq!(figures.overrun, 0, "{}", way.name());
        assert!(figures.granted > 0, "{}", way.name());
        let all = figures.refused_with_room + figures.granted;
        parts.push(figures.refused_with_room as f64 / all as f64);
    }
    let [split, leases, waits] = parts[..] else { panic!("{parts:?}") };
    assert!(
        waits < leases && leases < 0.9 * split,
        "{leases:.3} were refused while others had room, {waits:.3} where charges wait, {split:.3} with a split"
    );
}
