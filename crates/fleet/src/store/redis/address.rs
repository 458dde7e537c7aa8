//! Where servers of Redis are.

use std::fmt;

use redis::{IntoConnectionInfo, RedisError, RedisResult};

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
        let places = |urls: &[String]| {
            let infos = urls
                .iter()
                .map(|url| url.as_str().into_connection_info())
                .collect::<RedisResult<Vec<_>>>()?;
            Ok::<_, RedisError>(
                infos.iter().map(|info| info.addr.to_string()).collect::<Vec<_>>().join(", "),
            )
        };
        Ok(match self {
            Self::Server(url) => format!("redis at {}", places(std::slice::from_ref(url))?),
            Self::Sentinel { sentinels, primary, .. } => {
                format!("redis primary {primary} of the sentinels at {}", places(sentinels)?)
            }
            Self::Cluster(nodes) => format!("redis cluster at {}", places(nodes)?),
        })
    }

    pub(super) fn wants_tls(&self) -> bool {
        let urls = match self {
            Self::Server(url) => std::slice::from_ref(url),
            Self::Sentinel { sentinels: urls, .. } | Self::Cluster(urls) => urls,
        };
        urls.iter().any(|url| url.starts_with("rediss:") || url.starts_with("valkeys:"))
    }
}
