//! The same load on a real redis with a counter, with a fixed split of the budget, and with leases.
//!
//! ```text
//! cargo run --release --manifest-path outside/fleet/Cargo.toml --example compare              a table
//! cargo run --release --manifest-path outside/fleet/Cargo.toml --example compare -- --json    a line of JSON for each row
//! cargo run --release --manifest-path outside/fleet/Cargo.toml --example compare -- --quick   a second for each row
//! ```

use std::error::Error;
use std::time::Duration;

use outside_fleet::load::{Figures, LIMIT, Way, hold, throughput};
use outside_fleet::server::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let has = |word: &str| std::env::args().any(|argument| argument == word);
    let (json, time) = (has("--json"), Duration::from_secs(if has("--quick") { 1 } else { 10 }));
    if !json {
        println!(
            "| way | nodes | charges a second and node | granted | refused | of these with room | overrun |"
        );
        println!("|---|---|---|---|---|---|---|");
    }
    for nodes in [1, 4, 10] {
        for way in Way::ALL {
            let Some(server) = Server::redis()? else { return Ok(()) };
            let speed = throughput(&server.address, way, nodes, time / 5).await.map_err(text)?;
            let figures = hold(&server.address, way, nodes, time).await.map_err(text)?;
            let Figures { granted, refused, refused_with_room, overrun } = figures;
            let (name, overrun) = (way.name(), 100.0 * overrun as f64 / LIMIT as f64);
            if json {
                let row = serde_json::json!({
                    "way": name, "nodes": nodes, "charges_a_second_and_node": speed.round(), "granted": granted,
                    "refused": refused, "refused_with_room": refused_with_room, "overrun_percent": overrun,
                });
                println!("{row}");
            } else {
                println!(
                    "| {name} | {nodes} | {speed:.0} | {granted} | {refused} | {refused_with_room} | {overrun:.1} % |"
                );
            }
        }
    }
    Ok(())
}

fn text(error: Box<dyn Error + Send + std::marker::Sync>) -> Box<dyn Error> {
    error
}
