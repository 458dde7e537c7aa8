//! Streams and sinks are polled in their group, also by the combinators and `select!`.

use futures::sink::{Sink, SinkExt, unfold};
use futures::stream::{FusedStream, Stream, StreamExt, poll_fn};
use futures::{FutureExt, channel::mpsc, future, stream};
use ledgerline::current::future::ChargeTo;
use ledgerline::{Group, Ledger, current};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn groups<const N: usize>() -> [Group<'static>; N] {
    let ledger = Ledger::builder().capacity(16).anonymous().unwrap().into_static();
    std::array::from_fn(|number| ledger.root().create(&number.to_string()).unwrap())
}

#[test]
fn a_stream_is_polled_in_its_group_and_what_comes_out_of_it_is_used_in_the_callers() {
    let [source, reader] = groups();
    let numbers = poll_fn({
        let mut left = 3;
        move |_| {
            assert_eq!(current::group(), Some(source));
            left -= 1;
            Poll::Ready((left >= 0).then_some(left))
        }
    });
    let numbers = numbers.charged_to(source);
    let seen = reader.scope(|| {
        block_on(
            numbers
                .map(|number| {
                    assert_eq!(current::group(), Some(reader));
                    number
                })
                .collect::<Vec<_>>(),
        )
    });
    assert_eq!(seen, [2, 1, 0]);
    assert_eq!(current::group(), None);
}

#[test]
fn streams_that_are_merged_keep_their_groups_apart() {
    let groups: [Group<'static>; 8] = groups();
    let streams = groups.map(|group| {
        stream::iter(0..500)
            .then(move |number| async move {
                if number % 3 == 0 {
                    yield_now().await;
                }
                (current::group(), group)
            })
            .boxed()
            .charged_to(group)
    });
    let seen = block_on(stream::select_all(streams).collect::<Vec<_>>());
    assert_eq!(seen.len(), 8 * 500);
    assert!(seen.iter().all(|(current, own)| *current == Some(*own)));
}

/// Returns a future that is ready when it is polled again.
fn yield_now() -> impl Future<Output = ()> {
    let mut polled = false;
    future::poll_fn(move |context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

#[test]
fn all_that_a_sink_does_happens_in_its_group() {
    let [group] = groups();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = {
        let seen = seen.clone();
        move |what: &'static str| seen.lock().unwrap().push((what, current::group()))
    };
    struct Noting<N>(N);
    impl<N: Fn(&'static str) + Unpin> Sink<u8> for Noting<N> {
        type Error = ();
        fn poll_ready(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> Poll<Result<(), ()>> {
            (self.0)("ready");
            Poll::Ready(Ok(()))
        }
        fn start_send(self: std::pin::Pin<&mut Self>, _: u8) -> Result<(), ()> {
            (self.0)("send");
            Ok(())
        }
        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> Poll<Result<(), ()>> {
            (self.0)("flush");
            Poll::Ready(Ok(()))
        }
        fn poll_close(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> Poll<Result<(), ()>> {
            (self.0)("close");
            Poll::Ready(Ok(()))
        }
    }
    let mut sink = Noting(note).charged_to(group);
    block_on(async {
        sink.send(1).await.unwrap();
        sink.close().await.unwrap();
    });
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(seen, ["ready", "send", "flush", "close"].map(|what| (what, Some(group))));
    assert_eq!(current::group(), None);
}

#[test]
fn a_channel_between_two_groups_is_sent_in_one_and_read_in_the_other() {
    let [sender, reader] = groups();
    let (send, receive) = mpsc::channel::<u32>(2);
    let sink = unfold(send, move |mut send, number| async move {
        assert_eq!(current::group(), Some(sender));
        send.send(number).await.map(|()| send)
    });
    let sending = async move {
        let mut sink = Box::pin(sink.charged_to(sender));
        for number in 0..100 {
            sink.send(number).await.unwrap();
        }
    };
    let reading = receive
        .inspect(move |_| assert_eq!(current::group(), Some(reader)))
        .charged_to(reader)
        .count();
    assert_eq!(block_on(future::join(sending, reading)).1, 100);
}

#[test]
fn select_drops_the_loser_midway_in_its_group_and_knows_who_has_ended() {
    let [winner, loser] = groups();
    let dropped = Mutex::new(None);
    struct Drops<'d>(&'d Mutex<Option<Group<'static>>>);
    impl Drop for Drops<'_> {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = current::group();
        }
    }
    let winner_group = {
        let kept = Drops(&dropped);
        let never = async move {
            let _kept = kept;
            current::try_charge(1 << 20).unwrap();
            future::pending::<()>().await;
        };
        let mut never = Box::pin(never.fuse()).charged_to(loser);
        let mut soon = Box::pin(async { current::group() }.fuse()).charged_to(winner);
        assert!(!future::FusedFuture::is_terminated(&soon));
        let first = block_on(async {
            futures::select! {
                () = never => unreachable!("it never ends"),
                group = soon => group,
            }
        });
        assert!(future::FusedFuture::is_terminated(&soon));
        first
    };
    assert_eq!(winner_group, Some(winner));
    assert_eq!(*dropped.lock().unwrap(), Some(loser));
    assert_eq!((loser.precise(), current::group()), (0, None));
    let mut ended = stream::iter([1]).fuse().charged_to(winner);
    assert_eq!(ended.size_hint(), (1, Some(1)));
    assert_eq!(block_on(async { (ended.next().await, ended.next().await) }), (Some(1), None));
    assert!(ended.is_terminated());
}

#[test]
fn what_a_timeout_cuts_off_returns_what_it_charged() {
    let [query] = groups();
    let task = async {
        let _held = current::try_charge(1 << 20).unwrap().expect("a group is current");
        assert_eq!(query.precise(), 1 << 20);
        future::pending::<()>().await;
    };
    let cut = block_on(async {
        tokio::time::timeout(Duration::from_millis(5), task.charged_to(query)).await
    });
    assert!(cut.is_err());
    assert_eq!((query.precise(), current::group()), (0, None));
}
