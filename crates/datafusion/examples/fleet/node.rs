//! A node: a process that runs queries on its part of the budget.

use super::processes::Said;
use super::tpch::{self, sql};
use super::{BUDGET, Outcome};
use datafusion::arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::prelude::SessionContext;
use ledgerline::Ledger;
use ledgerline_datafusion::LedgerPool;
use ledgerline_fleet::fleet::Fleet;
use ledgerline_fleet::store::{Access, open};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};

/// The time that a consumer without spilling waits for units that others hold idle, or leave behind.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer than any step here.
const MINUTE: Duration = Duration::from_secs(60);

/// A query, and its result.
struct Known {
    name: &'static str,
    sql: &'static str,
    rows: RecordBatch,
}

/// Runs until its standard input ends, and leaves the fleet.
#[tokio::main]
pub async fn run(store: &str, name: &str, ledger: &str, scale: f64) -> Outcome<()> {
    let context = tpch::session(scale)?;
    let (known, large) = without_limit(&context).await?;

    let file = File::options().read(true).write(true).create_new(true).open(ledger)?;
    let ledger = Arc::new(Ledger::builder().capacity(4096).create_in(&file)?);
    let store = open(store, &Access::default())?;
    let fleet = Fleet::join(store, name).ledger(&ledger).start()?;
    let budget = fleet.budget(BUDGET).await?;
    // A sort's merge cannot spill, and takes as much as it merges.
    let pool =
        LedgerPool::builder(budget).keep_for_unspillable(0.5).wait_for_lease(PATIENCE).build();
    Said::Ready { large }.say();

    let mut told = told();
    let mut number = 0;
    while let Some(work) = told.recv().await {
        // The work until another command arrives.
        let mut turns =
            known.iter().filter(|known| (known.name == "large") == (work == "large")).cycle();
        while work != "rest" && told.is_empty() && !told.is_closed() {
            let known = turns.next().ok_or("there are queries")?;
            number += 1;
            one(&context, &pool, known, number).await?;
        }
    }
    drop(pool);
    let left = tokio::time::timeout(MINUTE, fleet.leave(PATIENCE)).await;
    left.map_err(|_| "the node has not left within a minute")??;
    Ok(())
}

/// Returns the results of the queries, and the peak of the large one.
async fn without_limit(context: &SessionContext) -> Outcome<(Vec<Known>, u64)> {
    let queries = [
        ("sort", sql::SORT),
        ("groups", sql::GROUPS),
        ("summary", sql::SUMMARY),
        ("lookup", sql::LOOKUP),
        ("large", sql::HUGE),
    ];
    let ledger = Arc::new(Ledger::new()?);
    let pool = LedgerPool::builder(ledger.owned_root()).build();
    let (mut known, mut large) = (Vec::new(), 0);
    for (name, sql) in queries {
        let query = pool.for_query(name)?;
        let task = query.task_context(&context.task_ctx())?;
        let rows = tpch::run(context, task, sql).await?.rows;
        known.push(Known { name, sql, rows });
        large = tpch::end(&query).await.peak;
    }
    Ok((known, large))
}

/// Runs one query in its share of the budget. It may be refused, and is never wrong.
async fn one(
    context: &SessionContext,
    pool: &LedgerPool,
    known: &Known,
    number: usize,
) -> Outcome<()> {
    let query = pool.for_query(&format!("q{number}"))?;
    let task = query.task_context(&context.task_ctx())?;
    let outcome = tokio::time::timeout(MINUTE, tpch::run(context, task, known.sql)).await;
    let report = tpch::end(&query).await;
    assert_eq!((report.leftover, report.overrun), (0, 0), "{report}");
    let Ok(outcome) = outcome else {
        Said::Waited { query: known.name.to_owned() }.say();
        return Ok(());
    };
    match outcome {
        Ok(outcome) => {
            assert!(outcome.rows == known.rows, "{} returned other rows", known.name);
            let peak = report.peak - report.peak_bound;
            Said::Right { query: known.name.to_owned(), peak }.say();
        }
        Err(error) if matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) => {
            Said::Refused { why: error.to_string() }.say();
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Receives commands, one per line.
fn told() -> Receiver<String> {
    let (sender, told) = channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    told
}
