//! Client of etcd's JSON gateway: one request, one reply, and the date of the reply.

use std::fmt;
use std::io::ErrorKind;
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::lock;
use crate::store::error::disagrees;
use crate::store::tls::Secured;
use crate::store::{Kind, StoreError};

/// One member of an etcd.
pub(super) struct Member {
    /// The name in errors, as in `etcd at 10.0.0.1:2379`.
    pub name: String,
    /// Host and port, as in `10.0.0.1:2379`.
    address: String,
    timeout: Duration,
    secured: Option<Secured>,
    /// Connections without a request at the moment.
    idle: Mutex<Vec<Connection>>,
}

/// A connection for one request at a time, and the task that drives it.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    spoken: JoinHandle<hyper::Result<()>>,
}

/// Number of idle connections to keep: one for the node, one for its operator.
const IDLE: usize = 2;

/// Maximum length of a reply: several times the largest value that etcd takes, which is 1.5 MiB by default.
const LONGEST: usize = 8 << 20;
/// Maximum number of JSON values in a reply. Each takes some forty bytes of memory, and may be two bytes long. A book is one
/// value.
const VALUES: usize = 400_000;

/// The answer of a member.
pub(super) struct Answered {
    pub body: Value,
    /// The member's clock when it answered: milliseconds since 1970, in whole seconds.
    pub at: u64,
}

impl Member {
    pub(super) fn new(address: &str, timeout: Duration, secured: Option<Secured>) -> Self {
        let name = format!("etcd at {address}");
        Self { name, address: address.to_owned(), timeout, secured, idle: Mutex::default() }
    }

    /// Posts a request and reads the whole reply, within the time limit of one call.
    pub(super) async fn post(
        &self,
        path: &str,
        body: String,
        token: Option<&str>,
    ) -> Result<Answered, StoreError> {
        let posted = timeout(self.timeout, async {
            let (response, connection) = self.send(path, body, token).await?;
            let status = response.status();
            let date = response.headers().get(DATE);
            let date = date.and_then(|date| read_date(date.to_str().ok()?));
            let bytes = self.whole(response).await?;
            self.keep(connection);
            self.read(status, date, &bytes)
        });
        posted.await.unwrap_or_else(|_| {
            Err(self.error(Kind::Slow, format!("no answer in {:?}", self.timeout)))
        })
    }

    /// Posts a request with an endless reply. Waits for the head of the reply.
    pub(super) async fn stream(
        &self,
        path: &str,
        body: String,
        token: Option<&str>,
    ) -> Result<Incoming, StoreError> {
        let sent = timeout(self.timeout, self.send(path, body, token)).await;
        let (response, _) = sent.unwrap_or_else(|_| {
            Err(self.error(Kind::Slow, format!("no answer in {:?}", self.timeout)))
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let bytes = self.whole(response).await?;
        self.read(status, None, &bytes).and_then(|_| Err(self.error(Kind::Nonsense, status)))
    }

    /// Sends a request on an idle connection or a new one. Waits for the head of the reply.
    async fn send(
        &self,
        path: &str,
        body: String,
        token: Option<&str>,
    ) -> Result<(Response<Incoming>, Connection), StoreError> {
        let request = |body: String| {
            let mut request = Request::post(path)
                .header(HOST, &self.address)
                .header(CONTENT_TYPE, "application/json");
            if let Some(token) = token {
                request = request.header(AUTHORIZATION, token);
            }
            let request = request.body(Full::new(Bytes::from(body)));
            request.map_err(|error| self.error(Kind::Malformed, error))
        };
        // A member that was stopped meanwhile has closed its connections, which shows at the next request at the latest. The
        // request may have been applied, but repeating it is safe: a book is written over the revision that was read, a node's
        // message counts once, and an operator's change is made again, or rejected because it was made.
        while let Some(mut kept) = self.kept() {
            if kept.sender.ready().await.is_ok()
                && let Ok(response) = kept.sender.send_request(request(body.clone())?).await
            {
                return Ok((response, kept));
            }
        }
        let mut new = self.connect().await?;
        match new.sender.send_request(request(body)?).await {
            Ok(response) => Ok((response, new)),
            // The connection knows better than the request why it was closed.
            Err(error) => Err(match new.spoken.await {
                Ok(Err(why)) => self.gone(&why),
                _ => self.gone(&error),
            }),
        }
    }

    async fn connect(&self) -> Result<Connection, StoreError> {
        let socket =
            TcpStream::connect(&self.address).await.map_err(|error| self.unreachable(&error))?;
        // Requests are small, and nothing follows them. With Nagle's algorithm they would wait for the acknowledgement of the
        // previous one.
        socket.set_nodelay(true).map_err(|error| self.unreachable(&error))?;
        match &self.secured {
            None => self.speak(socket).await,
            Some(secured) => {
                let socket = secured.connect(socket).await.map_err(|error| {
                    // A member without TLS hangs up at the greeting. If it left some of that unread, the end shows as a reset.
                    if is_end(error.kind()) {
                        let detail = format!("{error}: it may speak no TLS");
                        return self.error(Kind::Unreachable, detail);
                    }
                    self.unreachable(&error)
                });
                self.speak(socket?).await
            }
        }
    }

    /// Starts HTTP on a connection.
    async fn speak(
        &self,
        connected: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Connection, StoreError> {
        let spoken = http1::handshake(TokioIo::new(connected)).await;
        let (sender, connection) = spoken.map_err(|error| self.unreachable(&error))?;
        // The task ends when the last reply was read or dropped and the sender is gone.
        Ok(Connection { sender, spoken: tokio::spawn(connection) })
    }

    fn kept(&self) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        std::iter::from_fn(|| idle.pop()).find(|kept| !kept.sender.is_closed())
    }

    /// Keeps a connection whose reply was read.
    fn keep(&self, connection: Connection) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE {
            idle.push(connection);
        }
    }

    /// Reads the whole body, unless it is longer than any reply of etcd.
    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, StoreError> {
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        body.map(Collected::to_bytes).map_err(|error| match error.downcast_ref::<hyper::Error>() {
            Some(error) => self.unreachable(error),
            None => self.error(Kind::Nonsense, format!("more than {LONGEST} bytes")),
        })
    }

    fn read(
        &self,
        status: StatusCode,
        date: Option<u64>,
        bytes: &[u8],
    ) -> Result<Answered, StoreError> {
        let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        if !status.is_success() {
            let words = serde_json::from_slice::<Value>(bytes).ok();
            let said = words
                .as_ref()
                .and_then(|words| words["message"].as_str().or(words["error"].as_str()));
            let said = said.map_or_else(shown, str::to_owned);
            return Err(self.error(kind(status, &said), format!("{status}: {said}")));
        }
        let values = bytes.iter().filter(|byte| b",[{:".contains(byte)).count();
        if values > VALUES {
            return Err(self.error(Kind::Nonsense, format!("more than {VALUES} values")));
        }
        let body = serde_json::from_slice(bytes);
        match (body, date) {
            (Ok(body), Some(at)) => Ok(Answered { body, at }),
            (Ok(_), None) => Err(self.error(Kind::Nonsense, "a reply without a date")),
            (Err(_), _) => {
                Err(self.error(Kind::Nonsense, format!("JSON expected, and got {:?}", shown())))
            }
        }
    }

    /// Returns the error for a new connection that closed without a reply. A member that expects TLS, or a certificate, may just
    /// hang up.
    fn gone(&self, error: &hyper::Error) -> StoreError {
        let gone = self.unreachable(error);
        if gone.kind != Kind::Unreachable || !hung_up(error) {
            return gone;
        }
        let wants = match self.secured {
            Some(_) => "a client's certificate",
            None => "TLS",
        };
        self.error(Kind::Unreachable, format!("{}: it may want {wants}", words(error)))
    }

    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> StoreError {
        let words = words(error);
        let kind = match error.downcast_ref::<hyper::Error>() {
            _ if disagrees(&words) => Kind::Tls,
            Some(error) if error.is_parse() => Kind::Nonsense,
            _ => Kind::Unreachable,
        };
        self.error(kind, words)
    }

    /// Returns whether another member may not have this error.
    pub(super) fn is_alone(error: &StoreError) -> bool {
        error.passes() || error.kind == Kind::Tls
    }

    pub(super) fn error(&self, kind: Kind, detail: impl std::fmt::Display) -> StoreError {
        StoreError::new(&self.name, kind, detail)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let because = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{because}")
}

/// Returns whether the other side closed the connection before a reply.
fn hung_up(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    error.is_incomplete_message() || io.is_some_and(|io| is_end(io.kind()))
}

/// Returns whether an error means that the other side closed the connection.
fn is_end(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
}

/// Returns the kind of an error, by etcd's status and message.
fn kind(status: StatusCode, said: &str) -> Kind {
    let has = |part: &str| said.contains(part);
    match status {
        _ if disagrees(said) => Kind::Tls,
        _ if has("database space exceeded") || has("request is too large") => Kind::Full,
        _ if has("timed out") => Kind::Slow,
        _ if has("no leader") || has("leader changed") || has("stopped") => Kind::NotReady,
        _ if has("permission denied")
            || has("authentication failed")
            || has("user name is empty") =>
        {
            Kind::Denied
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Kind::Denied,
        StatusCode::SERVICE_UNAVAILABLE => Kind::NotReady,
        StatusCode::NOT_FOUND => Kind::TooOld,
        _ => Kind::Nonsense,
    }
}

fn read_date(date: &str) -> Option<u64> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

pub(super) fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

pub(super) fn decode(text: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(text).ok()?).ok()
}
