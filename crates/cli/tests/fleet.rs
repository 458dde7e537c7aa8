//! `ledgerline fleet`: an operator makes budgets in a real store, sees what a real node has of them, and takes it back.

#[path = "schemas/held.rs"]
mod held;
#[path = "../../fleet/tests/support/server.rs"]
#[allow(dead_code, reason = "a part is used")]
mod server;
mod support;

use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledgerline_fleet::fleet::Fleet;
use ledgerline_fleet::store::{Access, Store, open};
use serde_json::Value;
use support::{ledgerline, stderr};

/// Nobody waits longer for anything: a busy machine is slow, and does not hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// An operator, who has a store's address.
struct Operator {
    store: String,
}

impl Operator {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = ledgerline();
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LEDGERLINE_FLEET_"))
        {
            command.env_remove(name);
        }
        command.env("LEDGERLINE_FLEET_STORE", &self.store);
        command.arg("fleet").args(words);
        command
    }

    fn call(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the command runs")
    }

    /// What a call that succeeds prints.
    fn says(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// What a call that fails says.
    fn fails(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(output.stdout.is_empty());
        let said = stderr(&output);
        assert!(said.starts_with("ledgerline: fleet: ") && said.lines().count() == 1, "{said}");
        said
    }

    fn books(&self) -> Value {
        let document: Value =
            serde_json::from_str(&self.says(&["show", "--json", "acme"])).expect("JSON");
        held::held("fleet", &document);
        document["books"][0].clone()
    }

    fn batch(&self) -> Value {
        let book = self.books();
        let budgets = book["budgets"].as_array().expect("budgets").clone();
        budgets.into_iter().find(|budget| budget["path"] == "/acme/batch").unwrap_or_default()
    }

    fn waits(&self, for_what: &str, is: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        while !is(&self.batch()) {
            assert!(began.elapsed() < PATIENCE, "{for_what}: {:#}", self.batch());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Budgets are made, a node uses them, limits change, the node is drained and leaves, budgets go.
fn a_day_of(operator: &Operator) {
    assert_eq!(operator.says(&["set", "/acme", "max=2G"]), "/acme max 2.0G\n/acme min 0\n");
    assert_eq!(
        operator.says(&["set", "/acme/batch", "max=1G", "min=1M"]),
        "/acme/batch max 1.0G\n/acme/batch min 1.0M\n"
    );
    assert_eq!(
        operator.says(&["terms", "acme", "--lease", "60s"]),
        "acme: leases hold 60 s, then 5 s of grace (was 10 s and 5 s).\n"
    );

    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let access = Access { timeout: Some(Duration::from_secs(20)), ..Access::default() };
    let store: Arc<dyn Store> = open(&operator.store, &access).unwrap();
    let (fleet, batch) = runtime.block_on(async {
        let fleet = Fleet::join(store, "node-a").start().unwrap();
        let batch = fleet.budget("/acme/batch").await.unwrap();
        (fleet, batch)
    });
    let held = runtime.block_on(batch.charge(600 << 20)).unwrap();
    operator
        .waits("the charge is told", |batch| batch["nodes"][0]["used"].as_u64() >= Some(600 << 20));
    let budget = operator.batch();
    assert_eq!((&budget["max"], &budget["min"]), (&Value::from(1 << 30), &Value::from(1 << 20)));
    assert_eq!(budget["nodes"][0]["node"], "node-a");
    assert!(budget["leased"].as_u64() <= Some(1 << 30), "{budget:#}");
    let shown = operator.says(&["show", "acme"]);
    assert!(
        shown.starts_with("acme: 1 node; leases hold 60.0 s, then 5.0 s of grace\n"),
        "{shown}"
    );
    assert!(shown.contains("`- node-a "), "{shown}");
    assert!(!shown.contains('\u{1b}'), "a pipe gets no colours: {shown:?}");

    let lowered = operator.says(&["set", "/acme/batch", "max=512M"]);
    assert!(
        lowered.starts_with("/acme/batch max 1.0G -> 512.0M\n/acme/batch min 1.0M\n"),
        "{lowered}"
    );
    assert!(lowered.contains("more than that is leased or in use"), "{lowered}");
    assert!(operator.batch()["over"].as_u64() >= Some(88 << 20));
    drop(held);
    operator.waits("what is idle comes back", |batch| batch["over"] == 0);

    let drained = operator.says(&["drain", "acme", "node-a"]);
    assert!(
        drained.starts_with("node-a gives back what it can spare, and gets no more; it has "),
        "{drained}"
    );
    operator.waits("a drained node has nothing", |batch| batch["leased"] == 0);
    assert!(operator.says(&["show", "acme"]).contains("node-a: drained: it gets no more; "));
    assert_eq!(operator.says(&["drain", "acme", "node-a", "--undo"]), "node-a may lease again.\n");
    assert_eq!(
        operator.says(&["drain", "acme", "node-z"]),
        "node-z is not here; when it joins, it gets nothing.\n"
    );

    let below = operator.fails(&["delete", "/acme"]);
    assert!(below.contains("there are budgets below /acme"), "{below}");
    drop(batch);
    runtime.block_on(fleet.leave(PATIENCE)).unwrap();
    assert_eq!(operator.says(&["delete", "/acme/batch"]), "/acme/batch is deleted.\n");
    assert_eq!(operator.says(&["delete", "/acme"]), "/acme is deleted.\n");
}

#[test]
fn an_operator_of_redis_makes_budgets_sees_who_has_them_and_takes_them_back() {
    let Some(redis) = server::redis(&[]) else { return };
    let operator = Operator { store: format!("redis://127.0.0.1:{}", redis.port) };
    let unready = operator.fails(&["set", "/acme", "max=2G"]);
    assert!(unready.contains("`ledgerline fleet load` loads it"), "{unready}");
    assert_eq!(operator.says(&["load"]), "The store is ready to have books.\n");
    assert_eq!(operator.says(&["load"]), "The store is ready to have books.\n");
    a_day_of(&operator);
}

#[test]
fn an_operator_of_etcd_makes_budgets_sees_who_has_them_and_takes_them_back() {
    let Some(etcd) = server::etcd(&[]) else { return };
    let nobody = Operator { store: format!("etcd://127.0.0.1:{}", server::free_port()) };
    let unready = nobody.fails(&["load"]);
    assert!(unready.contains("cannot be reached"), "{unready}");
    let operator = Operator { store: format!("etcd://127.0.0.1:{}", etcd.port) };
    assert_eq!(operator.says(&["load"]), "The store is ready to have books.\n");
    a_day_of(&operator);
}

#[test]
fn what_cannot_be_done_is_said_with_what_to_do_and_no_password() {
    let Some(redis) = server::redis(&[]) else { return };
    let operator = Operator { store: format!("redis://127.0.0.1:{}", redis.port) };
    operator.says(&["load"]);
    for (words, told) in [
        (&["show", "nobody"][..], "`ledgerline fleet set /nobody max=SIZE` makes one"),
        (&["set", "/acme", "min=1M"], "/acme is new and needs a limit"),
        (&["set", "/acme/batch", "max=1M"], "there is no budget /acme"),
        (&["set", "/acme", "max=1M", "max=2M"], "max is given twice"),
        (&["set", "acme", "max=1M"], "no path of a budget"),
        (&["delete", "/acme"], "there is no budget /acme"),
    ] {
        let said = operator.fails(words);
        assert!(said.contains(told), "{words:?}: {said}");
    }
    let nobody = Operator { store: format!("redis://me:secret@127.0.0.1:{}", server::free_port()) };
    let said = nobody.fails(&["show", "acme"]);
    assert!(said.contains("127.0.0.1") && !said.contains("secret"), "{said}");
    let said = Operator { store: "http://127.0.0.1".to_owned() }.fails(&["show", "acme"]);
    assert!(said.contains("cannot be opened"), "{said}");
    // Without an address, the command says where one belongs.
    let output =
        operator.command(&["show", "acme"]).env_remove("LEDGERLINE_FLEET_STORE").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--store <STORE>"), "{}", stderr(&output));
    // Help tells the variable, and not what is in it.
    let output = nobody.call(&["show", "--help"]);
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(help.contains("LEDGERLINE_FLEET_STORE") && !help.contains("secret"), "{help}");
}
