//! The integration tests in one program, because each program is linked by itself. A test that needs a process of its
//! own is a file in the folder above, which has the reason.

mod advise;
#[path = "../../../../tests/support/cases.rs"]
mod cases;
#[path = "../../../../tests/support/compile.rs"]
mod compile;
mod cplusplus;
#[path = "../../../../tests/support/golden.rs"]
mod golden;
#[path = "../../../../tests/support/have.rs"]
mod have;
mod net_cachelines;
mod perf_data;
mod profiles;
mod ranking;
mod recording;
mod rows;
#[path = "../../../../tests/support/seed.rs"]
mod seed;
mod sketches;
mod straddles;
#[path = "../support/mod.rs"]
mod support;
mod times;
