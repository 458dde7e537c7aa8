//! Twenty tenants run real SQL at the same time, on TPC-H tables and one memory budget.
//!
//! Some queries fit, some spill, and one, whose join exceeds its tenant's limit, is refused with an explanation. The
//! results of the others are compared with a run without any limit.
//!
//! ```console
//! $ cargo run --example tenants -- --scale 0.1
//! ```

mod tpch;

use datafusion::common::{DataFusionError, Result};
use datafusion::prelude::SessionContext;
use ledgerline::{Ledger, Limit};
use ledgerline_datafusion::{LedgerPool, Query};
use std::error::Error;
use std::sync::Arc;
use tpch::{Outcome, sql};

const TENANTS: usize = 20;
/// The tenant whose query exceeds its limit.
const CARELESS: usize = 7;

async fn run(context: SessionContext, query: Query, sql: &'static str) -> Result<Outcome> {
    tpch::run(&context, query.task_context(&context.task_ctx())?, sql).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>();
    let scale = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => 0.1,
        ["--scale", scale] => scale.parse::<f64>()?,
        _ => return Err("usage: tenants [--scale 0.1]".into()),
    };
    let context = tpch::session(scale)?;
    // At scale 0.1 a tenant has 32 MiB, and the total is three quarters of the tenants' sum.
    let each = ((320.0 * scale) as u64).max(4) << 20;

    let mut expected = Vec::new();
    for sql in [sql::SORT, sql::GROUPS, sql::SUMMARY, sql::LOOKUP] {
        expected.push((sql, tpch::run(&context, context.task_ctx(), sql).await?.rows));
    }

    let ledger = Arc::new(Ledger::new()?);
    let engine = ledger.owned_root().create("engine")?;
    // A sort's merge cannot spill, and takes as much as it merges. With the default eighth a query is refused now and
    // then whose other partition merges at that moment.
    let pool = LedgerPool::builder(engine.clone()).keep_for_unspillable(0.5).build();
    engine.group().set_max(Limit::units(each * TENANTS as u64 * 3 / 4))?;

    let mut started = Vec::new();
    for at in 0..TENANTS {
        let tenant = pool.tenant(&format!("tenant{at:02}"))?;
        tenant.group().set_max(Limit::units(each))?;
        let query = tenant.for_query("q1")?;
        let sql = if at == CARELESS { sql::HUGE } else { expected[at % expected.len()].0 };
        started.push((query.clone(), sql, tokio::spawn(run(context.clone(), query, sql))));
    }
    let (mut spilled, mut refused) = (0, 0);
    for (at, (query, sql, task)) in started.into_iter().enumerate() {
        let outcome = task.await?;
        let report = tpch::end(&query).await;
        assert_eq!(report.leftover, 0, "{report}");
        match outcome {
            Ok(outcome) => {
                let (_, right) =
                    expected.iter().find(|(of, _)| *of == sql).ok_or("it was not to end")?;
                assert!(
                    outcome.rows == *right,
                    "tenant{at:02} got other rows than without a limit"
                );
                spilled += usize::from(outcome.spills > 0);
                println!(
                    "{report}; {} rows, right, {} spill files",
                    right.num_rows(),
                    outcome.spills
                );
            }
            Err(error) => {
                refused += 1;
                assert!(
                    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)),
                    "{error}"
                );
                assert_eq!(at, CARELESS, "{error}");
                println!("{report}:\n  {}", error.to_string().replace('\n', "\n  "));
            }
        }
    }
    let peak = engine.group().peak();
    println!(
        "{spilled} of {TENANTS} spilled, {refused} was refused; all together held {peak} of {}",
        engine.group().max()
    );
    assert!(spilled > 0 && refused == 1, "the limits were not met");
    assert_eq!(engine.group().precise(), 0);
    println!("ok");
    Ok(())
}
