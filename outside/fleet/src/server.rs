//! Real servers on free ports of the loopback, in folders of their own.

use std::error::Error;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// A server that runs until this is dropped.
pub struct Server {
    pub address: String,
    child: Child,
    _folder: TempDir,
}

/// Returns the processor time of a process, of all its threads, in seconds.
pub fn processor_time(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The fields after the name, which may have blanks. The 12th and 13th are ticks, a hundred a second on every
    // Linux.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

impl Server {
    /// Starts a redis without persistence. Returns `None`, with a line on stderr, if none is installed.
    pub fn redis() -> Result<Option<Self>, Box<dyn Error>> {
        Self::start("redis-server", "redis", |port, folder| {
            let words =
                ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir", folder];
            words.map(str::to_owned).to_vec()
        })
    }

    /// Starts an etcd of one member. Returns `None`, with a line on stderr, if none is installed.
    pub fn etcd() -> Result<Option<Self>, Box<dyn Error>> {
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        Self::start("etcd", "etcd", |port, folder| {
            let client = format!("http://127.0.0.1:{port}");
            let words = ["--data-dir", folder, "--initial-cluster", &format!("default={peer}")];
            let mut words = words.map(str::to_owned).to_vec();
            for (option, url) in [("client", &client), ("peer", &peer)] {
                words.extend([format!("--listen-{option}-urls"), url.clone()]);
            }
            words.extend(["--advertise-client-urls".to_owned(), client]);
            words.extend(["--initial-advertise-peer-urls".to_owned(), peer.clone()]);
            words
        })
    }

    fn start(
        program: &str,
        scheme: &str,
        words: impl Fn(u16, &str) -> Vec<String>,
    ) -> Result<Option<Self>, Box<dyn Error>> {
        // Another process may take the port before the server does. Then the server ends, and another port is tried.
        for _ in 0..10 {
            let folder = TempDir::new()?;
            let port = free_port()?;
            let mut command = Command::new(program);
            command.args(words(port, path_of(folder.path())?)).current_dir(folder.path());
            let child = match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    eprintln!("{program} is not installed: what needs it is left out");
                    return Ok(None);
                }
                child => child?,
            };
            let address = format!("{scheme}://127.0.0.1:{port}");
            let mut server = Self { address, child, _folder: folder };
            if server.listens(port)? {
                return Ok(Some(server));
            }
        }
        Err(format!("{program} does not start").into())
    }

    fn listens(&mut self, port: u16) -> Result<bool, Box<dyn Error>> {
        while self.child.try_wait()?.is_none() {
            if is_listening(self.child.id(), port)
                && TcpStream::connect(("127.0.0.1", port)).is_ok()
            {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(false)
    }

    /// Returns the process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn path_of(folder: &Path) -> Result<&str, Box<dyn Error>> {
    folder.to_str().ok_or_else(|| "a folder's name is no text".into())
}

/// Returns whether this process itself listens there: a server of another process may have the port, and would
/// answer.
fn is_listening(process: u32, port: u16) -> bool {
    let port = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let sockets: Vec<String> = table
        .lines()
        .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, local, _, "0A", _, _, _, _, _, inode, ..] if local.ends_with(&port) => {
                Some(format!("socket:[{inode}]"))
            }
            _ => None,
        })
        .collect();
    let Ok(open) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let mut open = open.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    open.any(|file| sockets.iter().any(|socket| file.as_os_str() == socket.as_str()))
}

/// Returns a port that was free a moment ago.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
