//! Real servers on free loopback ports, in temporary folders.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;

/// A server that runs until this is dropped.
pub struct Server {
    pub port: u16,
    pub folder: TempDir,
    child: Child,
}

/// Returns whether this process itself listens on the port. Another process's server may have the port, and would answer as well.
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

impl Server {
    /// Starts a program with a port and a folder. Returns `None`, with a note on stderr, if it is not installed.
    pub fn start(program: &str, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Option<Self> {
        // Another process may take the port before the program does. The program then ends, and another port is tried.
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
            if is_listening(self.child.id(), self.port)
                && TcpStream::connect(("127.0.0.1", self.port)).is_ok()
            {
                return true;
            }
            if self.child.try_wait().expect("a child of ours").is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// Sends one plain request to an etcd, and returns the body of the reply.
    pub fn post(&self, path: &str, body: &str) -> String {
        self.send(path, "", body)
    }

    /// Like [`post`](Self::post), with a user's token.
    pub fn post_as(&self, token: &str, path: &str, body: &str) -> String {
        self.send(path, &format!("Authorization: {token}\r\n"), body)
    }

    fn send(&self, path: &str, headers: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).expect("a server");
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.0\r\n{headers}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        socket.write_all((head + body).as_bytes()).expect("a request");
        let mut reply = String::new();
        socket.read_to_string(&mut reply).expect("a reply");
        assert!(reply.lines().next().is_some_and(|line| line.contains("200")), "{path}: {reply}");
        reply.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
    }

    /// Creates the users `root` and `node` in an etcd. `node` has the password `secret` and may read and write below `test/v1/`.
    pub fn enable_users(&self) {
        for (path, body) in [
            ("/v3/auth/user/add", r#"{"name":"root","password":"root"}"#),
            ("/v3/auth/role/add", r#"{"name":"root"}"#),
            ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
            ("/v3/auth/user/add", r#"{"name":"node","password":"secret"}"#),
            ("/v3/auth/role/add", r#"{"name":"fleet"}"#),
            // From test/v1/ to test/v10: all keys that begin with test/v1/.
            (
                "/v3/auth/role/grant",
                r#"{"name":"fleet","perm":{"permType":"READWRITE","key":"dGVzdC92MS8=","range_end":"dGVzdC92MTA="}}"#,
            ),
            ("/v3/auth/user/grant", r#"{"user":"node","role":"fleet"}"#),
            ("/v3/auth/enable", "{}"),
        ] {
            self.post(path, body);
        }
    }

    /// Sends it a signal, to stop it in mid-operation or to continue it.
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

/// Returns a port that was free a moment ago, and that no other test of this process gets.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        if GIVEN.lock().expect("nothing panics while it is held").insert(port) {
            return port;
        }
    }
}

/// Starts a redis without persistence.
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

/// Starts an etcd of one member.
pub fn etcd(more: &[&str]) -> Option<Server> {
    etcd_at("http", more)
}

/// Starts an etcd of one member that clients reach by `http` or `https`.
pub fn etcd_at(scheme: &str, more: &[&str]) -> Option<Server> {
    // No other process uses its peers' port, so any free one will do.
    etcd_member(scheme, "default", || vec![("default".to_owned(), free_port())], more)
}

/// Starts three members of one etcd.
pub fn etcds() -> Option<Vec<Server>> {
    let peers: Vec<(String, u16)> =
        ["one", "two", "three"].map(|name| (name.to_owned(), free_port())).to_vec();
    peers.iter().map(|(name, _)| etcd_member("http", name, || peers.clone(), &[])).collect()
}

fn etcd_member(
    scheme: &str,
    name: &str,
    peers: impl Fn() -> Vec<(String, u16)>,
    more: &[&str],
) -> Option<Server> {
    Server::start("etcd", |port, folder| {
        let client = format!("{scheme}://127.0.0.1:{port}");
        let peers: Vec<(String, String)> = peers()
            .into_iter()
            .map(|(name, port)| (name, format!("http://127.0.0.1:{port}")))
            .collect();
        let (_, own) = peers.iter().find(|(other, _)| other == name).expect("one of them");
        let cluster: Vec<String> =
            peers.iter().map(|(name, url)| format!("{name}={url}")).collect();
        let (folder, cluster) = (folder.display().to_string(), cluster.join(","));
        let mut words = vec!["--name", name, "--data-dir", &folder, "--initial-cluster", &cluster];
        words.extend(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        words.extend(["--listen-peer-urls", own, "--initial-advertise-peer-urls", own]);
        words.extend(more);
        words.into_iter().map(str::to_owned).collect()
    })
}
