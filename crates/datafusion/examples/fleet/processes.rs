//! The processes: a redis, and nodes. Nodes receive commands and send messages, each on a line.

use super::Outcome;
use ledgerline::View;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A redis without persistence, on a socket in a folder.
pub struct Redis {
    child: Child,
    pub address: String,
}

impl Redis {
    /// Starts a redis; `None` if there is none on this machine.
    pub fn start(folder: &Path) -> Outcome<Option<Redis>> {
        let socket = folder.join("redis.sock");
        let mut command = Command::new("redis-server");
        command
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket);
        command.arg("--dir").arg(folder).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = match command.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            child => child?,
        };
        let address = format!("redis+unix://{}", socket.display());
        let mut redis = Redis { child, address };
        let log = redis.child.stdout.take().ok_or("it has a log")?;
        let mut lines = BufReader::new(log).lines();
        let ready = "ready to accept connections";
        if !lines.by_ref().map_while(Result::ok).any(|line| line.contains(ready)) {
            return Err("redis-server does not start".into());
        }
        // It continues to write.
        thread::spawn(move || lines.for_each(drop));
        Ok(Some(redis))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A message of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It has its tables, and knows the results of the queries. `large` is the peak of the large one.
    Ready { large: u64 },
    /// A query returned the correct result, with this peak.
    Right { query: String, peak: u64 },
    /// A query was refused memory.
    Refused { why: String },
    /// A query made no progress for a minute, and was cancelled: DataFusion's partitions may wait for each other for
    /// ever when they spill (apache/datafusion issue 24883).
    Waited { query: String },
    /// The node ended.
    Ended,
}

impl Said {
    /// Writes it as a line.
    pub fn say(&self) {
        match self {
            Said::Ready { large } => println!("ready\t{large}"),
            Said::Right { query, peak } => println!("right\t{query}\t{peak}"),
            Said::Refused { why } => println!("refused\t{}", why.replace('\n', " | ")),
            Said::Waited { query } => println!("waited\t{query}"),
            Said::Ended => {}
        }
    }

    fn read(line: &str) -> Option<Said> {
        Some(match line.split('\t').collect::<Vec<_>>()[..] {
            ["ready", large] => Said::Ready { large: large.parse().ok()? },
            ["right", query, peak] => {
                Said::Right { query: query.to_owned(), peak: peak.parse().ok()? }
            }
            ["refused", why] => Said::Refused { why: why.to_owned() },
            ["waited", query] => Said::Waited { query: query.to_owned() },
            _ => return None,
        })
    }
}

/// No node sent a message during the wait.
#[derive(Debug)]
pub struct Silent;

impl std::fmt::Display for Silent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no node says anything")
    }
}

impl std::error::Error for Silent {}

/// A running node.
struct Node {
    name: &'static str,
    child: Child,
    pid: Pid,
    words: Option<ChildStdin>,
    ledger: PathBuf,
}

impl Drop for Node {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // It may have ended before.
    let _gone = child.kill();
    let _status = child.wait();
}

/// The nodes, and their messages.
pub struct Nodes {
    running: Vec<Node>,
    said: Receiver<(&'static str, Said)>,
    sender: Sender<(&'static str, Said)>,
}

impl Default for Nodes {
    fn default() -> Nodes {
        let (sender, said) = channel();
        Nodes { running: Vec::new(), said, sender }
    }
}

impl Nodes {
    pub fn start(
        &mut self,
        name: &'static str,
        store: &str,
        folder: &Path,
        scale: &str,
    ) -> Outcome<()> {
        let ledger = folder.join(name);
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", store, name]).arg(&ledger).arg(scale);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (words, lines) = (child.stdin.take(), child.stdout.take().ok_or("it says something")?);
        let pid = Pid::from_child(&child);
        self.running.push(Node { name, child, pid, words, ledger });
        let sender = self.sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                match Said::read(&line) {
                    // The receiver is gone if the example has failed.
                    Some(said) => drop(sender.send((name, said))),
                    None => println!("{name}: {line}"),
                }
            }
            drop(sender.send((name, Said::Ended)));
        });
        Ok(())
    }

    /// Returns the next message of any node, with the node's name.
    pub fn hear(&mut self, patience: Duration) -> Result<(&'static str, Said), Silent> {
        self.said.recv_timeout(patience).map_err(|_| Silent)
    }

    /// Sends a command to a node.
    pub fn tell(&mut self, name: &str, work: &str) -> Outcome<()> {
        let node = self.running.iter_mut().find(|node| node.name == name).ok_or("no such node")?;
        writeln!(node.words.as_mut().ok_or("it is told nothing any more")?, "{work}")?;
        Ok(())
    }

    /// Returns the holding of each node's ledger in a budget, at one instant: meanwhile all are stopped.
    pub fn held(&mut self, budget: &str) -> Outcome<Vec<(&'static str, u64)>> {
        for node in &self.running {
            kill_process(node.pid, Signal::STOP)?;
        }
        for node in &self.running {
            let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(node.pid), stopped)?;
        }
        let held = self.running.iter().map(|node| {
            let groups = View::open(File::open(&node.ledger)?)?.snapshot()?.groups;
            let units =
                groups.iter().find(|group| group.path == budget).map_or(0, |group| group.current);
            Ok((node.name, units))
        });
        let held = held.collect();
        for node in &self.running {
            kill_process(node.pid, Signal::CONT)?;
        }
        held
    }

    /// Kills a node without warning. Its messages are dropped.
    pub fn kill(&mut self, name: &str) -> Outcome<()> {
        let at = self.running.iter().position(|node| node.name == name).ok_or("no such node")?;
        drop(self.running.remove(at));
        // Its last message is that it ended.
        let mut others = Vec::new();
        loop {
            match self.hear(super::LONG)? {
                (who, Said::Ended) if who == name => break,
                (who, _) if who == name => {}
                other => others.push(other),
            }
        }
        others.into_iter().for_each(|said| drop(self.sender.send(said)));
        Ok(())
    }

    /// Makes all nodes leave, and checks that they end well and that their ledgers hold nothing.
    pub fn leave(&mut self, patience: Duration) -> Outcome<()> {
        self.running.iter_mut().for_each(|node| node.words = None);
        let end = Instant::now() + patience;
        let mut left = 0;
        while left < self.running.len() {
            let rest = end.saturating_duration_since(Instant::now());
            left += usize::from(self.hear(rest)?.1 == Said::Ended);
        }
        for mut node in self.running.drain(..) {
            let status = node.child.wait()?;
            assert!(status.success(), "{} ended with {status}", node.name);
            let groups = View::open(File::open(&node.ledger)?)?.snapshot()?.groups;
            assert!(groups.iter().all(|group| group.current == 0), "{}: {groups:?}", node.name);
        }
        Ok(())
    }
}
