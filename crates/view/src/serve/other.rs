//! Documents of something else than ledgers, served by the same rules for access, concurrency and the end.

use crate::serve::guard::Guard;
use crate::serve::page::{self, CSS, HTML};
use crate::serve::server::{self, Answer, JSON, No};
use crate::serve::token::Token;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::routing::get;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tokio::sync::watch;

/// The icon of every page.
const ICON: &str = "/icon.svg";
/// The style of the page.
const STYLE: &str = "/page.css";

const NOTHING: No = No(StatusCode::NOT_FOUND, "there is nothing here; / is the page");

/// The served documents: made for each request, from data at hand, without waiting.
pub trait Documents: Send + Sync + 'static {
    /// `/`: a page in HTML, without scripts, with only the style below and only the picture `/icon.svg`. The headers of
    /// every response forbid others.
    fn page(&self) -> String;

    /// `/page.css`: the page's style.
    fn style(&self) -> &'static str;

    /// `/api/books`: JSON.
    fn json(&self) -> String;

    /// `/metrics`: OpenMetrics.
    ///
    /// # Errors
    /// The encoder's errors.
    fn metrics(&self) -> Result<String, fmt::Error>;
}

type Shown = State<Arc<dyn Documents>>;

/// A listening server of documents.
pub struct Other {
    listener: TcpListener,
    address: SocketAddr,
    guard: Guard,
    documents: Arc<dyn Documents>,
}

impl Other {
    /// Begins to listen, for requests by an address or by one of these names, with the token if there is one.
    ///
    /// # Errors
    /// A sentence: why listening there fails.
    pub fn bind(
        listen: SocketAddr,
        hosts: &[String],
        token: Option<Token>,
        documents: Arc<dyn Documents>,
    ) -> Result<Other, String> {
        let (listener, address) = server::listen(listen)?;
        let guard = Guard::new(listen, hosts).with_token(token, [STYLE, ICON]);
        Ok(Other { listener, address, guard, documents })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until SIGINT or SIGTERM arrives. Calls `ready` as soon as these signals end the server and not the process.
    ///
    /// # Errors
    /// A sentence: why there is no runtime. An error of `ready`.
    pub fn run_until_signal(
        self,
        ready: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot start: {error}");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let router = Router::new()
            .route("/", get(|State(of): Shown| async move { ([(CONTENT_TYPE, HTML)], of.page()) }))
            .route(
                STYLE,
                get(|State(of): Shown| async move { ([(CONTENT_TYPE, CSS)], of.style()) }),
            )
            .route(ICON, get(|| async { page::file(ICON).ok_or(NOTHING) }))
            .route("/metrics", get(scrape))
            .route(
                "/api/books",
                get(|State(of): Shown| async move { ([(CONTENT_TYPE, JSON)], of.json()) }),
            )
            .fallback(|| async { NOTHING })
            .with_state(self.documents);
        let end = watch::Sender::new(false);
        let ready = Some(Box::new(ready) as server::Ready<'_>);
        let answered = server::accept(self.listener, &end, self.guard, router, ready);
        runtime.block_on(answered)
    }
}

impl fmt::Debug for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Other").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn scrape(State(documents): Shown, headers: HeaderMap) -> Answer {
    server::metrics(&headers, documents.metrics())
}
