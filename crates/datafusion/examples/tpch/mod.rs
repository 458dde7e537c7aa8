//! TPC-H tables in memory, and a query under one pool or another: for the examples and the tests.

#![allow(dead_code, reason = "each user takes its part")]

use datafusion::arrow::array::{RecordBatch, RecordBatchReader};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::error::ArrowError;
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use ledgerline_datafusion::{Query, QueryReport};
use std::sync::Arc;
use std::time::Duration;
use tpchgen::generators::{CustomerGenerator, LineItemGenerator, OrderGenerator};
use tpchgen_arrow::{CustomerArrow, LineItemArrow, OrderArrow};

/// The partitions of each table, and of each operator.
pub const PARTITIONS: i32 = 2;

/// Makes a session with `lineitem`, `orders` and `customer` at a scale, in batches of some thousand rows.
pub fn session(scale: f64) -> Result<SessionContext> {
    let config = SessionConfig::new()
        .with_target_partitions(PARTITIONS as usize)
        .with_sort_spill_reservation_bytes(256 << 10)
        .with_batch_size(BATCH);
    let context = SessionContext::new_with_config(config);
    let line = |part| LineItemArrow::new(LineItemGenerator::new(scale, part, PARTITIONS));
    add(&context, "lineitem", |part| line(part).with_batch_size(BATCH))?;
    let order = |part| OrderArrow::new(OrderGenerator::new(scale, part, PARTITIONS));
    add(&context, "orders", |part| order(part).with_batch_size(BATCH))?;
    let customer = |part| CustomerArrow::new(CustomerGenerator::new(scale, part, PARTITIONS));
    add(&context, "customer", |part| customer(part).with_batch_size(BATCH))?;
    Ok(context)
}

const BATCH: usize = 2048;

fn add<R: RecordBatchReader>(
    context: &SessionContext,
    name: &str,
    reader: impl Fn(i32) -> R,
) -> Result<()> {
    let parts = (1..=PARTITIONS).map(|part| reader(part).collect::<Result<Vec<_>, ArrowError>>());
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let table = MemTable::try_new(reader(1).schema(), parts)?;
    context.register_table(name, Arc::new(table))?;
    Ok(())
}

/// The result of a query in one batch, and the number of times that its operators spilled.
pub struct Outcome {
    pub rows: RecordBatch,
    pub spills: usize,
}

/// Plans a query and runs it in a task context: the session's own, or one with another pool.
pub async fn run(context: &SessionContext, task: Arc<TaskContext>, sql: &str) -> Result<Outcome> {
    let plan = context.sql(sql).await?.create_physical_plan().await?;
    let batches = collect(plan.clone(), task).await?;
    Ok(Outcome { rows: concat_batches(&plan.schema(), &batches)?, spills: spills(&*plan) })
}

/// Ends a query that has run. Tasks of its operators may outlive its result or its error for a moment.
pub async fn end(query: &Query) -> QueryReport {
    for _ in 0..1000 {
        if query.pool().reserved() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    query.end().expect("it is ended once")
}

fn spills(plan: &dyn ExecutionPlan) -> usize {
    let own = plan.metrics().and_then(|metrics| metrics.spill_count()).unwrap_or(0);
    own + plan.children().into_iter().map(|child| spills(&**child)).sum::<usize>()
}

/// Queries with ordered rows, so that two runs can be compared.
pub mod sql {
    /// Sorts the whole table.
    pub const SORT: &str = "select l_comment, l_orderkey, l_linenumber, l_extendedprice from lineitem \
        order by l_comment, l_orderkey, l_linenumber";
    /// Makes a group for almost each row, and sorts them.
    pub const GROUPS: &str = "select l_orderkey, l_suppkey, count(*) as n, sum(l_quantity) as quantity \
        from lineitem group by l_orderkey, l_suppkey order by l_orderkey, l_suppkey";
    /// A few groups: little memory.
    pub const SUMMARY: &str = "select l_returnflag, l_linestatus, sum(l_quantity) as quantity, \
        avg(l_extendedprice) as price, count(*) as n from lineitem \
        group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus";
    /// A hash join, which holds the keys of one large side in memory and cannot spill.
    pub const JOIN: &str = "select o_orderpriority, count(*) as n, sum(l_extendedprice) as price \
        from lineitem join orders on l_orderkey = o_orderkey \
        group by o_orderpriority order by o_orderpriority";
    /// A hash join that holds a small table.
    pub const LOOKUP: &str = "select c_mktsegment, count(*) as n, sum(o_totalprice) as price \
        from orders join customer on o_custkey = c_custkey \
        group by c_mktsegment order by c_mktsegment";
    /// A hash join that holds all of the larger table, with its comments.
    pub const HUGE: &str = "select max(a.l_comment || b.l_comment) as most from lineitem a \
        join lineitem b on a.l_orderkey = b.l_orderkey and a.l_linenumber = b.l_linenumber";
}
