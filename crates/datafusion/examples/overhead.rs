//! Compares queries under this pool with the same under `GreedyMemoryPool`: the same data, in turns.
//!
//! ```console
//! $ cargo run --release --example overhead -- --scale 0.1 --runs 15
//! ```
//!
//! Prints JSON: the nanoseconds of a `try_grow` and its `shrink`; and for each query the median of each pool in
//! milliseconds, from making its pool to that pool's end, and the median of the ratios of neighbouring runs with its
//! quartiles, by the clock and by CPU time.

mod tpch;

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryConsumer, MemoryPool,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionContext;
use ledgerline::{Ledger, Limit};
use ledgerline_datafusion::LedgerPool;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use tpch::sql;

const MIB: u64 = 1 << 20;

/// No query meets it: under a greedy pool a sort that spills may or may not end in an error. `RepartitionExec` reserves
/// the whole of a batch for each slice of it: gigabytes.
const LARGE: u64 = 1 << 40;

/// A case: its name, its query, the limit at scale 0.1.
const CASES: [(&str, &str, u64); 4] = [
    ("summary", sql::SUMMARY, LARGE),
    ("groups", sql::GROUPS, LARGE),
    ("join", sql::JOIN, LARGE),
    ("sort", sql::SORT, LARGE),
];

/// Returns the session's task context with a greedy pool, made like [`Query::task_context`] makes this crate's.
///
/// [`Query::task_context`]: ledgerline_datafusion::Query::task_context
fn greedy(context: &SessionContext, max: u64) -> Result<Arc<TaskContext>> {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(max as usize));
    let runtime =
        RuntimeEnvBuilder::from_runtime_env(&context.runtime_env()).with_memory_pool(pool);
    let task = context.task_ctx();
    Ok(Arc::new(TaskContext::new(
        task.task_id(),
        task.session_id(),
        task.session_config().clone(),
        task.scalar_functions().clone(),
        task.higher_order_functions().clone(),
        task.aggregate_functions().clone(),
        task.window_functions().clone(),
        runtime.build_arc()?,
    )))
}

/// Returns the CPU time of the process's threads in milliseconds. Other work on the machine lengthens it less than the
/// elapsed time of a query.
fn on_cpu() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ran = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    ran.filter_map(|ran| ran.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e6
}

/// The pool of a run.
#[derive(Clone, Copy)]
enum Pool<'a> {
    /// DataFusion's pool, with a limit.
    Greedy(u64),
    Ours(&'a LedgerPool),
}

/// One run: its elapsed time and CPU time in milliseconds, and its number of spills.
#[derive(Clone, Copy)]
struct Run {
    took: f64,
    on_cpu: f64,
    spills: usize,
}

/// Times a query from making its pool to the end of that pool.
async fn time(context: &SessionContext, pool: Pool<'_>, sql: &str) -> Result<Run> {
    let (start, cpu) = (Instant::now(), on_cpu());
    let outcome = match pool {
        Pool::Greedy(max) => tpch::run(context, greedy(context, max)?, sql).await?,
        Pool::Ours(pool) => {
            let query = pool.for_query("q").expect("the ledger has rows");
            tpch::run(context, query.task_context(&context.task_ctx())?, sql).await?
        }
    };
    let took = start.elapsed().as_secs_f64() * 1e3;
    Ok(Run { took, on_cpu: on_cpu() - cpu, spills: outcome.spills })
}

/// Returns the ratios of this pool's runs to the greedy pool's runs beside them.
fn ratios(ours: &[Run], greedy: &[Run], of: impl Fn(&Run) -> f64) -> [f64; 3] {
    let all = sorted(ours.iter().zip(greedy).map(|(ours, greedy)| of(ours) / of(greedy)).collect());
    [0.25, 0.5, 0.75].map(|part| quantile(&all, part))
}

/// Returns the nanoseconds of a `try_grow` of 64 KiB and its `shrink`, by a consumer that holds `held` MiB.
fn pair(pool: &Arc<dyn MemoryPool>, held: usize) -> f64 {
    const PAIRS: u32 = 100_000;
    let reservation = MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true).register(pool);
    reservation.try_grow(held << 20).expect("there is room");
    let start = Instant::now();
    for _ in 0..PAIRS {
        reservation.try_grow(64 << 10).expect("there is room");
        reservation.shrink(64 << 10);
    }
    start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

/// Returns that for each pool, in turns.
fn pairs(ledger: &Arc<Ledger>, runs: usize, held: usize) -> Result<[f64; 3], Box<dyn Error>> {
    let tenant = ledger.owned_root().create("pairs")?;
    tenant.group().set_max(Limit::units(1024 * MIB))?;
    let query = LedgerPool::builder(tenant).build().for_query("q")?;
    let pools: [Arc<dyn MemoryPool>; 3] = [
        Arc::new(GreedyMemoryPool::new(1 << 30)),
        Arc::new(FairSpillPool::new(1 << 30)),
        query.pool(),
    ];
    let rounds =
        (0..runs).map(|_| pools.each_ref().map(|pool| pair(pool, held))).collect::<Vec<_>>();
    let median = |at: usize| quantile(&sorted(rounds.iter().map(|round| round[at]).collect()), 0.5);
    Ok([0, 1, 2].map(median))
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (mut scale, mut runs, mut only) = (0.1, 15, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        match (&*flag, arguments.next()) {
            ("--scale", Some(value)) => scale = value.parse::<f64>()?,
            ("--runs", Some(value)) => runs = value.parse::<usize>()?.max(1),
            ("--only", Some(value)) => only = Some(value),
            _ => return Err("usage: overhead [--scale 0.1] [--runs 15] [--only join]".into()),
        }
    }
    let context = tpch::session(scale)?;
    let ledger = Arc::new(Ledger::new()?);
    println!("{{\n  \"scale\": {scale}, \"runs\": {runs},\n  \"try_grow_and_shrink_ns\": [");
    for (held, comma) in [(1, ","), (256, "")] {
        let [greedy, fair, ours] = pairs(&ledger, runs, held)?;
        println!(
            "    {{\"held_mib\": {held}, \"greedy\": {greedy:.1}, \"fair\": {fair:.1}, \
             \"ours\": {ours:.1}}}{comma}"
        );
    }
    println!("  ],\n  \"queries\": [");
    let cases =
        CASES.into_iter().filter(|(name, ..)| only.as_deref().is_none_or(|only| only == *name));
    let cases = cases.collect::<Vec<_>>();
    for (at, &(name, sql, max)) in cases.iter().enumerate() {
        let max = ((max as f64 * scale * 10.0) as u64).max(4 * MIB);
        let tenant = ledger.owned_root().create("acme")?;
        tenant.group().set_max(Limit::units(max))?;
        let pool = LedgerPool::builder(tenant.clone()).build();
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        // The first round warms up.
        for round in 0..=runs {
            for turn in 0..2 {
                let is_greedy = (round + turn) % 2 == 0;
                let turn = if is_greedy { Pool::Greedy(max) } else { Pool::Ours(&pool) };
                let run = time(&context, turn, sql).await?;
                if round > 0 {
                    if is_greedy { &mut theirs } else { &mut ours }.push(run);
                }
            }
        }
        let median = |runs: &[Run], of: fn(&Run) -> f64| {
            quantile(&sorted(runs.iter().map(of).collect()), 0.5)
        };
        let [low, took, high] = ratios(&ours, &theirs, |run| run.took);
        let [cpu_low, cpu, cpu_high] = ratios(&ours, &theirs, |run| run.on_cpu);
        println!(
            "    {{\"query\": \"{name}\", \"greedy_ms\": {:.1}, \"ours_ms\": {:.1}, \"ratio\": {took:.4}, \
             \"quartiles\": [{low:.4}, {high:.4}], \"cpu_ratio\": {cpu:.4}, \
             \"cpu_quartiles\": [{cpu_low:.4}, {cpu_high:.4}], \"spills\": [{}, {}]}}{}",
            median(&theirs, |run| run.took),
            median(&ours, |run| run.took),
            median(&theirs, |run| run.spills as f64),
            median(&ours, |run| run.spills as f64),
            if at + 1 < cases.len() { "," } else { "" }
        );
        tenant.group().destroy_tree()?;
    }
    println!("  ]\n}}");
    Ok(())
}
