//! Addresses of Redis servers.

use std::fmt;

use redis::{IntoConnectionInfo, RedisResult};

/// The addresses of the servers. Each is `redis://user:password@host:port`, `rediss://` for TLS, or `redis+unix:///path`. If one
/// asks for TLS, all connections use TLS.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// One server.
    Server(String),
    /// The primary that sentinels name.
    Sentinel {
        /// The sentinels, with the user for them.
        sentinels: Vec<String>,
        /// The sentinels' name of the primary.
        primary: String,
        /// The user's name and password at the primary.
        user: Option<(String, String)>,
    },
    /// A cluster, by some of its nodes. Each book is on one node.
    Cluster(Vec<String>),
}

impl fmt::Debug for Address {
    /// Formats the addresses without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown().unwrap_or_else(|_| "an address that makes no sense".to_owned()))
    }
}

impl Address {
    /// Returns the kind and the addresses, without passwords.
    pub(super) fn shown(&self) -> RedisResult<String> {
        let place = |url: &String| Ok(url.as_str().into_connection_info()?.addr.to_string());
        let places = self.urls().iter().map(place).collect::<RedisResult<Vec<_>>>()?.join(", ");
        Ok(match self {
            Self::Server(_) => format!("redis at {places}"),
            Self::Sentinel { primary, .. } => {
                format!("redis primary {primary} of the sentinels at {places}")
            }
            Self::Cluster(_) => format!("redis cluster at {places}"),
        })
    }

    pub(super) fn wants_tls(&self) -> bool {
        self.urls().iter().any(|url| url.starts_with("rediss:") || url.starts_with("valkeys:"))
    }

    fn urls(&self) -> &[String] {
        match self {
            Self::Server(url) => std::slice::from_ref(url),
            Self::Sentinel { sentinels: urls, .. } | Self::Cluster(urls) => urls,
        }
    }
}
