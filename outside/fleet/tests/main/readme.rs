//! The code in the README of `ledgerline-fleet` is compiled here, letter by letter, and does what the README says.

use outside_fleet::stage::Stage;

const README: &str = include_str!("../../../../crates/fleet/README.md");
const CODE: &str = include_str!("serve.rs");

include!("serve.rs");

#[test]
fn readme_shows_the_code_that_is_compiled_here() {
    let fence = "```rust,no_run\n";
    let start = README.find(fence).expect("README has code") + fence.len();
    let length = README[start..].find("```").expect("a block ends");
    assert_eq!(&README[start..start + length], CODE);
}

/// It takes some 2 GiB. The second limit lacks a byte, so its last charge waits in vain.
#[tokio::test]
async fn the_code_in_readme_charges_and_leaves_nothing_leased() {
    for limit in [4 << 30, (2 << 30) + (64 << 10) - 1] {
        let stage =
            Stage::with(&[("/acme", 1 << 40), ("/acme/batch", limit)]).await.expect("a store");
        serve(stage.store.clone()).await.expect("it leaves in time");
        let book = stage.store.view("acme").await.expect("a book");
        assert!(book.budgets.iter().all(|budget| budget.leased == 0), "{:?}", book.budgets);
    }
}
