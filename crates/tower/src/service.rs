//! The service that the layer makes.

use crate::RequestGroups;
use crate::body::GroupBody;
use crate::future::ResponseFuture;
use crate::request::{Calling, RequestBody};
use http::request::Parts;
use http::{Request, Response};
use ledgerline::{DestroyOnDrop, Group};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tower_service::Service;

/// A service with a group for each request, made by [`RequestGroups`].
#[derive(Clone, Debug)]
pub struct InGroup<S, F> {
    inner: S,
    settings: RequestGroups<F>,
}

/// Returns a name that no other request has, in any layer.
fn request_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    // Relaxed: the numbers only have to differ.
    format!("r{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

impl<S, F> InGroup<S, F> {
    pub(crate) fn new(inner: S, settings: RequestGroups<F>) -> InGroup<S, F> {
        InGroup { inner, settings }
    }

    /// Creates a group for a request of a tenant; `None` if that fails, or if the request is to be shed.
    fn group(&self, tenant: Group<'static>) -> Option<DestroyOnDrop<Group<'static>>> {
        let RequestGroups { max, shed, .. } = self.settings;
        if shed && is_above_high(tenant) {
            return None;
        }
        let group = tenant.create(&request_name()).ok()?.destroy_on_drop();
        // A new group holds nothing, so any limit fits.
        group.set_max_now(max).ok().map(|_| group)
    }
}

fn is_above_high(tenant: Group<'static>) -> bool {
    tenant.high().get().is_some_and(|high| {
        let usage = tenant.approximate();
        usage.value.saturating_sub(usage.bound) > high
    })
}

impl<S, F, B, R> Service<Request<B>> for InGroup<S, F>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone,
    R: http_body::Body + Default,
    F: Fn(&Parts) -> Option<Group<'static>>,
{
    type Response = Response<GroupBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<Calling<S, Request<RequestBody<B>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let Some(tenant) = (self.settings.tenant)(&parts) else {
            let request = Request::from_parts(parts, RequestBody::alone(body));
            return ResponseFuture::alone(Calling::Called { answer: self.inner.call(request) });
        };
        let RequestGroups { allowance, retry_after, .. } = self.settings;
        let Some(group) = self.group(tenant) else { return ResponseFuture::shed(retry_after) };
        // Calls the clone that reported ready.
        let next = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, next);
        let request = Request::from_parts(parts, RequestBody::copied(body));
        let answer = Calling::Ready { service, request: Some(request) };
        ResponseFuture::limited(group, allowance, answer, retry_after)
    }
}
