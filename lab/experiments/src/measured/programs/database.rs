//! A database: PostgreSQL's pgbench against a server of its own, on a socket in its directory.

use super::super::trace::{Recorder, Trace};
use super::running::{PATIENCE, Running, Size};
use super::scratch::Scratch;
use super::user::{User, give};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const NAME: &str = "bench";
const CLIENTS: &str = "10";

pub(super) fn record(cpus: &[usize], size: Size) -> Result<Trace, String> {
    let programs = find().ok_or("PostgreSQL's initdb, postgres and pgbench are not installed")?;
    let user = User::other_than_root()?;
    let scratch = Scratch::new().map_err(|error| format!("no directory to work in: {error}"))?;
    give(scratch.path(), user)?;
    let server = Server { programs: &programs, directory: scratch.path(), user };
    let data = scratch.path().join("data");
    let mut initdb = server.command("initdb");
    initdb
        .args(["-A", "trust", "-N", "--no-instructions", "-E", "UTF8", "-U", NAME])
        .arg("-D")
        .arg(&data);
    Running::start(&mut initdb, user)?.succeed()?;

    let mut recorder = Recorder::begin(cpus)?;
    let mut postgres = server.command("postgres");
    // The data need not survive a crash.
    postgres.args(["-c", "listen_addresses=", "-c", "fsync=off", "-k"]).arg(scratch.path());
    postgres.arg("-D").arg(&data);
    let mut postgres = Running::start(&mut postgres, user)?;
    let result = server.ready(&mut postgres).and_then(|()| {
        server.bench(&["-i", "-q", "-s", "1"])?;
        for _ in 0..size.passes {
            let jobs = cpus.len().min(10).to_string();
            let length = if size.quick { ["-t", "20"] } else { ["-T", "2"] };
            recorder
                .pass(|| server.bench(&["-n", "-c", CLIENTS, "-j", &jobs, length[0], length[1]]))?;
        }
        Ok(())
    });
    server.stop(postgres);
    result.map(|()| recorder.end())
}

/// Returns the directory that contains all three programs, the newest if there are several.
fn find() -> Option<PathBuf> {
    let whole = |directory: &PathBuf| {
        ["initdb", "postgres", "pgbench"].iter().all(|name| directory.join(name).is_file())
    };
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut packaged: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin")))
        })
        .collect();
    packaged.sort_unstable_by(|one, other| other.cmp(one));
    std::env::split_paths(&paths).chain(packaged.into_iter().map(|(_, path)| path)).find(whole)
}

/// The common settings of its programs.
struct Server<'a> {
    programs: &'a Path,
    directory: &'a Path,
    user: Option<User>,
}

impl Server<'_> {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.directory);
        // The server's place and user are set here, not by the user's environment.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PG")) {
                command.env_remove(name);
            }
        }
        command
    }

    fn bench(&self, options: &[&str]) -> Result<(), String> {
        let mut pgbench = self.command("pgbench");
        pgbench.arg("-h").arg(self.directory).args(["-U", NAME]).args(options).arg("postgres");
        Running::start(&mut pgbench, self.user)?.succeed()
    }

    /// Waits until connections are accepted, which the server notes in a file beside its data.
    fn ready(&self, postgres: &mut Running) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE / 2;
        let status = self.directory.join("data/postmaster.pid");
        while Instant::now() < deadline {
            if !postgres.lives() {
                return Err(postgres.complaint("ended at once"));
            }
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            if text.lines().nth(7).is_some_and(|line| line.trim() == "ready") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(postgres.complaint("did not become ready"))
    }

    /// Requests an immediate shutdown. A server that does not obey is killed on drop.
    fn stop(&self, mut postgres: Running) {
        postgres.signal(Signal::QUIT);
        let deadline = Instant::now() + Duration::from_secs(3);
        while postgres.lives() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
