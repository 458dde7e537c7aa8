//! The cost of a sync for the server, counted in commands: it does not depend on the number of nodes.

use std::time::Duration;

use ledgerline_fleet::book::Change;
use ledgerline_fleet::message::{Line, Sync};
use ledgerline_fleet::store::redis::Address;
use ledgerline_fleet::store::{Options, Redis, Store};

use crate::support::server::{self, Server};

const PATHS: [&str; 3] = ["/a", "/a/b", "/a/b/c"];

fn sync(node: usize, sequence: u64, want: u64) -> Sync {
    let line = |path: &str| Line {
        path: path.to_owned(),
        lease: 0,
        used: 0,
        want,
        least: want,
        urgent: 0,
        next: 0,
        waited: 0,
        refused: 0,
    };
    let lines = PATHS.map(line).to_vec();
    let (node, incarnation) = (format!("node {node}"), node as u64 + 1);
    Sync {
        node,
        incarnation,
        sequence,
        taken: 0,
        until: 0,
        left: 0,
        ended: false,
        bye: false,
        lines,
        refusals: Vec::new(),
    }
}

/// Returns the number of commands that the server has run, including those of its functions.
fn commands(server: &Server) -> u64 {
    let mut connection =
        redis::Client::open(("127.0.0.1", server.port)).unwrap().get_connection().unwrap();
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
    let calls = stats.lines().filter(|line| !line.contains("_info") && !line.contains("_hello"));
    calls
        .filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok())
        .sum()
}

#[tokio::test]
async fn a_sync_runs_as_many_commands_with_many_nodes_as_with_few() {
    let Some(server) = server::redis(&[]) else { return };
    let address = Address::Server(format!("redis://127.0.0.1:{}", server.port));
    let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
    let store = Redis::new(address, options).expect("an address");
    store.load().await.unwrap();
    let terms = ledgerline_fleet::book::Terms { ttl: 3_600_000, grace: 0 };
    store.administer("a", &Change::from(terms)).await.unwrap();
    for path in PATHS {
        let set = Change::Set { path: path.to_owned(), limit: Some(1 << 40), minimum: Some(1) };
        store.administer("a", &set).await.unwrap();
    }
    let mut cost = Vec::new();
    for (from, to) in [(0, 5), (5, 500)] {
        for node in from..to {
            store.sync("a", &sync(node, 1, 100)).await.unwrap();
        }
        let before = commands(&server);
        store.sync("a", &sync(0, 2 + from as u64, 200)).await.unwrap();
        cost.push(commands(&server) - before);
    }
    eprintln!("commands of a sync of three levels with 5 and with 500 nodes: {cost:?}");
    assert_eq!(cost[0], cost[1]);
}
