//! A server of fifty tenants with a memory limit for each tenant and each request, and figures for Prometheus.
//!
//! No handler knows of groups: a layer gives each request one. `attack` starts this server, and tries to break it.

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path};
use axum::routing::{get, post};
use futures::{StreamExt, stream};
use ledgerline::export::metrics::Metrics;
use ledgerline::{Alloc, Ledger, alloc, current};
use ledgerline_tower::RequestGroups;
use metrics_exporter_prometheus::PrometheusBuilder;
use std::error::Error;
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::task::yield_now;

#[global_allocator]
static ALLOC: Alloc = Alloc::system();

const TENANTS: usize = 50;

/// Adds up rows that it keeps in memory, as careless code does.
async fn rows(Path(rows): Path<u64>) -> String {
    let mut kept: Vec<Box<[u64; 16]>> = Vec::new();
    for row in 0..rows {
        if row % 100 == 0 {
            alloc::checkpoint(); // a request that is over its limit ends here
            yield_now().await; // or here
        }
        kept.push(Box::new([row; 16]));
    }
    kept.iter().map(|row| row[0]).sum::<u64>().to_string()
}

/// Reads a whole body into memory.
async fn upload(body: Bytes) -> String {
    body.len().to_string()
}

/// Returns a task that waits for one that it spawned, and so on. Each keeps a kilobyte meanwhile.
fn nest(depth: u64) -> Pin<Box<dyn Future<Output = usize> + Send>> {
    Box::pin(async move {
        let kept = vec![1u8; 1024];
        let below = match depth {
            0 => 0,
            // A part that is refused ends by a panic, which continues here without another message.
            _ => current::tokio::spawn(nest(depth - 1))
                .await
                .unwrap_or_else(|ended| std::panic::resume_unwind(ended.into_panic())),
        };
        kept.len() + below
    })
}

/// Runs `times` of these, one after the other.
async fn nests(Path((depth, times)): Path<(u64, u64)>) -> String {
    let mut kept = 0;
    for _ in 0..times {
        kept += nest(depth).await;
    }
    kept.to_string()
}

/// Returns a body of this many kilobytes that keeps 64 KiB for each.
async fn download(Path(kilobytes): Path<u64>) -> Body {
    let mut kept = Vec::new();
    let frames = stream::iter(0..kilobytes).then(move |_| {
        kept.push(vec![1u8; 64 << 10]);
        async {
            yield_now().await;
            Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 1024]))
        }
    });
    Body::from_stream(frames)
}

async fn panics() -> String {
    panic!("a bug in a handler")
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    ledgerline::warm_up();
    let ledger = Ledger::new()?.into_static();
    ledger.root().set_max("1G".parse()?)?;
    let tenants = ledger.root().create("tenants")?;
    for number in 0..TENANTS {
        tenants.create(&format!("t{number}"))?.set_max("32M".parse()?)?;
    }
    let groups = RequestGroups::by(move |request| {
        tenants.child(request.headers.get("x-tenant")?.to_str().ok()?)
    });

    let recorder = PrometheusBuilder::new().build_recorder();
    let figures = recorder.handle();
    metrics::set_global_recorder(recorder).expect("it is the only one");
    // The root, all tenants, each tenant, but none of their requests.
    let metrics = Arc::new(Mutex::new(Metrics::new(ledger).depth(2).groups(2 + TENANTS)));
    let metrics = move || async move {
        metrics.lock().expect("no panic inside").update();
        figures.render()
    };

    let routes = axum::Router::new()
        .route("/rows/{rows}", get(rows))
        .route("/upload", post(upload))
        .route("/nest/{depth}/{times}", get(nests))
        .route("/download/{kilobytes}", get(download))
        .route("/panics", get(panics))
        .layer(DefaultBodyLimit::disable()) // axum's own limit is 2 MB
        .layer(groups.max("8M".parse()?))
        .route("/metrics", get(metrics)); // below the layer: it has no group
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    axum::serve(listener, routes).await?;
    Ok(())
}
