//! The future of a response, polled in its request's group.

use crate::body::GroupBody;
use crate::unavailable::Unavailable;
use http::Response;
use ledgerline::alloc::Catching;
use ledgerline::{DestroyOnDrop, Group};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

pin_project! {
    /// The future of a response, returned by [`InGroup`](crate::InGroup).
    #[must_use = "a future does nothing unless it is polled"]
    pub struct ResponseFuture<T> {
        #[pin]
        state: State<T>,
        retry_after: Duration,
    }
}

pin_project! {
    #[project = Projected]
    enum State<T> {
        /// The answer to a request without a group.
        Alone { #[pin] answer: T },
        /// The answer comes first, so that it is dropped before its group ends.
        Limited { #[pin] answer: Catching<T>, group: Option<DestroyOnDrop<Group<'static>>>, allowance: u64 },
        Shed,
    }
}

impl<T> ResponseFuture<T> {
    pub(crate) fn alone(answer: T) -> ResponseFuture<T> {
        ResponseFuture { state: State::Alone { answer }, retry_after: Duration::ZERO }
    }

    pub(crate) fn shed(retry_after: Duration) -> ResponseFuture<T> {
        ResponseFuture { state: State::Shed, retry_after }
    }
}

impl<T: Future> ResponseFuture<T> {
    pub(crate) fn limited(
        group: DestroyOnDrop<Group<'static>>,
        allowance: u64,
        answer: T,
        retry_after: Duration,
    ) -> ResponseFuture<T> {
        let answer = group.catch_future_within(allowance, answer);
        let state = State::Limited { answer, group: Some(group), allowance };
        ResponseFuture { state, retry_after }
    }
}

impl<T, B, E> Future for ResponseFuture<T>
where
    T: Future<Output = Result<Response<B>, E>>,
    B: http_body::Body + Default,
{
    type Output = Result<Response<GroupBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let refused = match this.state.project() {
            Projected::Alone { answer } => {
                let response = ready!(answer.poll(context))?;
                return Poll::Ready(Ok(response.map(GroupBody::alone)));
            }
            Projected::Limited { answer, group, allowance } => match ready!(answer.poll(context)) {
                Ok(answered) => {
                    let response = answered?;
                    let group = group.take().expect("a response comes once");
                    let in_group = |body| GroupBody::in_group(group, *allowance, body);
                    return Poll::Ready(Ok(response.map(in_group)));
                }
                Err(refused) => Some(refused),
            },
            Projected::Shed => None,
        };
        let unavailable = Unavailable::new(refused, *this.retry_after);
        Poll::Ready(Ok(unavailable.into_answer().map(GroupBody::alone)))
    }
}
