//! gRPC by tonic: unary calls, streams both ways, and a client that resets one. The messages are bytes, so no code is
//! generated.

use crate::support::{settled, tenants};
use bytes::{Buf, BufMut};
use futures::{Stream, StreamExt, stream};
use http::Uri;
use http::uri::PathAndQuery;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ledgerline::{Group, alloc};
use ledgerline_tower::RequestGroups;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::{BoxError, Service, service_fn};

/// A codec for messages that are bytes.
#[derive(Clone, Copy)]
struct Plain;

impl Codec for Plain {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

impl Encoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut message = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut message);
        Ok(Some(message))
    }
}

type Messages = Pin<Box<dyn Stream<Item = Result<Vec<u8>, Status>> + Send>>;

/// Keeps as many kilobytes as the message has bytes, and returns the number.
async fn keep(request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
    let mut rows = Vec::new();
    for _ in request.get_ref() {
        alloc::checkpoint();
        rows.push(vec![1u8; 1024]);
    }
    Ok(Response::new(rows.len().to_string().into_bytes()))
}

/// Keeps all messages, and returns their number.
async fn collect(request: Request<Streaming<Vec<u8>>>) -> Result<Response<Vec<u8>>, Status> {
    let (mut messages, mut kept) = (request.into_inner(), Vec::new());
    while let Some(message) = messages.message().await? {
        kept.push(message);
    }
    Ok(Response::new(kept.len().to_string().into_bytes()))
}

/// Sends each message back, and keeps it.
async fn echo(request: Request<Streaming<Vec<u8>>>) -> Result<Response<Messages>, Status> {
    let messages = request.into_inner();
    let echoes = stream::unfold((messages, Vec::new()), |(mut messages, mut kept)| async move {
        let message = messages.message().await.transpose()?;
        kept.extend(message.clone());
        Some((message, (messages, kept)))
    });
    Ok(Response::new(Box::pin(echoes)))
}

/// Sends the message again and again.
async fn repeat(request: Request<Vec<u8>>) -> Result<Response<Messages>, Status> {
    let answers = stream::unfold(request.into_inner(), |message| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Some((Ok(message.clone()), message))
    });
    Ok(Response::new(Box::pin(answers)))
}

#[derive(Clone)]
struct Rows;

impl tonic::server::NamedService for Rows {
    const NAME: &'static str = "test.Rows";
}

impl Service<http::Request<tonic::body::Body>> for Rows {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Plain);
            Ok(match request.uri().path() {
                "/test.Rows/Keep" => grpc.unary(service_fn(keep), request).await,
                "/test.Rows/Repeat" => grpc.server_streaming(service_fn(repeat), request).await,
                "/test.Rows/Collect" => grpc.client_streaming(service_fn(collect), request).await,
                _ => grpc.streaming(service_fn(echo), request).await,
            })
        })
    }
}

type Sender = http2::SendRequest<tonic::body::Body>;

/// Starts a server whose requests have a mebibyte each.
async fn serve(tenant: Group<'static>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let groups = RequestGroups::below(tenant).max("1M".parse().unwrap());
    let server = tonic::transport::Server::builder().layer(groups).add_service(Rows);
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

/// A client with one connection.
struct Client {
    send: Sender,
    uri: Uri,
}

impl Client {
    async fn new(address: SocketAddr) -> Client {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (send, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        Client { send, uri: format!("http://{address}").parse().unwrap() }
    }

    /// Calls a method on the one connection, with messages that are sent as they come.
    async fn call(
        &self,
        method: &'static str,
        messages: impl Stream<Item = Vec<u8>> + Send + 'static,
    ) -> Result<Streaming<Vec<u8>>, Status> {
        let send = self.send.clone();
        let channel = service_fn(move |request| {
            let mut send = send.clone();
            async move { send.send_request(request).await.map_err(BoxError::from) }
        });
        let mut grpc = tonic::client::Grpc::with_origin(channel, self.uri.clone());
        grpc.ready().await.map_err(Status::from_error)?;
        let path = PathAndQuery::from_static(method);
        Ok(grpc.streaming(Request::new(messages), path, Plain).await?.into_inner())
    }

    /// Returns the only answer of a method.
    async fn one(&self, method: &'static str, messages: Vec<Vec<u8>>) -> Result<String, Code> {
        let mut answers =
            self.call(method, stream::iter(messages)).await.map_err(|status| status.code())?;
        let answer = answers.message().await.map_err(|status| status.code())?;
        Ok(String::from_utf8(answer.unwrap()).unwrap())
    }
}

const KEEP: &str = "/test.Rows/Keep";
const COLLECT: &str = "/test.Rows/Collect";
const ECHO: &str = "/test.Rows/Echo";
const REPEAT: &str = "/test.Rows/Repeat";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unary_call_over_its_limit_is_unavailable_and_others_on_its_connection_go_on() {
    let [tenant] = tenants();
    let client = Client::new(serve(tenant).await).await;
    let (honest, runaway) = (vec![vec![0; 100]], vec![vec![0; 5000]]);
    for _ in 0..3 {
        let (right, refused) =
            tokio::join!(client.one(KEEP, honest.clone()), client.one(KEEP, runaway.clone()));
        assert_eq!((right.as_deref(), refused), (Ok("100"), Err(Code::Unavailable)));
    }
    settled(tenant).await;
    assert_eq!(tenant.events().max, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_collects_a_stream_is_unavailable_once_that_is_too_much() {
    let [tenant] = tenants();
    let client = Client::new(serve(tenant).await).await;
    let messages = |count| vec![vec![7; 10_000]; count];
    let (right, refused) =
        tokio::join!(client.one(COLLECT, messages(10)), client.one(COLLECT, messages(1000)));
    assert_eq!((right.as_deref(), refused), (Ok("10"), Err(Code::Unavailable)));
    settled(tenant).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_both_ways_that_meets_its_limit_ends_with_an_error_and_no_other_does() {
    let [tenant] = tenants();
    let client = Client::new(serve(tenant).await).await;
    let (send, receive) = futures::channel::mpsc::unbounded();
    let mut short = client.call(ECHO, receive).await.unwrap();
    let say = |text: &'static [u8]| send.unbounded_send(text.to_vec()).unwrap();
    say(b"one");
    assert_eq!(short.message().await.unwrap().unwrap(), b"one");

    let endless = stream::repeat_with(|| vec![7; 10_000]);
    let mut echoes = 0;
    let status = match client.call(ECHO, endless).await {
        // The reset may come before the head of the answer is read.
        Err(status) => status,
        Ok(mut endless) => loop {
            match endless.message().await {
                Ok(message) => echoes += usize::from(message.is_some()),
                Err(status) => break status,
            }
        },
    };
    // A reset discards unread messages.
    assert!(echoes < 100, "{echoes}");
    assert_eq!(status.code(), Code::Internal, "{status}");

    say(b"two");
    assert_eq!(short.message().await.unwrap().unwrap(), b"two");
    send.close_channel();
    assert!(short.message().await.unwrap().is_none());
    settled(tenant).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_its_client_resets_in_the_middle_leaves_no_group() {
    let [tenant] = tenants();
    let client = Client::new(serve(tenant).await).await;
    for _ in 0..3 {
        let message = stream::once(async { vec![7; 10_000] });
        let mut answers = client.call(REPEAT, message).await.unwrap();
        for _ in 0..5 {
            assert_eq!(answers.message().await.unwrap().unwrap().len(), 10_000);
        }
        assert_eq!(tenant.children().count(), 1);
        drop(answers);
        settled(tenant).await;
    }
    assert_eq!(client.one(KEEP, vec![vec![0; 10]]).await.as_deref(), Ok("10"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_ends_its_streams_both_ways() {
    let [tenant] = tenants();
    let address = serve(tenant).await;
    let calls = move || {
        // A runtime that ends closes the sockets of its connections, like a process.
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::new(address).await;
            let mut calls = Vec::new();
            for number in 1..4 {
                let messages = stream::once(async { vec![7; 10_000] }).chain(stream::pending());
                let mut echoes = client.call(ECHO, messages).await.unwrap();
                assert_eq!(echoes.message().await.unwrap().unwrap().len(), 10_000);
                assert_eq!(tenant.children().count(), number);
                calls.push(echoes);
            }
        });
    };
    tokio::task::spawn_blocking(calls).await.unwrap();
    settled(tenant).await;
}
