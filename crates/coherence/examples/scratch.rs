//! scratch
use ledgerline_coherence::experiments::*;
fn main() {
    let n: usize = std::env::args().nth(2).map_or(10, |a| a.parse().unwrap());
    let which = std::env::args().nth(1).unwrap();
    let st = std::time::Instant::now();
    let e = match which.as_str() {
        "3" => vec![
            numa_threshold::predict(32, n),
            numa_threshold::predict(64, n),
            numa_threshold::predict(125, n),
            numa_threshold::predict(256, n),
            numa_threshold::predict(512, n),
        ],
        "1" => vec![memcg_layout::predict(n)],
        "0" => vec![page_counter_layout::predict(n)],
        _ => vec![page_counter_lockless::predict(n)],
    };
    for e in e {
        let e = e.unwrap();
        println!("{} {} {:?}", e.name, e.calibrated_on, st.elapsed());
        for r in &e.rows {
            println!(
                "{:35} {:?} {:.1} [{:.1} {:.1}] {:+.1}% {} {}",
                r.name,
                r.published,
                r.predicted.median,
                r.predicted.low,
                r.predicted.high,
                r.published.map_or(0., |p| (r.predicted.median / p - 1.) * 100.),
                r.calibration,
                if r.published.is_none_or(|p| r.predicted.holds(p)) { "" } else { "NOT" }
            );
        }
    }
}
