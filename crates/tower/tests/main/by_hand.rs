//! Handlers of axum that charge by hand and respond with the refusal.

use crate::support::{ask, serve, settled, tenants, to};
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::StatusCode;
use ledgerline::current;
use ledgerline_tower::{RequestGroups, Unavailable};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_charges_by_hand_answers_with_its_refusal() {
    let [tenant] = tenants();
    let handler = || async {
        let buffer = current::try_charge(2 << 20)?;
        Ok::<_, Unavailable>(buffer.map_or(0, |buffer| buffer.units()).to_string())
    };
    let slow = || async {
        let refused = current::try_charge(2 << 20).unwrap_err();
        Unavailable::from(refused).retry_after(Duration::from_millis(2500)).into_response()
    };
    let routes = Router::new().route("/", get(handler)).route("/slow", get(slow));
    let address =
        serve(routes.layer(RequestGroups::below(tenant).max("1M".parse().unwrap()))).await;
    for two in [false, true] {
        for (path, after) in [("/", "1"), ("/slow", "3")] {
            let (status, said, body) = ask(address, two, to(path)).await;
            assert_eq!((status, said.as_deref()), (StatusCode::SERVICE_UNAVAILABLE, Some(after)));
            assert_eq!(body.unwrap(), "", "a client is not told of groups");
        }
    }
    settled(tenant).await;
}
