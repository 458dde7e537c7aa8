//! A program with a limit of the kernel's, which it follows as README describes. It is this test, started again by a
//! shell that lowers the limit first.

use ledgerline::container::UNTRACKED;
use ledgerline::{Ledger, Reason};
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 1 << 30;
const INSIDE: &str = "OUTSIDE_CONTAINER";

/// Runs the named test with `ulimit -v`, and returns whether this is that run.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let itself = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v {} && exec \"$0\" \"$@\"", LIMIT / 1024)])
        .arg(itself)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    // An unknown name would run no test, and succeed.
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    false
}

/// Allocates memory of the program's own, and touches it.
fn memory(bytes: u64) -> Vec<u8> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes as usize).expect("the ledger granted it");
    memory.resize(bytes as usize, 1);
    memory
}

#[test]
fn what_the_ledger_grants_below_a_resource_limit_can_be_had() {
    if !is_inside("container::what_the_ledger_grants_below_a_resource_limit_can_be_had") {
        return;
    }
    let ledger = Ledger::builder().capacity(1024).container().anonymous().unwrap();
    let now = ledger.container().expect("it was built with one");
    let limit = now.limit.expect("there is one");
    assert_eq!(limit.bytes, LIMIT, "{limit}");
    assert_eq!(ledger.root().max().get(), Some(LIMIT - now.margin));

    let query = ledger.root().create("q1").unwrap();
    let mut held = Vec::new();
    let refused = loop {
        match query.try_charge(8 * MIB) {
            // If the kernel refused the memory, the loop and the test would end.
            Ok(charge) => held.push((memory(8 * MIB), charge)),
            Err(refused) => break refused,
        }
    };
    assert_eq!((refused.reason, &*refused.group), (Reason::Limit, "/"), "{refused}");
    // The room goes to charged memory, except for the program's other memory and the margin.
    let charged = held.len() as u64 * 8 * MIB;
    let untracked = ledger.root().child(UNTRACKED).expect("the container's").precise();
    assert!(charged + untracked + now.margin + 8 * MIB > LIMIT, "{charged} and {untracked}");
    assert!(charged > LIMIT / 4, "{charged} of {LIMIT}, {untracked} untracked");
}

#[test]
fn what_nobody_charged_takes_from_the_room_and_gives_it_back() {
    if !is_inside("container::what_nobody_charged_takes_from_the_room_and_gives_it_back") {
        return;
    }
    let ledger = Ledger::builder().capacity(1024).container().anonymous().unwrap();
    let row = ledger.root().child(UNTRACKED).expect("the container's");
    let before = row.precise();
    let room = ledger.root().max().get().unwrap() - before;
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(60), "{what}: {:?}", ledger.container());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let buffers = memory(room / 2);
    wait("it is seen", &|| row.precise() >= before + room / 2);
    assert!(ledger.root().try_charge(room * 3 / 4).is_err(), "half of the room is nobody's");
    drop(buffers);
    wait("it is gone", &|| row.precise() < before + room / 4);
    let _charge = ledger.root().try_charge(room * 3 / 4).expect("there is room again");
}
