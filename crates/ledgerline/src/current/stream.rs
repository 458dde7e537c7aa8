//! Streams and sinks that are polled in a group, and the traits that `select!` needs of futures and streams.

use super::future::ChargedTo;
use futures_core::future::FusedFuture;
use futures_core::stream::{FusedStream, Stream};
use futures_sink::Sink;
use std::pin::Pin;
use std::task::{Context, Poll};

impl<S: Stream> Stream for ChargedTo<S> {
    type Item = S::Item;

    #[inline]
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.within(|stream| stream.poll_next(context))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.get_ref().size_hint()
    }
}

impl<Item, S: Sink<Item>> Sink<Item> for ChargedTo<S> {
    type Error = S::Error;

    #[inline]
    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.within(|sink| sink.poll_ready(context))
    }

    #[inline]
    fn start_send(self: Pin<&mut Self>, item: Item) -> Result<(), S::Error> {
        self.within(|sink| sink.start_send(item))
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.within(|sink| sink.poll_flush(context))
    }

    #[inline]
    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.within(|sink| sink.poll_close(context))
    }
}

impl<F: FusedFuture> FusedFuture for ChargedTo<F> {
    fn is_terminated(&self) -> bool {
        self.get_ref().is_terminated()
    }
}

impl<S: FusedStream> FusedStream for ChargedTo<S> {
    fn is_terminated(&self) -> bool {
        self.get_ref().is_terminated()
    }
}
