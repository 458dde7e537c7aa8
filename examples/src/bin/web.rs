//! A web server with a memory limit for each request: the runaway request alone gets a 503.
//!
//! No handler knows of groups. A middleware gives each request one, and all allocations of its handler are charged
//! there. A request that meets its limit unwinds at its next checkpoint; its memory comes back, and all others go on.

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ledgerline::{Alloc, Group, Ledger, alloc};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[global_allocator]
static ALLOC: Alloc = Alloc::system();

/// Runs the handler of a request in a group of its own.
async fn limited(State(requests): State<Group<'static>>, request: Request, next: Next) -> Response {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("r{}", NUMBER.fetch_add(1, Relaxed));
    let group = match requests.create(&name) {
        Ok(group) => group.destroy_on_drop(),
        Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    };
    if let Err(error) = group.set_max_now("8M".parse().expect("a size")) {
        return (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response();
    }
    match group.catch_future(next.run(request)).await {
        Ok(response) => response,
        Err(refused) => (StatusCode::SERVICE_UNAVAILABLE, refused.to_string()).into_response(),
    }
}

/// Answers with the sum of `thousands` thousand rows, which it keeps in memory, as careless code does.
async fn rows(Path(thousands): Path<usize>) -> String {
    let mut rows: Vec<Box<[u64; 16]>> = Vec::new();
    for batch in 0..thousands {
        alloc::checkpoint(); // a query that is over its limit ends here
        rows.extend((0..1000).map(|row| Box::new([(batch * 1000 + row) as u64; 16])));
        tokio::task::yield_now().await;
    }
    rows.iter().map(|row| row[0]).sum::<u64>().to_string()
}

/// Sends a request; returns the status and the body of the answer.
async fn ask(address: std::net::SocketAddr, thousands: usize) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /rows/{thousands} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let ledger = Ledger::new()?.into_static();
    let requests = ledger.root().create("requests")?;
    requests.set_max("256M".parse()?)?;

    let routes = axum::Router::new()
        .route("/rows/{thousands}", get(rows))
        .layer(from_fn_with_state(requests, limited));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, routes).await });

    // Forty honest requests, and a runaway in their middle.
    let asked: Vec<_> = (0..41)
        .map(|number| tokio::spawn(ask(address, if number == 20 { 1_000_000 } else { 20 })))
        .collect();
    let (mut right, mut refused) = (0, Vec::new());
    let sum = (0..20_000u64).sum::<u64>().to_string();
    for (number, answer) in asked.into_iter().enumerate() {
        match answer.await?? {
            (200, body) if body == sum => right += 1,
            (503, body) => refused.push((number, body)),
            other => panic!("request {number}: {other:?}"),
        }
    }
    println!("{right} requests answered rightly; refused: {refused:?}");
    println!("at most {} bytes of {} in use", requests.peak().value, requests.max());
    assert!(right == 40 && refused.len() == 1 && refused[0].0 == 20);
    println!("ok");
    Ok(())
}
