//! A server of a ledger in a file, asked by plain HTTP over TCP.

use ledgerline::Ledger;
use ledgerline_view::serve::{Server, Settings, Stop};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::NamedTempFile;

/// Longer than any step here; a hanging test fails then.
pub const LONG: Duration = Duration::from_secs(60);

/// A running server of a ledger that this process has.
pub struct Served {
    pub ledger: &'static Ledger,
    pub address: SocketAddr,
    stop: Stop,
    running: Option<JoinHandle<Result<(), String>>>,
    _file: NamedTempFile,
}

/// Serves a new ledger with these settings; the ledgers are filled in.
pub fn served(change: impl FnOnce(&mut Settings)) -> Served {
    let file = NamedTempFile::new().expect("a file");
    let ledger = Ledger::builder().capacity(20_000).items(&["rows_read"]).create_in(file.as_file());
    // The test uses its groups until the process ends.
    let ledger: &'static Ledger = Box::leak(Box::new(ledger.expect("a ledger")));
    let named = Some(vec![file.path().display().to_string()]);
    let mut settings = Settings { named, ..Settings::default() };
    settings.interval = Duration::from_millis(100);
    change(&mut settings);
    let server = Server::bind(settings).expect("a server");
    let (address, stop) = (server.address(), server.stop());
    let running = Some(std::thread::spawn(move || server.run()));
    Served { ledger, address, stop, running, _file: file }
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| &**value)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Served {
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        stream
    }

    /// Sends these bytes, and reads one response.
    pub fn send(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("it reads");
        let head = request.starts_with("HEAD");
        answer(&mut BufReader::new(stream), !head)
    }

    /// Requests a path, with further headers, each of which ends its line.
    pub fn ask(&self, path: &str, headers: &str) -> Answer {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}Connection: close\r\n\r\n",
            self.address
        ))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask(path, "")
    }

    /// Reads events from now on: their kinds and documents.
    pub fn events(&self) -> Events {
        self.events_by("")
    }

    /// Reads events in the order that the query asks for.
    pub fn events_by(&self, query: &str) -> Events {
        let mut stream = self.connect();
        let request =
            format!("GET /api/ledgers/1/events{query} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut reader = BufReader::new(stream);
        let head = answer(&mut reader, false);
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        Events { chunks: reader, text: String::new() }
    }

    /// Ends the server and returns its result.
    pub fn end(mut self) -> Result<(), String> {
        self.stop.now();
        self.running.take().expect("ended once").join().expect("no panic")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.now();
    }
}

/// Reads one response; its body only if there is one.
pub fn answer(from: &mut impl BufRead, body: bool) -> Answer {
    let mut line = String::new();
    from.read_line(&mut line).expect("an answer");
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status in {line:?}"));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut answer = Answer { status, headers, body: String::new() };
    if !body {
        return answer;
    }
    if let Some(length) = answer.header("content-length") {
        let mut bytes = vec![0; length.parse().expect("a length")];
        from.read_exact(&mut bytes).expect("as much as it says");
        answer.body = String::from_utf8(bytes).expect("text");
    } else {
        while let Some(chunk) = chunk(from) {
            answer.body += &chunk;
        }
    }
    answer
}

/// Reads a chunk of a chunked body; `None` for the last.
fn chunk(from: &mut impl BufRead) -> Option<String> {
    let mut size = String::new();
    from.read_line(&mut size).ok()?;
    let size = usize::from_str_radix(size.trim(), 16).ok()?;
    let mut bytes = vec![0; size + 2];
    from.read_exact(&mut bytes).ok()?;
    bytes.truncate(size);
    (size > 0).then(|| String::from_utf8(bytes).expect("text"))
}

/// A stream of events.
pub struct Events {
    chunks: BufReader<TcpStream>,
    text: String,
}

impl Iterator for Events {
    type Item = (String, serde_json::Value);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.text.contains("\n\n") {
            self.text += &chunk(&mut self.chunks)?;
        }
        let (event, rest) = self
            .text
            .split_once("\n\n")
            .map(|(event, rest)| (event.to_owned(), rest.to_owned()))?;
        self.text = rest;
        let field =
            |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let document = field("data: ").expect("data");
        Some((field("event: ").expect("a kind"), serde_json::from_str(&document).expect("JSON")))
    }
}
