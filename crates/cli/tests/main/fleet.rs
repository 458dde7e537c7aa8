//! `ledgerline fleet`: an operator makes budgets in a real store, sees a real node's part of them, and takes it back.

#[path = "../../../fleet/tests/main/support/server.rs"]
#[allow(dead_code, reason = "a part is used")]
mod server;

use crate::held;
use crate::support::tmux::Tmux;
use crate::support::{have, ledgerline, stderr};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledgerline_fleet::fleet::Fleet;
use ledgerline_fleet::store::{Access, Store, open};
use serde_json::Value;

/// Longer than any wait: a busy machine is slow, and does not hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port without a listener: it is this end of a connection, so no other program gets it as long as this lives.
struct Nobody {
    connection: TcpStream,
    _listener: TcpListener,
}

impl Nobody {
    fn new() -> Nobody {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one");
        let connection = TcpStream::connect(address).expect("it listens");
        Nobody { connection, _listener: listener }
    }

    fn port(&self) -> u16 {
        self.connection.local_addr().expect("it has one").port()
    }
}

/// An operator with a store's address.
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

    /// Returns the output of a call that succeeds.
    fn says(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the message of a call that fails.
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
        operator.says(&["terms", "acme", "--lease", "24s"]),
        "acme: leases hold 24 s, then 5 s of grace (was 10 s and 5 s).\n"
    );
    assert_eq!(
        operator.says(&["terms", "acme", "--grace", "6s"]),
        "acme: leases hold 24 s, then 6 s of grace (was 24 s and 5 s).\n"
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
        shown.starts_with("acme: 1 node; leases hold 24.0 s, then 6.0 s of grace\n"),
        "{shown}"
    );
    assert!(shown.contains("`- node-a "), "{shown}");
    assert!(!shown.contains('\u{1b}'), "a pipe gets no colours: {shown:?}");

    // A query of its own is refused, and is gone before any look.
    let query = batch.owned().create("q42").unwrap();
    assert!(query.try_charge(900 << 20).is_err());
    query.group().destroy().unwrap();
    let refusals = |operator: &Operator| operator.books()["refusals"].clone();
    let began = Instant::now();
    while refusals(operator)[0].is_null() {
        // A message reports it: the next is due after a third of the lease.
        let _refused = runtime.block_on(batch.charge(1 << 40));
        assert!(began.elapsed() < PATIENCE, "a refusal is told");
    }
    let told = &refusals(operator)[0];
    assert_eq!((&told["node"], &told["budget"]), (&"node-a".into(), &"/acme/batch".into()));
    assert_eq!((&told["group"], &told["units"]), (&"/acme/batch/q42".into(), &(900 << 20).into()));
    assert!(told["at"].as_u64() > Some(1_600_000_000_000), "by the store's clock: {told}");
    let shown = operator.says(&["show"]);
    assert!(shown.starts_with("acme: 1 node; "), "all that there are: {shown}");
    assert!(shown.contains("node-a refused /acme/batch/q42 900.0M: "), "{shown}");
    looked_at_by_top(operator);

    let lowered = operator.says(&["set", "/acme/batch", "max=512M"]);
    assert!(
        lowered.starts_with("/acme/batch max 1.0G -> 512.0M\n/acme/batch min 1.0M\n"),
        "{lowered}"
    );
    assert!(lowered.contains("more than that is leased or in use"), "{lowered}");
    assert!(operator.batch()["over"].as_u64() >= Some(88 << 20));
    drop(held);
    operator.waits("what is idle comes back", |batch| batch["over"] == 0);

    // A budget that is deleted while a node holds a part of it goes with the last lease, or is taken back.
    let some = runtime.block_on(batch.charge(1 << 20)).unwrap();
    assert!(operator.says(&["delete", "/acme/batch"]).contains("it goes with the last lease"));
    let opened = operator.says(&["set", "/acme/batch", "max=512M"]);
    assert!(
        opened.contains("It had been deleted while it was leased, and is open again."),
        "{opened}"
    );
    drop(some);
    let drained = operator.says(&["drain", "acme", "node-a"]);
    assert!(
        drained.starts_with("node-a gives back what it can spare, and gets no more; it has "),
        "{drained}"
    );
    operator.waits("a drained node has nothing", |batch| batch["leased"] == 0);
    assert!(operator.says(&["show", "acme"]).contains("node-a: drained: it gets no more; "));
    let refused = runtime.block_on(batch.charge(1 << 20)).unwrap_err().to_string();
    assert!(refused.contains("an operator drains this node"), "{refused}");
    let began = Instant::now();
    while !operator.says(&["show", "acme"]).contains("1.0M: node-a is drained\n") {
        let _refused = runtime.block_on(batch.charge(1 << 20));
        assert!(began.elapsed() < PATIENCE, "{}", operator.says(&["show", "acme"]));
    }
    assert_eq!(operator.says(&["drain", "acme", "node-a", "--undo"]), "node-a may lease again.\n");
    assert_eq!(
        operator.says(&["drain", "acme", "node-z"]),
        "node-z is not here; when it joins, it gets nothing.\n"
    );
    let mistyped = operator.fails(&["drain", "acmee", "node-z"]);
    assert!(mistyped.contains("acmee has no budgets in this store"), "{mistyped}");
    let most = operator.fails(&["set", "/acme/batch", "max=1G", "min=2G"]);
    assert!(most.contains("a min of 2.0G is more than the max of 1.0G"), "{most}");
    let most = operator.fails(&["set", "/acme/batch", "min=1P"]);
    assert!(most.contains("a min of 1.0P is more than the max of "), "{most}");

    let below = operator.fails(&["delete", "/acme"]);
    assert!(below.contains("there are budgets below /acme"), "{below}");
    drop(batch);
    runtime.block_on(fleet.leave(PATIENCE)).unwrap();
    assert_eq!(operator.books()["refusals"][0]["node"], "node-a", "it stays when its node leaves");
    assert_eq!(operator.says(&["delete", "/acme/batch"]), "/acme/batch is deleted.\n");
    assert_eq!(operator.says(&["delete", "/acme"]), "/acme is deleted.\n");
}

/// Checks `top` once, as lines of JSON, and as tables in a pipe.
fn looked_at_by_top(operator: &Operator) {
    let once = operator.says(&["top", "--once"]);
    assert!(once.starts_with("acme: 1 node; ") && once.contains("`- node-a "), "{once}");
    let document = operator.says(&["top", "--once", "--json", "acme"]);
    held::held("fleet", &serde_json::from_str(&document).expect("JSON"));
    for (words, is_look) in [
        (&["top", "--json", "--interval", "100ms"][..], "{\"books\":["),
        (&["top", "--interval", "100ms"], "acme: 1 node; "),
    ] {
        let mut command = operator.command(words);
        let mut top = command.stdout(Stdio::piped()).spawn().expect("the command runs");
        let mut lines = BufReader::new(top.stdout.take().expect("a pipe")).lines();
        let looks = lines.by_ref().map(|line| line.expect("text"));
        assert_eq!(looks.filter(|line| line.starts_with(is_look)).take(2).count(), 2, "{words:?}");
        // It ends when the reader is gone.
        drop(lines);
        assert!(top.wait().expect("a child of ours").success());
    }
}

#[test]
fn top_on_a_terminal_shows_budgets_nodes_and_refusals_and_what_is_read_stays_when_the_store_is_lost()
 {
    let (Some(redis), Some(tmux)) = (server::redis(&[]), Tmux::start(120, 20)) else { return };
    let operator = Operator { store: format!("redis://127.0.0.1:{}", redis.port) };
    operator.says(&["load"]);
    operator.says(&["set", "/acme", "max=2G"]);
    operator.says(&["set", "/acme/batch", "max=1G", "min=1M"]);
    let address = &operator.store;
    tmux.line(&format!(
        "$LEDGERLINE fleet top --interval 200ms --store {address}; echo \"status $?\""
    ));
    let is_drawn = |screen: &str| screen.contains("q quit") && screen.contains("  /acme  ");
    let screen = tmux.wait_for("the screen", is_drawn);
    assert!(screen.contains("1 organisation, 2 budgets, 0 nodes; every 0.2 s"), "{screen}");
    tmux.keys(&["j"]);
    tmux.wait_for("the pane", |screen| screen.contains("/acme/batch: max 1.0G, min 1.0M a node"));
    operator.says(&["set", "/acme/batch", "max=512M"]);
    tmux.wait_for("a changed limit", |screen| screen.contains("/acme/batch: max 512.0M"));
    tmux.keys(&["]", "a"]);
    tmux.wait_for("nothing", |screen| {
        screen.contains("every 0.5 s") && screen.contains("No budget")
    });
    tmux.keys(&["a"]);
    drop(redis);
    let lost = tmux.wait_for("the error", |screen| screen.contains("LOST, this is "));
    assert!(lost.contains("cannot be reached") && lost.contains("512.0M"), "{lost}");
    tmux.keys(&["q"]);
    tmux.wait_for("the end", |screen| screen.contains("status 0"));
}

/// A page, metrics that promtool accepts if it is installed, and JSON that follows its schema. All of it stays
/// available, with its age, when the store is stopped.
#[test]
fn books_are_served_and_stay_with_their_age_when_the_store_says_nothing() {
    let Some(redis) = server::redis(&[]) else { return };
    let operator = Operator { store: format!("redis://127.0.0.1:{}/?timeout=300ms", redis.port) };
    Operator { store: format!("redis://127.0.0.1:{}", redis.port) }.says(&["load"]);
    operator.says(&["set", "/acme", "max=2G"]);
    let serving = Serving::start(&operator);
    let metrics = serving.until("/metrics", "\nledgerline_fleet_up 1");
    let max = "ledgerline_fleet_max_bytes{organisation=\"acme\",budget=\"/acme\"} 2147483648\n";
    assert!(metrics.contains(max), "{metrics}");
    promtool(&metrics);
    held::held("serve-fleet", &serde_json::from_str(&serving.get("/api/books")).expect("JSON"));
    assert!(serving.get("/").contains(">/acme</th>"));
    assert!(serving.get("/page.css").contains("color-scheme: light dark"));
    redis.signal("-STOP");
    let lost = serving.until("/metrics", "\nledgerline_fleet_up 0");
    assert!(lost.contains(max), "{lost}");
    let document: Value = serde_json::from_str(&serving.get("/api/books")).unwrap();
    let told = document["trouble"].as_str().unwrap_or_default();
    assert!(told.contains("did not answer in time"), "{told}");
    held::held("serve-fleet", &document);
    assert!(serving.get("/").contains("Lost: this is"));
    redis.signal("-CONT");
    serving.until("/metrics", "\nledgerline_fleet_up 1");
}

#[test]
fn what_is_served_of_a_store_that_nobody_reaches_says_so_and_tells_no_password() {
    let nobody = Nobody::new();
    let store = format!("redis://me:secret@127.0.0.1:{}", nobody.port());
    let mut serving = Serving::start(&Operator { store });
    let mut told = String::new();
    let errors = serving.child.stderr.take().expect("a pipe");
    BufReader::new(errors).read_line(&mut told).unwrap();
    assert!(told.contains("cannot be reached") && !told.contains("secret"), "{told}");
    let document = serving.until("/api/books", "cannot be reached");
    let all = [document, serving.get("/metrics"), serving.get("/")].concat();
    assert!(all.contains("ledgerline_fleet_up 0") && !all.contains("secret"), "{all}");
}

/// A `ledgerline fleet serve` that ends with the test.
struct Serving {
    child: Child,
    address: String,
    token: String,
}

impl Serving {
    fn start(operator: &Operator) -> Serving {
        let mut command = operator.command(&["serve", "--interval", "100ms"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).unwrap();
        let (address, token) = line
            .trim()
            .strip_prefix("http://")
            .and_then(|rest| rest.split_once("/?token="))
            .unwrap_or_else(|| panic!("an address with a token: {line:?}"));
        Serving { child, address: address.to_owned(), token: token.to_owned() }
    }

    fn get(&self, path: &str) -> String {
        let (address, token) = (&self.address, &self.token);
        let mut socket = TcpStream::connect(address).unwrap();
        let head = format!(
            "GET {path}?token={token} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut reply = String::new();
        socket.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").expect("a reply");
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        body.to_owned()
    }

    /// Returns the first response with these words.
    fn until(&self, path: &str, words: &str) -> String {
        let began = Instant::now();
        loop {
            let body = self.get(path);
            if body.contains(words) {
                return body;
            }
            assert!(began.elapsed() < PATIENCE, "{path}: {body}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks a scrape with Prometheus' own tool.
fn promtool(metrics: &str) {
    if !have("promtool") {
        return;
    }
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().expect("promtool runs");
    check.stdin.take().expect("a pipe").write_all(metrics.as_bytes()).unwrap();
    let output = check.wait_with_output().expect("a child of ours");
    assert!(output.status.success(), "{}{metrics}", stderr(&output));
}

/// A call costs the store as much as `top --help` states.
#[test]
fn a_look_of_top_costs_a_redis_some_ten_commands_an_organisation() {
    let Some(redis) = server::redis(&[]) else { return };
    let operator = Operator { store: format!("redis://127.0.0.1:{}", redis.port) };
    operator.says(&["load"]);
    for name in ["/a", "/b", "/c"] {
        operator.says(&["set", name, "max=2G"]);
    }
    let cost = |words: &[&str]| {
        let before = commands(redis.port);
        operator.says(words);
        commands(redis.port) - before
    };
    let (one, three) = (cost(&["top", "--once", "a"]), cost(&["top", "--once", "a", "b", "c"]));
    let listed = cost(&["top", "--once"]);
    eprintln!(
        "commands of a look: {one} of one organisation, {three} of three, {listed} with their list"
    );
    assert!((three - one) / 2 <= 11 && listed - three <= 2, "{one} {three} {listed}");
}

/// Returns the number of commands that the server has run, with those of its functions, but without this one.
fn commands(port: u16) -> u64 {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.write_all(b"INFO commandstats\r\nQUIT\r\n").unwrap();
    let mut stats = String::new();
    socket.read_to_string(&mut stats).unwrap();
    let ours = |line: &&str| !["_info", "_quit", "_hello"].iter().any(|own| line.contains(own));
    let calls = stats
        .lines()
        .filter(ours)
        .filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok());
    calls.sum()
}

#[test]
fn an_operator_of_redis_makes_budgets_sees_who_has_them_and_takes_them_back() {
    let Some(redis) = server::redis(&[]) else { return };
    let operator = Operator { store: format!("redis://127.0.0.1:{}", redis.port) };
    let unready = operator.fails(&["set", "/acme", "max=2G"]);
    assert!(unready.contains("`ledgerline fleet load` loads it"), "{unready}");
    let ready =
        "The store is ready to have books.\nWarning: this Redis keeps no log (appendonly no)";
    for _ in 0..2 {
        let said = operator.says(&["load"]);
        assert!(said.starts_with(ready), "{said}");
    }
    say(&redis, &[b"CONFIG", b"SET", b"maxmemory-policy", b"allkeys-random"]);
    let said = operator.says(&["load"]);
    assert!(said.contains("Warning: this Redis evicts keys"), "{said}");
    let mut doctor = ledgerline();
    let output = doctor.arg("doctor").env("LEDGERLINE_FLEET_STORE", &operator.store).output();
    let told = String::from_utf8(output.unwrap().stdout).unwrap();
    let line = told.lines().find(|line| line.starts_with("fleet's store  risky")).expect(&told);
    assert!(line.contains("allkeys-random") && line.contains("appendonly no"), "{line}");
    say(&redis, &[b"CONFIG", b"SET", b"maxmemory-policy", b"noeviction"]);
    a_day_of(&operator);
}

#[test]
fn an_operator_of_etcd_makes_budgets_sees_who_has_them_and_takes_them_back() {
    let Some(etcd) = server::etcd(&[]) else { return };
    let nobody = Nobody::new();
    let unreached = Operator { store: format!("etcd://127.0.0.1:{}", nobody.port()) };
    let unready = unreached.fails(&["load"]);
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
    assert!(operator.fails(&["show"]).contains("this store has no budgets"));
    for (words, told) in [
        (&["show", "nobody"][..], "`ledgerline fleet set /nobody max=SIZE` makes one"),
        (&["top", "--once", "nobody"], "`ledgerline fleet set /nobody max=SIZE` makes one"),
        (&["set", "/acme", "min=1M"], "/acme is new and needs a limit"),
        (&["set", "/acme/batch", "max=1M"], "there is no budget /acme"),
        (&["set", "/acme", "max=1M", "max=2M"], "max is given twice"),
        (&["set", "acme", "max=1M"], "no path of a budget"),
        (&["delete", "/acme"], "there is no budget /acme"),
        (&["terms", "nobody", "--lease", "5s"], "nobody has no budgets"),
        (&["drain", "nobody", "n1", "--undo"], "no n1 is drained in nobody"),
        (&["set", "/acme", "max=1K", "min=2K"], "no node could have it"),
    ] {
        let said = operator.fails(words);
        assert!(said.contains(told), "{words:?}: {said}");
    }
    // Intuitive input is accepted, or its format is explained.
    operator.says(&["set", "/acme", "max=1G"]);
    let [plain, slash] = ["acme", "/acme"].map(|name| operator.says(&["show", name]));
    assert_eq!(plain, slash);
    assert_eq!(plain, operator.says(&["show", "acme", "/acme"]), "each once");
    operator.says(&["terms", "acme", "--grace", "2min"]);
    for (words, told) in [
        (&["show", "/acme/batch"][..], "the first name of its budgets' paths: acme"),
        (&["set", "/acme", "max=1.5GB"], "write 1.5G or 1.5GiB"),
        (&["set", "/acme", "max=8E"], "more than a store counts"),
        (&["terms", "acme", "--lease", "5"], "as in 1500ms or 10s"),
        (&["terms", "acme"], "<--lease <TIME>|--grace <TIME>>"),
    ] {
        let output = operator.call(words);
        let said = stderr(&output);
        assert!(output.status.code() == Some(2) && said.contains(told), "{words:?}: {said}");
    }
    let nobody = Nobody::new();
    let unreached = Operator { store: format!("redis://me:secret@127.0.0.1:{}", nobody.port()) };
    let said = unreached.fails(&["show", "acme"]);
    assert!(said.contains("127.0.0.1") && !said.contains("secret"), "{said}");
    let said = Operator { store: "http://127.0.0.1".to_owned() }.fails(&["show", "acme"]);
    assert!(said.contains("cannot be opened"), "{said}");
    // Without an address, the command explains where it belongs.
    let output =
        operator.command(&["show", "acme"]).env_remove("LEDGERLINE_FLEET_STORE").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--store <STORE>"), "{}", stderr(&output));
    // Help shows the variable's name, and not its value.
    let output = unreached.call(&["show", "--help"]);
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(help.contains("LEDGERLINE_FLEET_STORE") && !help.contains("secret"), "{help}");
}

/// The peer at the store's address may send without an end: the cost of that is bounded.
#[test]
fn a_store_that_sends_without_an_end_costs_64_mib_at_most() {
    use std::os::unix::process::ExitStatusExt;
    /// Returns the peak of resident bytes when the store sends this, and the output.
    #[expect(clippy::zombie_processes, reason = "wait4 waits for it, and says what it used")]
    fn resident(start: &'static [u8], more: &'static [u8]) -> (u64, String) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                std::thread::spawn(move || {
                    let _ = socket.read(&mut [0; 4096]);
                    let _ = socket.write_all(start);
                    while !more.is_empty() && socket.write_all(more).is_ok() {}
                });
            }
        });
        let store = format!("redis://127.0.0.1:{port}?timeout=20s");
        let mut command = crate::support::ledgerline();
        command.args(["fleet", "show", "acme", "--store", &store]);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let (mut status, pid) = (0, child.id() as libc::pid_t);
        // SAFETY: a record of integers, for which zeros are valid; the child was not waited for.
        let used = unsafe {
            let mut used: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::wait4(pid, &raw mut status, 0, &raw mut used), pid);
            used.ru_maxrss as u64 * 1024
        };
        assert_eq!(std::process::ExitStatus::from_raw(status).code(), Some(1), "{said}");
        (used, said)
    }
    let (honest, said) = resident(b"-ERR no\r\n", b"");
    assert!(said.contains("no"), "{said}");
    for (start, more) in [
        (&b"*1000000000\r\n"[..], &b":1\r\n:1\r\n:1\r\n:1\r\n"[..]),
        (b"$4000000000\r\n", b"xxxxxxxxxxxxxxxx"),
        (b"-ERR ", b"xxxxxxxxxxxxxxxx"),
        (b"*9\r\n*1000000000\r\n", b"*1\r\n*1\r\n*0\r\n*0\r\n"),
    ] {
        let (used, said) = resident(start, more.repeat(4096).leak());
        let more = used.saturating_sub(honest);
        assert!(more < 64 << 20, "{} MiB for {start:?}: {said}", more >> 20);
        assert!(said.len() < 3000 && said.contains("127.0.0.1"), "{said}");
    }
}

/// Sends a command to a Redis, and reads the beginning of its reply.
fn say(redis: &server::Server, words: &[&[u8]]) {
    let mut socket = TcpStream::connect(("127.0.0.1", redis.port)).unwrap();
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend(format!("${}\r\n", word.len()).bytes());
        request.extend(*word);
        request.extend(b"\r\n");
    }
    socket.write_all(&request).unwrap();
    let mut reply = [0; 64];
    let length = socket.read(&mut reply).unwrap();
    assert!(length > 0 && reply[0] != b'-', "{}", String::from_utf8_lossy(&reply));
}

#[test]
fn one_bad_field_of_one_organisation_is_that_organisations_and_named_with_its_key() {
    let Some(redis) = server::redis(&[]) else { return };
    let operator = Operator { store: format!("redis://127.0.0.1:{}", redis.port) };
    operator.says(&["load"]);
    for organisation in ["acme", "beta", "zeta"] {
        operator.says(&["set", &format!("/{organisation}"), "max=1G"]);
    }
    let minus = [(-1.0_f64).to_le_bytes(); 18].concat();
    for (key, field, value) in [
        ("budgets", "/beta", &b"short"[..]),
        ("budgets", "/beta\u{1b}[31m", &minus),
        ("nodes", "n1", b"nonsense"),
        ("refusals", "1", b"nonsense"),
    ] {
        let at = format!("{{ledgerline:v1:beta}}:{key}");
        say(&redis, &[b"HSET", at.as_bytes(), field.as_bytes(), value]);
        let shown = operator.command(&["show"]).output().unwrap();
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.status.success(), "{key} {field}: {}", stderr(&shown));
        assert!(text.contains("/acme") && text.contains("/zeta"), "{text}");
        let line = text.lines().find(|line| line.starts_with("beta: damaged")).expect(&text);
        assert!(line.contains(key), "{line}");
        assert!(key == "refusals" || line.contains(&field[..2]), "{line}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        let json = operator.command(&["show", "--json"]).output().unwrap();
        let document: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(document["damaged"][0]["organisation"], "beta");
        let serving = Serving::start(&operator);
        let metrics =
            serving.until("/metrics", "ledgerline_fleet_damaged{organisation=\"beta\"} 1");
        assert!(metrics.contains("ledgerline_fleet_up 1"), "{metrics}");
        assert!(metrics.contains("budget=\"/acme\""), "{metrics}");
        // A request for that one alone gets the report as well.
        let alone = operator.command(&["show", "beta"]).output().unwrap();
        assert_eq!(alone.status.code(), Some(1));
        assert!(stderr(&alone).contains("beta is damaged"), "{}", stderr(&alone));
        say(&redis, &[b"HDEL", at.as_bytes(), field.as_bytes()]);
        if field == "/beta" {
            operator.says(&["set", "/beta", "max=1G"]);
        }
    }
}

/// A store that evicts keys, or an operator who deletes one: `show` says what is lost, `repair` and `set` mend it.
#[test]
fn a_book_without_its_limits_is_shown_with_what_nodes_hold_and_mended_by_set_and_repair() {
    let Some(redis) = server::redis(&[]) else { return };
    let operator = Operator { store: format!("redis://127.0.0.1:{}", redis.port) };
    operator.says(&["load"]);
    operator.says(&["set", "/acme", "max=2G"]);
    assert!(operator.fails(&["repair", "nobody"]).contains("has no budgets in this store"));
    assert_eq!(operator.says(&["repair", "acme"]), "All sums are right.\n");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let store: Arc<dyn Store> = open(&operator.store, &Access::default()).unwrap();
    let (fleet, budget) = runtime.block_on(async {
        let fleet = Fleet::join(store, "node-a").start().unwrap();
        let budget = fleet.budget("/acme").await.unwrap();
        (fleet, budget)
    });
    let charge = runtime.block_on(budget.charge(64 << 20)).unwrap();
    say(&redis, &[b"DEL", b"{ledgerline:v1:acme}:budgets"]);
    let shown = operator.says(&["show", "acme"]);
    assert!(shown.contains("/acme (its max is lost: set it again)"), "{shown}");
    assert!(shown.contains("node-a"), "{shown}");
    let set = operator.says(&["set", "/acme", "max=1G"]);
    assert!(set.contains("/acme max"), "{set}");
    let shown = operator.says(&["show", "acme"]);
    assert!(shown.contains("the store had lost a part of the book"), "{shown}");
    assert!(shown.contains("grants nothing for") && !shown.contains("is lost"), "{shown}");
    assert!(shown.contains(" set /acme: max 1.0G"), "who, and what: {shown}");
    drop(charge);
    drop(budget);
    runtime.block_on(fleet.leave(PATIENCE)).unwrap();
}
