//! Bodies of requests: charged as they arrive, and refused before they are complete.

use crate::support::{Connection, PATIENCE, post as upload, serve, settled, tenants};
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use futures::{StreamExt, stream};
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::{Empty, Full, StreamBody};
use ledgerline_tower::{RequestBody, RequestGroups};
use std::convert::Infallible;
use std::time::Duration;
use tower::{Layer, ServiceExt};

fn routes() -> Router {
    Router::new()
        .route("/", post(|bytes: Bytes| async move { bytes.len().to_string() }))
        .layer(DefaultBodyLimit::disable())
}

fn frame(size: usize) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::from(vec![7; size])))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_charged_for_an_upload_as_it_comes_in() {
    let [tenant] = tenants();
    let address = serve(routes().layer(RequestGroups::below(tenant))).await;
    for two in [false, true] {
        let (send, frames) = futures::channel::mpsc::unbounded();
        let mut connection = Connection::new(address, two).await;
        let asked =
            tokio::spawn(async move { connection.ask(upload("/", StreamBody::new(frames))).await });
        for megabytes in 1..=3u64 {
            send.unbounded_send(frame(1 << 20)).unwrap();
            let came = async {
                while tenant.precise() < megabytes << 20 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(PATIENCE, came).await.expect("it is charged");
        }
        send.close_channel();
        let (status, _, body) = asked.await.unwrap();
        assert_eq!((status, &*body.unwrap()), (StatusCode::OK, &b"3145728"[..]));
        settled(tenant).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_without_an_end_is_refused_once_it_is_too_large() {
    let [tenant] = tenants();
    let groups = RequestGroups::below(tenant).max("2M".parse().unwrap());
    let address = serve(routes().layer(groups)).await;
    let endless = || StreamBody::new(stream::repeat_with(|| frame(10_000)).boxed());
    // A client of HTTP/1 that continues to send may be cut off before it reads the answer.
    let mut connection = Connection::new(address, true).await;
    assert_eq!(connection.ask(upload("/", endless())).await.0, StatusCode::SERVICE_UNAVAILABLE);
    let whole = connection.ask(upload("/", Full::from(vec![1; 100_000]))).await;
    assert_eq!((whole.0, &*whole.2.unwrap()), (StatusCode::OK, &b"100000"[..]));
    settled(tenant).await;
    assert_eq!(tenant.events().max, 1);
}

#[tokio::test]
async fn what_a_service_does_when_it_is_called_is_its_requests() {
    let [tenant] = tenants();
    let groups = RequestGroups::below(tenant).max("1M".parse().unwrap());
    let app = groups.layer(tower::service_fn(|_: Request<RequestBody<Empty<Bytes>>>| {
        let kept = vec![1u8; 2 << 20];
        async move {
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::from(kept)))
        }
    }));
    let response = app.oneshot(Request::new(Empty::new())).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(tenant.events().max, 1);
}
