//! Connections to Redis: made on demand, dropped when they break, with a time limit for each call.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, RedisResult, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::message::Nudge;
use crate::store::access::refused;
use crate::store::tls::Certificates;
use crate::store::{Kind, Nudges, StoreError, Tls};

use super::way::Way;
use super::{Address, connect, wrong};

/// A client of the server that holds a book.
pub(super) struct Link {
    /// The address without passwords.
    pub(super) name: String,
    way: Way,
    timeout: Duration,
    connection: Mutex<Option<Connection>>,
    /// The certificates for TLS, if TLS is used.
    certificates: Option<Certificates>,
    /// Whether the server has ever sent a valid reply.
    heard: AtomicBool,
}

/// A primary of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Primary {
    host: String,
    port: u16,
}

impl Primary {
    /// Parses one range of slots: start, end, primary, replicas.
    fn of_range(range: &Value) -> Option<Self> {
        let Value::Array(parts) = range else { return None };
        let Value::Array(primary) = parts.get(2)? else { return None };
        match (primary.first()?, primary.get(1)?) {
            (Value::BulkString(host), Value::Int(port)) => Some(Self {
                host: String::from_utf8(host.clone()).ok()?,
                port: u16::try_from(*port).ok()?,
            }),
            _ => None,
        }
    }
}

#[derive(Clone)]
enum Connection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection<connect::Node>),
}

impl Link {
    pub(super) fn new(address: &Address, timeout: Duration, tls: &Tls) -> Result<Self, StoreError> {
        let wants_tls = address.wants_tls();
        if wants_tls && tls.server_name.is_some() {
            return Err(refused("a redis is known by the host of its address: no other name is"));
        }
        let certificates = wants_tls.then(|| Certificates::read(tls)).transpose()?;
        let made = address
            .shown()
            .and_then(|name| Ok((name, Way::new(address, timeout, certificates.as_ref())?)));
        let (name, way) = made.map_err(|error| StoreError::new("redis", Kind::Address, error))?;
        let connection = Mutex::new(None);
        Ok(Self { name, way, timeout, connection, certificates, heard: AtomicBool::new(false) })
    }

    /// Sends a command and waits for its reply, for at most the time limit of one call.
    pub(super) async fn call(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.call_at(None, command).await
    }

    /// Like [`call`](Self::call), but sends to one of the [primaries](Self::primaries).
    pub(super) async fn call_at(
        &self,
        primary: Option<&Primary>,
        command: &Cmd,
    ) -> Result<Value, StoreError> {
        let called = self.in_time(async {
            let value = match (self.connection().await?, primary) {
                (Connection::Server(mut server), _) => server.req_packed_command(command).await,
                (Connection::Cluster(mut cluster), None) => {
                    cluster.req_packed_command(command).await
                }
                (Connection::Cluster(mut cluster), Some(Primary { host, port })) => {
                    let (host, port) = (host.clone(), *port);
                    let there = SingleNodeRoutingInfo::ByAddress { host, port };
                    cluster.route_command(command, RoutingInfo::SingleNode(there)).await
                }
            };
            value.and_then(Value::extract_error)
        });
        let called = called.await;
        if let Err(error) = &called
            && wrong::wants_new_connection(error.kind)
        {
            *self.connection.lock().await = None;
        }
        called
    }

    /// Returns the servers that have books: one, or the primaries of a cluster.
    pub(super) async fn primaries(&self) -> Result<Vec<Option<Primary>>, StoreError> {
        if !matches!(self.way, Way::Cluster(..)) {
            return Ok(vec![None]);
        }
        let slots = self.call(redis::cmd("CLUSTER").arg("SLOTS")).await?;
        let primaries: Option<BTreeSet<Primary>> = match &slots {
            Value::Array(ranges) => ranges.iter().map(Primary::of_range).collect(),
            _ => None,
        };
        match primaries {
            Some(primaries) => Ok(primaries.into_iter().map(Some).collect()),
            None => Err(StoreError::new(&self.name, Kind::Nonsense, "a cluster has slots")),
        }
    }

    async fn connection(&self) -> RedisResult<Connection> {
        let mut connection = self.connection.lock().await;
        if let Some(open) = &*connection {
            return Ok(open.clone());
        }
        let open = match &self.way {
            Way::Cluster(cluster, _) => {
                Connection::Cluster(cluster.get_async_generic_connection().await?)
            }
            way => {
                let client = way.client().await?;
                let certificates = self.certificates.as_ref();
                Connection::Server(connect::commands(&client, self.timeout, certificates).await?)
            }
        };
        *connection = Some(open.clone());
        Ok(open)
    }

    /// Listens on a channel, in a task that ends when the receiver is gone or the connection breaks.
    pub(super) async fn listen(&self, channel: String) -> Result<Nudges, StoreError> {
        let subscribed = self.in_time(async {
            let client = self.way.client().await?;
            let (messages, read) = connect::messages(&client, self.certificates.as_ref()).await?;
            let (mut sink, stream) = messages.split();
            sink.subscribe(channel).await?;
            Ok((sink, stream, read))
        });
        let (sink, mut stream, read) = subscribed.await?;
        let (sender, nudges) = Nudges::channel();
        tokio::spawn(async move {
            let _open = sink;
            loop {
                let message = tokio::select! {
                    message = futures_util::StreamExt::next(&mut stream) => message,
                    () = sender.closed() => None,
                };
                let Some(message) = message else { return };
                read.forget();
                if let Ok(path) = message.get_payload::<String>() {
                    // A slow listener loses nudges, never leases.
                    let _ = sender.try_send(Nudge::read(&path));
                }
            }
        });
        Ok(nudges)
    }

    async fn in_time<T>(
        &self,
        asked: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, StoreError> {
        let (kind, detail) = match timeout(self.timeout, asked).await {
            Ok(Ok(answer)) => {
                self.heard.store(true, Ordering::Relaxed);
                return Ok(answer);
            }
            Ok(Err(error)) => (wrong::kind(&error), error.to_string()),
            Err(_) => (Kind::Slow, format!("no answer in {:?}", self.timeout)),
        };
        Err(StoreError::new(&self.name, kind, detail + self.hint(kind)))
    }

    /// Returns a hint for a server that is silent or hangs up. A server need not report that it expected TLS, or did not.
    fn hint(&self, kind: Kind) -> &'static str {
        match (kind, self.certificates.is_some()) {
            _ if self.heard.load(Ordering::Relaxed) => "",
            (Kind::Unreachable | Kind::Slow, true) => {
                "; nothing was ever heard: it may speak no TLS, or want a client's certificate"
            }
            (Kind::Unreachable, false) => {
                "; nothing was ever heard: if it listens, it may want TLS"
            }
            _ => "",
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}
