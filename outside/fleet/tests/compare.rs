//! Leases beside what people use instead, under one load on a real redis: counts, and no times.

use std::time::Duration;

use outside_fleet::load::{Way, hold};
use outside_fleet::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn leases_refuse_less_than_a_fixed_split_and_never_overrun() {
    let Some(server) = Server::redis().expect("a redis") else { return };
    let time = Duration::from_secs(2);
    let split = hold(&server.address, Way::Split, 10, time).await.expect("a load");
    let waits = hold(&server.address, Way::Waits, 10, time).await.expect("a load");
    assert_eq!((split.overrun, waits.overrun), (0, 0));
    assert!(waits.granted > 0 && split.refused_with_room > 0, "{split:?}, {waits:?}");
    let part = |refused: u64, granted: u64| refused as f64 / (refused + granted) as f64;
    let (split, waits) =
        [split, waits].map(|figures| part(figures.refused_with_room, figures.granted)).into();
    assert!(
        waits < split,
        "{waits:.3} were refused while others had room, {split:.3} with a split"
    );
}
