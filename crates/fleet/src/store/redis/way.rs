//! Clients of the redis crate for each kind of address, with and without TLS.

use redis::cluster::ClusterClient;
#[cfg(feature = "tls")]
use redis::sentinel::SentinelClientBuilder;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{Client, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult};
#[cfg(feature = "tls")]
use redis::{ClientTlsConfig, TlsCertificates, TlsMode};
use std::time::Duration;
use tokio::sync::Mutex;

use crate::store::tls::Certificates;

use super::Address;

pub(super) enum Way {
    Server(Client),
    Sentinel(Box<Mutex<SentinelClient>>),
    /// The client of the whole cluster, and that of the node that nudges are received from: each node receives all of them.
    Cluster(Box<ClusterClient>, Client),
}

impl Way {
    /// Creates the clients. With certificates, all connections use TLS.
    pub(super) fn new(
        address: &Address,
        timeout: Duration,
        certificates: Option<&Certificates>,
    ) -> RedisResult<Self> {
        Ok(match address {
            Address::Server(url) => {
                Self::Server(client(url.as_str().into_connection_info()?, certificates)?)
            }
            Address::Sentinel { sentinels, primary, user } => {
                let sentinels = infos(sentinels)?;
                let found = sentinel(sentinels, primary, user.clone(), certificates)?;
                Self::Sentinel(Box::new(Mutex::new(found)))
            }
            Address::Cluster(nodes) => {
                let nodes = infos(nodes)?;
                let builder = ClusterClient::builder(nodes.clone());
                let builder = builder.connection_timeout(timeout).response_timeout(timeout);
                let builder = match certificates {
                    None => builder,
                    #[cfg(feature = "tls")]
                    Some(certificates) => builder.certs(of_redis(certificates)),
                    #[cfg(not(feature = "tls"))]
                    Some(never) => match *never {},
                };
                let first = client(nodes[0].clone(), certificates)?;
                Self::Cluster(Box::new(builder.build()?), first)
            }
        })
    }

    pub(super) async fn client(&self) -> RedisResult<Client> {
        match self {
            Self::Server(client) | Self::Cluster(_, client) => Ok(client.clone()),
            Self::Sentinel(sentinels) => sentinels.lock().await.async_get_client().await,
        }
    }
}

fn infos(urls: &[String]) -> RedisResult<Vec<ConnectionInfo>> {
    urls.iter().map(|url| url.as_str().into_connection_info()).collect()
}

fn client(server: ConnectionInfo, certificates: Option<&Certificates>) -> RedisResult<Client> {
    match certificates {
        None => Client::open(server),
        #[cfg(feature = "tls")]
        Some(certificates) => Client::build_with_tls(server, of_redis(certificates)),
        #[cfg(not(feature = "tls"))]
        Some(never) => match *never {},
    }
}

fn sentinel(
    sentinels: Vec<ConnectionInfo>,
    primary: &str,
    user: Option<(String, String)>,
    certificates: Option<&Certificates>,
) -> RedisResult<SentinelClient> {
    let role = SentinelServerType::Master;
    let (username, password) = user.unzip();
    match certificates {
        None => {
            let info = RedisConnectionInfo { username, password, ..RedisConnectionInfo::default() };
            let node =
                SentinelNodeConnectionInfo { tls_mode: None, redis_connection_info: Some(info) };
            SentinelClient::build(sentinels, primary.to_owned(), Some(node), role)
        }
        #[cfg(feature = "tls")]
        Some(certificates) => {
            // All sentinels have the same user.
            let known = sentinels.first().map(|sentinel| sentinel.redis.clone());
            let known = known.unwrap_or_default();
            let places = sentinels.into_iter().map(|sentinel| sentinel.addr);
            let mut builder = SentinelClientBuilder::new(places, primary.to_owned(), role)?
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(of_redis(certificates))
                .set_client_to_sentinel_certificates(of_redis(certificates));
            if let (Some(user), Some(password)) = (username, password) {
                builder = builder.set_client_to_redis_username(user);
                builder = builder.set_client_to_redis_password(password);
            }
            if let Some(user) = known.username {
                builder = builder.set_client_to_sentinel_username(user);
            }
            if let Some(password) = known.password {
                builder = builder.set_client_to_sentinel_password(password);
            }
            builder.build()
        }
        #[cfg(not(feature = "tls"))]
        Some(never) => match *never {},
    }
}

#[cfg(feature = "tls")]
fn of_redis(certificates: &Certificates) -> TlsCertificates {
    let client_tls = certificates.client.as_ref().map(|(certificate, key)| ClientTlsConfig {
        client_cert: certificate.clone(),
        client_key: key.clone(),
    });
    TlsCertificates { client_tls, root_cert: certificates.ca.clone() }
}
