//! Who may ask, and for what.
//!
//! A page of any site can have a browser send requests here. What keeps it from reading the answers, or from having its
//! own name lead here (DNS rebinding):
//!
//! | rule                                               | answer otherwise |
//! |----------------------------------------------------|------------------|
//! | `GET` and `HEAD` alone                             | 405              |
//! | no body                                            | 413              |
//! | one `Host`: an address of this server, `localhost` | 421              |
//! | `Origin`, if there is one, is that host            | 403              |
//! | `Sec-Fetch-Site`, if there is one, is no other site, unless a link leads to the page itself | 403 |

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Request, StatusCode};
use std::net::{IpAddr, SocketAddr};

/// What every answer says: nothing comes from elsewhere, nothing is kept, nobody frames it.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Why a request is not answered.
pub(crate) type Refusal = (StatusCode, &'static str);

/// The rules of one server.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    listen: IpAddr,
    hosts: Vec<String>,
}

impl Guard {
    pub(crate) fn new(listen: SocketAddr, hosts: &[String]) -> Guard {
        let hosts = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Guard { listen: listen.ip(), hosts }
    }

    /// Whether a request may be answered.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err((
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET and HEAD: nothing can be changed here",
            ));
        }
        let headers = request.headers();
        let length = headers.get(header::CONTENT_LENGTH);
        if length.is_some_and(|length| length != "0")
            || headers.contains_key(header::TRANSFER_ENCODING)
        {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "a request has no body here"));
        }
        let host = self.host(request).ok_or((
            StatusCode::MISDIRECTED_REQUEST,
            "no such host here: ask by the address that the server printed, by localhost, or by a name that it was \
             given with --host",
        ))?;
        if !self.is_own_origin(headers, &host) {
            return Err((StatusCode::FORBIDDEN, "pages of other origins may not ask"));
        }
        if is_of_another_site(headers) && !is_link(request) {
            return Err((StatusCode::FORBIDDEN, "other sites may not ask"));
        }
        Ok(())
    }

    /// The host that was asked for, in small letters, if this server is called so.
    fn host<B>(&self, request: &Request<B>) -> Option<String> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return None };
        let host = host.to_str().ok()?.to_ascii_lowercase();
        // A request line may name a host, too (as to a proxy).
        let named = request.uri().authority().map(|named| named.as_str().to_ascii_lowercase());
        if named.is_some_and(|named| named != host) {
            return None;
        }
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, port)) => is_port(port).then_some(address)?,
            None => match host.split_once(':') {
                Some((name, port)) => is_number(port).then_some(name)?,
                None => &host,
            },
        };
        let allowed = match name.parse::<IpAddr>() {
            // No name leads to an address but the address: only a name can be rebound.
            Ok(address) => {
                address.is_loopback() && (self.listen.is_loopback() || self.listen.is_unspecified())
                    || address == self.listen
                    || self.listen.is_unspecified()
            }
            Err(_) => name == "localhost" || self.hosts.iter().any(|host| host == name),
        };
        allowed.then_some(host)
    }

    fn is_own_origin(&self, headers: &HeaderMap, host: &str) -> bool {
        headers.get_all(header::ORIGIN).iter().all(|origin| {
            let origin = origin.to_str().unwrap_or("").to_ascii_lowercase();
            let own = origin.strip_prefix("http://").or_else(|| {
                // (A proxy may speak TLS, under the name that was told.)
                origin.strip_prefix("https://").filter(|_| !self.hosts.is_empty())
            });
            own == Some(host)
        })
    }
}

/// What follows the address in brackets: nothing, or a port.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    text.parse::<u16>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_of_another_site(headers: &HeaderMap) -> bool {
    let sites = headers.get_all("sec-fetch-site");
    sites.iter().any(|site| site != "same-origin" && site != "none")
}

/// Whether somebody followed a link to the page.
fn is_link<B>(request: &Request<B>) -> bool {
    let navigates = request.headers().get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    navigates && request.uri().path() == "/"
}

/// Adds what every answer says.
pub(crate) fn seal(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(listen: &str, hosts: &[&str]) -> Guard {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        Guard::new(listen.parse().expect("an address"), &hosts)
    }

    fn asked(guard: &Guard, host: &str) -> bool {
        let request = Request::get("/").header("host", host).body(()).expect("a request");
        guard.check(&request).is_ok()
    }

    #[test]
    fn a_loopback_server_has_the_names_of_the_loopback_alone() {
        let guard = guard("127.0.0.1:0", &[]);
        for host in
            ["127.0.0.1", "127.0.0.1:80", "localhost:9000", "LOCALHOST", "[::1]:80", "[::1]"]
        {
            assert!(asked(&guard, host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "10.0.0.1",
            "[::2]",
            "0.0.0.0",
            "localhost:80:80",
            "localhost:+80",
            "localhost:",
            "user@localhost",
            "[::1]evil",
            "[::1",
            "localhost.",
            "",
        ] {
            assert!(!asked(&guard, host), "{host:?} is no name of this server");
        }
    }

    #[test]
    fn a_server_on_all_addresses_has_any_address_and_no_name_but_those_told() {
        let all = guard("0.0.0.0:0", &["Build.example"]);
        for host in ["10.0.0.1:80", "localhost", "build.EXAMPLE:80", "127.0.0.1"] {
            assert!(asked(&all, host), "{host}");
        }
        assert!(!asked(&all, "other.example"));
        let one = guard("10.0.0.1:0", &[]);
        assert!(
            asked(&one, "10.0.0.1:80") && !asked(&one, "10.0.0.2:80") && !asked(&one, "127.0.0.1")
        );
    }

    #[test]
    fn https_is_an_own_origin_only_where_a_proxy_was_named() {
        let ask = |guard: &Guard| {
            let request = Request::get("/").header("host", "build.example");
            let request = request.header("origin", "https://build.example").body(()).unwrap();
            guard.check(&request).is_ok()
        };
        assert!(ask(&guard("127.0.0.1:0", &["build.example"])));
        assert!(!ask(&guard("127.0.0.1:0", &[])));
    }
}
