//! A connection that bounds its replies. A wrong or hostile server at a store's address could send without an end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum cost of one reply, in bytes of memory: a book of some thirty thousand leases.
const MOST: usize = 56 << 20;
/// The cost of a byte: it is stored in a buffer that doubles, in the value, and in the result derived from it.
const BYTE: usize = 5;
/// The cost of a value. Each begins on a new line.
const VALUE: usize = 128;
/// The text of the error.
pub(super) const WORDS: &str = "a reply is longer than that of any book";

/// Number of bytes read since the last request, or since they were [forgotten](Read::forget).
#[derive(Clone, Debug, Default)]
pub(super) struct Read(Arc<AtomicUsize>);

impl Read {
    /// Resets the count: a message was taken, and the next bytes belong to another one.
    pub(super) fn forget(&self) {
        // Relaxed: only a count; no other data depends on it.
        self.0.store(0, Ordering::Relaxed);
    }

    fn add(&self, bytes: &[u8]) -> io::Result<()> {
        let values = bytes.iter().filter(|&&byte| byte == b'\n').count();
        let cost = bytes.len() * BYTE + values * VALUE;
        match self.0.fetch_add(cost, Ordering::Relaxed).saturating_add(cost) {
            ..=MOST => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, WORDS)),
        }
    }
}

/// A connection that fails when a reply costs more than [`MOST`].
#[derive(Debug)]
pub(super) struct Bounded<S> {
    stream: S,
    read: Read,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S) -> (Self, Read) {
        let read = Read::default();
        (Self { stream, read: read.clone() }, read)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        Poll::Ready(self.read.add(&into.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        self.read.forget();
        Poll::Ready(wrote)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_reply_ends_at_its_bound_and_the_next_request_has_a_bound_of_its_own() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (mut near, _) = Bounded::new(near);
        let sent = tokio::spawn(async move {
            // The loop ends when the reader is gone.
            while far.write_all(&[b'x'; 1 << 16]).await.is_ok() {}
        });
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..2 {
            near.write_all(b"?").await.unwrap();
            let mut taken = 0;
            let error = loop {
                match near.read(&mut buffer).await {
                    Ok(read) => taken += read,
                    Err(error) => break error,
                }
            };
            assert!(taken <= MOST / BYTE && taken > MOST / BYTE - (1 << 18), "{taken}");
            assert_eq!(error.to_string(), WORDS);
        }
        drop(near);
        sent.await.unwrap();
    }

    #[test]
    fn values_cost_more_than_their_bytes() {
        let read = Read::default();
        let lines = b":1\r\n".repeat(1000);
        let mut taken = 0;
        while read.add(&lines).is_ok() {
            taken += 1000;
        }
        assert!(taken <= MOST / VALUE, "{taken}");
        read.forget();
        assert!(read.add(&lines).is_ok());
    }
}
