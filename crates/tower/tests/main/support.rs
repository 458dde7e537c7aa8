//! Tenants, servers and clients.

use axum::Router;
use axum::body::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ledgerline::{Group, Ledger, alloc};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn tenants<const N: usize>() -> [Group<'static>; N] {
    let ledger = Ledger::builder().capacity(256).anonymous().unwrap().into_static();
    std::array::from_fn(|number| {
        let tenant = ledger.root().create(&format!("t{number}")).unwrap();
        tenant.set_max("64M".parse().unwrap()).unwrap();
        tenant
    })
}

/// A runaway handler: it keeps 400 MB unless a checkpoint ends it.
pub async fn grows() -> String {
    let mut rows = Vec::new();
    for row in 0..100_000u64 {
        alloc::checkpoint();
        rows.push([row; 512].to_vec());
    }
    rows.len().to_string()
}

pub async fn serve(routes: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

/// The requests of clients.
pub type Sent = UnsyncBoxBody<Bytes, Infallible>;

pub fn post(
    path: &str,
    body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static,
) -> Request<Sent> {
    Request::post(path).header("host", "x").body(body.boxed_unsync()).unwrap()
}

/// A client's connection.
pub enum Connection {
    One(http1::SendRequest<Sent>),
    Two(http2::SendRequest<Sent>),
}

impl Connection {
    /// Connects by HTTP/2 or by HTTP/1.
    pub async fn new(address: SocketAddr, two: bool) -> Connection {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        if two {
            let (send, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            Connection::Two(send)
        } else {
            let (send, connection) = http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            Connection::One(send)
        }
    }

    /// Waits until the connection takes a request, and sends it.
    pub async fn send(&mut self, request: Request<Sent>) -> Response<Incoming> {
        match self {
            Connection::One(send) => {
                send.ready().await.unwrap();
                send.send_request(request).await.unwrap()
            }
            Connection::Two(send) => send.send_request(request).await.unwrap(),
        }
    }

    /// Returns the status, `Retry-After`, and the body, or `None` if that was incomplete.
    pub async fn ask(
        &mut self,
        request: Request<Sent>,
    ) -> (StatusCode, Option<String>, Option<Bytes>) {
        let response = self.send(request).await;
        let status = response.status();
        let after = response.headers().get("retry-after");
        let after = after.map(|it| it.to_str().unwrap().to_owned());
        let body = response.into_body().collect().await.ok().map(|body| body.to_bytes());
        (status, after, body)
    }
}

/// Sends a request on a connection of its own.
pub async fn ask(
    address: SocketAddr,
    two: bool,
    request: Request<Sent>,
) -> (StatusCode, Option<String>, Option<Bytes>) {
    Connection::new(address, two).await.ask(request).await
}

pub fn to(path: &str) -> Request<Sent> {
    Request::get(path).header("host", "x").body(Empty::new().boxed_unsync()).unwrap()
}

/// Allowance for allocations that the runtime makes at a first request and keeps for its threads, like the list of
/// tasks that yielded.
const RUNTIME_KEEPS: u64 = 4096;

/// Waits until a tenant has no requests and holds no more than the runtime keeps, since connections end by
/// themselves.
pub async fn settled(tenant: Group<'static>) {
    let empty = async {
        while tenant.children().count() > 0 || tenant.precise() > RUNTIME_KEEPS {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let done = tokio::time::timeout(PATIENCE, empty).await;
    assert!(done.is_ok(), "{} children, {} held", tenant.children().count(), tenant.precise());
}
