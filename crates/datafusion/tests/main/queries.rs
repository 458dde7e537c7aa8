//! Real queries: a query that spills under this pool returns the same as without a limit.

#[path = "../../examples/tpch/mod.rs"]
mod tpch;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::prelude::SessionContext;
use ledgerline::{Ledger, Limit};
use ledgerline_datafusion::{LedgerPool, Query, QueryReport};
use std::sync::{Arc, OnceLock};
use tpch::{Outcome, sql};

const MIB: u64 = 1 << 20;

/// The tables, for all tests.
fn tables() -> &'static SessionContext {
    static TABLES: OnceLock<SessionContext> = OnceLock::new();
    TABLES.get_or_init(|| tpch::session(0.02).unwrap())
}

fn pool(max: u64) -> LedgerPool {
    let ledger = Arc::new(Ledger::builder().capacity(4096).anonymous().unwrap());
    let group = ledger.owned_root().create("acme").unwrap();
    group.group().set_max(Limit::units(max)).unwrap();
    LedgerPool::builder(group).build()
}

async fn unlimited(sql: &str) -> RecordBatch {
    tpch::run(tables(), tables().task_ctx(), sql).await.unwrap().rows
}

async fn limited(
    query: &Query,
    context: &SessionContext,
    sql: &str,
) -> Result<Outcome, DataFusionError> {
    tpch::run(context, query.task_context(&context.task_ctx())?, sql).await
}

/// Runs a query under a max. It must spill, stay below the max, return all units, and have the same result as without.
async fn spills_and_is_right(context: &SessionContext, sql: &str, max: u64) -> QueryReport {
    let expected = unlimited(sql).await;
    let pool = pool(max);
    let query = pool.for_query("q").unwrap();
    let outcome = limited(&query, context, sql).await.unwrap();
    assert!(outcome.spills > 0, "it did not spill");
    assert!(
        outcome.rows == expected,
        "{} rows of {}",
        outcome.rows.num_rows(),
        expected.num_rows()
    );
    let report = tpch::end(&query).await;
    assert_eq!(report.leftover, 0, "{report}");
    assert!(report.asked_to_spill > 0, "{report}");
    assert!(report.peak - report.peak_bound <= max || report.overrun > 0, "{report}");
    report
}

#[tokio::test]
async fn a_sort_that_spills_returns_the_same() {
    spills_and_is_right(tables(), sql::SORT, 12 * MIB).await;
}

#[tokio::test]
async fn an_aggregation_that_spills_returns_the_same() {
    spills_and_is_right(tables(), sql::GROUPS, 10 * MIB).await;
}

#[tokio::test]
async fn a_merge_join_whose_sorts_spill_returns_the_same() {
    let state = tables().state();
    // Otherwise the builder would replace the tables' catalog by an empty one.
    let mut config = state.config().clone().with_create_default_catalog_and_schema(false);
    config.options_mut().optimizer.prefer_hash_join = false;
    let state = datafusion::execution::SessionStateBuilder::new_from_existing(state)
        .with_config(config)
        .build();
    let context = SessionContext::new_with_state(state);
    spills_and_is_right(&context, sql::JOIN, 4 * MIB).await;
}

#[tokio::test]
async fn a_join_that_cannot_spill_is_refused_and_told_why() {
    let pool = pool(4 * MIB);
    let query = pool.for_query("q42").unwrap();
    let error = limited(&query, tables(), sql::HUGE).await.err().expect("4 MiB do not hold it");
    let text = error.to_string();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{text}");
    assert!(text.contains("/acme/q42/HashJoinInput") && text.contains("of max 4.0 MB"), "{text}");
    let report = tpch::end(&query).await;
    assert!(report.refused > 0 && report.leftover == 0, "{report}");
}

#[tokio::test]
async fn queries_of_one_tenant_share_its_limit_and_all_are_right() {
    let pool = pool(48 * MIB);
    let runs = [sql::SORT, sql::GROUPS, sql::SUMMARY, sql::SORT, sql::GROUPS, sql::SUMMARY];
    let tasks = runs.into_iter().enumerate().map(|(at, sql)| {
        let query = pool.for_query(&format!("q{at}")).unwrap();
        query.group().set_max(Limit::units(14 * MIB)).unwrap();
        tokio::spawn(async move {
            let outcome = limited(&query, tables(), sql).await.unwrap();
            (outcome, tpch::end(&query).await)
        })
    });
    let tasks = tasks.collect::<Vec<_>>();
    let mut asked = 0;
    for (task, sql) in tasks.into_iter().zip(runs) {
        let (outcome, report) = task.await.unwrap();
        assert!(outcome.rows == unlimited(sql).await, "{report}");
        asked += report.asked_to_spill;
    }
    assert!(asked > 0, "nobody spilled");
    assert_eq!(pool.group().precise(), 0);
}
