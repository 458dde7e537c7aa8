//! Access control for requests.
//!
//! A page of any site can make a browser send requests here. These rules keep such a page from reading the answers, and
//! from directing its own name here (DNS rebinding):
//!
//! | rule                                               | answer otherwise |
//! |----------------------------------------------------|------------------|
//! | `GET` and `HEAD` alone                             | 405              |
//! | no body                                            | 413              |
//! | one `Host`: an address of this server, `localhost` | 421              |
//! | `Origin`, if there is one, is that host            | 403              |
//! | `Sec-Fetch-Site`, if there is one, is no other site, unless a link leads to the page itself | 403 |
//! | the token, if there is one, by `Authorization: Bearer` or `?token=`, but for files without data of a ledger | 401
//! |
//!
//! The last rule keeps other users of this machine from the answers, since they reach the loopback as well.

use crate::serve::token::Token;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Request, StatusCode};
use std::net::{IpAddr, SocketAddr};

/// Headers of every response: nothing is loaded from elsewhere, cached or framed.
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

/// The reason why a request is refused.
pub(crate) type Refusal = (StatusCode, &'static str);

/// The kind of the requested resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// A file of the page, which is public.
    ForTheOpen,
    /// A resource that needs a token.
    More,
}

/// The rules of one server.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    listen: IpAddr,
    hosts: Vec<String>,
    token: Option<Token>,
    /// The paths of public files.
    open: Vec<&'static str>,
}

impl Guard {
    pub(crate) fn new(listen: SocketAddr, hosts: &[String]) -> Guard {
        let hosts = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Guard { listen: listen.ip(), hosts, token: None, open: Vec::new() }
    }

    /// Requires the token for all requests but those for these files.
    pub(crate) fn with_token(
        self,
        token: Option<Token>,
        open: impl IntoIterator<Item = &'static str>,
    ) -> Guard {
        Guard { token, open: open.into_iter().collect(), ..self }
    }

    /// Checks whether a request may be answered.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<Asks, Refusal> {
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
        if self.open.contains(&request.uri().path()) {
            return Ok(Asks::ForTheOpen);
        }
        match &self.token {
            Some(token) if !says(request, token) => Err((
                StatusCode::UNAUTHORIZED,
                "the token is missing: it is in the address that the server printed; give it as \
                 `Authorization: Bearer TOKEN` or as ?token=TOKEN",
            )),
            _ => Ok(Asks::More),
        }
    }

    /// Returns the requested host, in lower case, if it is a name of this server.
    fn host<B>(&self, request: &Request<B>) -> Option<String> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return None };
        let host = host.to_str().ok()?.to_ascii_lowercase();
        // A request line may name a host, too, as for a proxy.
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
            // An address cannot be rebound, unlike a name, so any address of this server is accepted.
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
                // A proxy may speak TLS, under the name that was given.
                origin.strip_prefix("https://").filter(|_| !self.hosts.is_empty())
            });
            own == Some(host)
        })
    }
}

/// Returns whether a request has the token.
fn says<B>(request: &Request<B>, token: &Token) -> bool {
    let mut headers = request.headers().get_all(header::AUTHORIZATION).iter();
    let in_header = |value: &HeaderValue| {
        let (scheme, rest) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.is(rest.trim_ascii()))
    };
    let query = request.uri().query().unwrap_or_default();
    let mut pairs = query.split('&').filter_map(|pair| pair.strip_prefix("token="));
    headers.any(|value| in_header(value) == Some(true))
        || pairs.any(|value| token.is(value.as_bytes()))
}

/// Returns whether the text behind a bracketed address is empty or a port.
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

/// Returns whether the request follows a link to the page.
fn is_link<B>(request: &Request<B>) -> bool {
    let navigates = request.headers().get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    navigates && request.uri().path() == "/"
}

/// Adds the headers of every response.
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
    fn what_is_not_everybodys_is_for_those_who_have_the_token() {
        let token = Token::new().unwrap();
        let guard = guard("127.0.0.1:0", &[]).with_token(Some(token.clone()), ["/", "/app.js"]);
        let ask = |path: &str, header: Option<&str>| {
            let mut request = Request::get(path).header("host", "localhost");
            if let Some(header) = header {
                request = request.header("authorization", header);
            }
            guard.check(&request.body(()).unwrap()).map_err(|(status, _)| status.as_u16())
        };
        let bearer = format!("Bearer {}", token.as_str());
        let query = format!("/metrics?x=1&token={}", token.as_str());
        assert_eq!(ask("/app.js", None), Ok(Asks::ForTheOpen));
        assert_eq!(ask("/metrics", Some(&bearer)), Ok(Asks::More));
        assert_eq!(ask("/metrics", Some(&bearer.to_lowercase())), Ok(Asks::More));
        assert_eq!(ask(&query, None), Ok(Asks::More));
        let basic = format!("Basic {}", token.as_str());
        for header in [None, Some("Bearer"), Some("Bearer "), Some("Bearer x"), Some(&*basic)] {
            assert_eq!(ask("/metrics", header), Err(401), "{header:?}");
        }
        for path in ["/api/ledgers", "/app.js/", "/metrics?token=", "/metrics?token=x", "//"] {
            assert_eq!(ask(path, None), Err(401), "{path}");
        }
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
