//! Requests that a limit ends, with their bodies, and requests that it leaves alone.

use crate::support::{ask, grows, post as upload, serve, settled, tenants, to};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use futures::stream;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use ledgerline::current;
use ledgerline_tower::{GroupBody, RequestBody, RequestGroups};
use std::time::Duration;
use tower::{Layer, ServiceExt};

/// Never checks for a refusal between its polls.
async fn grows_and_awaits() -> String {
    let mut rows = Vec::new();
    loop {
        rows.extend((0..100u64).map(|row| [row; 512].to_vec()));
        tokio::task::yield_now().await;
    }
}

async fn spawns_what_grows() -> String {
    let part = current::tokio::spawn(grows()).await;
    part.unwrap_or_else(|ended| format!("{}", ended.is_panic()))
}

/// A body that keeps everything that it sent.
async fn streams(size: usize) -> Body {
    let frames = stream::unfold((Vec::new(), 0), move |(mut kept, sent)| async move {
        tokio::task::yield_now().await;
        if sent == size {
            return None;
        }
        kept.push(vec![7u8; 64 << 10]);
        Some((Ok::<_, std::io::Error>(Bytes::from(vec![7u8; 1024])), (kept, sent + 1)))
    });
    Body::from_stream(frames)
}

fn routes() -> Router {
    Router::new()
        .route("/hello", get(|| async { "hello" }))
        .route("/grows", get(grows))
        .route("/awaits", get(grows_and_awaits))
        .route("/spawns", get(spawns_what_grows))
        .route("/upload", post(|bytes: Bytes| async move { bytes.len().to_string() }))
        .route("/short", get(|| streams(10)))
        .route("/endless", get(|| streams(usize::MAX)))
        .layer(DefaultBodyLimit::disable())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runaway_request_alone_is_answered_by_503_however_it_grows() {
    let [tenant] = tenants();
    let groups = RequestGroups::below(tenant).max("4M".parse().unwrap());
    let address = serve(routes().layer(groups.retry_after(Duration::from_secs(7)))).await;
    for two in [false, true] {
        for path in ["/grows", "/awaits", "/spawns"] {
            let (runaway, honest) =
                tokio::join!(ask(address, two, to(path)), ask(address, two, to("/hello")));
            assert_eq!(
                (runaway.0, runaway.1.as_deref()),
                (StatusCode::SERVICE_UNAVAILABLE, Some("7")),
                "{path}"
            );
            assert_eq!((honest.0, honest.2.as_deref()), (StatusCode::OK, Some(&b"hello"[..])));
        }
    }
    // With HTTP/1, the server may close the connection before a client that still sends has read the answer.
    let upload = upload("/upload", Full::from(vec![1u8; 12 << 20]));
    assert_eq!(ask(address, true, upload).await.0, StatusCode::SERVICE_UNAVAILABLE);
    settled(tenant).await;
    assert_eq!(tenant.events().max, 7, "each request is refused once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_belongs_to_its_request_and_one_that_meets_the_limit_is_not_whole() {
    let [tenant] = tenants();
    let groups = RequestGroups::below(tenant).max("4M".parse().unwrap());
    let address = serve(routes().layer(groups)).await;
    for two in [false, true] {
        let (short, endless) =
            tokio::join!(ask(address, two, to("/short")), ask(address, two, to("/endless")));
        assert_eq!((short.0, short.2.map(|body| body.len())), (StatusCode::OK, Some(10 << 10)));
        assert_eq!((endless.0, endless.2), (StatusCode::OK, None));
    }
    settled(tenant).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_ends_its_requests_group() {
    let [tenant] = tenants();
    // Without a limit of its own, it would continue up to the tenant's.
    let address = serve(routes().layer(RequestGroups::below(tenant))).await;
    for two in [false, true] {
        for path in ["/awaits", "/endless"] {
            let begun =
                tokio::time::timeout(Duration::from_millis(20), ask(address, two, to(path)));
            let _given_up = begun.await;
        }
    }
    settled(tenant).await;
}

#[tokio::test]
async fn the_tenant_is_found_by_the_head_and_whoever_has_none_is_left_alone() {
    let [acme, other] = tenants();
    let find = move |request: &http::request::Parts| {
        let name = request.headers.get("x-tenant")?;
        if name == "acme" { Some(acme) } else { Some(other) }
    };
    let app = RequestGroups::by(find).layer(tower::service_fn(
        |_: Request<RequestBody<Empty<Bytes>>>| async {
            let path = current::group().map_or("nobody".to_owned(), |group| group.path());
            Ok::<_, std::convert::Infallible>(http::Response::new(Full::<Bytes>::from(path)))
        },
    ));
    for (tenant, prefix) in [(Some("acme"), "/t0/r"), (Some("else"), "/t1/r"), (None, "nobody")] {
        let mut request = Request::new(Empty::new());
        if let Some(tenant) = tenant {
            request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
        }
        let response = app.clone().oneshot(request).await.unwrap();
        let body: GroupBody<_> = response.into_body();
        let size = http_body::Body::size_hint(&body).exact();
        let text = body.collect().await.unwrap().to_bytes();
        assert!(text.starts_with(prefix.as_bytes()), "{text:?}");
        assert_eq!(size, Some(text.len() as u64), "the length is known");
    }
    assert_eq!((acme.children().count(), other.children().count()), (0, 0));
}

#[tokio::test]
async fn a_layer_around_this_one_is_told_which_group_was_full() {
    let [tenant] = tenants();
    let handler = tower::service_fn(|_: Request<RequestBody<Empty<Bytes>>>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(Full::<Bytes>::from(grows().await)))
    });
    let app = RequestGroups::below(tenant).max("1M".parse().unwrap()).layer(handler);
    let response = app.oneshot(Request::new(Empty::new())).await.unwrap();
    let refused = response.extensions().get::<std::sync::Arc<ledgerline::Refused>>().unwrap();
    assert!(refused.to_string().contains("of max 1.0M in use"), "{refused}");
}

#[tokio::test]
async fn above_high_a_request_is_shed_before_its_handler_is_called() {
    let [tenant] = tenants();
    tenant.set_high("1M".parse().unwrap());
    let called = std::sync::atomic::AtomicU32::new(0);
    let called = &*Box::leak(Box::new(called));
    let handler = tower::service_fn(move |_: Request<RequestBody<Empty<Bytes>>>| async move {
        called.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok::<_, std::convert::Infallible>(http::Response::new(Full::<Bytes>::from("done")))
    });
    let app = RequestGroups::below(tenant).shed_above_high(true).layer(handler);
    let ask = || app.clone().oneshot(Request::new(Empty::new()));
    assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
    let held = tenant.charge(8 << 20).unwrap();
    let shed = ask().await.unwrap();
    assert_eq!(shed.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(shed.headers()["retry-after"], "1");
    drop(held);
    assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
    assert_eq!(called.load(std::sync::atomic::Ordering::Relaxed), 2);
}
