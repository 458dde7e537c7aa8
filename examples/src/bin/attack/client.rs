//! Clients that share a pool of connections, and count the outcomes of each tenant's requests.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::{Client as Pooled, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A request: the method, the path and the body.
pub type Asked = (&'static str, String, Body);

/// Outcomes of requests, by name: the count of each status; `cut` for an incomplete body, `closed` for a connection
/// that ended without an answer.
pub type Ends = BTreeMap<String, BTreeMap<String, u64>>;

#[derive(Clone)]
pub struct Client {
    pooled: Pooled<HttpConnector, Body>,
    server: String,
    ends: Arc<Mutex<Ends>>,
}

pub fn empty() -> Body {
    whole(Bytes::new())
}

pub fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}

impl Client {
    /// Makes a client that keeps at most `kept` connections for later requests.
    pub fn new(server: &str, kept: usize) -> Client {
        let pooled =
            Pooled::builder(TokioExecutor::new()).pool_max_idle_per_host(kept).build_http();
        Client { pooled, server: server.to_owned(), ends: Arc::default() }
    }

    /// Sends a tenant's request, reads the answer to its end, and counts the outcome under a name. Returns the whole
    /// body of a 200.
    pub async fn ask(&self, name: &str, tenant: &str, asked: Asked) -> Option<Bytes> {
        let (method, path, body) = asked;
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server))
            .header("x-tenant", tenant)
            .body(body)
            .expect("a request");
        let (end, body) = match self.pooled.request(request).await {
            Err(_) => ("closed".to_owned(), None),
            Ok(response) => {
                let status = response.status();
                match read(response.into_body()).await {
                    Some(body) => {
                        (status.as_u16().to_string(), status.is_success().then_some(body))
                    }
                    None => ("cut".to_owned(), None),
                }
            }
        };
        let mut ends = self.ends.lock().expect("no panic inside");
        *ends.entry(name.to_owned()).or_default().entry(end).or_default() += 1;
        body
    }

    /// Returns the outcomes of requests since the last call, by name.
    pub fn take_ends(&self) -> Ends {
        std::mem::take(&mut self.ends.lock().expect("no panic inside"))
    }
}

/// Reads a body to its end, and keeps a mebibyte of it; returns `None` if it broke off.
async fn read(mut body: hyper::body::Incoming) -> Option<Bytes> {
    let mut kept = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else { continue };
        if kept.len() < 1 << 20 {
            kept.extend_from_slice(&data);
        }
    }
    Some(kept.into())
}
