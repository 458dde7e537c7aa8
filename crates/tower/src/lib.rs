//! A tower layer that gives each request a group below its tenant's, until the end of its response's body.
//!
//! ```no_run
//! use ledgerline::{Alloc, Ledger};
//! use ledgerline_tower::RequestGroups;
//!
//! #[global_allocator]
//! static ALLOC: Alloc = Alloc::system();
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let ledger = Ledger::new()?.into_static();
//! let tenants = ledger.root().create("tenants")?;
//! let acme = tenants.create("acme")?;
//! acme.set_max("256M".parse()?)?;
//!
//! let groups = RequestGroups::by(move |request| {
//!     let name = request.headers.get("x-tenant")?.to_str().ok()?;
//!     tenants.child(name) // no such tenant: the request has no group, and no limit
//! });
//! let routes = axum::Router::new()
//!     .route("/", axum::routing::get(|| async { "hello" }))
//!     .layer(groups.max("8M".parse()?));
//! axum::serve(tokio::net::TcpListener::bind("127.0.0.1:0").await?, routes).await?;
//! # Ok(())
//! # }
//! ```
//!
//! **A request is charged** for all allocations of its handler under [`ledgerline::Alloc`] and for its charges by
//! [`ledgerline::current`], while its future and its response's body are polled and dropped. Tasks, threads and jobs
//! are charged, and ended, with the request if it spawns them by the helpers of `ledgerline::current`. Frames of its
//! body are copied as they come in ([`RequestBody`]), so a slow upload is charged for the part that has arrived. The
//! server's connection is not charged to any group.
//!
//! **At a limit** a request that is over its limit ends at its next poll, or at its next
//! [`checkpoint`](ledgerline::alloc::checkpoint), and is answered by 503 with `Retry-After`. The [`Refused`] is an
//! extension of that response, for an outer layer that formats it. A body that meets the limit ends with an error, so
//! that the client sees that it is incomplete: a connection of HTTP/1 is closed, a stream of HTTP/2 is reset. All
//! other requests continue.
//!
//! **At the end** the request's group is destroyed when its response's body has ended or is dropped, also by a
//! time-out or a client that disconnects. Memory that outlives it, like a row in a cache, stays charged to the tenant
//! until it is freed.
//!
//! **The handler's service** takes a `Request<RequestBody<B>>`, while the server's requests are `Request<B>`. The
//! services of axum and tonic take any body. A service that is written by hand is generic in its body, or names that
//! type.
//!
//! It works with any server that calls a `tower::Service` with `http::Request`: axum, hyper, tonic. It needs no
//! runtime.

#[cfg(doc)]
use ledgerline::Refused;
use ledgerline::{Group, Limit};
use std::fmt;
use std::time::Duration;
use tower_layer::Layer;

mod body;
mod future;
mod request;
mod service;
mod unavailable;

pub use body::{BodyError, GroupBody};
pub use future::ResponseFuture;
pub use request::RequestBody;
pub use service::InGroup;
pub use unavailable::Unavailable;

/// Gives each request a group; see [the crate](self).
#[derive(Clone)]
pub struct RequestGroups<F> {
    tenant: F,
    max: Limit,
    allowance: u64,
    shed: bool,
    retry_after: Duration,
}

impl RequestGroups<()> {
    /// Returns a layer that makes each request's group below the group that `tenant` returns for its head. For `None`
    /// the request has no group and no limit.
    pub fn by<F>(tenant: F) -> RequestGroups<F>
    where
        F: Fn(&http::request::Parts) -> Option<Group<'static>> + Clone,
    {
        RequestGroups {
            tenant,
            max: Limit::MAX,
            allowance: ledgerline::alloc::Policy::OVERRUN.allowance,
            shed: false,
            retry_after: Duration::from_secs(1),
        }
    }

    /// Returns a layer that makes each request's group below `parent`.
    pub fn below(
        parent: Group<'static>,
    ) -> RequestGroups<impl Fn(&http::request::Parts) -> Option<Group<'static>> + Clone> {
        RequestGroups::by(move |_| Some(parent))
    }
}

impl<F> RequestGroups<F> {
    /// Sets the max of each request's group. Without one, only the tenant's limits apply.
    pub fn max(self, max: Limit) -> RequestGroups<F> {
        RequestGroups { max, ..self }
    }

    /// Sets how many bytes over a limit a request is granted at full speed (default 1 MiB).
    pub fn allowance(self, bytes: u64) -> RequestGroups<F> {
        RequestGroups { allowance: bytes, ..self }
    }

    /// Sets whether to answer 503 before the handler is called if the tenant is above its `high`.
    pub fn shed_above_high(self, shed: bool) -> RequestGroups<F> {
        RequestGroups { shed, ..self }
    }

    /// Sets `Retry-After` for refused requests, in whole seconds (default 1).
    pub fn retry_after(self, after: Duration) -> RequestGroups<F> {
        RequestGroups { retry_after: after, ..self }
    }
}

impl<F> fmt::Debug for RequestGroups<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestGroups")
            .field("max", &self.max)
            .field("shed", &self.shed)
            .finish_non_exhaustive()
    }
}

impl<S, F: Clone> Layer<S> for RequestGroups<F> {
    type Service = InGroup<S, F>;

    fn layer(&self, inner: S) -> InGroup<S, F> {
        InGroup::new(inner, self.clone())
    }
}
