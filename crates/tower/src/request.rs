//! The body of a request, and the call of the handler.

use bytes::{BufMut, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

pin_project! {
    /// The body of a request. Its frames are copies, charged to the request's group, so a tenant is charged for an
    /// upload as it arrives. The connection's own buffer is not accounted, and is free for the next read.
    ///
    /// The body of a request without a group passes frames on as they are.
    #[derive(Debug, Default)]
    pub struct RequestBody<B> {
        #[pin]
        body: B,
        copied: bool,
    }
}

impl<B> RequestBody<B> {
    pub(crate) fn copied(body: B) -> RequestBody<B> {
        RequestBody { body, copied: true }
    }

    pub(crate) fn alone(body: B) -> RequestBody<B> {
        RequestBody { body, copied: false }
    }

    /// Returns the body as the server made it.
    pub fn into_inner(self) -> B {
        self.body
    }
}

fn copy(mut data: impl bytes::Buf) -> Bytes {
    let mut copy = Vec::with_capacity(data.remaining());
    copy.put(&mut data);
    copy.into()
}

impl<B: Body> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let copied = *this.copied;
        let pass_on = |mut data: B::Data| {
            let length = bytes::Buf::remaining(&data);
            if copied { copy(data) } else { bytes::Buf::copy_to_bytes(&mut data, length) }
        };
        let frame = ready!(this.body.poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(pass_on))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pin_project! {
    /// A call of a service, made when this is first polled: in the request's scope, like everything after it.
    #[project = Projected]
    pub enum Calling<S, R>
    where
        S: Service<R>,
    {
        /// The service is ready. The request is `None` once it was called.
        Ready { service: S, request: Option<R> },
        Called { #[pin] answer: S::Future },
    }
}

impl<S: Service<R>, R> Future for Calling<S, R> {
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let answer = match self.as_mut().project() {
                Projected::Called { answer } => return answer.poll(context),
                Projected::Ready { service, request } => {
                    service.call(request.take().expect("what has ended is not polled again"))
                }
            };
            self.set(Calling::Called { answer });
        }
    }
}
