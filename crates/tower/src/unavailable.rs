//! A refusal as a handler's response.

use http::{Response, StatusCode, header};
use ledgerline::Refused;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A handler's response for a refusal: 503 with `Retry-After`, one second unless another is set.
///
/// For handlers that charge by hand. With the feature `axum` it is an `IntoResponse`, so that `?` converts a
/// [`Refused`] to a response:
///
/// ```
/// use ledgerline::current;
/// use ledgerline_tower::Unavailable;
///
/// async fn sort() -> Result<String, Unavailable> {
///     let _buffer = current::try_charge(64 << 20)?;
///     Ok("sorted".to_owned())
/// }
/// # #[cfg(feature = "axum")]
/// let routes: axum::Router = axum::Router::new().route("/", axum::routing::get(sort));
/// ```
///
/// The body is empty: the message names groups and limits, which are not for the client. The [`Refused`] is an
/// extension of the response, as `Arc<Refused>`.
#[derive(Clone)]
pub struct Unavailable {
    refused: Option<Refused>,
    retry_after: Duration,
}

impl Unavailable {
    /// Creates a response, without a [`Refused`] if no charge was refused.
    pub(crate) fn new(refused: Option<Refused>, retry_after: Duration) -> Unavailable {
        Unavailable { refused, retry_after }
    }

    /// Sets `Retry-After`. The header has whole seconds, rounded up.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> Unavailable {
        Unavailable { retry_after: after, ..self }
    }

    /// Returns the response, with an empty body.
    pub fn into_answer<B: Default>(self) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let seconds = self.retry_after.as_secs() + u64::from(self.retry_after.subsec_nanos() > 0);
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        if let Some(refused) = self.refused {
            response.extensions_mut().insert(Arc::new(refused));
        }
        response
    }
}

impl From<Refused> for Unavailable {
    fn from(refused: Refused) -> Unavailable {
        Unavailable::new(Some(refused), Duration::from_secs(1))
    }
}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Unavailable {
    fn into_response(self) -> axum_core::response::Response {
        self.into_answer()
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refused {
            Some(refused) => refused.fmt(f),
            None => f.write_str("the tenant is above its high"),
        }
    }
}

impl fmt::Debug for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unavailable({self})")
    }
}

impl std::error::Error for Unavailable {}
