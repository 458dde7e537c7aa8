//! A program announces its ledger. Another one finds it, reads it without write permission, and reads the remains
//! after the program was killed: by the public API alone.

use ledgerline::{Ledger, View};
use std::error::Error;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

type Tried = Result<(), Box<dyn Error>>;

/// Tells a process that the test starts its role.
const ROLE: &str = "OUTSIDE_WATCH";

/// A runtime directory for this test alone.
struct Runtime(PathBuf);

impl Runtime {
    fn new(name: &str) -> std::io::Result<Runtime> {
        let path = std::env::temp_dir().join(format!("outside-{}-{name}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Runtime(path))
    }

    /// Returns a command that runs this binary in a role, with the test's runtime directory.
    fn role(&self, role: &str) -> std::io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "watch::a_role", "--nocapture"]);
        command.env(ROLE, role).env("XDG_RUNTIME_DIR", &self.0);
        Ok(command)
    }

    fn watch(&self, role: &str) -> Tried {
        let output = self.role(role)?.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{role}: {text}");
        assert!(text.contains("1 passed"), "{role}: {text}");
        Ok(())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that has announced its ledger. It charges one more unit for every byte that it reads.
struct Program(Child, BufReader<std::process::ChildStdout>);

impl Program {
    fn start(runtime: &Runtime) -> Result<Program, Box<dyn Error>> {
        let mut command = runtime.role("program")?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("piped")?;
        let mut program = Program(child, BufReader::new(output));
        program.says("announced")?;
        Ok(program)
    }

    fn says(&mut self, word: &str) -> Tried {
        let mut line = String::new();
        while self.1.read_line(&mut line)? > 0 {
            if line.trim_end().ends_with(word) {
                return Ok(());
            }
            line.clear();
        }
        Err(format!("it ended before it said {word}").into())
    }

    fn charge_one_more(&mut self) -> Tried {
        self.0.stdin.as_mut().ok_or("piped")?.write_all(b"+")?;
        self.says("charged")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn who_looks_on_finds_an_announced_ledger_and_what_a_killed_program_left() -> Tried {
    let runtime = Runtime::new("announced")?;
    let mut program = Program::start(&runtime)?;
    runtime.watch("found 1000")?;
    program.charge_one_more()?;
    runtime.watch("found 1001")?;
    program.0.kill()?;
    program.0.wait()?;
    runtime.watch("left 1001")
}

/// Only its user finds it: a folder that others may write to is skipped.
#[test]
fn a_folder_that_others_may_write_is_passed_over() -> Tried {
    let runtime = Runtime::new("open")?;
    let _program = Program::start(&runtime)?;
    runtime.watch("found 1000")?;
    fs::set_permissions(runtime.0.join("ledgerline"), Permissions::from_mode(0o777))?;
    runtime.watch("nothing")
}

#[test]
fn a_role() -> Tried {
    let Ok(role) = std::env::var(ROLE) else { return Ok(()) };
    let runtime = std::env::var("XDG_RUNTIME_DIR")?;
    let here = || {
        let all = ledgerline::announced().into_iter();
        all.filter(|found| found.path.starts_with(&runtime)).collect::<Vec<_>>()
    };
    match role.split_once(' ').unwrap_or((&role, "")) {
        ("program", _) => program(),
        ("nothing", _) => {
            assert_eq!(here(), []);
            Ok(())
        }
        (word, units) => {
            let [found] = &here()[..] else { return Err(format!("{:?}", here()).into()) };
            assert_eq!((&*found.name, found.running), ("orders", word == "found"));
            look(&found.path, units.parse()?)
        }
    }
}

fn program() -> Tried {
    let ledger = Ledger::builder().items(&["rows_read"]).announce("orders")?;
    let query = ledger.root().create("acme")?.create("q1")?;
    query.charge_units(1000)?;
    query.add_stat(ledger.item("rows_read").ok_or("declared")?, 7);
    println!("\nannounced");
    for byte in std::io::stdin().lock().bytes() {
        byte?;
        query.charge_units(1)?;
        println!("\ncharged");
    }
    Ok(())
}

fn look(path: &Path, units: u64) -> Tried {
    // It is open for reading alone: a reader cannot write.
    let view = View::open(File::open(path)?)?;
    let reading = view.read()?;
    let groups: Vec<_> = reading.snapshot.groups.iter().collect();
    let found: Vec<_> = groups.iter().map(|group| (&*group.path, group.current)).collect();
    assert_eq!(found, [("/", units), ("/acme", units), ("/acme/q1", units)]);
    let rows_read = reading.statistics.line("rows_read").ok_or("the item's line")?;
    assert_eq!(reading.statistics.subtree(0, rows_read), 7);
    Ok(())
}
