//! Says how this process updates its per-CPU memory: `rseq` or `fallback`.

fn main() {
    println!("{}", ledgerline::percpu::detect());
}
