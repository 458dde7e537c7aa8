//! Connections of several requests, clients that reset a stream, and time-outs.

use crate::support::{Connection, ask, grows, serve, settled, tenants, to};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::error_handling::HandleErrorLayer;
use axum::routing::get;
use http::StatusCode;
use http_body_util::BodyExt;
use ledgerline_tower::RequestGroups;
use std::time::Duration;
use tower::ServiceBuilder;
use tower::timeout::TimeoutLayer;

/// Holds memory, and never ends.
async fn waits() {
    let kept = vec![1u8; 100_000];
    std::future::pending::<()>().await;
    drop(kept);
}

/// Holds memory in its body, which never ends.
async fn never_sent() -> Body {
    let kept = vec![1u8; 100_000];
    let frames = futures::stream::unfold(kept, |kept| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Some((Ok::<_, std::io::Error>(Bytes::from("x")), kept))
    });
    Body::from_stream(frames)
}

fn routes() -> Router {
    Router::new()
        .route("/hello", get(|| async { "hello" }))
        .route("/grows", get(grows))
        .route("/waits", get(waits))
        .route("/endless", get(never_sent))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lives_on_after_one_of_its_requests_was_refused() {
    for two in [false, true] {
        let [tenant] = tenants();
        let groups = RequestGroups::below(tenant).max("1M".parse().unwrap());
        let address = serve(routes().layer(groups)).await;
        let mut connection = Connection::new(address, two).await;
        for refused in [false, true, false, true, true, false] {
            let (path, status) = match refused {
                true => ("/grows", StatusCode::SERVICE_UNAVAILABLE),
                false => ("/hello", StatusCode::OK),
            };
            assert_eq!(connection.ask(to(path)).await.0, status);
            settled(tenant).await;
        }
        assert_eq!(tenant.events().max, 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_http_2_that_its_client_resets_ends_its_requests_group_and_no_other() {
    let [tenant] = tenants();
    let address = serve(routes().layer(RequestGroups::below(tenant))).await;
    let mut connection = Connection::new(address, true).await;
    let mut kept = connection.send(to("/endless")).await.into_body();
    let mut reset = connection.send(to("/endless")).await.into_body();
    for body in [&mut kept, &mut reset] {
        body.frame().await.unwrap().unwrap();
    }
    assert_eq!(tenant.children().count(), 2);
    drop(reset);
    // Also before there was a response.
    let waits = tokio::time::timeout(Duration::from_millis(20), connection.send(to("/waits")));
    assert!(waits.await.is_err());
    while tenant.children().count() > 1 {
        kept.frame().await.unwrap().unwrap();
    }
    assert_eq!(connection.ask(to("/hello")).await.0, StatusCode::OK);
    assert!(tenant.precise() >= 100_000, "the other stream goes on");
    drop(kept);
    settled(tenant).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_takes_too_long_leaves_no_group_wherever_the_time_out_is() {
    let time = Duration::from_millis(20);
    for outside in [false, true] {
        let [tenant] = tenants();
        let groups = RequestGroups::below(tenant);
        let late = || HandleErrorLayer::new(|_| async { StatusCode::REQUEST_TIMEOUT });
        let limits = ServiceBuilder::new().layer(late()).layer(TimeoutLayer::new(time));
        let routes = match outside {
            true => routes().layer(groups).layer(limits),
            false => routes().layer(limits).layer(groups),
        };
        let address = serve(routes).await;
        for two in [false, true] {
            assert_eq!(ask(address, two, to("/waits")).await.0, StatusCode::REQUEST_TIMEOUT);
            settled(tenant).await;
            assert_eq!(ask(address, two, to("/hello")).await.0, StatusCode::OK);
        }
    }
}
