//! The body of a response, polled in its request's group to its end.

use futures_core::Stream;
use http_body::{Body, Frame, SizeHint};
use ledgerline::alloc::Catching;
use ledgerline::{DestroyOnDrop, Group, Refused};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The body of a response. Its request's group is current while it is polled and dropped, and a limit ends it
    /// with an error.
    pub struct GroupBody<B> {
        #[pin]
        state: State<B>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<B> {
        Alone { #[pin] body: B },
        /// The body comes first, so that it is dropped before its group ends.
        InGroup { #[pin] body: Catching<Frames<B>>, group: Option<DestroyOnDrop<Group<'static>>> },
    }
}

pin_project! {
    /// Adapts the frames of a body to a stream.
    struct Frames<B> {
        #[pin]
        body: B,
    }
}

impl<B: Body> Stream for Frames<B> {
    type Item = Result<Frame<B::Data>, B::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.project().body.poll_frame(context)
    }
}

impl<B> GroupBody<B> {
    pub(crate) fn alone(body: B) -> GroupBody<B> {
        GroupBody { state: State::Alone { body } }
    }
}

impl<B: Body> GroupBody<B> {
    pub(crate) fn in_group(
        group: DestroyOnDrop<Group<'static>>,
        allowance: u64,
        body: B,
    ) -> GroupBody<B> {
        let body = group.catch_stream_within(allowance, Frames { body });
        GroupBody { state: State::InGroup { body, group: Some(group) } }
    }

    fn body(&self) -> Option<&B> {
        match &self.state {
            State::Alone { body } => Some(body),
            State::InGroup { body, .. } => body.get_ref().map(|frames| &frames.body),
        }
    }
}

impl<B: Body> Body for GroupBody<B> {
    type Data = B::Data;
    type Error = BodyError<B::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        let (body, group) = match self.project().state.project() {
            Projected::Alone { body } => {
                return body.poll_frame(context).map_err(BodyError::Inner);
            }
            Projected::InGroup { body, group } => (body, group),
        };
        let frame = match ready!(body.poll_next(context)) {
            Some(Ok(frame)) => return Poll::Ready(Some(frame.map_err(BodyError::Inner))),
            Some(Err(refused)) => Some(Err(BodyError::Refused(refused))),
            None => None,
        };
        // The body has ended, so its group ends.
        drop(group.take());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B: Default> Default for GroupBody<B> {
    fn default() -> GroupBody<B> {
        GroupBody::alone(B::default())
    }
}

impl<B> fmt::Debug for GroupBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupBody").finish_non_exhaustive()
    }
}

/// The reason why a body ended early.
#[derive(Debug)]
pub enum BodyError<E> {
    /// A limit refused an allocation of the body, or of a part of its work.
    Refused(Refused),
    /// The body's own error.
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for BodyError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Refused(refused) => refused.fmt(f),
            BodyError::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for BodyError<E> {}
