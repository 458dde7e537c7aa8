//! Documents of something else than ledgers, served by the same rules: who may ask, how many at a time, and how it ends.

use crate::guard::Guard;
use crate::metrics;
use crate::page;
use crate::server::{self, No};
use crate::settings::{Settings, Which};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tokio::sync::watch;

/// The picture of every page.
const ICON: &str = "/icon.svg";

const NOTHING: No = No(StatusCode::NOT_FOUND, "there is nothing here; / is the page");

/// What is served: made for each request, of what is at hand. It waits for nothing.
pub trait Documents: Send + Sync + 'static {
    /// `/`: a page in HTML, without scripts, and with no style but the one below and no picture but `/icon.svg`. Every answer
    /// forbids others.
    fn page(&self) -> String;

    /// `/page.css`: the page's style.
    fn style(&self) -> &'static str;

    /// `/api/books`: JSON.
    fn json(&self) -> String;

    /// `/metrics`: OpenMetrics.
    ///
    /// # Errors
    /// The encoder's.
    fn metrics(&self) -> Result<String, fmt::Error>;
}

/// A server of documents that listens.
pub struct Other {
    listener: TcpListener,
    address: SocketAddr,
    guard: Guard,
    documents: Arc<dyn Documents>,
}

impl Other {
    /// Begins to listen, for those who ask under an address or under one of these names.
    ///
    /// # Errors
    /// A sentence: why nobody can listen there.
    pub fn bind(
        listen: SocketAddr,
        hosts: &[String],
        documents: Arc<dyn Documents>,
    ) -> Result<Other, String> {
        let settings =
            Settings { listen, hosts: hosts.to_vec(), ..Settings::new(Which::Named(Vec::new())) };
        let (listener, address) = server::listen(listen)?;
        Ok(Other { listener, address, guard: Guard::new(&settings), documents })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until SIGINT or SIGTERM come.
    ///
    /// # Errors
    /// A sentence: why there is no runtime.
    pub fn run_until_signal(self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot start: {error}");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let router = Router::new()
            .route("/", get(index))
            .route("/page.css", get(style))
            .route(ICON, get(|| async { page::file(ICON).ok_or(NOTHING) }))
            .route("/metrics", get(scrape))
            .route("/api/books", get(json))
            .fallback(|| async { NOTHING })
            .with_state(self.documents);
        let end = watch::Sender::new(false);
        let answered = server::accept(self.listener, &end, self.guard, router, true);
        runtime.block_on(answered).map_err(failed)
    }
}

impl fmt::Debug for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Other").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn index(State(documents): State<Arc<dyn Documents>>) -> Response<Body> {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], documents.page()).into_response()
}

async fn style(State(documents): State<Arc<dyn Documents>>) -> Response<Body> {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], documents.style()).into_response()
}

async fn json(State(documents): State<Arc<dyn Documents>>) -> Response<Body> {
    ([(CONTENT_TYPE, "application/json")], documents.json()).into_response()
}

async fn scrape(
    State(documents): State<Arc<dyn Documents>>,
    headers: HeaderMap,
) -> Result<Response<Body>, No> {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let openmetrics = accepts.into_iter().any(metrics::wants_openmetrics);
    let text = documents
        .metrics()
        .map_err(|_| No(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be encoded"))?;
    let (kind, text) = match openmetrics {
        true => (metrics::OPENMETRICS, text),
        false => (metrics::TEXT, metrics::older(&text)),
    };
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}
