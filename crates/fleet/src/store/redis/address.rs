//! Where servers of Redis are.

use std::fmt;

use redis::{IntoConnectionInfo, RedisResult};

/// Where the servers are. Each is `redis://user:password@host:port`, `rediss://` for TLS,
/// or `redis+unix:///path`. Where one asks for TLS, all are spoken to by TLS.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// One server.
    Server(String),
    /// The primary that sentinels name.
    Sentinel {
        /// The sentinels, with the user that they know.
        sentinels: Vec<String>,
        /// What the sentinels call the primary.
        primary: String,
        /// A user's name and password at the primary.
        user: Option<(String, String)>,
    },
    /// A cluster, by some of its nodes. Each book lies on one of them.
    Cluster(Vec<String>),
}

impl fmt::Debug for Address {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown().unwrap_or_else(|_| "an address that makes no sense".to_owned()))
    }
}

impl Address {
    /// The kind and the places, without passwords.
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
