//! Connections: their limits, their responses, and the end.

use crate::serve::api::{Groups, Hour, Index, Summary};
use crate::serve::changes::By;
use crate::serve::events::{self, Told};
use crate::serve::guard::{self, Asks, Guard};
use crate::serve::settings::Settings;
use crate::serve::watched::{Ledgers, Watched};
use crate::serve::{metrics, page};
use crate::terminal::output::plain_json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderMap, WWW_AUTHENTICATE};
use axum::http::{Request, Response, StatusCode, Uri};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

mod crowd;
mod patient;

use crowd::{Crowd, Doing};

/// The most streams of events at a time.
const STREAMS: usize = 64;
/// The longest time for the head of a request, and for an idle connection.
const HEAD: Duration = Duration::from_secs(10);
/// The longest head of a request.
const HEAD_BYTES: usize = 16 << 10;
/// The longest time for responses that are under way at the end.
const END: Duration = Duration::from_secs(2);

/// The media type of the documents.
pub(crate) const JSON: &str = "application/json";

/// A listening server.
///
/// ```
/// use ledgerline_view::serve::{Server, Settings};
///
/// let server = Server::bind(Settings::default())?;
/// println!("http://{}/", server.address());
/// let stop = server.stop();
/// let running = std::thread::spawn(move || server.run());
/// stop.now();
/// running.join().expect("it does not panic")?;
/// # Ok::<(), String>(())
/// ```
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    ledgers: Arc<Ledgers>,
    ending: watch::Sender<bool>,
}

/// A handle that ends a server.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

/// The sources of the responses.
#[derive(Clone)]
struct Shared {
    ledgers: Arc<Ledgers>,
    streams: Arc<Semaphore>,
    ending: watch::Receiver<bool>,
}

impl Server {
    /// Opens the ledgers and begins to listen. Requests are answered only by [`run`](Self::run).
    ///
    /// # Errors
    /// A sentence: which ledger cannot be opened, or why listening there fails.
    pub fn bind(settings: Settings) -> Result<Server, String> {
        let ledgers = Ledgers::open(&settings)?;
        let (listener, address) = listen(settings.listen)?;
        Ok(Server { listener, address, ledgers, ending: watch::Sender::new(false) })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle that ends it.
    pub fn stop(&self) -> Stop {
        Stop(self.ending.clone())
    }

    /// Answers until it is [stopped](Stop::now), in this thread and two more.
    ///
    /// # Errors
    /// A sentence: why there is no thread or no runtime.
    pub fn run(self) -> Result<(), String> {
        self.run_with(None)
    }

    /// Answers until SIGINT or SIGTERM arrives. Calls `ready` as soon as these signals end the server and not the process,
    /// so that a caller may say then that it listens.
    ///
    /// # Errors
    /// As for [`run`](Self::run), and an error of `ready`.
    pub fn run_until_signal(
        self,
        ready: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        self.run_with(Some(Box::new(ready)))
    }

    fn run_with(self, signals: Option<Ready<'_>>) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot start: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Each encodes one response.
            .max_blocking_threads(2)
            .build()
            .map_err(failed)?;
        let keeper = self.ledgers.start_keeper().map_err(failed)?;
        let ledgers = self.ledgers.clone();
        let done = runtime.block_on(self.answer(signals));
        runtime.shutdown_timeout(END);
        ledgers.end();
        // A panic there was reported.
        let _ = keeper.join();
        done
    }

    async fn answer(self, signals: Option<Ready<'_>>) -> Result<(), String> {
        let settings = &self.ledgers.settings;
        let guard = Guard::new(settings.listen, &settings.hosts)
            .with_token(settings.token.clone(), page::paths());
        let shared = Shared {
            ledgers: self.ledgers,
            streams: Arc::new(Semaphore::new(STREAMS)),
            ending: self.ending.subscribe(),
        };
        accept(self.listener, &self.ending, guard, router(shared), signals).await
    }
}

/// Begins to listen.
pub(crate) fn listen(at: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    let listening = TcpListener::bind(at).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    listening.map_err(|error| format!("cannot listen on {at}: {error}"))
}

/// A function that is called once, when signals are handled.
pub(crate) type Ready<'r> = Box<dyn FnOnce() -> Result<(), String> + 'r>;

/// Answers connections until the end, by a signal if `signals` is to be told when it is ready.
pub(crate) async fn accept(
    listener: TcpListener,
    end: &watch::Sender<bool>,
    guard: Guard,
    router: Router,
    signals: Option<Ready<'_>>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot start: {error}");
    let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
    let mut ending = end.subscribe();
    if let Some(ready) = signals {
        let listen = |kind| signal(kind).map_err(failed);
        let (mut int, mut term) =
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        ready()?;
        let sender = end.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = int.recv() => {}
                _ = term.recv() => {}
            }
            sender.send_replace(true);
        });
    }
    let guard = Arc::new(guard);
    let mut connections = JoinSet::new();
    let mut crowd = Crowd::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ending.wait_for(|ending| *ending) => break,
            _ = connections.join_next(), if !connections.is_empty() => continue,
        };
        match accepted {
            Ok((stream, peer)) if !crowd.admit(peer.ip()) => turn_away(&stream),
            Ok((stream, peer)) => {
                let (router, guard) = (router.clone(), guard.clone());
                let doing = Arc::new(Doing::default());
                let task = connection(stream, router, guard, doing.clone(), ending.clone());
                crowd.add(peer.ip(), doing, connections.spawn(task));
            }
            // For example out of files: this may pass.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    // Streams of events end by themselves.
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(END, all).await;
    Ok(())
}

impl Stop {
    /// Ends the server: streams of events end, and answers under way have two seconds.
    pub fn now(&self) {
        self.0.send_replace(true);
    }
}

/// Responds to a client that there are too many connections.
fn turn_away(stream: &TcpStream) {
    // If there is no room even for this, nothing is lost.
    let _ = stream.try_write(
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
}

async fn connection(
    stream: TcpStream,
    router: Router,
    guard: Arc<Guard>,
    doing: Arc<Doing>,
    mut ending: watch::Receiver<bool>,
) {
    let answer = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let (allowed, answer) = (guard.check(&request), answer.clone());
        let answering = doing.answer();
        if allowed == Ok(Asks::More) {
            doing.prove();
        }
        async move {
            let mut response = match allowed {
                Ok(_) => match hyper::service::Service::call(&answer, request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                },
                Err((status, why)) => No(status, why).into_response(),
            };
            guard::seal(response.headers_mut());
            let told = response.map(|body| crowd::Told::body(body, answering));
            Ok::<_, std::convert::Infallible>(told)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES);
    let io = TokioIo::new(patient::Patient::new(stream));
    let connection = builder.serve_connection(io, service);
    tokio::pin!(connection);
    // A client that disconnects is not an error.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = ending.wait_for(|ending| *ending) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The reason for an error response.
pub(crate) struct No(pub StatusCode, pub &'static str);

impl IntoResponse for No {
    fn into_response(self) -> Response<Body> {
        let No(status, why) = self;
        let kind = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
        let mut response = (status, kind, format!("{why}\n")).into_response();
        if status == StatusCode::METHOD_NOT_ALLOWED {
            let allowed = axum::http::HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, allowed);
        }
        if status == StatusCode::UNAUTHORIZED {
            let how = axum::http::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
        }
        response
    }
}

fn router(shared: Shared) -> Router {
    let mut router = Router::new();
    for path in page::paths() {
        router = router.route(
            path,
            get(|uri: Uri| async move { page::file(uri.path()).ok_or(StatusCode::NOT_FOUND) }),
        );
    }
    router
        .route("/metrics", get(scrape))
        .route("/api/ledgers", get(index))
        .route("/api/ledgers/{id}/groups", get(groups))
        .route("/api/ledgers/{id}/history", get(history))
        .route("/api/ledgers/{id}/events", get(tell))
        .fallback(|| async {
            No(
                StatusCode::NOT_FOUND,
                "there is nothing here; / is the page, /api/ledgers lists the ledgers",
            )
        })
        .with_state(shared)
}

/// Runs a look at ledgers, or the encoding of a large response, on a thread that blocks no other request.
async fn aside<T: Send + 'static>(
    make: impl FnOnce() -> Result<T, No> + Send + 'static,
) -> Result<T, No> {
    let failed = || No(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made");
    tokio::task::spawn_blocking(make).await.unwrap_or_else(|_| Err(failed()))
}

fn json(document: &impl Serialize) -> Answer {
    let text = serde_json::to_string(document)
        .map_err(|_| No(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be encoded"))?;
    Ok(([(CONTENT_TYPE, JSON)], plain_json(&text)).into_response())
}

fn find(shared: &Shared, id: &str) -> Result<Arc<Watched>, No> {
    let ledger = id.parse().ok().and_then(|id| shared.ledgers.get(id));
    let none = No(StatusCode::NOT_FOUND, "there is no such ledger now; /api/ledgers lists them");
    ledger.ok_or(none)
}

pub(crate) type Answer = Result<Response<Body>, No>;

async fn scrape(State(shared): State<Shared>, headers: HeaderMap) -> Answer {
    aside(move || metrics(&headers, metrics::scrape(&shared.ledgers))).await
}

/// Returns OpenMetrics, or the older text format made of it, as the client accepts.
pub(crate) fn metrics(headers: &HeaderMap, text: Result<String, std::fmt::Error>) -> Answer {
    let mut accepts = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let text = text
        .map_err(|_| No(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be encoded"))?;
    let (kind, text) = match accepts.any(metrics::wants_openmetrics) {
        true => (metrics::OPENMETRICS, text),
        false => (metrics::TEXT, metrics::older(&text)),
    };
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}

async fn index(State(shared): State<Shared>) -> Answer {
    aside(move || {
        let settings = &shared.ledgers.settings;
        let ledgers = shared.ledgers.all();
        json(&Index {
            schema: "ledgerline/serve-ledgers.v1",
            version: env!("CARGO_PKG_VERSION"),
            interval: settings.interval.as_millis() as u64,
            history: settings.history,
            ledgers: ledgers
                .iter()
                .map(|ledger| Summary::of(ledger.id, &ledger.title, &ledger.path, &ledger.fresh()))
                .collect(),
        })
    })
    .await
}

async fn groups(State(shared): State<Shared>, Path(id): Path<String>) -> Answer {
    aside(move || {
        let ledger = find(&shared, &id)?;
        json(&Groups::of(ledger.id, &ledger.title, &ledger.fresh()))
    })
    .await
}

#[derive(Deserialize)]
struct OfGroup {
    group: Option<String>,
}

async fn history(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Query(query): Query<OfGroup>,
) -> Answer {
    aside(move || {
        let ledger = find(&shared, &id)?;
        let frame = ledger.fresh();
        let none = "there is no such group now; ?group= takes a path or an id";
        let row = frame.find(query.group.as_deref().unwrap_or("/"));
        let row = row.ok_or(No(StatusCode::NOT_FOUND, none))?;
        json(&Hour::of(&frame, row, &ledger.history(row.id).unwrap_or_default()))
    })
    .await
}

#[derive(Deserialize)]
struct Order {
    #[serde(default)]
    by: By,
}

async fn tell(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Query(order): Query<Order>,
) -> Answer {
    let ledger = find(&shared, &id)?;
    let too_many = "too many read events already; come again when one of them has left";
    let permit = shared.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| No(StatusCode::SERVICE_UNAVAILABLE, too_many))?;
    let (to, told) = mpsc::channel(2);
    tokio::spawn(events::tell(shared.ledgers, ledger, order.by, to, shared.ending, permit));
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(Told(told))).into_response())
}
