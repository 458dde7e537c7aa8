//! The connections, and the choice of the one that is closed when there are too many.
//!
//! A connection costs its maker nothing. So a connection without requests must not keep others out: if there is no room
//! for a new one, the longest waiting of the least valuable connections is closed.
//!
//! ```text
//! least value    asks for nothing now, and never proved that it may ask
//!                asks for nothing now
//!                is answered, and never proved that it may ask
//! stays          is answered, and may ask
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::task::AbortHandle;

/// The most connections at a time.
pub(super) const CONNECTIONS: usize = 128;
/// The most of one peer. All clients on this machine are one peer.
pub(super) const OF_PEER: usize = 96;

/// The state of a connection.
#[derive(Debug, Default)]
pub(super) struct Doing {
    /// The requests that are being answered.
    answers: AtomicUsize,
    /// Whether it asked for a resource that is not public, with the right to.
    proved: AtomicBool,
}

impl Doing {
    /// Records that it may ask.
    pub(super) fn prove(&self) {
        // Relaxed: one thread runs all connections.
        self.proved.store(true, Ordering::Relaxed);
    }

    /// Marks it as being answered, until the result is dropped.
    pub(super) fn answer(self: &Arc<Self>) -> Answering {
        self.answers.fetch_add(1, Ordering::Relaxed);
        Answering(self.clone())
    }

    /// Returns its value; `None` if it stays.
    fn worth(&self) -> Option<u8> {
        match (self.answers.load(Ordering::Relaxed) > 0, self.proved.load(Ordering::Relaxed)) {
            (false, false) => Some(0),
            (false, true) => Some(1),
            (true, false) => Some(2),
            (true, true) => None,
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Answering(Arc<Doing>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a response, which counts as being answered until it was read.
pub(super) struct Told {
    body: Body,
    _answering: Answering,
}

impl Told {
    pub(super) fn body(body: Body, answering: Answering) -> Body {
        Body::new(Told { body, _answering: answering })
    }
}

impl hyper::body::Body for Told {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[derive(Debug)]
struct One {
    peer: IpAddr,
    doing: Arc<Doing>,
    task: AbortHandle,
}

/// All connections, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Crowd(Vec<One>);

impl Crowd {
    /// Makes room for a connection of a peer; `false` if there is none.
    pub(super) fn admit(&mut self, peer: IpAddr) -> bool {
        let peer = one(peer);
        self.0.retain(|one| !one.task.is_finished());
        let of_peer = self.0.iter().filter(|one| one.peer == peer).count();
        match (of_peer >= OF_PEER, self.0.len() >= CONNECTIONS) {
            (true, _) => self.take_leave(Some(peer)),
            (false, true) => self.take_leave(None),
            (false, false) => true,
        }
    }

    /// Closes the least valuable connection, of a peer or of all.
    fn take_leave(&mut self, of: Option<IpAddr>) -> bool {
        let all = self.0.iter().enumerate().filter(|(_, one)| of.is_none_or(|of| one.peer == of));
        // The first of equal value is the oldest.
        let least = all.filter_map(|(at, one)| Some((one.doing.worth()?, at))).min();
        let Some((_, at)) = least else { return false };
        self.0.remove(at).task.abort();
        true
    }

    /// Adds a connection that was admitted.
    pub(super) fn add(&mut self, peer: IpAddr, doing: Arc<Doing>, task: AbortHandle) {
        self.0.push(One { peer: one(peer), doing, task });
    }
}

/// Returns the peer of an address. All addresses of this machine's loopback are one peer, since a program may use any
/// of them. So are those of one IPv6 network, of which a host has 2^64.
fn one(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        peer if peer.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(peer) => (u128::from(peer) >> 64 << 64).to_be_bytes().into(),
        peer => peer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> IpAddr {
        one(text.parse().unwrap())
    }

    #[test]
    fn who_has_many_addresses_is_one_peer() {
        for own in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(peer(own), peer("127.0.0.1"), "{own}");
        }
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::2:3"));
        assert_ne!(peer("2001:db8:0:1::1"), peer("2001:db8::1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_oldest_of_those_that_are_worth_least_gives_way() {
        let mut crowd = Crowd::default();
        let add = |crowd: &mut Crowd, text: &str| {
            let (address, doing) = (text.parse().unwrap(), Arc::new(Doing::default()));
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            crowd.add(address, doing.clone(), task);
            doing
        };
        let there = |crowd: &Crowd, doing: &Arc<Doing>| {
            crowd.0.iter().any(|one| Arc::ptr_eq(&one.doing, doing))
        };
        let home: IpAddr = "127.0.0.1".parse().unwrap();
        let proved = add(&mut crowd, "127.0.0.1");
        proved.prove();
        let first = add(&mut crowd, "127.0.0.1");
        let second = add(&mut crowd, "127.0.0.1");
        while crowd.0.len() < OF_PEER {
            add(&mut crowd, "127.0.0.1");
        }
        assert!(crowd.admit(home));
        assert!(!there(&crowd, &first) && there(&crowd, &second) && there(&crowd, &proved));
        add(&mut crowd, "127.0.0.1");
        // Another peer still has room, until the total is reached.
        assert!(crowd.admit("10.0.0.1".parse().unwrap()) && there(&crowd, &second));
        while crowd.0.len() < CONNECTIONS {
            add(&mut crowd, "10.0.0.1");
        }
        assert!(crowd.admit("10.0.0.2".parse().unwrap()) && !there(&crowd, &second));
        // Connections that are being answered, and may ask, stay.
        let answering: Vec<_> = crowd.0.iter().map(|one| one.doing.answer()).collect();
        crowd.0.iter().for_each(|one| one.doing.prove());
        add(&mut crowd, "127.0.0.1").prove();
        let last = crowd.0.last().unwrap().doing.answer();
        assert!(!crowd.admit(home));
        drop((answering, last));
        assert!(crowd.admit(home));
    }
}
