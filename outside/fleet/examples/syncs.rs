//! The capacity of a store for 10, 100 and 1 000 nodes, on a real redis and a real etcd: at the default period, and
//! at most.
//!
//! ```text
//! cargo run --release --manifest-path outside/fleet/Cargo.toml --example syncs                  ten nodes an organisation
//! cargo run --release --manifest-path outside/fleet/Cargo.toml --example syncs -- --together    all in one organisation
//! cargo run --release --manifest-path outside/fleet/Cargo.toml --example syncs -- --json        a line of JSON for each row
//! cargo run --release --manifest-path outside/fleet/Cargo.toml --example syncs -- etcd          this store alone
//! ```

use std::error::Error;
use std::time::Duration;

use outside_fleet::server::Server;
use outside_fleet::syncs::{Figures, LINES, PERIOD, found, sync};

const TIME: Duration = Duration::from_secs(15);

type Start = fn() -> Result<Option<Server>, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let has = |word: &str| std::env::args().any(|argument| argument == word);
    let (json, together) = (has("--json"), has("--together"));
    if !json {
        println!("A message has {LINES} lines.");
        let done = "done | processor | of it a sync | median | p99";
        println!("| store | nodes | syncs a second asked | {done} | the most: {done} |");
        println!("{}", "|---".repeat(13) + "|");
    }
    let stores: [(&str, Start); 2] = [("redis", Server::redis), ("etcd", Server::etcd)];
    for (name, start) in stores {
        if stores.iter().any(|(other, _)| *other != name && has(other)) && !has(name) {
            continue;
        }
        for nodes in [10, 100, 1000] {
            let each = if together { nodes } else { 10 };
            let mut measured = Vec::new();
            for paced in [true, false] {
                let Some(server) = start()? else { continue };
                found(&server, nodes / each).await.map_err(text)?;
                measured.push(sync(&server, nodes, each, paced, TIME).await.map_err(text)?);
            }
            let [paced, most] = measured[..] else { continue };
            print(json, name, nodes, each, paced, most);
        }
    }
    Ok(())
}

fn print(json: bool, store: &str, nodes: u64, each: u64, paced: Figures, most: Figures) {
    let asked = nodes as f64 / PERIOD.as_secs_f64();
    let row = |figures: Figures| {
        let Figures { syncs_a_second, processor, each_ms, median_ms, p99_ms, errors } = figures;
        let (rate, processor) = (syncs_a_second, 100.0 * processor);
        if json {
            let row = serde_json::json!({
                "syncs_a_second": rate, "processor_percent": processor, "processor_ms_a_sync": each_ms,
                "median_ms": median_ms, "p99_ms": p99_ms, "errors": errors,
            });
            return row.to_string();
        }
        let errors = if errors > 0 { format!(" ({errors} failed)") } else { String::new() };
        format!(
            "{rate:.0}{errors} | {processor:.0} % | {each_ms:.2} ms | {median_ms:.1} ms | {p99_ms:.1} ms"
        )
    };
    let (paced, most) = (row(paced), row(most));
    if json {
        println!(
            "{{\"store\":\"{store}\",\"nodes\":{nodes},\"an_organisation\":{each},\"asked\":{asked:.1},\"paced\":{paced},\"most\":{most}}}"
        );
    } else {
        println!("| {store} | {nodes} | {asked:.0} | {paced} | {most} |");
    }
}

fn text(error: Box<dyn Error + Send + std::marker::Sync>) -> Box<dyn Error> {
    error
}
