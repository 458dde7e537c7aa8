//! Opens stores by their addresses.
//!
//! `redis://user:password@host:port`, and with TLS `rediss://`; `redis-sentinel://host:port,host:port/primary` and
//! `redis-cluster://host:port,host:port`, with TLS `rediss-sentinel://` and `rediss-cluster://`; `redis+unix:///path`;
//! `etcd://host:port,host:port`, with TLS `etcds://`. After `?`, with `&` between them: `prefix=`, `timeout=` (`1500ms`, `2s`),
//! `password-file=`, `insecure=1`, `ca=`, `certificate=`, `key=`, `server-name=`. Special characters are escaped as in `%40`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::access::{Access, refused, secret};
use super::{Etcd, Options, Redis, Store, StoreError, redis};

/// Opens the store at an address, in one of the forms that the crate's README lists. It connects when it is first used.
///
/// The files that the address and `access` name are read once. Open the store anew to load new certificates.
///
/// # Errors
/// [`Kind::Address`](super::Kind::Address) if the address is invalid, a file cannot be read, or it asks for TLS and this crate
/// was built without its feature `tls`. The error never contains a password, or text that may be a part of one.
pub fn open(address: &str, access: &Access) -> Result<Arc<dyn Store>, StoreError> {
    let address = Parsed::new(address)?;
    let access = address.access(access)?;
    let usual = Options::default();
    let options = Options {
        prefix: access.prefix.clone().unwrap_or(usual.prefix),
        timeout: access.timeout.unwrap_or(usual.timeout),
    };
    match &address.form {
        Form::Etcd => Ok(Arc::new(address.etcd(access, options)?)),
        Form::Server | Form::Socket | Form::Sentinel | Form::Cluster => {
            Ok(Arc::new(address.redis(access, options)?))
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Server,
    Socket,
    Sentinel,
    Cluster,
    Etcd,
}

/// The parts of an address. It has no `Debug`, because it may contain a password.
struct Parsed {
    form: Form,
    tls: bool,
    user: Option<String>,
    password: Option<String>,
    /// Each host with its port.
    hosts: Vec<String>,
    /// The text after the slash that ends the hosts: the sentinels' name of the primary, a database number, or a socket's path.
    rest: String,
    options: Vec<(String, String)>,
}

impl Parsed {
    fn new(address: &str) -> Result<Self, StoreError> {
        if address.is_empty() {
            return Err(refused(
                "its address is empty, where redis://host:port or etcd://host:port is due",
            ));
        }
        let (scheme, after) =
            address.split_once("://").ok_or_else(|| refused("its address has no `://`"))?;
        let (form, tls, port) = scheme_of(scheme)?;
        let (after, options) = after.split_once('?').unwrap_or((after, ""));
        let (authority, rest) = after.split_once('/').unwrap_or((after, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        let (user, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            Some((user, password)) => (some(decoded(user)?), some(decoded(password)?)),
            None => (None, None),
        };
        let hosts = match form {
            Form::Socket if hosts.is_empty() => Vec::new(),
            Form::Socket => return Err(refused("a socket's address is redis+unix:///path")),
            _ => hosts.split(',').map(|host| with_port(host, port)).collect::<Result<_, _>>()?,
        };
        if form == Form::Server && hosts.len() > 1 {
            return Err(refused(
                "its address has many servers: `redis-cluster://` or `redis-sentinel://`",
            ));
        }
        let parsed = Self {
            form,
            tls,
            user,
            password,
            hosts,
            rest: decoded(rest)?,
            options: options_of(options)?,
        };
        parsed.check_rest()?;
        Ok(parsed)
    }

    fn check_rest(&self) -> Result<(), StoreError> {
        let is_empty = self.rest.is_empty();
        let is_number = self.rest.bytes().all(|byte| byte.is_ascii_digit());
        Err(refused(match self.form {
            Form::Server if !is_number => "after the host there may be the number of a database",
            Form::Sentinel if is_empty => {
                "after the sentinels goes the primary's name, as in host:port/main"
            }
            Form::Socket if is_empty => "a socket has a path",
            Form::Cluster | Form::Etcd if !is_empty => "nothing may follow the hosts but `?`",
            _ => return Ok(()),
        }))
    }

    /// Returns the options of the address, with missing ones taken from `more`.
    fn access(&self, more: &Access) -> Result<Access, StoreError> {
        let mut access = more.clone();
        access.user = self.user.clone().or(access.user);
        for (name, value) in &self.options {
            let of_tls = ["ca", "certificate", "key", "server-name"].contains(&name.as_str());
            if of_tls && !self.tls {
                return Err(refused("its address has options of TLS, and does not ask for TLS"));
            }
            let file = || Some(PathBuf::from(value));
            match name.as_str() {
                "prefix" => access.prefix = Some(value.clone()),
                "insecure" if value == "1" => access.insecure = true,
                "timeout" => access.timeout = Some(duration(value)?),
                "password-file" => access.password = Some(secret(Path::new(value))?),
                "ca" => access.tls.ca = file(),
                "certificate" => access.tls.certificate = file(),
                "key" => access.tls.key = file(),
                "server-name" => access.tls.server_name = Some(value.clone()),
                _ => {
                    return Err(refused(
                        "an option of its address is none of prefix, timeout, password-file, insecure=1, ca, certificate, key, server-name",
                    ));
                }
            }
        }
        access.password = self.password.clone().or(access.password);
        let has_password = access.password.is_some() || access.sentinels.is_some();
        let beyond = self.hosts.iter().find(|host| !is_here(host));
        if let Some(host) = beyond.filter(|_| has_password && !self.tls && !access.insecure) {
            return Err(refused(format!(
                "a password would go to {host} without encryption: ask for TLS (rediss://, etcds://), or allow it by \
                 --insecure, or insecure=1 in the address"
            )));
        }
        if access.user.is_some() && access.password.is_none() {
            return Err(refused("its address or environment has a user without a password"));
        }
        Ok(access)
    }

    fn redis(&self, access: Access, options: Options) -> Result<Redis, StoreError> {
        let user = access
            .password
            .map(|password| (access.user.unwrap_or_else(|| "default".to_owned()), password));
        let at_servers = login(user.as_ref());
        let scheme = if self.tls { "rediss" } else { "redis" };
        let urls = |login: &str| {
            self.hosts.iter().map(|host| format!("{scheme}://{login}{host}")).collect::<Vec<_>>()
        };
        let address = match self.form {
            Form::Sentinel => redis::Address::Sentinel {
                sentinels: urls(&login(access.sentinels.as_ref())),
                primary: self.rest.clone(),
                user,
            },
            Form::Cluster => redis::Address::Cluster(urls(&at_servers)),
            Form::Socket => {
                let user = user.map(|(user, password)| {
                    format!("?user={}&pass={}", encoded(&user), encoded(&password))
                });
                let (path, user) = (&self.rest, user.unwrap_or_default());
                redis::Address::Server(format!("redis+unix:///{path}{user}"))
            }
            Form::Server | Form::Etcd => {
                let server = urls(&at_servers).concat();
                redis::Address::Server(format!("{server}/{}", self.rest))
            }
        };
        Redis::with_tls(address, options, &access.tls)
    }

    fn etcd(&self, access: Access, options: Options) -> Result<Etcd, StoreError> {
        let hosts: Vec<&str> = self.hosts.iter().map(String::as_str).collect();
        if access.user.is_none() && access.password.is_some() {
            return Err(refused("there is a password without a user"));
        }
        let etcd = if self.tls {
            Etcd::with_tls(&hosts, options, &access.tls)?
        } else {
            Etcd::new(&hosts, options)?
        };
        Ok(match access.user.zip(access.password) {
            Some((user, password)) => etcd.with_user(user, password),
            None => etcd,
        })
    }
}

/// Returns the form, whether it uses TLS, and the default port.
fn scheme_of(scheme: &str) -> Result<(Form, bool, u16), StoreError> {
    Ok(match scheme {
        "redis" | "valkey" => (Form::Server, false, 6379),
        "rediss" | "valkeys" => (Form::Server, true, 6379),
        "redis+unix" | "valkey+unix" => (Form::Socket, false, 0),
        "redis-sentinel" | "valkey-sentinel" => (Form::Sentinel, false, 26379),
        "rediss-sentinel" | "valkeys-sentinel" => (Form::Sentinel, true, 26379),
        "redis-cluster" | "valkey-cluster" => (Form::Cluster, false, 6379),
        "rediss-cluster" | "valkeys-cluster" => (Form::Cluster, true, 6379),
        "etcd" => (Form::Etcd, false, 2379),
        "etcds" => (Form::Etcd, true, 2379),
        _ => {
            return Err(refused(
                "its address begins with none of redis://, rediss://, redis-sentinel://, rediss-sentinel://, \
                 redis-cluster://, rediss-cluster://, redis+unix://, etcd://, etcds://",
            ));
        }
    })
}

/// Returns whether a host, with its port, is this machine's loopback.
fn is_here(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns the host with a port. An invalid host is not shown, because it may be a part of a password for want of an `@`.
fn with_port(host: &str, usual: u16) -> Result<String, StoreError> {
    let (name, port) = match host.rsplit_once(':') {
        // The colons of [::1] do not begin a port.
        Some((_, port)) if port.ends_with(']') => (host, None),
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let makes_sense = match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.bytes().all(of_a_name),
    };
    if !makes_sense {
        return Err(refused("a host of its address makes no sense"));
    }
    match port.map(str::parse::<u16>) {
        Some(Ok(port)) if port > 0 => Ok(format!("{name}:{port}")),
        Some(_) => Err(refused("a port of its address is no number from 1 to 65535")),
        None => Ok(format!("{name}:{usual}")),
    }
}

fn options_of(text: &str) -> Result<Vec<(String, String)>, StoreError> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| refused("an option of its address has no `=`"))?;
            Ok((decoded(name)?, decoded(value)?))
        })
        .collect()
}

fn duration(text: &str) -> Result<Duration, StoreError> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or_default(), 1_000),
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(ms) if ms > 0 => Ok(Duration::from_millis(ms)),
        _ => Err(refused("the time limit in its address is not like 1500ms or 2s")),
    }
}

/// Returns `user:password@`, or nothing.
fn login(user: Option<&(String, String)>) -> String {
    let login =
        |(user, password): &(String, String)| format!("{}:{}@", encoded(user), encoded(password));
    user.map(login).unwrap_or_default()
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn decoded(text: &str) -> Result<String, StoreError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(std::borrow::Cow::into_owned).map_err(|_| refused("its address is no text"))
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
