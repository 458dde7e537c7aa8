//! Makes connections with [bounded](super::bounded) replies. The redis crate's own connections have no bound.

use std::io;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster_async::Connect;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    Pipeline, RedisError, RedisFuture, RedisResult, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::store::tls::{Certificates, Secured};

use super::bounded::{Bounded, Read};

/// A stream of any transport.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Any = Bounded<Box<dyn Stream>>;

/// Connects to a server, with TLS if its address asks for it.
async fn stream(
    at: &ConnectionAddr,
    certificates: Option<&Certificates>,
) -> RedisResult<(Any, Read)> {
    let tcp = async |host: &str, port: u16| {
        let socket = TcpStream::connect((host, port)).await?;
        // Requests are small, and nothing follows them. With Nagle's algorithm they would wait for the acknowledgement of the
        // previous one.
        socket.set_nodelay(true)?;
        Ok::<_, io::Error>(socket)
    };
    let stream: Box<dyn Stream> = match (at, certificates) {
        (ConnectionAddr::Tcp(host, port), _) => Box::new(tcp(host, *port).await?),
        (ConnectionAddr::Unix(path), _) => Box::new(UnixStream::connect(path).await?),
        (ConnectionAddr::TcpTls { host, port, .. }, Some(certificates)) => {
            let name = host.trim_start_matches('[').trim_end_matches(']');
            let secured = Secured::new(certificates, name)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.detail))?;
            Box::new(secured.connect(tcp(host, *port).await?).await?)
        }
        (ConnectionAddr::TcpTls { .. }, None) => {
            let why = "TLS was not asked for";
            return Err(RedisError::from(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
    };
    Ok(Bounded::new(stream))
}

/// Connects to the server of a client, for commands.
pub(super) async fn commands(
    client: &Client,
    timeout: Duration,
    certificates: Option<&Certificates>,
) -> RedisResult<MultiplexedConnection> {
    let info = client.get_connection_info();
    let (stream, _) = stream(&info.addr, certificates).await?;
    let config = AsyncConnectionConfig::new().set_response_timeout(timeout);
    speak(info, stream, config).await
}

/// Connects to the server of a client, for messages. The caller resets the count of bytes at each message.
pub(super) async fn messages(
    client: &Client,
    certificates: Option<&Certificates>,
) -> RedisResult<(PubSub, Read)> {
    let info = client.get_connection_info();
    let (stream, read) = stream(&info.addr, certificates).await?;
    Ok((PubSub::new(&info.redis, stream).await?, read))
}

async fn speak(
    info: &ConnectionInfo,
    stream: Any,
    config: AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&info.redis, stream, config).await?;
    tokio::spawn(driver);
    Ok(connection)
}

/// A connection to one node of a cluster without TLS. With TLS the redis crate makes its own connections, to servers whose
/// certificates it has checked.
#[derive(Clone)]
pub(super) struct Node(MultiplexedConnection);

impl Connect for Node {
    fn connect_with_config<'a, T>(info: T, config: AsyncConnectionConfig) -> RedisFuture<'a, Self>
    where
        T: IntoConnectionInfo + Send + 'a,
    {
        Box::pin(async move {
            let info = info.into_connection_info()?;
            if matches!(info.addr, ConnectionAddr::TcpTls { .. }) {
                let made = MultiplexedConnection::connect_with_config(info, config);
                return Ok(Node(made.await?));
            }
            let (stream, _) = stream(&info.addr, None).await?;
            Ok(Node(speak(&info, stream, config).await?))
        })
    }
}

impl ConnectionLike for Node {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.0.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.0.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }
}
