//! Real servers on free loopback ports, in temporary folders.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// A server that runs until this is dropped.
pub struct Server {
    pub port: u16,
    pub folder: TempDir,
    child: Child,
}

impl Server {
    /// Starts a program, which gets its port and its folder; `None`, said on stderr, if it is not installed.
    pub fn start(program: &str, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Option<Self> {
        // Somebody else may take the port before the program does; then the program ends, and another port is tried.
        for _ in 0..10 {
            let folder = TempDir::new().expect("a temporary folder");
            let port = free_port();
            let mut command = Command::new(program);
            command.args(arguments(port, folder.path())).current_dir(folder.path());
            let child = match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
                Ok(child) => child,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    eprintln!("{program} is not installed: nothing was tested");
                    return None;
                }
                Err(error) => panic!("{program}: {error}"),
            };
            let mut server = Self { port, folder, child };
            if server.listens() {
                return Some(server);
            }
        }
        panic!("{program} does not start")
    }

    fn listens(&mut self) -> bool {
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            if self.child.try_wait().expect("a child of ours").is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// Stops it in the middle of what it does, or lets it go on.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// A redis without persistence.
pub fn redis(more: &[&str]) -> Option<Server> {
    Server::start("redis-server", |port, folder| {
        let folder = folder.display().to_string();
        let port = port.to_string();
        let mut words = vec![
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            &folder,
        ];
        words.extend(more);
        words.into_iter().map(str::to_owned).collect()
    })
}

/// An etcd of one member.
pub fn etcd(more: &[&str]) -> Option<Server> {
    etcd_at("http", more)
}

/// An etcd of one member that clients reach by `http` or `https`.
pub fn etcd_at(scheme: &str, more: &[&str]) -> Option<Server> {
    Server::start("etcd", |port, folder| {
        let client = format!("{scheme}://127.0.0.1:{port}");
        // Nobody else speaks to its peers' port: any that is free.
        let peer = format!("http://127.0.0.1:{}", free_port());
        let folder = folder.display().to_string();
        let cluster = format!("default={peer}");
        let mut words = vec![
            "--data-dir",
            &folder,
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ];
        words.extend([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
            "--initial-cluster",
            &cluster,
        ]);
        words.extend(more);
        words.into_iter().map(str::to_owned).collect()
    })
}
